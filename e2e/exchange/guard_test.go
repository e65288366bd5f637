package exchange

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"golang.org/x/net/http2"

	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// retries are the lines by which a reverse_proxy sends a POST again after it
// was delivered.
const retries = "request_buffers 64KiB\nlb_retries 3\n"

var unavailable = brokenup.Reply{Body: "busy"}.With(http.StatusServiceUnavailable)

// TestSentAtMostOnce: configurations that deliver a POST up to three times
// deliver a tool call once.
func TestSentAtMostOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		start func(testing.TB) *brokenup.Upstream
		lines string
	}{
		{"retry of POST after a lost connection", plain(brokenup.ReadThenClose), "lb_retry_match {\nmethod POST\n}"},
		{"retry of POST after a reset", plain(brokenup.ReadThenReset), "lb_retry_match {\nmethod POST\n}"},
		{"retry of POST after a timeout", plain(brokenup.Silence), transport("response_header_timeout 50ms") + "\nlb_retry_match {\nmethod POST\n}"},
		{"retry by status", plain(brokenup.Answer(unavailable)), "lb_retry_match `{rp.status_code} == 503`"},
		{"retry by status within a duration", plain(brokenup.Answer(unavailable)), "lb_try_duration 2s\nlb_try_interval 10ms\nlb_retry_match `{rp.status_code} == 503`"},
		{"retry by transport error", plain(brokenup.ReadThenClose), "lb_retry_match `{rp.is_transport_error} == true`"},
		{"retry over TLS", secured(brokenup.ReadThenClose), transport(insecure) + "\nlb_retry_match {\nmethod POST\n}"},
		{"retry over HTTP/2", secured(resetStream(http2.ErrCodeInternal), "h2"), transport(insecure) + "\nlb_retry_match {\nmethod POST\n}"},
		{"retry over HTTP/2 of a refused stream", secured(resetStream(http2.ErrCodeRefusedStream), "h2"), transport(insecure) + "\nlb_retry_match {\nmethod POST\n}"},
		{"retry over HTTP/2 by status", secured(answerStream(unavailable), "h2"), transport(insecure) + "\nlb_retry_match `{rp.status_code} == 503`"},
		{"retry over h2c", plain(resetStream(http2.ErrCodeInternal)), transport("versions h2c") + "\nlb_retry_match {\nmethod POST\n}"},
		{"retry over h2c by status", plain(answerStream(unavailable)), transport("versions h2c") + "\nlb_retry_match `{rp.status_code} == 503`"},
	} {
		for _, buffered := range []bool{true, false} {
			name, lines := tt.name, retries+tt.lines
			if !buffered && strings.Contains(lines, "status_code") {
				// Caddy 2.11.9's own body wrapper is then used by two attempts
				// at once, which the race detector reports.
				continue
			}
			if !buffered {
				name, lines = name+", unbuffered", strings.TrimPrefix(lines, "request_buffers 64KiB\n")
			}
			t.Run(name, func(t *testing.T) {
				a, b := tt.start(t), tt.start(t)
				s := incaddy.Run(t, site("", proxy(a.Addr()+" "+b.Addr(), "lb_policy round_robin", lines)))
				for range 5 {
					got := call(t, s, message{})
					sent.check(t, s, got)
					checkTruth(t, s, got.uri, a, b)
					if n := a.Count(got.uri) + b.Count(got.uri); strings.Contains(name, "h2") || strings.Contains(name, "HTTP/2") {
						continue
					} else if n != 1 {
						t.Errorf("%d headers were delivered", n)
					}
				}
				if n := deliveries(a, b); n != 5 {
					t.Errorf("%d bodies of 5 calls were delivered", n)
				}
				stopped := s.Log.Entries(func(e *incaddy.Entry) bool {
					return e.Level == "error" && strings.HasPrefix(e.Message, "stopped a second delivery")
				})
				if len(stopped) != 5 {
					t.Errorf("%d of 5 second deliveries were logged", len(stopped))
				}
			})
		}
	}
}

func plain(s brokenup.Script) func(testing.TB) *brokenup.Upstream {
	return func(t testing.TB) *brokenup.Upstream { return brokenup.TCP(t, s) }
}

