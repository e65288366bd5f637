//go:build unix

package exchange

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

func init() {
	caddy.RegisterModule(&watcher{})
	httpcaddyfile.RegisterHandlerDirective("watch", func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return new(watcher), nil
	})
	httpcaddyfile.RegisterDirectiveOrder("watch", httpcaddyfile.Before, "map")
	caddy.RegisterModule(&holder{})
	httpcaddyfile.RegisterHandlerDirective("hold", func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return new(holder), nil
	})
	httpcaddyfile.RegisterDirectiveOrder("hold", httpcaddyfile.Before, "reverse_proxy")
}

// held tells a holder's test that a request is there, and holds it.
var held struct{ begun, end chan struct{} }

// holder is a handler that holds a request on its way to the upstream.
type holder struct{}

func (*holder) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.hold", New: func() caddy.Module { return new(holder) }}
}

func (*holder) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

func (*holder) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	close(held.begun)
	<-held.end
	return next.ServeHTTP(w, r)
}

// left has a value for each request that is over for its client.
var left = make(chan struct{}, 100)

// watcher is a handler that tells when its client is gone.
type watcher struct{}

func (*watcher) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.watch", New: func() caddy.Module { return new(watcher) }}
}

func (*watcher) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

func (*watcher) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	stop := context.AfterFunc(r.Context(), func() { left <- struct{}{} })
	defer stop()
	return next.ServeHTTP(w, r)
}

// leaving is a client that makes calls and goes away.
type leaving struct {
	client *http.Client
	ctx    context.Context
	leave  context.CancelFunc
	done   chan struct{}
}

func newLeaving(t *testing.T, http2 bool) *leaving {
	t.Helper()
	c := &leaving{client: incaddy.Client(t, false), done: make(chan struct{})}
	if http2 {
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		c.client.Transport.(*http.Transport).Protocols = protocols
	}
	c.ctx, c.leave = context.WithCancel(t.Context())
	return c
}

// call makes a call in the background, and returns under which URI.
func (c *leaving) call(s *incaddy.Site, m message) (uri string) {
	r := m.request(c.ctx, s.URL)
	go func() {
		defer close(c.done)
		send(c.client, r, m.uri)
	}()
	return m.uri
}

// gone lets the client go away, and returns once the gateway knows.
func (c *leaving) gone(t *testing.T) {
	t.Helper()
	c.leave()
	<-c.done
	select {
	case <-left:
	case <-time.After(patience):
		t.Fatal("the gateway does not notice that the client is gone")
	}
}

// The upstream of a call whose client goes away is read to the end of its
// answer, wherever that is by then, and the client that comes back is told.
func TestDrain(t *testing.T) {
	pad := large(40 << 10)
	largeAnswer := answering(`{"resultType":"complete","text":"` + pad + `"}`)
	for _, c := range []struct {
		name, options  string
		before, after  string // of the response, as the upstream writes it
		kept, withText bool
	}{
		{"before the head", "", "", jsonResponse(complete), true, false},
		{"after the head", "", jsonResponse(complete)[:90], jsonResponse(complete)[90:], true, false},
		{"in the middle of JSON", "", begun(jsonResponse(complete)), rest(jsonResponse(complete)), true, false},
		{"in the middle of large JSON", "response_buffer 1KiB\n", jsonResponse(largeAnswer)[:20<<10], jsonResponse(largeAnswer)[20<<10:], true, true},
		{"in the middle of JSON that is not kept", "response_buffer 1KiB\nreplay 1KiB\n", jsonResponse(largeAnswer)[:20<<10], jsonResponse(largeAnswer)[20<<10:], false, false},
		{"JSON that becomes large", "response_buffer 1KiB\n", begun(jsonResponse(largeAnswer)), rest(jsonResponse(largeAnswer)), true, true},
		{"after the head of a stream", "", streamHead, chunkOf(progress(1)) + chunkOf(final) + lastChunk, true, false},
		{"between events", "", streamHead + chunkOf(progress(1)), chunkOf(progress(2)) + chunkOf(final) + lastChunk, true, false},
		{"in the middle of an event", "", streamHead + chunkOf(progress(1)) + chunkOf(begun(final)), chunkOf(rest(final)) + lastChunk, true, false},
		{"a stream that stays open", "", streamHead + chunkOf(progress(1)), chunkOf(final) + chunkOf(": more\n\n"), true, false},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2: %v", c.name, http2), func(t *testing.T) {
				begun, speak := make(chan struct{}), make(chan struct{})
				up := brokenup.TCP(t, func(conn *brokenup.Conn) {
					r, ok := conn.Read()
					if !ok {
						return
					}
					conn.Send(strings.ReplaceAll(c.before, "$id", r.ID()))
					close(begun)
					<-speak
					conn.Send(strings.ReplaceAll(c.after, "$id", r.ID()))
				})
				p := protectWatched(t, refundTool+"join 1m\n"+c.options, proxy(up.Addr()))
				client := newLeaving(t, http2)
				uri := client.call(p.Site, refund())
				<-begun
				client.gone(t)
				p.wantState(t, effect.Executing, 1)

				answered := make(chan answer)
				go func() { answered <- call(t, p.Site, refund()) }()
				close(speak)
				if a := <-answered; !c.kept {
					a.refusedWith(t, effect.CodeInProgress)
				} else if result := a.replays(t, "1"); c.withText && string(result["text"]) != `"`+pad+`"` {
					t.Errorf("the answer that was stored is %.100s", a.body)
				}
				committed.checkLog(t, p.Site, uri)
				p.wantState(t, effect.Committed, 1)
				if n := deliveries(up); n != 1 {
					t.Errorf("%d deliveries, want 1", n)
				}
			})
		}
	}
}

