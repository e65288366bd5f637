package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptrace"
	"sync"
	"testing"
)

// traced drives a trace as transports do.
type traced struct {
	*trace
	ctx   context.Context
	hooks *httptrace.ClientTrace
}

func newTraced(t *testing.T) *traced {
	t.Helper()
	tr := new(trace)
	tr.body.body = []byte("body")
	ctx := tr.start(context.Background())
	t.Cleanup(func() { tr.cancel(nil) })
	return &traced{tr, ctx, httptrace.ContextClientTrace(ctx)}
}

func (tr *traced) get()  { tr.hooks.GetConn("") }
func (tr *traced) dial() { tr.hooks.ConnectStart("", "") }
func (tr *traced) wrote() {
	tr.hooks.WroteHeaders()
	tr.hooks.WroteRequest(httptrace.WroteRequestInfo{})
}
func (tr *traced) first() { tr.hooks.GotFirstResponseByte() }
func (tr *traced) read()  { _, _ = io.ReadAll(&tr.body) }

// got hands over a connection and reports whether it was closed.
func (tr *traced) got(t *testing.T) (closed bool) {
	t.Helper()
	conn := tcpConn(t)
	tr.hooks.GotConn(httptrace.GotConnInfo{Conn: conn})
	_, err := conn.Write(nil)
	return errors.Is(err, net.ErrClosed)
}

func tcpConn(t *testing.T) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); peer.Close() })
	return conn
}

func TestGuard(t *testing.T) {
	t.Run("one attempt passes", func(t *testing.T) {
		tr := newTraced(t)
		tr.get()
		tr.dial()
		tr.got(t)
		tr.read()
		tr.wrote()
		tr.first()
		mustPass(t, tr)
	})
	t.Run("a dial that failed before does not count", func(t *testing.T) {
		tr := newTraced(t)
		tr.get()
		tr.dial()
		tr.get()
		tr.dial()
		tr.got(t)
		tr.read()
		mustPass(t, tr)
	})
	t.Run("a connection that was had but carried nothing does not count", func(t *testing.T) {
		tr := newTraced(t)
		tr.get()
		tr.got(t)
		tr.get()
		tr.got(t)
		tr.read()
		mustPass(t, tr)
	})
	t.Run("a body that was buffered first is carried once", func(t *testing.T) {
		tr := newTraced(t)
		tr.read()
		tr.get()
		if tr.got(t) {
			t.Error("the first connection was closed")
		}
		tr.wrote()
		mustPass(t, tr)
		tr.get()
		if !tr.got(t) {
			t.Error("the second connection was left open")
		}
		mustStop(t, tr)
	})
	t.Run("an inner forward_auth is not an attempt", func(t *testing.T) {
		tr := newTraced(t)
		tr.get()
		tr.got(t)
		tr.wrote()
		tr.first()
		tr.get()
		tr.got(t)
		tr.read()
		mustPass(t, tr)
	})
	t.Run("an inner forward_auth ahead of a body that is buffered is not an attempt", func(t *testing.T) {
		tr := newTraced(t)
		tr.get()
		tr.got(t)
		tr.wrote()
		tr.first()
		tr.read()
		tr.get()
		tr.got(t)
		mustPass(t, tr)
	})
	t.Run("a second delivery is stopped", func(t *testing.T) {
		tr := newTraced(t)
		tr.get()
		tr.got(t)
		tr.read()
		tr.wrote()
		tr.get()
		if !tr.got(t) {
			t.Error("the second connection was left open")
		}
		mustStop(t, tr)
	})
	t.Run("a second delivery after a failed dial is stopped", func(t *testing.T) {
		tr := newTraced(t)
		tr.get()
		tr.got(t)
		tr.read()
		tr.get()
		tr.dial()
		tr.get()
		if !tr.got(t) {
			t.Error("the second connection was left open")
		}
		mustStop(t, tr)
	})
	t.Run("a shared HTTP/2 connection without TLS stays open", func(t *testing.T) {
		tr := newTraced(t)
		tr.get()
		tr.got(t)
		tr.read()
		tr.get() // net/http's transport
		tr.get() // its HTTP/2 one
		if tr.got(t) {
			t.Error("a connection that others share was closed")
		}
		mustStop(t, tr)
	})
}

func TestGuardOfSilentTransports(t *testing.T) {
	dial := func(tr *traced, network string, err error) {
		tr.hooks.ConnectStart(network, "")
		tr.hooks.ConnectDone(network, "", err)
	}
	t.Run("one delivery after a refused dial passes", func(t *testing.T) {
		tr := newTraced(t)
		tr.read()
		dial(tr, "tcp", errors.New("refused"))
		dial(tr, "tcp", nil)
		dial(tr, "udp", nil)
		mustPass(t, tr)
	})
	t.Run("a second dial of a buffered body is stopped", func(t *testing.T) {
		tr := newTraced(t)
		tr.read()
		dial(tr, "tcp", nil)
		dial(tr, "tcp", nil)
		mustStop(t, tr)
	})
	t.Run("a second dial of a body that was read over the first is stopped", func(t *testing.T) {
		tr := newTraced(t)
		dial(tr, "tcp", nil)
		tr.read()
		dial(tr, "tcp", nil)
		mustStop(t, tr)
	})
}