func secured(s brokenup.Script, protocols ...string) func(testing.TB) *brokenup.Upstream {
	return func(t testing.TB) *brokenup.Upstream { return brokenup.TLS(t, s, protocols...) }
}

// Where nothing is lost, nothing of this is in the way.
func TestRetriesThatAreSafe(t *testing.T) {
	t.Run("request_buffers alone", func(t *testing.T) {
		up := brokenup.TCP(t, brokenup.Answer(ok))
		s := incaddy.Run(t, site("", proxy(up.Addr(), "request_buffers 64KiB")))
		for range 3 {
			committed.check(t, s, call(t, s, message{}))
		}
		if n := deliveries(up); n != 3 {
			t.Errorf("%d bodies of 3 calls were delivered", n)
		}
	})
	t.Run("request_buffers, refused", func(t *testing.T) {
		s := incaddy.Run(t, site("", proxy(brokenup.Refused(t), "request_buffers 64KiB")))
		neverConnected.check(t, s, call(t, s, message{}))
	})
	t.Run("a dial that failed is tried elsewhere", func(t *testing.T) {
		up := brokenup.TCP(t, brokenup.Answer(ok))
		s := incaddy.Run(t, site("", proxy(brokenup.Refused(t)+" "+up.Addr(), retries, "lb_retry_match {\nmethod POST\n}", "fail_duration 1m")))
		for range 3 {
			committed.check(t, s, call(t, s, message{}))
		}
	})
	t.Run("all dials fail", func(t *testing.T) {
		s := incaddy.Run(t, site("", proxy(brokenup.Refused(t)+" "+brokenup.Refused(t), retries, "lb_retry_match {\nmethod POST\n}")))
		neverConnected.check(t, s, call(t, s, message{}))
	})
	t.Run("a delivery and then a refused dial", func(t *testing.T) {
		up := brokenup.TCP(t, brokenup.ReadThenClose)
		s := incaddy.Run(t, site("", proxy(up.Addr()+" "+brokenup.Refused(t), retries, "lb_policy first", "lb_retry_match {\nmethod POST\n}", "fail_duration 1m")))
		a := call(t, s, message{})
		sent.check(t, s, a)
		checkTruth(t, s, a.uri, up)
	})
}

// The guard must not break the other calls of a shared HTTP/2 connection.
func TestGuardSparesSharedConnections(t *testing.T) {
	for name, tt := range map[string]struct {
		start     func(testing.TB, brokenup.Script) *brokenup.Upstream
		transport string
	}{
		"h2":  {func(t testing.TB, s brokenup.Script) *brokenup.Upstream { return brokenup.TLS(t, s, "h2") }, insecure},
		"h2c": {func(t testing.TB, s brokenup.Script) *brokenup.Upstream { return brokenup.TCP(t, s) }, "versions h2c"},
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			up := tt.start(t, brokenup.HTTP2(func(s *brokenup.Stream) {
				switch {
				case !s.Wait():
				case strings.Contains(s.Body(), "slow"):
					<-release
					s.Reply(ok)
				default:
					s.Reply(unavailable)
				}
			}))
			s := incaddy.Run(t, site("", proxy(up.Addr(), retries, transport(tt.transport), "lb_retry_match `{rp.status_code} == 503`")))
			slow := message{args: `{"pace":"slow"}`}
			r := slow.request(t.Context(), s.URL)
			got := make(chan answer)
			go func() { got <- send(incaddy.Client(t, false), r, slow.uri) }()
			up.AwaitRequest(1)
			for range 5 {
				sent.check(t, s, call(t, s, message{}))
			}
			close(release)
			committed.check(t, s, <-got)
			if n := deliveries(up); n != 6 {
				t.Errorf("%d bodies of 6 calls were delivered", n)
			}
		})
	}
}

