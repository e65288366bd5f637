package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// trace is what the transports beneath report of one exchange. Its hooks fire
// from other goroutines and some of them after the handler has returned: its
// state is atomic or locked, and it is never reused.
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

	// silent counts those among them that no transport had asked for, which
	// means that they belong to one that reports nothing else (FastCGI): what
	// it does with them is unknown.
	silent atomic.Int32

	// unsure: a connection was had whose hooks prove nothing about bytes.
	unsure atomic.Bool

	body     bodyReader
	buffered atomic.Bool // the body was read while no connection was there to carry it
	carried  atomic.Bool // a connection carries the body, or has carried it
	stopped  atomic.Bool // a second delivery was stopped

	// asked counts the connections asked for since the last dial or success:
	// two mark a shared HTTP/2 connection without TLS.
	asked atomic.Int32

	waiting   atomic.Bool // a connection was asked for and not had yet
	resolving atomic.Int32
	targets   targets

	hooks         *httptrace.ClientTrace
	headersBefore atomic.Int32 // wroteHeaders when the body was buffered
	fields        atomic.Bool  // header fields are reported as they are written
	cancel        context.CancelCauseFunc

	late    func() bool  // reports that nothing may be sent any more; nil if that is never so
	refused atomic.Bool  // a connection came too late
	unused  atomic.Int32 // such connections that were closed before a byte was written
}

// errRepeat stops a second delivery. It wraps context.Canceled, upon which
// reverse_proxy gives up at once instead of trying again.
var errRepeat = fmt.Errorf("a tool call is sent at most once: %w", context.Canceled)

// errLate stops a call whose reservation may soon be settled. It wraps
// context.Canceled for the same reason.
var errLate = fmt.Errorf("the connection came too late for the reservation of the call: %w", context.Canceled)

// start returns the context that carries the trace's hooks.
func (t *trace) start(ctx context.Context) context.Context {
	t.body.trace = t
	ctx, t.cancel = context.WithCancelCause(ctx)
	t.hooks = &httptrace.ClientTrace{
		GetConn:              t.asks,
		GotConn:              t.connected,
		WroteHeaders:         func() { t.wroteHeaders.Add(1) },
		WroteRequest:         func(httptrace.WroteRequestInfo) { t.wroteRequest.Add(1) },
		GotFirstResponseByte: func() { t.firstByte.Add(1) },
		DNSStart:             t.resolves,
		DNSDone:              t.resolved,
		ConnectStart:         t.dialling,
		ConnectDone:          t.dialled,
		TLSHandshakeDone:     t.shook,
	}
	return httptrace.WithClientTrace(ctx, t.hooks)
}

// bodyRead notes which connection, if any, the body goes to. A connection
// whose request is written has no use for it: that was a request of an inner
// handler.
//
// A body that is read before there is a connection goes into somebody's buffer,
// and from there anywhere. Only then the written header fields are asked for,
// which tell a request with a body from one without: to report them costs an
// allocation for each. No transport has begun to write at this moment.
func (t *trace) bodyRead() {
	if t.carried.Load() || t.buffered.Load() {
		return
	}
	if t.gotConn.Load() > t.wroteRequest.Load() || t.silent.Load() > 0 {
		t.carried.Store(true)
		return
	}
	t.hooks.WroteHeaderField = t.wroteField
	t.headersBefore.Store(t.wroteHeaders.Load())
	t.buffered.Store(true)
}

// wroteField notes that a request with a body is written.
func (t *trace) wroteField(name string, values []string) {
	t.fields.Store(true)
	switch {
	case strings.EqualFold(name, "Transfer-Encoding"),
		strings.EqualFold(name, "Content-Length") && !slices.Equal(values, []string{"0"}):
		t.carried.Store(true)
	}
}

// asks notes that a transport wants a connection to a host and port.
func (t *trace) asks(hostPort string) {
	t.getConn.Add(1)
	t.asked.Add(1)
	t.waiting.Store(true)
	t.targets.ask(hostPort)
}

// connected is the guard that a call is sent at most once. A second connection
// after one that carries the body means that something beneath repeats the
// request. Cancelling keeps an HTTP/2 transport from writing; HTTP/1 writes in
// another goroutine, so there the connection is closed as well.
func (t *trace) connected(info httptrace.GotConnInfo) {
	t.gotConn.Add(1)
	t.waiting.Store(false)
	t.targets.got(info.Conn.RemoteAddr())
	asked := t.asked.Swap(0)
	if !provesWrites(info.Conn, asked) {
		t.unsure.Store(true)
	}
	if t.late != nil && t.late() {
		t.refuse(info.Conn, asked)
		return
	}
	if !t.hasCarried() {
		return
	}
	t.stop()
	if !isShared(info.Conn, asked) {
		_ = info.Conn.Close()
	}
}

