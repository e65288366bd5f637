//go:build unix

package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

func init() {
	caddy.RegisterModule(&tappedSpy{})
	caddy.RegisterModule(&tappedSQLite{})
	caddy.RegisterModule(&brief{})
	httpcaddyfile.RegisterHandlerDirective("brief", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		b := new(brief)
		return b, b.UnmarshalCaddyfile(h.Dispenser)
	})
	httpcaddyfile.RegisterDirectiveOrder("brief", httpcaddyfile.Before, "invoke")
}

// brief is the handler with another lease.
type brief struct{ Handler }

func (*brief) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.brief", New: func() caddy.Module { return new(brief) }}
}

func (b *brief) Provision(ctx caddy.Context) error {
	err := b.Handler.Provision(ctx)
	b.lease = tapped.lease
	return err
}

// tappedSpy is a store in memory, and tappedSQLite one in a file, with a tap.
type (
	tappedSpy    struct{ spyLedger }
	tappedSQLite struct{ SQLiteLedger }
)

func (*tappedSpy) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mcp_gateway.ledgers.tapped_spy", New: func() caddy.Module { return new(tappedSpy) }}
}

func (*tappedSQLite) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mcp_gateway.ledgers.tapped_sqlite", New: func() caddy.Module { return new(tappedSQLite) }}
}

func (s *tappedSpy) Open(ctx context.Context, onBatch func(int)) (effect.Ledger, error) {
	return tapped.at(s.spyLedger.Open(ctx, onBatch))
}

func (s *tappedSQLite) Open(ctx context.Context, onBatch func(int)) (effect.Ledger, error) {
	return tapped.at(s.SQLiteLedger.Open(ctx, onBatch))
}

// tapped is the tap of the test that runs.
var tapped *tap

// tap is a ledger between the handler and its own.
type tap struct {
	effect.Ledger
	lease time.Duration
	deaf  bool // renewals fail

	mu     sync.Mutex
	called *sync.Cond // on mu
	calls  []effect.Answer
	renews int
}

func newTap(lease time.Duration, deaf bool) *tap {
	l := &tap{lease: lease, deaf: deaf}
	l.called = sync.NewCond(&l.mu)
	tapped = l
	return l
}

// at puts the tap at a ledger.
func (l *tap) at(ledger effect.Ledger, err error) (effect.Ledger, error) {
	l.Ledger = ledger
	return l, err
}

func (l *tap) Apply(ctx context.Context, c effect.Command) (change effect.Change, err error) {
	_, renewal := c.(effect.Renewal)
	if renewal && l.deaf {
		err = errors.New("the ledger does not answer")
	} else {
		change, err = l.Ledger.Apply(ctx, c)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if renewal {
		l.renews++
	}
	if _, call := c.(effect.Call); call {
		l.calls = append(l.calls, change.Answer)
	}
	l.called.Broadcast()
	return change, err
}

// await waits until what is heard is enough.
func (l *tap) await(t *testing.T, what string, enough func() bool) {
	t.Helper()
	late := false
	alarm := time.AfterFunc(20*time.Second, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		late = true
		l.called.Broadcast()
	})
	defer alarm.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !enough() {
		if late {
			t.Fatalf("waiting for %s: none came", what)
		}
		l.called.Wait()
	}
}

// awaitRenewals waits until it was tried n times more to renew a lease.
func (l *tap) awaitRenewals(t *testing.T, n int) {
	t.Helper()
	l.mu.Lock()
	n += l.renews
	l.mu.Unlock()
	l.await(t, "renewals", func() bool { return l.renews >= n })
}

// briefly is a site whose handler is brief.
func briefly(ledger, options, proxy string) incaddy.Config {
	return incaddy.Config{
		Global: "mcp_gateway {\nledger " + ledger + "\n}",
		Site:   "brief /mcp {\ntool create_refund {\neffect refund {http.mcp.args.payment_id}\n}\n" + options + "\n}\n" + proxy,
	}
}

var refundKey = effect.NewKey("", "refund", "txn_1")