// A second proxy in the same chain.
func TestFailoverInHandleResponse(t *testing.T) {
	failover := func(to string) string {
		return "@down status 503\nhandle_response @down {\nreverse_proxy " + to + "\n}"
	}
	for _, buffers := range []string{"", "\nrequest_buffers 64KiB\n"} {
		t.Run("to an upstream that is up"+buffers, func(t *testing.T) {
			first, second := brokenup.TCP(t, brokenup.Answer(unavailable)), brokenup.TCP(t, brokenup.Answer(ok))
			s := incaddy.Run(t, site("", proxy(first.Addr(), buffers+failover(second.Addr()))))
			a := call(t, s, message{})
			sent.check(t, s, a)
			checkTruth(t, s, a.uri, first, second)
			if n := deliveries(second); n != 0 {
				t.Errorf("the second upstream got %d bodies", n)
			}
		})
		t.Run("to one that is down"+buffers, func(t *testing.T) {
			first := brokenup.TCP(t, brokenup.Answer(unavailable))
			s := incaddy.Run(t, site("", proxy(first.Addr(), buffers+failover(brokenup.Refused(t)))))
			a := call(t, s, message{})
			sent.check(t, s, a)
			checkTruth(t, s, a.uri, first)
		})
		t.Run("while the body is still being read"+buffers, func(t *testing.T) {
			first, second := brokenup.TCP(t, halfway(unavailable)), brokenup.TCP(t, brokenup.Answer(ok))
			s := incaddy.Run(t, site("", proxy(first.Addr(), buffers+failover(second.Addr()))))
			a := call(t, s, message{args: `{"pad":"` + large(3<<20) + `"}`})
			sent.check(t, s, a)
			if n := deliveries(second); n != 0 {
				t.Errorf("the second upstream got %d bodies", n)
			}
		})
		// The first delivers without a hook of the trace, the second fires
		// hooks that say that nothing was connected.
		t.Run("from FastCGI to one that is down"+buffers, func(t *testing.T) {
			first := brokenup.TCP(t, fastCGI("Status: 503 Busy\r\n\r\n"))
			s := incaddy.Run(t, site("", proxy(first.Addr(), buffers+"transport fastcgi\n"+failover(brokenup.Refused(t)))))
			a := call(t, s, message{})
			sent.check(t, s, a)
			if n := deliveries(first); n != 1 {
				t.Errorf("%d bodies were delivered to FastCGI", n)
			}
		})
		t.Run("from FastCGI to an upstream that is up"+buffers, func(t *testing.T) {
			first, second := brokenup.TCP(t, fastCGI("Status: 503 Busy\r\n\r\n")), brokenup.TCP(t, brokenup.Answer(ok))
			s := incaddy.Run(t, site("", proxy(first.Addr(), buffers+"transport fastcgi\n"+failover(second.Addr()))))
			a := call(t, s, message{})
			sent.check(t, s, a)
			if n := deliveries(first, second); n != 1 {
				t.Errorf("%d bodies were delivered", n)
			}
		})
		t.Run("from one that is down to FastCGI"+buffers, func(t *testing.T) {
			first, second := brokenup.TCP(t, brokenup.Answer(unavailable)), brokenup.TCP(t, fastCGI(complete))
			s := incaddy.Run(t, site("", proxy(first.Addr(), buffers+"@down status 503\nhandle_response @down {\nreverse_proxy "+second.Addr()+" {\ntransport fastcgi\n}\n}")))
			a := call(t, s, message{})
			sent.check(t, s, a)
			if n := deliveries(first, second); n != 1 {
				t.Errorf("%d bodies were delivered", n)
			}
		})
	}
}

// halfway answers when the body has begun to arrive. Before, the second upstream
// may be given all of it, and it is delivered once too.
func halfway(r brokenup.Reply) brokenup.Script {
	return func(c *brokenup.Conn) {
		if c.ReadHead() && c.Await() && c.Reply(r) {
			c.Drain()
		}
	}
}

// fastCGI reads one request, answers with a CGI response and closes.
func fastCGI(text string) brokenup.Script {
	return func(c *brokenup.Conn) {
		if q, ok := c.ReadFastCGI(); ok {
			c.SendFastCGI(strings.ReplaceAll(text, "$id", q.ID()), true)
		}
	}
}

