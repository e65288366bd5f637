//go:build unix

package exchange

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// inputRequired is what is known of a call whose tool asks for input.
var inputRequired = want{"held", "input_required", http.StatusOK, 0, ""}

// asks is a tool that asks for input in each of the given states, and then is
// done, over JSON or events.
func asks(stream bool, states ...string) brokenup.Script {
	var replies []brokenup.Reply
	for _, state := range states {
		replies = append(replies, said(stream, asking(state)))
	}
	return brokenup.Each(append(replies, said(stream, complete))...)
}

// said is an answer as JSON or as the last of some events.
func said(stream bool, answer string) brokenup.Reply {
	if !stream {
		return brokenup.JSON(answer)
	}
	return brokenup.SSE(progress(1) + "data: " + answer + "\n\n")
}

// wantHeld wants refundKey to be held in a round.
func (p *protected) wantHeld(t *testing.T, round int) {
	t.Helper()
	p.wantState(t, effect.Held, 1)
	if r, _ := p.record(t); r.Hold.Round != round {
		t.Errorf("it is held in round %d, want %d", r.Hold.Round, round)
	}
}

// A continuation passes if it is the held call with its requestState, and else
// is refused and leaves the call held. One that passed does not pass again.
func TestContinuation(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("events: %v", stream), func(t *testing.T) {
			up := brokenup.TCP(t, asks(stream, `"s1"`, `"s2"`))
			p := protect(t, refundTool+"tool pay_back {\neffect refund {http.mcp.args.payment_id}\n}\ntool send_mail {\neffect mail {http.mcp.args.payment_id}\n}",
				proxy(up.Addr()))
			inputRequired.check(t, p.Site, call(t, p.Site, refund()))
			p.wantHeld(t, 1)

			otherArguments := message{args: `{"payment_id":"txn_1","amount":1}`}
			otherTool := message{tool: "pay_back", args: refund().args}
			for _, c := range []struct {
				name string
				m    message
				code int
			}{
				{"another tool of the same effect", continued(otherTool, `"s1"`), effect.CodeNoContinuation},
				{"another tool of another effect", continued(message{tool: "send_mail", args: refund().args}, `"s1"`), effect.CodeNoContinuation},
				{"other arguments", continued(otherArguments, `"s1"`), effect.CodeNoContinuation},
				{"arguments of another effect", continued(message{args: `{"payment_id":"txn_2"}`}, `"s1"`), effect.CodeNoContinuation},
				{"another caller", with(continued(refund(), `"s1"`), "Authorization: Bearer b"), effect.CodeNoContinuation},
				{"a forged state", continued(refund(), `"s2"`), effect.CodeNoContinuation},
				{"a longer state", continued(refund(), `"s1 "`), effect.CodeNoContinuation},
				{"an empty state", continued(refund(), `""`), effect.CodeNoContinuation},
				{"a number", continued(refund(), `1`), effect.CodeNoContinuation},
				{"null", continued(refund(), `null`), effect.CodeNoContinuation},
				{"an object", continued(refund(), `{"requestState":"s1"}`), effect.CodeNoContinuation},
				{"no state", refund(), effect.CodeInProgress},
				{"no state, other arguments", otherArguments, effect.CodeInProgress},
				{"no state, another tool", otherTool, effect.CodeInProgress},
			} {
				t.Run(c.name, func(t *testing.T) {
					call(t, p.Site, c.m).refusedWith(t, c.code)
					p.wantHeld(t, 1)
				})
			}
			if n := deliveries(up); n != 1 {
				t.Fatalf("%d deliveries, want the first", n)
			}

			inputRequired.check(t, p.Site, call(t, p.Site, continued(refund(), `"s1"`)))
			p.wantHeld(t, 2)
			call(t, p.Site, continued(refund(), `"s1"`)).refusedWith(t, effect.CodeNoContinuation)
			p.wantHeld(t, 2)
			committed.check(t, p.Site, call(t, p.Site, continued(refund(), `"s2"`)))
			p.wantState(t, effect.Committed, 1)

			for _, m := range []message{refund(), continued(refund(), `"s1"`), continued(refund(), `"s2"`)} {
				call(t, p.Site, m).replays(t, "1")
			}
			if n := deliveries(up); n != 3 {
				t.Errorf("%d deliveries, want one for each leg", n)
			}
		})
	}
}

// A continuation is of whoever made the call: of the principal, whatever his
// token is by now.
func TestContinuationOfAPrincipal(t *testing.T) {
	up := brokenup.TCP(t, asks(false, `"s1"`))
	p := protect(t, refundTool+"principal {http.request.header.X-User}", proxy(up.Addr()))
	call(t, p.Site, with(refund(), "X-User: ann", "Authorization: Bearer a"))
	call(t, p.Site, with(continued(refund(), `"s1"`), "X-User: bob", "Authorization: Bearer a")).bare(t, effect.CodeNoContinuation, effect.Held)
	p.wantHeld(t, 1)
	committed.check(t, p.Site, call(t, p.Site, with(continued(refund(), `"s1"`), "X-User: ann", "Authorization: Bearer b")))
}

