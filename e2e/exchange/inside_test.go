package exchange

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

func init() {
	caddy.RegisterModule(&inspector{})
	httpcaddyfile.RegisterHandlerDirective("inspect", func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return new(inspector), nil
	})
	httpcaddyfile.RegisterDirectiveOrder("inspect", httpcaddyfile.Before, "basic_auth")
}

// inspector is a handler that reads a request's body whole and hands on its own
// copy, as firewalls do.
type inspector struct{}

func (*inspector) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.inspect", New: func() caddy.Module { return new(inspector) }}
}

func (*inspector) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

func (*inspector) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return next.ServeHTTP(w, r)
}

// authorized is a handle block with a forward_auth that agrees, ahead of the
// rest.
func authorized(t *testing.T, before, rest string) string {
	auth := brokenup.TCP(t, brokenup.Answer(brokenup.Reply{}))
	return "handle {\n" + before + "\nforward_auth " + auth.Addr() + " {\nuri /auth\n}\n" + rest + "\n}"
}

// A forward_auth inside reports its own connection to the trace. The guard sees
// past it, whatever transport follows and whoever read the body before.
func TestGuardBehindForwardAuth(t *testing.T) {
	const byStatus, byMethod = "lb_retry_match `{rp.status_code} == 503`", "lb_retry_match {\nmethod POST\n}"
	busy := fastCGI("Status: 503 Busy\r\n\r\n")
	for _, tt := range []struct {
		name, before string
		script       brokenup.Script
		lines        []string
		want         want
	}{
		{"FastCGI", "", fastCGI("Content-Type: application/json\r\n\r\n" + complete), []string{"transport fastcgi"}, committed},
		{"FastCGI, retried by status", "", busy, []string{"transport fastcgi", "lb_retries 3", byStatus}, sent},
		{"FastCGI, retried by method", "", func(c *brokenup.Conn) { c.ReadFastCGI() }, []string{"transport fastcgi", "lb_retries 3", byMethod}, sent},
		{"HTTP", "", brokenup.Answer(ok), []string{"request_buffers 64KiB"}, committed},
		{"HTTP, retried", "", brokenup.Answer(unavailable), []string{retries, byStatus}, sent},
		{"HTTP behind an inspector", "inspect", brokenup.Answer(ok), nil, committed},
		{"HTTP behind an inspector, retried", "inspect", brokenup.Answer(unavailable), []string{retries, byStatus}, sent},
		{"FastCGI behind an inspector, retried", "inspect", busy, []string{"transport fastcgi", "lb_retries 3", byStatus}, sent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := brokenup.TCP(t, tt.script)
			s := incaddy.Run(t, site("", authorized(t, tt.before, proxy(up.Addr(), tt.lines...))))
			tt.want.check(t, s, call(t, s, message{}))
			if n := deliveries(up); n != 1 {
				t.Errorf("%d bodies were delivered", n)
			}
		})
	}
}

// A refusal that follows another answer to the same call proves nothing.
func TestRefusalOfASecondAttempt(t *testing.T) {
	second := func(c *brokenup.Conn) {
		if _, there := c.ReadFastCGI(); there {
			text := "Status: 503 Busy\r\n\r\n"
			if c.N > 0 {
				text = "Status: 401 No\r\nWWW-Authenticate: Bearer\r\n\r\n"
			}
			c.SendFastCGI(text, true)
		}
	}
	lines := []string{"lb_retries 3", "lb_retry_match `{rp.status_code} == 503`", "request_buffers 64KiB"}
	t.Run("FastCGI behind forward_auth", func(t *testing.T) {
		up := brokenup.TCP(t, second)
		s := incaddy.Run(t, site("", authorized(t, "", proxy(up.Addr(), append(lines, "transport fastcgi")...))))
		sent.check(t, s, call(t, s, message{}))
	})
	t.Run("a transport without a trace", func(t *testing.T) {
		up := brokenup.TCP(t, brokenup.Each(unavailable, brokenup.Reply{}.With(401, challenge)))
		s := incaddy.Run(t, site("", proxy(up.Addr(), append(lines, "transport silent")...)))
		want{"ambiguous", "http_refusal", 401, 0, ""}.check(t, s, call(t, s, message{}))
	})
}

// What an intercept inside puts in place of an answer is not the server's word.
func TestIntercept(t *testing.T) {
	refusal := "`" + `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}` + "`"
	for _, tt := range []struct {
		name, lines string
		reply       brokenup.Reply
		want        want
	}{
		{"an error", "handle_response {\nrespond " + refusal + " 500\n}", brokenup.JSON(failure("-32603")).With(500), want{"ambiguous", "error_before_dispatch", 500, 0, ""}},
		{"a result under 401", "handle_response {\nheader -Content-Length\nrespond no 401\n}", ok.With(401), want{"ambiguous", "http_refusal", 401, 0, ""}},
		{"nothing", "@other status 418\nhandle_response @other {\nrespond no 418\n}", brokenup.Reply{}.With(401, challenge), want{"failed", "http_refusal", 401, 0, ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := brokenup.TCP(t, brokenup.Answer(tt.reply))
			s := incaddy.Run(t, site("", "handle {\nintercept {\n"+tt.lines+"\n}\n"+proxy(up.Addr())+"\n}"))
			tt.want.check(t, s, call(t, s, message{}))
		})
	}
}