// briefCall calls a tool with a URI of its own, and returns the status and the
// message that it is answered with.
func briefCall(t *testing.T, s *incaddy.Site, tool, uri string) (status int, body string) {
	t.Helper()
	text := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + tool + `","arguments":{"payment_id":"txn_1"},` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+uri, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {tool},
		"X-Large": {strings.Repeat("x", 16<<10)}, // a head that is written before the body is read
	}
	response, err := incaddy.Client(t, false).Do(r)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return response.StatusCode, string(answer)
}

// wantCode wants the gateway's error.
func wantCode(t *testing.T, body string, code int) {
	t.Helper()
	var e struct{ Error struct{ Code int } }
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error.Code != code {
		t.Errorf("answered %s, want %d", body, code)
	}
}

const happened = `{"jsonrpc":"2.0","id":$id,"result":{"resultType":"complete","content":[]}}`

// waiting answers a call once it may.
func waiting(speak <-chan struct{}, replies ...string) brokenup.Script {
	return func(c *brokenup.Conn) {
		r, ok := c.Read()
		if !ok {
			return
		}
		<-speak
		c.Reply(brokenup.JSON(replies[min(c.N, len(replies)-1)]).For(r))
	}
}

// As long as a call is under way its lease goes on.
func TestLeaseIsRenewed(t *testing.T) {
	l := newTap(1500*time.Millisecond, false)
	spy := newSpy(t, "renewed")
	speak := make(chan struct{})
	up := brokenup.TCP(t, waiting(speak, happened))
	s := incaddy.Run(t, briefly("tapped_spy renewed", "", "reverse_proxy "+up.Addr()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		briefCall(t, s, "create_refund", "/mcp?n=1")
	}()
	up.AwaitRequest(1)
	for range 3 {
		spy.clock.Advance(l.lease * 2 / 3)
		l.awaitRenewals(t, 1)
	}
	_, body := briefCall(t, s, "create_refund", "/mcp?n=2")
	wantCode(t, body, effect.CodeInProgress)
	close(speak)
	<-done
	if _, body := briefCall(t, s, "create_refund", "/mcp?n=3"); !strings.Contains(body, `"replayed":true`) {
		t.Errorf("answered %s", body)
	}
	if n := len(up.Requests()); n != 1 {
		t.Errorf("%d deliveries, want 1", n)
	}
}

// A lease that ran out makes the record ambiguous. The outcome of the call
// settles it all the same, unless somebody has done so.
func TestLeaseThatRanOut(t *testing.T) {
	const notDispatched = `{"jsonrpc":"2.0","id":$id,"error":{"code":-32602,"message":"no"}}`
	for _, c := range []struct {
		name     string
		reply    string
		resolved bool   // as failed, before the answer came
		first    string // what the call itself is told
		state    effect.State
	}{
		{"it happened", happened, false, `"outcome":"committed","observation":"complete"}`, effect.Committed},
		{"it failed", notDispatched, false, `"outcome":"failed","observation":"error_before_dispatch"}`, effect.Failed},
		{"it was resolved and happened", happened, true, `"outcome":"committed","observation":"complete","recorded":false}`, effect.Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newTap(30*time.Second, true)
			spy := newSpy(t, "ran out")
			speak := make(chan struct{})
			up := brokenup.TCP(t, waiting(speak, c.reply))
			s := incaddy.Run(t, briefly(`tapped_spy "ran out"`, "settle_after 1us", "reverse_proxy "+up.Addr()))
			first := make(chan string)
			go func() {
				_, body := briefCall(t, s, "create_refund", "/mcp?n=1")
				first <- body
			}()
			up.AwaitRequest(1)
			spy.clock.Advance(l.lease)
			_, body := briefCall(t, s, "create_refund", "/mcp?n=2")
			wantCode(t, body, effect.CodeAmbiguous)
			if c.resolved {
				change, err := l.Apply(t.Context(), effect.Resolution{Key: refundKey, Attempt: 1, Who: "ann", Why: "not in the books"})
				if err != nil || change.Answer != effect.Settled {
					t.Fatalf("resolving: %s %v", change.Answer, err)
				}
			}
			close(speak)
			if body := <-first; !strings.Contains(body, c.first) {
				t.Errorf("answered %s, want %s", body, c.first)
			}
			records, err := l.List(t.Context(), effect.Filter{Limit: 2})
			if err != nil || len(records) != 1 || records[0].State != c.state || records[0].Attempt != 1 {
				t.Errorf("on record is %+v, want %s", records, c.state)
			}
		})
	}
}