// FastCGI's transport reports nothing to a trace, and has the proxy read the
// beginning of a body before it dials. A dial that failed is then no proof.
func TestFastCGI(t *testing.T) {
	head := "Content-Type: application/json\r\n\r\n"
	testSilent(t, "transport fastcgi {\ndial_timeout 100ms\n}", []silentRow{
		{"answers", tcp(fastCGI(head + complete)), committed, 1},
		{"reads all, closes", tcp(func(c *brokenup.Conn) { c.ReadFastCGI() }), sent, 1},
		{"reads all, resets", tcp(func(c *brokenup.Conn) { c.ReadFastCGI(); c.Reset() }), sent, 1},
		{"closes unread", tcp(brokenup.CloseUnread), sent, 0},
		{"closes at once", tcp(brokenup.CloseAtOnce), sent, 0},
		{"cut", tcp(func(c *brokenup.Conn) { c.ReadFastCGI(); c.SendFastCGI(head+`{"jsonrpc"`, false) }), unreadable, 1},
		{"refused", down(brokenup.Refused), sent, 0},
		{"dial timeout", down(func(t testing.TB) string { return brokenup.NewFull(t).Addr }), sent, 0},
	})
}

// A transport that reports nothing and buffers nothing: its dial error is the
// only proof there can be.
func TestSilentTransport(t *testing.T) {
	testSilent(t, "transport silent", []silentRow{
		{"answers", tcp(brokenup.Answer(ok)), committed, 1},
		{"reads all, closes", tcp(brokenup.ReadThenClose), sent, 1},
		{"closes unread", tcp(brokenup.CloseUnread), sent, 0},
		{"refused", down(brokenup.Refused), neverConnected, 0},
		{"missing socket", down(brokenup.MissingSocket), neverConnected, 0},
	})
	t.Run("a delivery and then a refused dial", func(t *testing.T) {
		up := brokenup.TCP(t, brokenup.ReadThenClose)
		s := incaddy.Run(t, site("", proxy(up.Addr()+" "+brokenup.Refused(t), "transport silent", "lb_policy first", "lb_retries 1", "fail_duration 1m", "lb_retry_match {\nmethod POST\n}")))
		a := call(t, s, message{})
		sent.check(t, s, a)
		checkTruth(t, s, a.uri, up)
	})
}

type silentRow struct {
	name      string
	upstream  func(testing.TB) (string, *brokenup.Upstream)
	want      want
	delivered int
}

func testSilent(t *testing.T, transport string, rows []silentRow) {
	for _, tt := range rows {
		t.Run(tt.name, func(t *testing.T) {
			addr, up := tt.upstream(t)
			s := incaddy.Run(t, site("", proxy(addr, transport)))
			a := call(t, s, message{})
			tt.want.check(t, s, a)
			if up != nil && deliveries(up) != tt.delivered {
				t.Errorf("%d bodies were delivered, want %d", deliveries(up), tt.delivered)
			}
		})
	}
}

func init() { caddy.RegisterModule(silent{}) }

// silent is a transport that makes a connection for each request and hides the
// request's trace from the dial.
type silent struct{}

func (silent) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.reverse_proxy.transport.silent", New: func() caddy.Module { return new(silent) }}
}

func (silent) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	info, _ := reverseproxy.GetDialInfo(r.Context())
	conn, err := net.Dial(info.Network, info.Address)
	if err != nil {
		return nil, reverseproxy.NewDialError(err)
	}
	r.URL.Scheme, r.URL.Host = "http", info.Address
	if err := r.WithContext(context.Background()).Write(conn); err != nil {
		conn.Close()
		return nil, err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		conn.Close()
		return nil, err
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{res.Body, conn}
	return res, nil
}