// A name that does not resolve ends an attempt too: what was asked for it says
// nothing of the next connection.
func TestGuardAfterFailedName(t *testing.T) {
	tr := newTraced(t)
	tr.get()
	tr.got(t)
	tr.read()
	tr.get()
	tr.hooks.DNSStart(httptrace.DNSStartInfo{})
	tr.get()
	if !tr.got(t) {
		t.Error("the second connection was taken for a shared one and left open")
	}
	mustStop(t, tr)
}

// HTTP/3 hands out a stand-in whose Close panics.
func TestGuardLeavesHTTP3Open(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if !isShared(conn, 1) {
		t.Error("a UDP connection would be closed")
	}
}

func TestFailedHandshakeIsNoConnection(t *testing.T) {
	tr := newTraced(t)
	tr.get()
	tr.hooks.ConnectDone("tcp", "", nil)
	tr.hooks.TLSHandshakeDone(tls.ConnectionState{}, errors.New("bad certificate"))
	if got := tr.dials.Load(); got != 0 {
		t.Errorf("%d connections count as made", got)
	}
}

func mustPass(t *testing.T, tr *traced) {
	t.Helper()
	if tr.stopped.Load() || tr.ctx.Err() != nil {
		t.Errorf("stopped although the body is delivered once: %v", context.Cause(tr.ctx))
	}
}

func mustStop(t *testing.T, tr *traced) {
	t.Helper()
	if !tr.stopped.Load() {
		t.Error("not stopped")
	}
	// reverse_proxy gives up at once upon a cancelled context, and only then.
	if cause := context.Cause(tr.ctx); !errors.Is(cause, errRepeat) || !errors.Is(cause, context.Canceled) {
		t.Errorf("the context ended with %v, want the guard's error wrapping context.Canceled", cause)
	}
}