// gate lets what comes to it through to an address once it is open.
func gate(t *testing.T, addr string, open <-chan struct{}) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var pipes sync.WaitGroup
	t.Cleanup(func() {
		ln.Close()
		pipes.Wait()
	})
	pipes.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			pipes.Go(func() {
				defer in.Close()
				<-open
				out, err := net.Dial("tcp", addr)
				if err != nil {
					return
				}
				defer out.Close()
				pipes.Go(func() {
					_, _ = io.Copy(in, out)
					in.Close()
				})
				_, _ = io.Copy(out, in)
			})
		}
	})
	return ln.Addr().String()
}

// A connection that comes when half of the lease is over is not written to:
// what is sent then could still be at work when somebody settles the record.
func TestLateConnection(t *testing.T) {
	const insecure = "transport http {\ntls_insecure_skip_verify\n}"
	queue := func(header ...string) func(t *testing.T, open chan struct{}) (*brokenup.Upstream, string) {
		return func(t *testing.T, open chan struct{}) (*brokenup.Upstream, string) {
			// The only connection that there may be is at another call.
			up := brokenup.TCP(t, func(c *brokenup.Conn) {
				for {
					r, ok := c.Read()
					if !ok {
						return
					}
					if strings.Contains(string(r.Body), "list_refunds") {
						<-open
					}
					if !c.Reply(brokenup.JSON(happened).With(http.StatusOK, header...).For(r)) || len(header) > 0 {
						return
					}
				}
			})
			return up, "reverse_proxy " + up.Addr() + " {\ntransport http {\nmax_conns_per_host 1\n}\n}"
		}
	}
	for _, c := range []struct {
		name   string
		queued bool // behind another call
		shared bool // by other requests: it cannot be closed
		start  func(t *testing.T, open chan struct{}) (up *brokenup.Upstream, proxy string)
	}{
		{"used before", true, false, queue()},
		{"new", true, false, queue("Connection: close")},
		{"after a handshake", false, false, func(t *testing.T, open chan struct{}) (*brokenup.Upstream, string) {
			up := brokenup.TLS(t, brokenup.Answer(brokenup.JSON(happened)))
			return up, "reverse_proxy https://" + gate(t, up.Addr(), open) + " {\n" + insecure + "\n}"
		}},
		{"HTTP/2", false, true, func(t *testing.T, open chan struct{}) (*brokenup.Upstream, string) {
			up := brokenup.TLS(t, brokenup.HTTP2(func(s *brokenup.Stream) {
				if s.Wait() {
					s.Reply(brokenup.JSON(strings.ReplaceAll(happened, "$id", "7")))
				}
			}), "h2")
			return up, "reverse_proxy https://" + gate(t, up.Addr(), open) + " {\n" + insecure + "\n}"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newTap(30*time.Millisecond, true)
			open := make(chan struct{})
			up, proxy := c.start(t, open)
			s := incaddy.Run(t, briefly(fmt.Sprintf("tapped_sqlite %q", filepath.Join(t.TempDir(), "effects.db")), "", proxy))
			var others sync.WaitGroup
			if c.queued {
				others.Go(func() { briefCall(t, s, "list_refunds", "/mcp?n=other") })
				up.AwaitRequest(1)
			}
			type answer struct {
				status int
				body   string
			}
			answered := make(chan answer)
			go func() {
				status, body := briefCall(t, s, "create_refund", "/mcp?n=late")
				answered <- answer{status, body}
			}()
			// Of the lease a third passes before each.
			l.await(t, "failed renewals", func() bool { return l.renews >= 2 })
			close(open)
			a := <-answered
			others.Wait()
			for n := 1; !c.shared && n <= up.Connections(); n++ {
				up.AwaitEnd(n) // or what was written may not have been read yet
			}

			arrived := up.Count("n=late") > 0 || c.shared && len(up.Requests()) > 0
			records, err := l.List(t.Context(), effect.Filter{Limit: 2})
			if err != nil || len(records) != 1 {
				t.Fatalf("on record is %+v (%v)", records, err)
			}
			r := records[0]
			switch {
			case c.shared && r.State == effect.Ambiguous:
				wantCode(t, a.body, codeUnknown)
			case r.State != effect.Failed || r.Observation != "never_connected" || a.status != http.StatusBadGateway:
				t.Errorf("on record is %s, by %s; answered %d %s", r.State, r.Observation, a.status, a.body)
			case arrived:
				t.Errorf("the call failed, and arrived: %q", up.Received())
			default:
				wantCode(t, a.body, codeNotSent)
			}
			if arrived && !c.shared {
				t.Errorf("the call arrived: %q", up.Received())
			}
		})
	}
}