// What else can stand between the gateway and the proxy.
func TestInnerHandlers(t *testing.T) {
	allow := func(t testing.TB) *brokenup.Upstream { return brokenup.TCP(t, brokenup.Answer(brokenup.Reply{})) }
	deny := func(t testing.TB) *brokenup.Upstream {
		return brokenup.TCP(t, brokenup.Answer(brokenup.Reply{Body: "login"}.With(401, "WWW-Authenticate: Bearer")))
	}
	auth := func(u *brokenup.Upstream) string { return "forward_auth " + u.Addr() + " {\nuri /auth\n}\n" }
	refusal := want{"failed", "http_refusal", 401, 0, ""}

	t.Run("forward_auth inside allows", func(t *testing.T) {
		a, up := allow(t), brokenup.TCP(t, brokenup.Answer(ok))
		s := incaddy.Run(t, site("", "handle {\n"+auth(a)+proxy(up.Addr())+"\n}"))
		for range 3 {
			committed.check(t, s, call(t, s, message{}))
		}
		if n := deliveries(a, up); n != 3 || deliveries(a) != 0 {
			t.Errorf("%d bodies of 3 calls were delivered, %d to the authorizer", n, deliveries(a))
		}
	})
	t.Run("forward_auth inside allows, the proxy buffers", func(t *testing.T) {
		a, up := allow(t), brokenup.TCP(t, brokenup.Answer(ok))
		s := incaddy.Run(t, site("", "handle {\n"+auth(a)+proxy(up.Addr(), "request_buffers 64KiB")+"\n}"))
		for range 3 {
			committed.check(t, s, call(t, s, message{}))
		}
	})
	t.Run("forward_auth inside denies", func(t *testing.T) {
		a, up := deny(t), brokenup.TCP(t, brokenup.Answer(ok))
		s := incaddy.Run(t, site("", "handle {\n"+auth(a)+proxy(up.Addr())+"\n}"))
		got := call(t, s, message{})
		refusal.check(t, s, got)
		if got.body != "login" || got.header.Get("WWW-Authenticate") != "Bearer" || len(up.Received()) > 0 {
			t.Errorf("answered %q %v, the upstream received %q", got.body, got.header, up.Received())
		}
	})
	t.Run("forward_auth inside allows, the upstream is down", func(t *testing.T) {
		s := incaddy.Run(t, site("", "handle {\n"+auth(allow(t))+proxy(brokenup.Refused(t))+"\n}"))
		sent.check(t, s, call(t, s, message{})) // the safe direction
	})
	t.Run("forward_auth inside is down", func(t *testing.T) {
		up := brokenup.TCP(t, brokenup.Answer(ok))
		s := incaddy.Run(t, site("", "handle {\nforward_auth "+brokenup.Refused(t)+" {\nuri /auth\n}\n"+proxy(up.Addr())+"\n}"))
		neverConnected.check(t, s, call(t, s, message{}))
	})
	t.Run("forward_auth outside, the upstream is down", func(t *testing.T) {
		s := incaddy.Run(t, site("", auth(allow(t))+proxy(brokenup.Refused(t))))
		neverConnected.check(t, s, call(t, s, message{}))
	})
	t.Run("forward_auth outside, the upstream is unhealthy", func(t *testing.T) {
		s := incaddy.Run(t, site("", auth(allow(t))+proxy(brokenup.Refused(t), "fail_duration 1m")))
		neverConnected.check(t, s, call(t, s, message{}))
		neverConnected.check(t, s, call(t, s, message{}))
	})
	t.Run("forward_auth outside, a silent transport is down", func(t *testing.T) {
		s := incaddy.Run(t, site("", auth(allow(t))+proxy(brokenup.Refused(t), "transport silent")))
		neverConnected.check(t, s, call(t, s, message{}))
	})
	t.Run("forward_auth outside denies", func(t *testing.T) {
		up := brokenup.TCP(t, brokenup.Answer(ok))
		s := incaddy.Run(t, site("", auth(deny(t))+proxy(up.Addr())))
		got := call(t, s, message{})
		if got.status != 401 || got.body != "login" || s.Log.Access(t, got.uri).MCP != nil || len(up.Received()) > 0 {
			t.Errorf("answered %d %q", got.status, got.body)
		}
	})

	// Errors that never left the chain are Caddy's to render.
	errors := "\nhandle_errors {\nrespond \"rendered {err.status_code}\" {err.status_code}\n}"
	up := brokenup.TCP(t, brokenup.Answer(ok))
	for _, tt := range []struct {
		name, inner string
		status      int
	}{
		{"error", "error \"no\" 418", 418},
		{"error 503", "error \"no\" 503", 503},
		{"basic_auth", "basic_auth {\nbob $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}", 401},
	} {
		t.Run("inner "+tt.name, func(t *testing.T) {
			s := incaddy.Run(t, site("", "handle {\n"+tt.inner+"\n"+proxy(up.Addr())+"\n}"+errors))
			got := call(t, s, message{})
			want{"failed", "never_connected", tt.status, 0, ""}.check(t, s, got)
			if !strings.HasPrefix(got.body, "rendered ") {
				t.Errorf("answered %q", got.body)
			}
			if tt.status == 401 && got.header.Get("WWW-Authenticate") == "" {
				t.Error("the challenge is lost")
			}
		})
	}
	t.Run("inner respond 401", func(t *testing.T) {
		s := incaddy.Run(t, site("", "handle {\nrespond \"no\" 401\n}"))
		got := call(t, s, message{})
		want{"failed", "never_connected", 401, 0, ""}.check(t, s, got)
		if got.body != "no" {
			t.Errorf("answered %q", got.body)
		}
	})
	t.Run("inner respond without a message", func(t *testing.T) {
		s := incaddy.Run(t, site("", "handle {\nrespond \"hello\"\n}"))
		unreadable.check(t, s, call(t, s, message{}))
	})
	t.Run("error of the proxy is rendered by nobody else", func(t *testing.T) {
		s := incaddy.Run(t, site("", proxy(brokenup.Refused(t))+errors))
		neverConnected.check(t, s, call(t, s, message{}))
	})
}

