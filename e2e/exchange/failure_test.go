package exchange

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"testing"

	"golang.org/x/net/http2"

	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// down is an address without an upstream behind it.
func down(addr func(testing.TB) string) func(testing.TB) (string, *brokenup.Upstream) {
	return func(t testing.TB) (string, *brokenup.Upstream) { return addr(t), nil }
}

func tcp(s brokenup.Script) func(testing.TB) (string, *brokenup.Upstream) {
	return func(t testing.TB) (string, *brokenup.Upstream) {
		u := brokenup.TCP(t, s)
		return u.Addr(), u
	}
}

func unix(s brokenup.Script) func(testing.TB) (string, *brokenup.Upstream) {
	return func(t testing.TB) (string, *brokenup.Upstream) {
		u := brokenup.Unix(t, s)
		return u.Addr(), u
	}
}

func overTLS(s brokenup.Script, protocols ...string) func(testing.TB) (string, *brokenup.Upstream) {
	return func(t testing.TB) (string, *brokenup.Upstream) {
		u := brokenup.TLS(t, s, protocols...)
		return u.Addr(), u
	}
}

func overQUIC(r brokenup.Reply) func(testing.TB) (string, *brokenup.Upstream) {
	return func(t testing.TB) (string, *brokenup.Upstream) {
		u := brokenup.HTTP3(t, r)
		return u.Addr(), u
	}
}

// TLS transports: one that takes any certificate, one that does not.
const (
	insecure = "tls_insecure_skip_verify"
	secure   = "tls\ntls_server_name localhost"
)

// TestFailures runs every way in which an exchange was seen to fail. The names
// are those of the measured table.
func TestFailures(t *testing.T) {
	for _, tt := range []struct {
		name      string
		upstream  func(testing.TB) (string, *brokenup.Upstream)
		transport string
		want      want
		delivered int // whole bodies; -1: it depends
	}{
		{"refused", down(brokenup.Refused), "", neverConnected, 0},
		{"dial timeout", down(func(t testing.TB) string { return brokenup.NewFull(t).Addr }), "dial_timeout 50ms", neverConnected, 0},
		{"unix socket missing", down(brokenup.MissingSocket), "", neverConnected, 0},
		{"TLS bad certificate", overTLS(brokenup.Answer(ok)), secure, neverConnected, 0},
		{"TLS bad certificate, HTTP/2", overTLS(answerStream(ok), "h2"), secure, neverConnected, 0},
		{"TLS to a plaintext server", tcp(brokenup.Answer(ok)), insecure, neverConnected, 0},
		{"TLS handshake timeout", tcp(brokenup.Mute), insecure + "\ntls_timeout 50ms", neverConnected, 0},
		{"closed in TLS handshake", tcp(brokenup.CloseInHandshake), insecure, neverConnected, 0},
		{"accept, close unread", tcp(brokenup.CloseUnread), "", sent, 0},
		{"closes after the header", tcp(brokenup.CloseAfterHead), "", sent, -1},
		{"reads all, closes", tcp(brokenup.ReadThenClose), "", sent, 1},
		{"reads all, resets", tcp(brokenup.ReadThenReset), "", sent, 1},
		{"reads all, closes, unix", unix(brokenup.ReadThenClose), "", sent, 1},
		{"reads all, closes, TLS", overTLS(brokenup.ReadThenClose), insecure, sent, 1},
		{"reads all, resets, TLS", overTLS(brokenup.ReadThenReset), insecure, sent, 1},
		{"response header timeout", tcp(brokenup.Silence), "response_header_timeout 50ms", sent, 1},
		{"read_timeout while waiting", tcp(brokenup.Silence), "read_timeout 50ms", sent, 1},
		{"garbage response head", tcp(brokenup.Say("garbage\r\n\r\n")), "", sent, 1},
		{"partial response head", tcp(brokenup.Say("HTTP/1.1 200 OK\r\nContent-Type: appli")), "", sent, 1},
		{"JSON body cut", tcp(brokenup.Cut(ok, 20)), "", responseCut, 1},
		{"JSON body cut before its first byte", tcp(brokenup.Cut(ok, 0)), "", responseCut, 1},
		{"JSON body cut, chunked", tcp(brokenup.Cut(chunked(ok), 20)), "", responseCut, 1},
		{"JSON body cut, TLS", overTLS(brokenup.Cut(ok, 20)), insecure, responseCut, 1},
		{"JSON body cut by the end of the connection", tcp(brokenup.Cut(unsized(ok), 20)), "", unreadable, 1},
		{"read_timeout in the JSON body", tcp(brokenup.SayThenHold("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")), "read_timeout 50ms", responseCut, 1},
		{"upstream really answers 499", tcp(brokenup.Answer(brokenup.JSON("").With(499))), "", httpStatus, 1},
		{"HTTP/2 stream reset", overTLS(resetStream(http2.ErrCodeInternal), "h2"), insecure, sent, 1},
		{"HTTP/2 stream refused", overTLS(resetStream(http2.ErrCodeRefusedStream), "h2"), insecure, sent, 1},
		{"HTTP/2 GOAWAY", overTLS(brokenup.HTTP2(func(s *brokenup.Stream) { s.Wait(); s.GoAway(0) }), "h2"), insecure, sent, 1},
		{"HTTP/2 connection lost", overTLS(brokenup.HTTP2(func(s *brokenup.Stream) { s.Wait(); s.Kill() }), "h2"), insecure, sent, 1},
		{"HTTP/2 body cut", overTLS(brokenup.HTTP2(cutStream), "h2"), insecure, responseCut, 1},
		{"h2c refused", down(brokenup.Refused), "versions h2c", neverConnected, 0},
		{"h2c stream reset", tcp(resetStream(http2.ErrCodeInternal)), "versions h2c", sent, 1},
		{"h2c connection lost", tcp(brokenup.HTTP2(func(s *brokenup.Stream) { s.Wait(); s.Kill() })), "versions h2c", sent, 1},
		{"h2c body cut", tcp(brokenup.HTTP2(cutStream)), "versions h2c", responseCut, 1},
		{"h3 bad certificate", overQUIC(ok), secure + "\nversions 3", neverConnected, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr, up := tt.upstream(t)
			s := incaddy.Run(t, site("", proxy(addr, transport(tt.transport))))
			a := call(t, s, message{})
			tt.want.check(t, s, a)
			checkTruth(t, s, a.uri, up)
			if up == nil {
				return
			}
			if n := deliveries(up); tt.delivered >= 0 && n != tt.delivered {
				t.Errorf("%d bodies were delivered, want %d", n, tt.delivered)
			}
			if tt.want == neverConnected && len(up.Received()) > 0 {
				t.Errorf("the upstream received %q", up.Received())
			}
		})
	}
}