// FastCGI's transport tells nobody of its connection, but of its dial: one that
// is late is broken off.
func TestLateDialOfFastCGI(t *testing.T) {
	l := newTap(time.Second, true) // in half of which the authority is asked
	open := make(chan struct{})
	authority := brokenup.TCP(t, func(c *brokenup.Conn) {
		if _, ok := c.Read(); ok {
			<-open
			c.Reply(brokenup.Reply{})
		}
	})
	up := brokenup.TCP(t, func(c *brokenup.Conn) {
		if r, ok := c.ReadFastCGI(); ok {
			c.SendFastCGI("Content-Type: application/json\r\n\r\n"+strings.ReplaceAll(happened, "$id", r.ID()), true)
		}
	})
	s := incaddy.Run(t, briefly(fmt.Sprintf("tapped_sqlite %q", filepath.Join(t.TempDir(), "effects.db")), "",
		"route {\nforward_auth "+authority.Addr()+" {\nuri /auth\n}\nreverse_proxy "+up.Addr()+" {\ntransport fastcgi\n}\n}"))
	answered := make(chan string)
	go func() {
		_, body := briefCall(t, s, "create_refund", "/mcp?n=late")
		answered <- body
	}()
	l.await(t, "failed renewals", func() bool { return l.renews >= 2 })
	close(open)
	wantCode(t, <-answered, codeUnknown)
	for n := 1; n <= up.Connections(); n++ {
		up.AwaitEnd(n) // or what was written may not have been read yet
	}
	if n := len(up.Received()); n != 0 {
		t.Errorf("%d bytes of the call arrived", n)
	}
	records, err := l.List(t.Context(), effect.Filter{Limit: 2})
	if err != nil || len(records) != 1 || records[0].State != effect.Ambiguous {
		t.Errorf("on record is %+v (%v)", records, err)
	}
}

// A call that waited for another one, of which the outcome is unknown, has it
// asked for.
func TestJoinedCallIsReconciled(t *testing.T) {
	for _, c := range []struct {
		word string
		code int
		asks int
	}{
		{"committed", effect.CodeInProgress, 1},
		{"unknown", effect.CodeAmbiguous, 1},
	} {
		t.Run(c.word, func(t *testing.T) {
			l := newTap(30*time.Second, true)
			speak := make(chan struct{})
			up := brokenup.TCP(t, func(conn *brokenup.Conn) {
				conn.Read()
				<-speak
			})
			books := brokenup.TCP(t, brokenup.Answer(brokenup.Reply{Body: c.word}))
			cfg := briefly(fmt.Sprintf("tapped_sqlite %q", filepath.Join(t.TempDir(), "effects.db")), "join 1h", "reverse_proxy "+up.Addr())
			cfg.Site = strings.Replace(cfg.Site, "effect refund", "reconcile http://"+books.Addr()+"/\neffect refund", 1)
			s := incaddy.Run(t, cfg)
			var calls sync.WaitGroup
			calls.Go(func() {
				_, body := briefCall(t, s, "create_refund", "/mcp?n=1")
				wantCode(t, body, codeUnknown)
			})
			up.AwaitRequest(1)
			calls.Go(func() {
				_, body := briefCall(t, s, "create_refund", "/mcp?n=2")
				wantCode(t, body, c.code)
			})
			l.await(t, "a call that waits", func() bool { return len(l.calls) > 1 })
			close(speak)
			calls.Wait()
			if n := len(books.Requests()); n != c.asks {
				t.Errorf("asked %d times, want %d", n, c.asks)
			}
			if n := len(up.Requests()); n != 1 {
				t.Errorf("%d deliveries, want 1", n)
			}
		})
	}
}