// Each transport that reverse_proxy has, when all is well.
func TestTransports(t *testing.T) {
	for _, tt := range []struct {
		name      string
		upstream  func(testing.TB) (string, *brokenup.Upstream)
		transport string
	}{
		{"h1", tcp(brokenup.Answer(ok)), ""},
		{"h1 without keepalive", tcp(brokenup.Answer(ok)), "keepalive off"},
		{"TLS", overTLS(brokenup.Answer(ok)), insecure},
		{"h2", overTLS(answerStream(ok), "h2"), insecure},
		{"h2c", tcp(answerStream(ok)), "versions h2c"},
		{"h3", overQUIC(ok), insecure + "\nversions 3"},
		{"unix", unix(brokenup.Answer(ok)), ""},
		{"read_timeout", tcp(brokenup.Answer(ok)), "read_timeout 10s\nwrite_timeout 10s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr, up := tt.upstream(t)
			s := incaddy.Run(t, site("", proxy(addr, transport(tt.transport))))
			m := message{args: `{"payment_id":"p\u0031","pad":"` + large(100_000) + `"}`}
			for range 3 {
				a := call(t, s, m)
				committed.check(t, s, a)
				checkTruth(t, s, a.uri, up)
			}
			if n := deliveries(up); n != 3 {
				t.Errorf("%d bodies of 3 calls were delivered", n)
			}
			r := up.Requests()[2]
			if !strings.Contains(string(r.Body), `{"payment_id":"p\u0031","pad":"`) {
				t.Error("the body was changed on the way")
			}
			if got := r.Header.Get("Accept-Encoding"); got != "identity" {
				t.Errorf("the upstream was offered the coding %q", got)
			}
		})
	}
}

// FastCGI buffers the body by itself and never asks the trace for a connection.
func TestFastCGIIsSentAtMostOnce(t *testing.T) {
	for _, match := range []string{"method POST", "expression `{rp.status_code} == 503`"} {
		t.Run(match, func(t *testing.T) {
			up := brokenup.TCP(t, fastCGI("Status: 503 Busy\r\n\r\n"))
			if strings.HasPrefix(match, "method") {
				up = brokenup.TCP(t, func(c *brokenup.Conn) { c.ReadFastCGI() })
			}
			s := incaddy.Run(t, site("", proxy(up.Addr(), "transport fastcgi", "lb_retries 3", "lb_retry_match {\n"+match+"\n}")))
			sent.check(t, s, call(t, s, message{}))
			if n := deliveries(up); n != 1 {
				t.Errorf("%d bodies were delivered", n)
			}
		})
	}
}

// The first transport reports nothing and is answered, the second reports that
// it had no connection: that is no proof for the first.
func TestSilentDeliveryBeforeRefusedDial(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(unavailable))
	s := incaddy.Run(t, site("", proxy(up.Addr(), "transport silent", "@down status 503\nhandle_response @down {\nreverse_proxy "+brokenup.Refused(t)+"\n}")))
	a := call(t, s, message{})
	sent.check(t, s, a)
	checkTruth(t, s, a.uri, up)
}
