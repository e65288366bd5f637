package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// trace is what the transports beneath report of one exchange. Its hooks fire
// from other goroutines and some of them after the handler has returned: its
// state is atomic, and it is never reused.
//
// An inner handler that makes a request of its own (forward_auth) shares it.
// For the proof that nothing was sent its hooks count, which is the safe
// direction; the guard against a second delivery looks only at connections
// that can carry our body.
type trace struct {
	getConn      atomic.Int32
	gotConn      atomic.Int32
	wroteHeaders atomic.Int32
	wroteRequest atomic.Int32
	firstByte    atomic.Int32

	// dials counts connections that were made, whoever asked for them: without
	// one nothing can have been sent by a transport that dials.
	dials atomic.Int32

	// unsure: a connection was had whose hooks prove nothing about bytes.
	unsure atomic.Bool

	body     bodyReader
	buffered atomic.Bool // the body was read while no connection was there to carry it
	carried  atomic.Bool // a connection carries the body, or has carried it
	stopped  atomic.Bool // a second delivery was stopped

	// asked counts the connections asked for since the last dial or success:
	// two mark a shared HTTP/2 connection without TLS.
	asked atomic.Int32

	waiting atomic.Bool // a connection was asked for and not had yet
	beside  atomic.Bool // one was dialled for nobody that waits, while another had the body

	cancel context.CancelCauseFunc
}

// errRepeat stops a second delivery. It wraps context.Canceled, upon which
// reverse_proxy gives up at once instead of trying again.
var errRepeat = fmt.Errorf("a tool call is sent at most once: %w", context.Canceled)

// start returns the context that carries the trace's hooks.
func (t *trace) start(ctx context.Context) context.Context {
	t.body.trace = t
	ctx, t.cancel = context.WithCancelCause(ctx)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) {
			t.getConn.Add(1)
			t.asked.Add(1)
			t.waiting.Store(true)
		},
		GotConn:              t.connected,
		WroteHeaders:         func() { t.wroteHeaders.Add(1) },
		WroteRequest:         func(httptrace.WroteRequestInfo) { t.wroteRequest.Add(1) },
		GotFirstResponseByte: func() { t.firstByte.Add(1) },
		DNSStart:             func(httptrace.DNSStartInfo) { t.asked.Store(0) },
		ConnectStart:         t.dialling,
		ConnectDone:          t.dialled,
		TLSHandshakeDone:     t.shook,
	})
}

// bodyRead notes which connection, if any, the body goes to. A connection
// whose request is written or answered has no use for it: that was a request
// of an inner handler.
func (t *trace) bodyRead() {
	if t.carried.Load() || t.buffered.Load() {
		return
	}
	if t.gotConn.Load() > max(t.wroteRequest.Load(), t.firstByte.Load()) {
		t.carried.Store(true)
	} else {
		t.buffered.Store(true)
	}
}

// connected is the guard that a call is sent at most once. A second connection
// after one that carries the body means that something beneath repeats the
// request. Cancelling keeps an HTTP/2 transport from writing; HTTP/1 writes in
// another goroutine, so there the connection is closed as well.
func (t *trace) connected(info httptrace.GotConnInfo) {
	t.gotConn.Add(1)
	t.waiting.Store(false)
	asked := t.asked.Swap(0)
	if !provesWrites(info.Conn, asked) {
		t.unsure.Store(true)
	}
	if !t.carried.Load() {
		if t.buffered.Load() {
			t.carried.Store(true)
		}
		return
	}
	t.stop()
	if !isShared(info.Conn, asked) {
		_ = info.Conn.Close()
	}
}

func (t *trace) stop() {
	t.stopped.Store(true)
	t.cancel(errRepeat)
}

// isShared reports whether other requests may be under way on conn: HTTP/2
// over TLS says so itself; without TLS it shows by asking twice for one
// connection (net/http's transport, then its HTTP/2 one). HTTP/3 hands out a
// stand-in for its connection, which must not be closed: it panics.
func isShared(conn net.Conn, asked int32) bool {
	if isUDP(conn.LocalAddr().Network()) {
		return true
	}
	if c, ok := conn.(*tls.Conn); ok {
		return c.ConnectionState().NegotiatedProtocol == "h2"
	}
	return asked > 1
}

// provesWrites reports whether the absence of write hooks on conn proves that
// nothing was written: it does for HTTP/1 and for HTTP/2 over TLS. HTTP/3 and
// transports that wrap their connections are left out.
func provesWrites(conn net.Conn, asked int32) bool {
	switch conn.(type) {
	case *tls.Conn:
		return true
	case *net.TCPConn, *net.UnixConn:
		return asked <= 1
	}
	return false
}

// dialling is the guard for transports that never ask the trace for a
// connection (FastCGI): a dial after one that had the body repeats the request.
// Beside a transport that asks it cannot be told for certain from a dial that
// comes too late; then it only takes away from what the answer proves.
func (t *trace) dialling(network, _ string) {
	t.asked.Store(0)
	if isUDP(network) {
		return
	}
	if t.getConn.Load() > 0 {
		if t.carried.Load() && !t.waiting.Load() {
			t.beside.Store(true)
		}
		return
	}
	if t.carried.Load() || t.buffered.Load() && t.gotConn.Load() > 0 {
		t.stop()
	}
}

// shook takes back the dial whose TLS handshake failed: no request goes over it.
func (t *trace) shook(_ tls.ConnectionState, err error) {
	if err != nil {
		t.dials.Add(-1)
	}
}

func isUDP(network string) bool { return strings.HasPrefix(network, "udp") }

// dialled notes a dial that ended. One that succeeded although no connection
// was asked for belongs to a transport that reports nothing else (FastCGI): it
// has a connection, and what it does with it is unknown. Name servers are
// asked over UDP, and get no request.
func (t *trace) dialled(network, _ string, err error) {
	if err != nil || isUDP(network) {
		return
	}
	t.dials.Add(1)
	if t.getConn.Load() == 0 {
		t.gotConn.Add(1)
		t.unsure.Store(true)
	}
}