func answerStream(r brokenup.Reply) brokenup.Script {
	return brokenup.HTTP2(func(s *brokenup.Stream) {
		if s.Wait() {
			s.Reply(r)
		}
	})
}

func resetStream(code http2.ErrCode) brokenup.Script {
	return brokenup.HTTP2(func(s *brokenup.Stream) {
		if s.Wait() {
			s.Reset(code)
		}
	})
}

func cutStream(s *brokenup.Stream) {
	if s.Wait() {
		s.Head(brokenup.JSON(""), false)
		s.Data(`{"jsonrpc":`, false)
		s.Reset(http2.ErrCodeInternal)
	}
}

func chunked(r brokenup.Reply) brokenup.Reply {
	r.Framing = brokenup.Chunked
	return r
}

func unsized(r brokenup.Reply) brokenup.Reply {
	r.Framing = brokenup.Unsized
	return r
}

// An upstream that closes, or does not speak the protocol, as soon as it has
// accepted races with the request. Either verdict may be right; a "never
// connected" must be true.
func TestFailuresThatRace(t *testing.T) {
	for _, tt := range []struct {
		name, transport string
		upstream        func(testing.TB) (string, *brokenup.Upstream)
	}{
		{"closes at once", "", tcp(brokenup.CloseAtOnce)},
		{"closes at once, TLS", insecure, overTLS(brokenup.CloseAtOnce)},
		{"closes at once, HTTP/2", insecure, overTLS(brokenup.CloseAtOnce, "h2")},
		{"closes at once, unix", "", unix(brokenup.CloseAtOnce)},
		{"closes at once, h2c", "versions h2c", tcp(brokenup.CloseAtOnce)},
		{"closes unread, h2c", "versions h2c", tcp(brokenup.CloseUnread)},
		{"answers h2c with HTTP/1", "versions h2c\nresponse_header_timeout 100ms", tcp(brokenup.SayThenHold("HTTP/1.1 200 OK\r\n\r\n"))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr, up := tt.upstream(t)
			// Buffered, because Caddy 2.11.9 and its HTTP/2 client otherwise
			// use the body from two goroutines at once.
			s := incaddy.Run(t, site("", proxy(addr, "request_buffers 64KiB", transport(tt.transport))))
			for n := range 20 {
				before := len(up.Received())
				a := call(t, s, message{})
				up.AwaitEnd(n + 1)
				w := sent
				if s.Log.Access(t, a.uri).MCP.Outcome == "failed" {
					w = neverConnected
					if got := up.Received()[before:]; len(got) > 0 {
						t.Errorf("never connected, but the upstream received %q", got)
					}
				}
				w.check(t, s, a)
			}
		})
	}
}