// protectWatched is protect for a site that tells when its clients leave.
func protectWatched(t *testing.T, options, rest string) *protected {
	t.Helper()
	for len(left) > 0 {
		<-left
	}
	path := filepath.Join(t.TempDir(), "effects.db")
	cfg := site(options, "watch\n"+rest)
	cfg.Global = fmt.Sprintf("mcp_gateway {\nledger sqlite %q\n}", path)
	cfg.Servers = "protocols h1 h2c"
	return &protected{incaddy.Run(t, cfg), path}
}

const (
	streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	lastChunk  = "0\r\n\r\n"
)

// jsonResponse is a response with a JSON body to a request whose id has one
// byte.
func jsonResponse(body string) string {
	body = strings.ReplaceAll(body, "$id", "1")
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func chunkOf(text string) string {
	text = strings.ReplaceAll(text, "$id", "1")
	return fmt.Sprintf("%x\r\n%s\r\n", len(text), text)
}

// begun is what of an answer comes before the result's type, and rest what is left.
func begun(text string) string { return text[:strings.Index(text, "resultType")] }
func rest(text string) string  { return text[strings.Index(text, "resultType"):] }

// What becomes of a call is learned in time or not at all: then it is
// ambiguous, and the upstream is let go.
func TestDrainIsOver(t *testing.T) {
	clientGone := want{outcome: "ambiguous", observation: "client_gone"}
	for name, before := range map[string]string{
		"before the head":       "",
		"in the middle of JSON": begun(jsonResponse(complete)),
		"between events":        streamHead + chunkOf(progress(1)),
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2: %v", name, http2), func(t *testing.T) {
				begun := make(chan struct{})
				up := brokenup.TCP(t, func(c *brokenup.Conn) {
					c.Read()
					c.Send(before)
					close(begun)
					c.Drain()
				})
				p := protectWatched(t, refundTool+"drain 1us", proxy(up.Addr()))
				client := newLeaving(t, http2)
				uri := client.call(p.Site, refund())
				<-begun
				client.gone(t)
				clientGone.checkLog(t, p.Site, uri)
				up.AwaitEnd(1)
				if r, _ := p.record(t); r.State != effect.Ambiguous || r.Observation != "client_gone" {
					t.Errorf("on record is %s, by %s", r.State, r.Observation)
				}
				call(t, p.Site, refund()).refusedWith(t, effect.CodeAmbiguous)
				if n := deliveries(up); n != 1 {
					t.Errorf("%d deliveries, want 1", n)
				}
			})
		}
	}
}

// Only so many upstreams are read for clients that are gone.
func TestDrainIsBounded(t *testing.T) {
	speak := make(chan struct{})
	up := brokenup.TCP(t, func(c *brokenup.Conn) {
		r, ok := c.Read()
		if !ok {
			return
		}
		<-speak
		c.Reply(brokenup.JSON(complete).For(r))
	})
	p := protectWatched(t, refundTool+"max_drained 1", proxy(up.Addr()))
	var clients []*leaving
	var uris []string
	for i := range 2 {
		client := newLeaving(t, false)
		clients = append(clients, client)
		uris = append(uris, client.call(p.Site, message{args: fmt.Sprintf(`{"payment_id":"txn_%d"}`, i)}))
	}
	up.AwaitRequest(2)
	for _, client := range clients {
		client.gone(t)
	}
	over := p.Log.Await(t, "the call that is not drained", func(e *incaddy.Entry) bool { return e.Access() })
	close(speak)
	if over.MCP == nil || over.MCP.Outcome != "ambiguous" || over.MCP.Observation != "client_gone" {
		t.Errorf("logged %s", over.Line)
	}
	drained := 0
	for i, uri := range uris {
		e := p.Log.Access(t, uri)
		r, _, err := p.ledger(t).Load(t.Context(), effect.NewKey("", "refund", fmt.Sprintf("txn_%d", i)))
		if err != nil || r.State.String() != e.MCP.Outcome {
			t.Errorf("logged %s, on record is %s, %v", e.MCP.Outcome, r.State, err)
		}
		if r.State == effect.Committed {
			drained++
		}
	}
	if drained != 1 {
		t.Errorf("%d calls were drained, want 1", drained)
	}

	// There is room again.
	client := newLeaving(t, false)
	uri := client.call(p.Site, message{args: `{"payment_id":"txn_3"}`})
	committed.checkLog(t, p.Site, uri)
}

// That nothing was sent is proven as at any other time.
func TestDrainOfACallThatIsNotSent(t *testing.T) {
	inner := make(chan struct{})
	held.begun, held.end = make(chan struct{}), inner
	p := protectWatched(t, refundTool, "hold\n"+proxy(brokenup.Refused(t)))
	client := newLeaving(t, false)
	uri := client.call(p.Site, refund())
	<-held.begun
	client.gone(t)
	close(inner)
	want{outcome: "failed", observation: "never_connected"}.checkLog(t, p.Site, uri)
	p.wantState(t, effect.Failed, 1)
}
