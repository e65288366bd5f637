// Package brokenup is a kit of broken upstreams: origin servers on real
// sockets that do to a proxy what a script says (refuse, stall, reset, cut,
// answer too early or not at all) and remember every byte they were sent.
//
// The bytes are the point. What a proxy reports about an exchange can only be
// judged against what really arrived, so each Upstream knows whether any byte
// of a request reached it, whether a whole body did, and how often.
//
// Scripts are ordinary functions over a Conn and meet tests on channels; the
// kit never sleeps. It needs the sockets of a Unix system.
package brokenup

import (
	"bytes"
	"crypto/tls"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// patience bounds every wait of the kit. It is no part of any scenario: a test
// that meets it has failed.
const patience = 20 * time.Second

// A Script is what an upstream does with one connection, from the moment it
// was accepted. When it returns the connection is closed.
type Script func(*Conn)

// Upstream is a listening origin server that runs its script on every
// connection and logs what it receives.
type Upstream struct {
	t      testing.TB
	script Script
	tls    *tls.Config // nil for plaintext
	ln     net.Listener
	addr   string
	wg     sync.WaitGroup

	mu       sync.Mutex
	changed  *sync.Cond // on mu: something was received, or the upstream closed
	conns    []*Conn
	requests []*Request
	closed   bool
}

// TCP starts an upstream on a loopback port.
func TCP(t testing.TB, s Script) *Upstream {
	t.Helper()
	return serve(t, "tcp", "127.0.0.1:0", nil, s)
}

// TLS starts an upstream on a loopback port behind TLS. With no protocols it
// speaks HTTP/1.1, with "h2" HTTP/2. Its certificate names localhost and is
// signed by nobody: a proxy either skips verification or refuses it.
func TLS(t testing.TB, s Script, protocols ...string) *Upstream {
	t.Helper()
	return serve(t, "tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{certificate(t)},
		NextProtos:   protocols,
	}, s)
}

// Unix starts an upstream on a socket in the file system.
func Unix(t testing.TB, s Script) *Upstream {
	t.Helper()
	return serve(t, "unix", filepath.Join(socketDir(t), "up.sock"), nil, s)
}

func serve(t testing.TB, network, address string, cfg *tls.Config, s Script) *Upstream {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatalf("listening: %v", err)
	}
	return start(t, ln, cfg, s)
}

func start(t testing.TB, ln net.Listener, cfg *tls.Config, s Script) *Upstream {
	t.Helper()
	u := &Upstream{t: t, script: s, tls: cfg, ln: ln, addr: ln.Addr().String()}
	if ln.Addr().Network() == "unix" {
		u.addr = "unix/" + u.addr
	}
	u.changed = sync.NewCond(&u.mu)
	u.wg.Go(u.accept)
	t.Cleanup(u.Close)
	return u
}

// Addr is the address in the form that reverse_proxy dials.
func (u *Upstream) Addr() string { return u.addr }

// Close ends the listener and all connections and waits for their scripts. It
// may be called more than once.
func (u *Upstream) Close() {
	u.mu.Lock()
	u.closed = true
	conns := u.conns
	u.changed.Broadcast()
	u.mu.Unlock()

	u.ln.Close()
	for _, c := range conns {
		c.raw.Close()
	}
	u.wg.Wait()
}

func (u *Upstream) accept() {
	for {
		raw, err := u.ln.Accept()
		if err != nil {
			return
		}
		u.mu.Lock()
		if u.closed {
			u.mu.Unlock()
			raw.Close()
			return
		}
		c := newConn(u, raw, len(u.conns))
		u.conns = append(u.conns, c)
		u.changed.Broadcast()
		u.mu.Unlock()
		u.wg.Go(c.run)
	}
}

// Connections is the number of connections accepted so far.
func (u *Upstream) Connections() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.conns)
}

// Received is every request byte that arrived, connection by connection. On
// HTTP/2 these are the payloads of HEADERS, CONTINUATION and DATA frames: a
// connection preface is no part of a request. Neither is a TLS handshake that
// a plaintext upstream was offered.
func (u *Upstream) Received() []byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []byte
	for _, c := range u.conns {
		all = append(all, requestBytes(c.received)...)
	}
	return all
}

// requestBytes takes out of what was logged what belongs to a request, for
// scripts that do not speak the protocol they are spoken to in.
func requestBytes(received []byte) []byte {
	if len(received) > 2 && received[0] == 0x16 && received[1] == 0x03 {
		return nil // a TLS handshake
	}
	frames, isHTTP2 := bytes.CutPrefix(received, []byte(http2.ClientPreface))
	if !isHTTP2 {
		return received
	}
	const head = 9 // RFC 9113, section 4.1: a frame's length, type, flags and stream
	var request []byte
	for len(frames) >= head {
		size := head + (int(frames[0])<<16 | int(frames[1])<<8 | int(frames[2]))
		size = min(size, len(frames))
		switch http2.FrameType(frames[3]) {
		case http2.FrameHeaders, http2.FrameContinuation, http2.FrameData:
			request = append(request, frames[head:size]...)
		}
		frames = frames[size:]
	}
	return request
}

// Count is how often text stands in what was received.
func (u *Upstream) Count(text string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for _, c := range u.conns {
		n += bytes.Count(c.received, []byte(text))
	}
	return n
}

// Requests are the requests that arrived whole, in the order of their ends.
func (u *Upstream) Requests() []*Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]*Request(nil), u.requests...)
}

// AwaitRequest waits for the nth request (counting from 1) to have arrived
// whole.
func (u *Upstream) AwaitRequest(n int) *Request {
	u.t.Helper()
	u.await(func() bool { return len(u.requests) >= n }, "a whole request")
	return u.Requests()[n-1]
}

// AwaitConnection waits until n connections were accepted.
func (u *Upstream) AwaitConnection(n int) {
	u.t.Helper()
	u.await(func() bool { return len(u.conns) >= n }, "a connection")
}

// AwaitEnd waits until the script of the nth connection (counting from 1) has
// returned.
func (u *Upstream) AwaitEnd(n int) {
	u.t.Helper()
	u.await(func() bool { return len(u.conns) >= n && u.conns[n-1].ended }, "the end of a connection")
}

// await waits until ok, which runs under mu, holds.
func (u *Upstream) await(ok func() bool, what string) {
	u.t.Helper()
	var late bool
	alarm := time.AfterFunc(patience, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		late = true
		u.changed.Broadcast()
	})
	defer alarm.Stop()
	u.mu.Lock()
	defer u.mu.Unlock()
	for !ok() {
		if late || u.closed {
			u.t.Fatalf("waiting for %s: none came", what)
		}
		u.changed.Wait()
	}
}

func (u *Upstream) arrived(r *Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests = append(u.requests, r)
	u.changed.Broadcast()
}
