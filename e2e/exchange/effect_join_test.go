//go:build unix

package exchange

import (
	"context"
	"fmt"
	"testing"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// joined sends a call whose upstream waits for speak, and when it is there the
// same call again, to which it returns the answer.
func (p *protected) joined(t *testing.T, up *brokenup.Upstream, speak chan struct{}) answer {
	t.Helper()
	answers := [2]chan answer{make(chan answer, 1), make(chan answer, 1)}
	for i := range answers {
		go func() { answers[i] <- call(t, p.Site, refund()) }()
		up.AwaitRequest(1)
	}
	close(speak)
	<-answers[0]
	return <-answers[1]
}

// A call that waits for the same one gets its answer, or what became of it.
func TestJoin(t *testing.T) {
	for _, c := range []struct {
		name      string
		reply     string // none if empty
		reconcile string // the word of who is asked then; nobody if empty
		code      int    // with which the call that waited is refused; 0 if it has the answer
		state     effect.State
		attempt   int64
		delivered int
	}{
		{"it happened", complete, "", 0, effect.Committed, 1, 1},
		{"it asks for input", asking(`"s1"`), "", effect.CodeInProgress, effect.Held, 1, 1},
		{"nobody knows", "", "", effect.CodeAmbiguous, effect.Ambiguous, 1, 1},
		{"nobody knows, and nobody can be asked", "", "unknown", effect.CodeAmbiguous, effect.Ambiguous, 1, 1},
		{"it is found to have happened", "", "committed", effect.CodeInProgress, effect.Committed, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			speak := make(chan struct{})
			up := brokenup.TCP(t, func(conn *brokenup.Conn) {
				r, ok := conn.Read()
				if !ok {
					return
				}
				<-speak
				if c.reply != "" {
					conn.Reply(brokenup.JSON(c.reply).For(r))
				}
			})
			tool := refundTool
			var books *brokenup.Upstream
			if c.reconcile != "" {
				books = brokenup.TCP(t, brokenup.Answer(brokenup.Reply{Body: c.reconcile}))
				tool = fmt.Sprintf("tool create_refund {\neffect refund {http.mcp.args.payment_id}\nreconcile http://%s/\n}\n", books.Addr())
			}
			p := protect(t, tool+"join 1m\nsettle_after 1us", proxy(up.Addr()))
			second := p.joined(t, up, speak)
			if c.code == 0 {
				second.replays(t, "1")
			} else if data := second.refusedWith(t, c.code); data["state"] != c.state.String() {
				t.Errorf("the call that waited is told %s", second.body)
			}
			p.wantState(t, c.state, c.attempt)
			if n := deliveries(up); n != c.delivered {
				t.Errorf("%d deliveries, want %d", n, c.delivered)
			}
			if books != nil && deliveries(books) != 1 {
				t.Errorf("the books were asked %d times, want once", deliveries(books))
			}
		})
	}
}

// A call that waited for one which failed is made.
func TestJoinOfAFailure(t *testing.T) {
	speak := make(chan struct{})
	up := brokenup.TCP(t, func(c *brokenup.Conn) {
		r, ok := c.Read()
		if !ok {
			return
		}
		<-speak
		reply := brokenup.JSON(failure("-32602"))
		if c.N > 0 {
			reply = brokenup.JSON(complete)
		}
		c.Reply(reply.For(r))
	})
	p := protect(t, refundTool+"join 1m", proxy(up.Addr(), transport("keepalive off")))
	second := p.joined(t, up, speak)
	committed.check(t, p.Site, second)
	p.wantState(t, effect.Committed, 2)
}

// What waits gives up when its time is over, and only so many calls wait.
func TestJoinIsBounded(t *testing.T) {
	speak := make(chan struct{})
	up := brokenup.TCP(t, func(c *brokenup.Conn) {
		r, ok := c.Read()
		if !ok {
			return
		}
		<-speak
		c.Reply(brokenup.JSON(complete).For(r))
	})
	for _, c := range []struct{ name, options string }{
		{"the time", "join 1us"},
		{"the number", "join 1h\nmax_joined 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := protect(t, refundTool+c.options, proxy(up.Addr()))
			before := deliveries(up)
			answers := make(chan answer, 3)
			go func() { answers <- call(t, p.Site, refund()) }()
			up.AwaitRequest(before + 1)
			for range 2 {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					m := refund()
					answers <- send(incaddy.Client(t, false), m.request(ctx, p.URL), m.uri)
				}()
			}
			(<-answers).refusedWith(t, effect.CodeInProgress)
			speak <- struct{}{}
			for range 2 {
				if a := <-answers; c.name == "the number" && a.err != nil || a.status != 200 {
					t.Errorf("answered %d %s %v", a.status, a.body, a.err)
				}
			}
			p.wantState(t, effect.Committed, 1)
			if c.name == "the time" {
				return
			}

			// There is room again.
			next := message{args: `{"payment_id":"txn_2"}`}
			go func() { answers <- call(t, p.Site, next) }()
			up.AwaitRequest(before + 2)
			waited := make(chan answer)
			go func() { waited <- call(t, p.Site, next) }()
			go func() { speak <- struct{}{} }()
			(<-waited).replays(t, "1")
			<-answers
		})
	}
}