// Of continuations that race exactly one passes.
func TestContinuationsThatRace(t *testing.T) {
	release := make(chan struct{})
	up := brokenup.TCP(t, func(c *brokenup.Conn) {
		r, ok := c.Read()
		if !ok {
			return
		}
		if !strings.Contains(string(r.Body), "requestState") {
			c.Reply(brokenup.JSON(asking(`"s1"`)).For(r))
			return
		}
		<-release
		c.Reply(brokenup.JSON(complete).For(r))
	})
	p := protect(t, refundTool, proxy(up.Addr()))
	call(t, p.Site, refund())

	const racers = 8
	answers := make(chan answer)
	for range racers {
		go func() { answers <- call(t, p.Site, continued(refund(), `"s1"`)) }()
	}
	for range racers - 1 {
		a := <-answers
		if data := a.refusedWith(t, effect.CodeInProgress); data["state"] != "executing" {
			t.Errorf("the loser of a race is told %s", a.body)
		}
	}
	close(release)
	committed.check(t, p.Site, <-answers)
	if n := deliveries(up); n != 2 {
		t.Errorf("%d deliveries, want one for each leg", n)
	}
}

// Once its time has passed nothing continues a call.
func TestContinuationThatIsLate(t *testing.T) {
	for _, c := range []struct {
		name, tool string
		state      effect.State
		late, next int // the codes of a continuation, and of a call that begins again
	}{
		{"the tool may have acted", "", effect.Ambiguous, effect.CodeAmbiguous, effect.CodeAmbiguous},
		{"it has not", "input_required_is_uncommitted\n", effect.Failed, effect.CodeNoContinuation, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := brokenup.TCP(t, asks(false, `"s1"`))
			p := protect(t, strings.Replace(refundTool, "{\n", "{\n"+c.tool, 1)+"elicitation_timeout 1us", proxy(up.Addr()))
			inputRequired.check(t, p.Site, call(t, p.Site, refund()))
			call(t, p.Site, continued(refund(), `"s1"`)).refusedWith(t, c.late)
			if n := deliveries(up); n != 1 {
				t.Fatalf("%d deliveries, want the first", n)
			}
			a := call(t, p.Site, refund())
			if c.next != 0 {
				a.refusedWith(t, c.next)
				p.wantState(t, c.state, 1)
				return
			}
			committed.check(t, p.Site, a)
			p.wantState(t, effect.Committed, 2)
			_, receipts := p.record(t)
			if len(receipts) < 3 || receipts[2].To != effect.Failed || receipts[2].Event != effect.TimeoutUncommitted {
				t.Errorf("the receipts do not say that the first attempt failed: %+v", receipts)
			}
		})
	}
}

// A tool that asks again and again is not followed for ever.
func TestContinuationRounds(t *testing.T) {
	for _, c := range []struct {
		options string
		rounds  int
	}{
		{"", 10},
		{"elicitation_rounds 1", 1},
	} {
		t.Run(fmt.Sprint(c.rounds), func(t *testing.T) {
			var states []string
			for round := range c.rounds + 2 {
				states = append(states, fmt.Sprintf(`"s%d"`, round+1))
			}
			up := brokenup.TCP(t, asks(false, states...))
			p := protect(t, refundTool+c.options, proxy(up.Addr()))
			m := refund()
			for round := range c.rounds + 1 {
				inputRequired.check(t, p.Site, call(t, p.Site, m))
				p.wantHeld(t, round+1)
				m = continued(m, states[round])
			}
			call(t, p.Site, m).refusedWith(t, effect.CodeNoContinuation)
			p.wantHeld(t, c.rounds+1)
			if data := call(t, p.Site, refund()).refusedWith(t, effect.CodeInProgress); !strings.Contains(fmt.Sprint(data["next"]), "elicitation_rounds") {
				t.Errorf("a new call is told %v", data)
			}
			if n := deliveries(up); n != c.rounds+1 {
				t.Errorf("%d deliveries, want %d", n, c.rounds+1)
			}
		})
	}
}