// A response or an error of a handler inside, before any proxy, is passed on:
// nothing was sent.
func TestInnerRefusals(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(ok))
	for _, tt := range []struct {
		name, inner string
		status      int
		body        string
	}{
		{"respond 403", "respond no 403", 403, "no"},
		{"respond 429", "respond no 429", 429, "no"},
		{"respond 503 in JSON", "header Content-Type application/json\nrespond `{\"busy\":true}` 503", 503, `{"busy":true}`},
		{"respond 401 without a body", "respond 401", 401, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := incaddy.Run(t, site("", "handle {\n"+tt.inner+"\n"+proxy(up.Addr())+"\n}"))
			a := call(t, s, message{})
			want{"failed", "never_connected", tt.status, 0, ""}.check(t, s, a)
			if a.body != tt.body {
				t.Errorf("answered %q", a.body)
			}
		})
	}
	t.Run("an error route gets no body", func(t *testing.T) {
		s := incaddy.Run(t, site("enforce off\nmax_body 1KiB", "handle {\nerror no 503\n}\nhandle_errors {\n"+proxy(up.Addr())+"\n}"))
		call(t, s, message{args: `{"pad":"` + large(2000) + `"}`})
		if n := deliveries(up); n != 0 {
			t.Errorf("%d bodies were delivered", n)
		}
	})
}

// With enforce off another method with a body is guarded too.
func TestGuardOfOtherMethods(t *testing.T) {
	for _, method := range []string{http.MethodPut, http.MethodPatch} {
		up := brokenup.TCP(t, brokenup.Answer(unavailable))
		s := incaddy.Run(t, site("enforce off", proxy(up.Addr(), retries+"lb_retry_match `{rp.status_code} == 503`")))
		m := message{}
		r := m.request(t.Context(), s.URL)
		r.Method = method
		send(incaddy.Client(t, false), r, m.uri)
		if n := deliveries(up); n != 1 {
			t.Errorf("%s: %d bodies were delivered", method, n)
		}
	}
}

// Under load a request is handed a connection that another one freed, while its
// own dial goes on: that is nobody else's connection.
func TestRefusalsUnderLoad(t *testing.T) {
	for name, lines := range map[string]string{"kept alive": "", "few kept alive": transport("keepalive_idle_conns_per_host 2"), "one kept alive": transport("keepalive_idle_conns_per_host 1")} {
		for _, host := range []string{"127.0.0.1", "localhost"} {
			t.Run(name+", "+host, func(t *testing.T) {
				up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					w.Header().Set("WWW-Authenticate", "Bearer")
					w.WriteHeader(http.StatusUnauthorized)
				}))
				defer up.Close()
				_, port, _ := strings.Cut(strings.TrimPrefix(up.URL, "http://"), ":")
				s := incaddy.Run(t, site("", proxy(host+":"+port, lines)))
				inParallel(t, s, 16, 30, want{"failed", "http_refusal", http.StatusUnauthorized, 0, ""})
			})
		}
	}
}

// An HTTP/2 connection that turns out unusable before anything is written to it
// has had nothing.
func TestGoAwayUnderLoad(t *testing.T) {
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Connection", "close") // GOAWAY
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.ReplaceAll(complete, "$id", "1"))
	}))
	up.EnableHTTP2 = true
	up.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 2}
	up.StartTLS()
	defer up.Close()
	s := incaddy.Run(t, site("", proxy(up.Listener.Addr().String(), "request_buffers 64KiB", transport(insecure))))
	m := make(chan message, 12*20)
	for range cap(m) {
		m <- message{}
	}
	close(m)
	var senders sync.WaitGroup
	for range 12 {
		senders.Go(func() {
			client := incaddy.Client(t, true)
			for m := range m {
				send(client, m.request(t.Context(), s.URL), m.uri)
			}
		})
	}
	senders.Wait()
	if stopped := s.Log.Entries(func(e *incaddy.Entry) bool { return strings.HasPrefix(e.Message, "stopped a second") }); len(stopped) > 0 {
		t.Errorf("%d first deliveries were taken for second ones", len(stopped))
	}
}

// inParallel sends calls over several connections and wants the same of all.
func inParallel(t *testing.T, s *incaddy.Site, clients, calls int, w want) {
	t.Helper()
	var senders sync.WaitGroup
	for range clients {
		senders.Go(func() {
			client := incaddy.Client(t, true)
			for range calls {
				m := message{}
				w.check(t, s, send(client, m.request(t.Context(), s.URL), m.uri))
			}
		})
	}
	senders.Wait()
}