// refuse keeps the call from being written to a connection that came too late.
// One that is closed here takes no byte any more. One that is shared cannot be
// closed, and whether the request is still written to it is unknown.
func (t *trace) refuse(conn net.Conn, asked int32) {
	t.refused.Store(true)
	t.cancel(errLate)
	if isShared(conn, asked) {
		t.unsure.Store(true)
		return
	}
	_ = conn.Close()
	t.unused.Add(1)
}

// hasCarried reports whether a connection has had the body, or may have: of a
// buffered one that shows in the header fields, unless the transport wrote some
// and did not report them.
func (t *trace) hasCarried() bool {
	return t.carried.Load() || t.buffered.Load() && !t.fields.Load() && t.wroteHeaders.Load() > t.headersBefore.Load()
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

func (t *trace) resolves(httptrace.DNSStartInfo) {
	t.asked.Store(0)
	t.resolving.Add(1)
}

func (t *trace) resolved(info httptrace.DNSDoneInfo) {
	t.resolving.Add(-1)
	t.targets.resolved(info.Addrs)
}

// dialling is the guard for transports that never ask the trace for a
// connection: a dial after one that had the body repeats the request, and one
// that is late would be written to.
func (t *trace) dialling(network, addr string) {
	t.asked.Store(0)
	switch {
	case !t.isSilent(network, addr):
	case t.late != nil && t.late():
		// What such a transport writes to the connection, once it is there,
		// nobody can keep it from.
		t.refused.Store(true)
		t.cancel(errLate)
	case t.carried.Load() && t.silent.Load() > 0:
		t.stop()
	}
}

// dialled notes a dial that ended.
func (t *trace) dialled(network, addr string, err error) {
	if err != nil || t.isNameServer(network, addr) {
		return
	}
	t.dials.Add(1)
	if t.isSilent(network, addr) {
		if t.buffered.Load() {
			t.carried.Store(true)
		}
		t.silent.Add(1)
	}
}

// isSilent reports whether a dial is of a transport that never asked for a
// connection. One that asked may dial late: when another request has freed a
// connection for it in the meantime.
func (t *trace) isSilent(network, addr string) bool {
	return !t.isNameServer(network, addr) && !t.waiting.Load() && !t.targets.has(addr)
}

// isNameServer reports whether a dial is made to look a name up. Name servers
// get no request.
func (t *trace) isNameServer(network, addr string) bool {
	return isUDP(network) || t.resolving.Load() > 0 && strings.HasSuffix(addr, ":53")
}

// shook takes back the dial whose TLS handshake failed: no request goes over it.
func (t *trace) shook(_ tls.ConnectionState, err error) {
	if err != nil {
		t.dials.Add(-1)
	}
}

func isUDP(network string) bool { return strings.HasPrefix(network, "udp") }

// targets are the addresses that transports have asked for connections to.
type targets struct {
	mu    sync.Mutex
	asked []string   // host:port as it was asked for
	conns []net.Addr // that were had; for a socket its path
	addrs []string   // of the hosts that were asked for

	// The usual one of each, here so that it costs no allocation.
	oneAsked [1]string
	oneConn  [1]net.Addr
}

func (t *targets) ask(hostPort string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asked == nil {
		t.asked = t.oneAsked[:0]
	}
	if !slices.Contains(t.asked, hostPort) {
		t.asked = append(t.asked, hostPort)
	}
}

func (t *targets) got(conn net.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns == nil {
		t.conns = t.oneConn[:0]
	}
	t.conns = append(t.conns, conn)
}

func (t *targets) resolved(addrs []net.IPAddr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, addr := range addrs {
		t.addrs = append(t.addrs, addr.String())
	}
}

// has reports whether addr is what was asked for, or its port is and its host
// is an address that a name was looked up for.
func (t *targets) has(addr string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Contains(t.asked, addr) || slices.ContainsFunc(t.conns, func(conn net.Addr) bool { return conn.String() == addr }) {
		return true
	}
	host, port, err := net.SplitHostPort(addr)
	return err == nil && slices.Contains(t.addrs, host) &&
		slices.ContainsFunc(t.asked, func(target string) bool { return strings.HasSuffix(target, ":"+port) })
}