func TestNameDoesNotResolve(t *testing.T) {
	t.Run("static upstream", func(t *testing.T) {
		s := incaddy.Run(t, site("", proxy("nowhere.example.com:80", transport("resolvers "+brokenup.NoNames(t)))))
		neverConnected.check(t, s, call(t, s, message{}))
	})
	t.Run("dynamic upstream", func(t *testing.T) {
		s := incaddy.Run(t, site("", "reverse_proxy {\ndynamic a {\nname nowhere.example.com\nport 80\nresolvers "+brokenup.NoNames(t)+"\n}\n}"))
		neverConnected.check(t, s, call(t, s, message{}))
	})
}

// A request that the transport itself rejects was not sent either, but no hook
// proves it.
func TestInvalidOutgoingHeader(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(ok))
	s := incaddy.Run(t, site("", proxy(up.Addr(), `header_up "No Name" x`)))
	sent.check(t, s, call(t, s, message{}))
	if n := up.Connections(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

func TestResetWhileConnecting(t *testing.T) {
	full := brokenup.NewFull(t)
	s := incaddy.Run(t, site("", proxy(full.Addr)))
	m := message{}
	r := m.request(t.Context(), s.URL)
	got := make(chan answer)
	go func() { got <- send(incaddy.Client(t, false), r, m.uri) }()
	full.AwaitDial()
	full.Refuse()
	neverConnected.check(t, s, <-got)
}

// A request can go out on a connection that another one freed while its own
// dial was under way. That this dial fails then proves nothing.
func TestDialRace(t *testing.T) {
	first := make(chan struct{})
	var full *brokenup.Full
	up, full := brokenup.AcceptsOne(t, func(c *brokenup.Conn) {
		q, ok1 := c.Read()
		<-first
		if !ok1 || !c.Reply(ok.For(q)) {
			return
		}
		c.Read()
		full.Refuse()
		c.Reset()
	})
	s := incaddy.Run(t, site("", proxy(up.Addr())))
	client := incaddy.Client(t, false)
	m1, m2 := message{}, message{}
	r1, r2 := m1.request(t.Context(), s.URL), m2.request(t.Context(), s.URL)
	got1, got2 := make(chan answer), make(chan answer)
	go func() { got1 <- send(client, r1, m1.uri) }()
	up.AwaitRequest(1)
	full.Await()
	go func() { got2 <- send(client, r2, m2.uri) }()
	full.AwaitDial()
	close(first)
	committed.check(t, s, <-got1)
	sent.check(t, s, <-got2)
	if n := deliveries(up); n != 2 {
		t.Errorf("%d bodies were delivered, want one of each call", n)
	}
}

func TestUpstreamsUnavailable(t *testing.T) {
	t.Run("all upstreams unhealthy", func(t *testing.T) {
		s := incaddy.Run(t, site("", proxy(brokenup.Refused(t), "fail_duration 1m", "max_fails 1")))
		neverConnected.check(t, s, call(t, s, message{}))
		neverConnected.check(t, s, call(t, s, message{})) // no hooks at all this time
	})
	t.Run("lb_try_duration with all upstreams down", func(t *testing.T) {
		s := incaddy.Run(t, site("", proxy(brokenup.Refused(t)+" "+brokenup.Refused(t), "lb_try_duration 60ms", "lb_try_interval 20ms")))
		neverConnected.check(t, s, call(t, s, message{}))
	})
	t.Run("unhealthy with lb_try_duration", func(t *testing.T) {
		s := incaddy.Run(t, site("", proxy(brokenup.Refused(t), "lb_try_duration 60ms", "lb_try_interval 20ms", "fail_duration 1m", "max_fails 1")))
		neverConnected.check(t, s, call(t, s, message{}))
		neverConnected.check(t, s, call(t, s, message{}))
	})
	t.Run("lb_retries reach the one that is up", func(t *testing.T) {
		up := brokenup.TCP(t, brokenup.Answer(ok))
		s := incaddy.Run(t, site("", proxy(brokenup.Refused(t)+" "+up.Addr(), "lb_policy first", "lb_retries 2", "fail_duration 1m")))
		committed.check(t, s, call(t, s, message{}))
	})
}

// An idle connection that the upstream closed.
func TestStaleConnection(t *testing.T) {
	t.Run("noticed in time", func(t *testing.T) {
		up := brokenup.TCP(t, brokenup.Stale(ok, brokenup.CloseAtOnce))
		s := incaddy.Run(t, site("", proxy(up.Addr())))
		committed.check(t, s, call(t, s, message{}))
		up.AwaitEnd(1) // the proxy has closed its side
		committed.check(t, s, call(t, s, message{}))
	})
	for name, then := range map[string]brokenup.Script{
		"closed before it is read": brokenup.CloseUnread,
		"closed after it was read": brokenup.ReadThenClose,
		"reset after it was read":  brokenup.ReadThenReset,
	} {
		for _, scheme := range []struct {
			name, transport string
			upstream        func(testing.TB) (string, *brokenup.Upstream)
		}{
			{"TCP", "", tcp(brokenup.Stale(ok, then))},
			{"TLS", insecure, overTLS(brokenup.Stale(ok, then))},
		} {
			t.Run(name+", "+scheme.name, func(t *testing.T) {
				addr, up := scheme.upstream(t)
				s := incaddy.Run(t, site("", proxy(addr, transport(scheme.transport))))
				committed.check(t, s, call(t, s, message{}))
				// With an idempotency key Go's transport would send it again if
				// it could.
				a := call(t, s, message{header: []string{"Idempotency-Key: k"}})
				sent.check(t, s, a)
				checkTruth(t, s, a.uri, up)
				if n := up.Connections(); n != 1 {
					t.Errorf("%d connections were made: the second call was sent again", n)
				}
			})
		}
	}
}

// The upstream answers before it reads, or says something before it answers.
func TestAnswersOutOfTurn(t *testing.T) {
	t.Run("401 before the body is read", func(t *testing.T) {
		up := brokenup.TCP(t, brokenup.Early(brokenup.Reply{Body: "who are you?"}.With(401, "WWW-Authenticate: Bearer")))
		s := incaddy.Run(t, site("", proxy(up.Addr())))
		a := call(t, s, message{args: `{"pad":"` + large(1<<20) + `"}`})
		want{"failed", "http_refusal", 401, 0, ""}.check(t, s, a)
		if a.body != "who are you?" || a.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("answered %q %v", a.body, a.header)
		}
	})
	t.Run("informational response first", func(t *testing.T) {
		up := brokenup.TCP(t, func(c *brokenup.Conn) {
			q, _ := c.Read()
			if c.Send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n") {
				c.Reply(ok.For(q))
			}
		})
		s := incaddy.Run(t, site("", proxy(up.Addr())))
		hints := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { hints = code; return nil },
		})
		m := message{}
		r := m.request(ctx, s.URL)
		committed.check(t, s, send(incaddy.Client(t, false), r, m.uri))
		if hints != http.StatusEarlyHints {
			t.Errorf("the client saw the informational status %d", hints)
		}
	})
	t.Run("informational response, then death", func(t *testing.T) {
		up := brokenup.TCP(t, brokenup.Say("HTTP/1.1 103 Early Hints\r\n\r\n"))
		s := incaddy.Run(t, site("", proxy(up.Addr())))
		sent.check(t, s, call(t, s, message{}))
	})
}