func TestWhichConnectionsProveWrites(t *testing.T) {
	tcp := tcpConn(t)
	tests := []struct {
		name  string
		conn  net.Conn
		asked int32
		want  bool
	}{
		{"TCP", tcp, 1, true},
		{"TCP, another request's dial", tcp, 0, true},
		{"TCP, shared HTTP/2", tcp, 2, false},
		{"TLS", tls.Client(tcp, &tls.Config{ServerName: "a"}), 1, true},
		{"unix", &net.UnixConn{}, 1, true},
		{"any other, like HTTP/3's", struct{ net.Conn }{tcp}, 1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := provesWrites(tt.conn, tt.asked); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// A dial that no transport asked for is of one that reports nothing else.
func TestSilentDials(t *testing.T) {
	const own, other = "192.0.2.1:80", "192.0.2.2:9000"
	ask := func(tr *traced, target string) { tr.hooks.GetConn(target) }
	resolve := func(tr *traced) {
		tr.hooks.DNSStart(httptrace.DNSStartInfo{})
		tr.hooks.DNSDone(httptrace.DNSDoneInfo{Addrs: []net.IPAddr{{IP: net.IPv4(192, 0, 2, 1)}}})
	}
	dial := func(tr *traced, addr string) {
		tr.hooks.ConnectStart("tcp", addr)
		tr.hooks.ConnectDone("tcp", addr, nil)
	}
	for _, tt := range []struct {
		name string
		run  func(*testing.T, *traced)
		want int32
	}{
		{"its own", func(t *testing.T, tr *traced) { ask(tr, own); dial(tr, own); tr.got(t); tr.read() }, 0},
		{"its own, through another proxy", func(t *testing.T, tr *traced) { ask(tr, own); dial(tr, other); tr.got(t); tr.read() }, 0},
		{"its own, too late", func(t *testing.T, tr *traced) { ask(tr, own); tr.got(t); tr.read(); dial(tr, own) }, 0},
		{"its own, too late, by name", func(t *testing.T, tr *traced) { ask(tr, "up:80"); tr.got(t); tr.read(); resolve(tr); dial(tr, own) }, 0},
		{"another port of the name", func(t *testing.T, tr *traced) {
			ask(tr, "up:80")
			resolve(tr)
			tr.got(t)
			tr.read()
			dial(tr, "192.0.2.1:9000")
		}, 1},
		{"another address", func(t *testing.T, tr *traced) {
			ask(tr, own)
			dial(tr, own)
			tr.got(t)
			tr.read()
			tr.wrote()
			dial(tr, other)
		}, 1},
		{"nobody asked", func(_ *testing.T, tr *traced) { tr.read(); dial(tr, other) }, 1},
		{"one that failed", func(_ *testing.T, tr *traced) {
			tr.hooks.ConnectStart("tcp", other)
			tr.hooks.ConnectDone("tcp", other, errors.New("refused"))
		}, 0},
		{"a name server over UDP", func(_ *testing.T, tr *traced) { tr.hooks.ConnectDone("udp", "192.0.2.9:53", nil) }, 0},
		{"a name server over TCP", func(_ *testing.T, tr *traced) {
			tr.hooks.DNSStart(httptrace.DNSStartInfo{})
			dial(tr, "192.0.2.9:53")
			tr.hooks.DNSDone(httptrace.DNSDoneInfo{})
		}, 0},
		{"that port, and no name looked up", func(_ *testing.T, tr *traced) { dial(tr, "192.0.2.9:53") }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := newTraced(t)
			tt.run(t, tr)
			if got := tr.silent.Load(); got != tt.want {
				t.Errorf("%d silent connections, want %d", got, tt.want)
			}
			mustPass(t, tr)
		})
	}
	t.Run("a second one after forward_auth is stopped", func(t *testing.T) {
		tr := newTraced(t)
		ask(tr, own)
		tr.got(t)
		tr.wrote()
		tr.first()
		tr.read()
		dial(tr, other)
		mustPass(t, tr)
		dial(tr, other)
		mustStop(t, tr)
	})
	t.Run("a connection after one is stopped", func(t *testing.T) {
		tr := newTraced(t)
		tr.read()
		dial(tr, other)
		ask(tr, own)
		tr.got(t)
		mustStop(t, tr)
	})
}

// Where a body is buffered the header fields tell which connection carries it.
func TestGuardOfBufferedBodies(t *testing.T) {
	field := func(tr *traced, name, value string) { tr.trace.hooks.WroteHeaderField(name, []string{value}) }
	for _, tt := range []struct {
		name  string
		first func(*traced) // what happens on the first of two connections
		stops bool
	}{
		{"nothing is written", func(*traced) {}, false},
		{"a request without a body", func(tr *traced) { field(tr, "Accept", "*/*"); tr.wrote() }, false},
		{"a request with an empty body", func(tr *traced) { field(tr, "Content-Length", "0"); tr.wrote() }, false},
		{"a request with a body", func(tr *traced) { field(tr, "Content-Length", "4") }, true},
		{"a request with a body over HTTP/2", func(tr *traced) { field(tr, "content-length", "4") }, true},
		{"a request with chunks", func(tr *traced) { field(tr, "Transfer-Encoding", "chunked") }, true},
		{"a request whose fields are not reported", (*traced).wrote, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := newTraced(t)
			tr.read()
			tr.get()
			tr.got(t)
			tt.first(tr)
			tr.get()
			if closed := tr.got(t); closed != tt.stops {
				t.Errorf("the second connection closed: %v", closed)
			}
			if tr.stopped.Load() != tt.stops {
				t.Errorf("stopped: %v", tr.stopped.Load())
			}
		})
	}
}

// The body knows when a second delivery asks for it.
func TestBodyReread(t *testing.T) {
	read := func(b *bodyReader) { _, _ = io.ReadAll(b) }
	part := func(b *bodyReader) { _, _ = b.Read(make([]byte, 2)) }
	closed := func(b *bodyReader) { _ = b.Close() }
	for _, tt := range []struct {
		name  string
		steps []func(*bodyReader)
		want  bool
	}{
		{"read and closed", []func(*bodyReader){read, closed}, false},
		{"closed twice", []func(*bodyReader){read, closed, closed}, false},
		{"read twice", []func(*bodyReader){read, read}, true},
		{"read after it was closed", []func(*bodyReader){part, closed, read}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &bodyReader{body: []byte("body")}
			for _, step := range tt.steps {
				step(b)
			}
			if got := b.reread.Load(); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// Two transports that read the body at once get no byte twice, and none that is
// not there.
func TestBodyIsReadByTwo(t *testing.T) {
	for range 100 {
		b := &bodyReader{body: bytes.Repeat([]byte("x"), 100_000)}
		var got [2]int
		var readers sync.WaitGroup
		for i := range got {
			readers.Go(func() {
				read, _ := io.ReadAll(b)
				got[i] = len(read)
			})
		}
		readers.Wait()
		if got[0]+got[1] != 100_000 {
			t.Fatalf("they read %d and %d bytes", got[0], got[1])
		}
	}
}

// A connection that comes too late is closed if it is nobody else's: net/http
// may be about to write to it.
func TestLateConnectionIsClosed(t *testing.T) {
	for _, c := range []struct {
		name   string
		asks   int // two are of an HTTP/2 connection without TLS
		closed bool
	}{
		{"HTTP/1", 1, true},
		{"HTTP/2", 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := newTraced(t)
			tr.late = func() bool { return true }
			for range c.asks {
				tr.get()
			}
			if closed := tr.got(t); closed != c.closed {
				t.Errorf("closed: %v", closed)
			}
			if unused := tr.unused.Load() > 0; unused != c.closed || tr.unsure.Load() == c.closed {
				t.Errorf("proven to be unused: %v, unsure: %v", unused, tr.unsure.Load())
			}
			if err := context.Cause(tr.ctx); !errors.Is(err, errLate) {
				t.Errorf("the request goes on: %v", err)
			}
			if _, err := tr.body.Read(make([]byte, 1)); !errors.Is(err, errLate) {
				t.Errorf("the body can be read: %v", err)
			}
		})
	}
}