// What fails on a later leg has not failed: an earlier one may have acted.
func TestContinuationNeverFails(t *testing.T) {
	refuses := func(r brokenup.Reply) func(*testing.T, *incaddy.Site, answer) {
		return func(t *testing.T, _ *incaddy.Site, a answer) {
			if a.status != max(r.Status, http.StatusOK) || !strings.Contains(a.body, "before anything") {
				t.Errorf("answered %d %s, want the upstream's word", a.status, a.body)
			}
		}
	}
	invalid := brokenup.JSON(`{"jsonrpc":"2.0","id":$id,"error":{"code":-32602,"message":"before anything"}}`)
	challenge := brokenup.JSON(`{"text":"before anything"}`).With(http.StatusUnauthorized, "WWW-Authenticate: Bearer")
	notExecuted := brokenup.JSON(`{"jsonrpc":"2.0","id":$id,"result":{"resultType":"complete","isError":true,"content":[{"type":"text","text":"before anything"}]}}`)
	for _, c := range []struct {
		name  string
		reply *brokenup.Reply // nil if the upstream is gone
		check func(*testing.T, *incaddy.Site, answer)
	}{
		{"invalid params", &invalid, refuses(invalid)},
		{"unauthorized", &challenge, refuses(challenge)},
		{"not_executed_on_error", &notExecuted, refuses(notExecuted)},
		{"the upstream is gone", nil, func(t *testing.T, s *incaddy.Site, a answer) {
			want{"ambiguous", "never_connected", http.StatusOK, unknown, ""}.check(t, s, a)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			replies := []brokenup.Reply{brokenup.JSON(asking(`"s1"`))}
			if c.reply != nil {
				replies = append(replies, *c.reply)
			}
			up := brokenup.TCP(t, brokenup.Each(replies...))
			p := protect(t, strings.Replace(refundTool, "{\n", "{\nnot_executed_on_error\ninput_required_is_uncommitted\n", 1), proxy(up.Addr(), transport("keepalive off")))
			inputRequired.check(t, p.Site, call(t, p.Site, refund()))
			if c.reply == nil {
				up.Close()
			}
			a := call(t, p.Site, continued(refund(), `"s1"`))
			c.check(t, p.Site, a)
			p.wantState(t, effect.Ambiguous, 1)
			for _, m := range []message{refund(), continued(refund(), `"s1"`)} {
				call(t, p.Site, m).refusedWith(t, effect.CodeAmbiguous)
			}
			if n := deliveries(up); n != len(replies) {
				t.Errorf("%d deliveries, want %d", n, len(replies))
			}
		})
	}
}

// Without a requestState nothing tells which call it is that goes on.
func TestInputRequiredWithoutState(t *testing.T) {
	for _, stream := range []bool{false, true} {
		for name, member := range map[string]string{"none": "", "empty": `,"requestState":""`, "null": `,"requestState":null`} {
			t.Run(fmt.Sprintf("%s, events: %v", name, stream), func(t *testing.T) {
				text := strings.Replace(asking(`"s1"`), `,"requestState":"s1"`, member, 1)
				up := brokenup.TCP(t, brokenup.Each(said(stream, text), said(stream, complete)))
				p := protect(t, strings.Replace(refundTool, "{\n", "{\ninput_required_is_uncommitted\n", 1), proxy(up.Addr()))
				call(t, p.Site, refund())
				p.wantState(t, effect.Ambiguous, 1)
				call(t, p.Site, refund()).refusedWith(t, effect.CodeAmbiguous)
			})
		}
	}
}

// A requestState is its characters, however either side spells them.
func TestContinuationCountsCharacters(t *testing.T) {
	for _, c := range []struct{ name, given, sent string }{
		{"escapes of the server", `"\u0041\/\ud83d\ude00\n"`, "\"A/\U0001F600\\n\""},
		{"escapes of the client", "\"A/\U0001F600\\t\"", `"\u0041\/\uD83D\uDE00\u0009"`},
		{"a long one", `"` + strings.Repeat("s", 100<<10) + `"`, `"` + strings.Repeat(`\u0073`, 100<<10) + `"`},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, events: %v", c.name, stream), func(t *testing.T) {
				up := brokenup.TCP(t, asks(stream, c.given))
				p := protect(t, refundTool, proxy(up.Addr()))
				inputRequired.check(t, p.Site, call(t, p.Site, refund()))
				committed.check(t, p.Site, call(t, p.Site, continued(refund(), c.sent)))
				p.wantState(t, effect.Committed, 1)
			})
		}
	}
}

// What a tool without an effect asks is between it and its client.
func TestContinuationOfAnUnprotectedTool(t *testing.T) {
	up := brokenup.TCP(t, asks(false, `"s1"`))
	p := protect(t, refundTool, proxy(up.Addr()))
	m := message{tool: "list_refunds", args: refund().args}
	inputRequired.check(t, p.Site, call(t, p.Site, m))
	for range 2 {
		committed.check(t, p.Site, call(t, p.Site, continued(m, `"s1"`)))
	}
	p.wantState(t, effect.None, 0)
}

// A continuation that cannot be forwarded, since nothing is held, reserves
// nothing: the call itself passes.
func TestContinuationOfNothing(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(ok))
	p := protect(t, refundTool, proxy(up.Addr()))
	call(t, p.Site, continued(refund(), `"s1"`)).refusedWith(t, effect.CodeNoContinuation)
	p.wantState(t, effect.None, 0)
	committed.check(t, p.Site, call(t, p.Site, refund()))
	p.wantState(t, effect.Committed, 1)
}