// A client that goes away.
func TestClientAbort(t *testing.T) {
	gone := want{outcome: "ambiguous", observation: "client_gone"}
	abort := func(t *testing.T, s *incaddy.Site, when func()) {
		ctx, cancel := context.WithCancel(t.Context())
		m := message{}
		r := m.request(ctx, s.URL)
		done := make(chan answer)
		go func() { done <- send(incaddy.Client(t, false), r, m.uri) }()
		when()
		cancel()
		if a := <-done; a.err == nil {
			t.Errorf("the client was answered: %d %q", a.status, a.body)
		}
		gone.checkLog(t, s, m.uri)
	}
	t.Run("during the dial", func(t *testing.T) {
		full := brokenup.NewFull(t)
		s := incaddy.Run(t, site("", proxy(full.Addr)))
		abort(t, s, full.AwaitDial)
	})
	t.Run("waiting for headers", func(t *testing.T) {
		up := brokenup.TCP(t, brokenup.Silence)
		s := incaddy.Run(t, site("", proxy(up.Addr())))
		abort(t, s, func() { up.AwaitRequest(1) })
		up.AwaitEnd(1) // the gateway let go of the upstream
	})
	t.Run("waiting for the rest of a body", func(t *testing.T) {
		begun := make(chan struct{})
		up := brokenup.TCP(t, func(c *brokenup.Conn) {
			c.Read()
			c.Send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
			close(begun)
			c.Drain()
		})
		s := incaddy.Run(t, site("", proxy(up.Addr())))
		abort(t, s, func() { <-begun })
		up.AwaitEnd(1)
	})
	t.Run("in the middle of a stream", func(t *testing.T) {
		begun := make(chan struct{})
		up := brokenup.TCP(t, func(c *brokenup.Conn) {
			c.Read()
			c.Head(brokenup.SSE(""))
			c.Chunk(progress(1))
			close(begun)
			c.Drain()
		})
		s := incaddy.Run(t, site("", proxy(up.Addr())))
		abort(t, s, func() { <-begun })
		up.AwaitEnd(1)
	})
}
