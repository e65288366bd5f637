package clients

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/caddymcp/gateway/effect"
)

// refusedWith wants a caller to see a refusal of the gateway, with its code, and the data of a first attempt.
func (r reply) refusedWith(t *testing.T, code int, state effect.State) {
	t.Helper()
	if r.failure == nil || r.code != code {
		t.Errorf("the caller sees %+v, want error %d", r, code)
		return
	}
	key, _ := r.data["key"].(string)
	next, _ := r.data["next"].(string)
	if r.data["state"] != state.String() || r.data["attempt"] != 1.0 || key == "" || next == "" {
		t.Errorf("the data is %v, want state %s of attempt 1, a key and what to do", r.data, state)
	}
}

// refunded wants a caller to see the answer of an execution of create_refund, original or replayed.
func (r reply) refunded(t *testing.T, payment string, execution int, replayed bool) {
	t.Helper()
	want := fmt.Sprintf("refund %d of %s", execution, payment)
	if r.failure != nil || r.text != want || r.number != execution || r.isError || r.word["outcome"] != "committed" || (r.word["replayed"] == true) != replayed {
		t.Errorf("the caller sees %+v, want %q, replayed %t", r, want, replayed)
	}
}

func refund(payment string) map[string]any { return map[string]any{"payment_id": payment} }

// The signature test: a server that acts and does not say so is called once, until a person says that it did not act.
func TestEffectIsNotRepeated(t *testing.T) {
	forEachRevision(t, func(t *testing.T, s sdk, revision string) {
		r := newRefunds(t, revision, "settle_after 1us\ndrain 1us\njoin 30s")
		for _, loss := range losses {
			t.Run(loss.name, func(t *testing.T) {
				for _, committed := range []bool{true, false} {
					t.Run(fmt.Sprintf("committed %t", committed), func(t *testing.T) {
						c := s.connect(t, connection{endpoint: r.url, revision: revision})
						payment := fmt.Sprintf("%s %t", loss.name, committed)
						r.fault(payment, loss.fault)

						ctx, giveUp := context.WithCancel(t.Context())
						defer giveUp()
						if loss.silent {
							go func() {
								<-r.lost
								giveUp()
							}()
						}
						first := c.call(ctx, "create_refund", refund(payment))
						if first.failure == nil || !loss.silent && (first.code != -41010 || first.word["outcome"] != "ambiguous") {
							t.Errorf("the first call: %+v", first)
						}
						if loss.silent && s.holdsOn && revision != modern {
							r.release <- struct{}{}
						}
						for range 2 {
							c.call(t.Context(), "create_refund", refund(payment)).refusedWith(t, effect.CodeAmbiguous, effect.Ambiguous)
						}
						r.want(t, payment, 1, effect.Ambiguous, 1)

						r.resolve(t, payment, committed)
						again := c.call(t.Context(), "create_refund", refund(payment))
						if committed {
							again.refusedWith(t, effect.CodeInProgress, effect.Committed)
							r.want(t, payment, 1, effect.Committed, 1)
							return
						}
						again.refunded(t, payment, 2, false)
						r.want(t, payment, 2, effect.Committed, 2)
						c.call(t.Context(), "create_refund", refund(payment)).refunded(t, payment, 2, true)
						r.want(t, payment, 2, effect.Committed, 2)
					})
				}
			})
		}
	})
}

// A client that loses the answer to a call that acted, and calls again, is given the answer.
func TestLostAnswerIsReplayed(t *testing.T) {
	forEachRevision(t, func(t *testing.T, s sdk, revision string) {
		r := newRefunds(t, revision, "join 30s")
		l := newLine(t, r.url)
		for _, loss := range []struct {
			name string
			lose func(t *testing.T, c caller, payment string) // has the client lose the answer
		}{
			{"after the upstream's answer", func(t *testing.T, c caller, payment string) {
				l.loses.Store(true)
				c.call(t.Context(), "create_refund", refund(payment)).lost(t)
				r.want(t, payment, 1, effect.Committed, 1)
			}},
			{"while the tool is at work", func(t *testing.T, c caller, payment string) {
				ctx, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				first := make(chan reply)
				go func() { first <- c.call(ctx, "create_refund", waitingRefund(payment)) }()
				<-r.running
				l.cut()
				if s.holdsOn && revision != modern {
					giveUp()
				}
				(<-first).lost(t)
				r.want(t, payment, 0, effect.Executing, 1)
				go func() { r.release <- struct{}{} }()
			}},
			{"because it gave up", func(t *testing.T, c caller, payment string) {
				ctx, giveUp := context.WithCancel(t.Context())
				first := make(chan reply)
				go func() { first <- c.call(ctx, "create_refund", waitingRefund(payment)) }()
				<-r.running
				giveUp()
				(<-first).lost(t)
				r.want(t, payment, 0, effect.Executing, 1)
				go func() { r.release <- struct{}{} }()
			}},
		} {
			t.Run(loss.name, func(t *testing.T) {
				c := s.connect(t, connection{endpoint: l.url, revision: revision})
				loss.lose(t, c, loss.name)
				args := refund(loss.name)
				if record, _ := r.record(t, loss.name); record.State == effect.Executing {
					args = waitingRefund(loss.name)
				}
				for range 2 {
					c.call(t.Context(), "create_refund", args).refunded(t, loss.name, 1, true)
				}
				r.want(t, loss.name, 1, effect.Committed, 1)
			})
		}
	})
}

// A client that comes back on another revision is given the answer as that revision has it.
func TestReplayOnAnotherRevision(t *testing.T) {
	forEachRevision(t, func(t *testing.T, s sdk, revision string) {
		r := newRefunds(t, modern, "") // without sessions it is a server for all of them
		first := s.connect(t, connection{endpoint: r.url, revision: revision})
		first.call(t.Context(), "create_refund", refund("txn_1")).refunded(t, "txn_1", 1, false)
		for _, n := range negotiations {
			if n.asked == n.got {
				again := s.connect(t, connection{endpoint: r.url, revision: n.got})
				again.call(t.Context(), "create_refund", refund("txn_1")).refunded(t, "txn_1", 1, true)
			}
		}
		r.want(t, "txn_1", 1, effect.Committed, 1)
	})
}

// lost wants a caller to have no answer of any kind.
func (r reply) lost(t *testing.T) {
	t.Helper()
	if r.failure == nil || r.word != nil || r.code < -40000 {
		t.Errorf("the caller sees %+v, want nothing of the gateway", r)
	}
}

func waitingRefund(payment string) map[string]any {
	return map[string]any{"payment_id": payment, "wait": true}
}

// A tool that asks its user is one effect: held and continued on the revisions where the answer is a call of its own, and
// one exchange on the older ones.
func TestEffectWithAQuestion(t *testing.T) {
	forEachRevision(t, func(t *testing.T, s sdk, revision string) {
		r := newRefunds(t, revision, "")
		for _, answer := range []string{"accept", "decline", "cancel"} {
			t.Run(answer, func(t *testing.T) {
				c := s.connect(t, connection{endpoint: r.url, revision: revision, answer: answer})
				text, executions := "refund 1 of "+answer, 1
				if answer != "accept" {
					text, executions = "not refunded: "+answer, 0
				}
				got := c.call(t.Context(), "confirm_refund", refund(answer))
				if got.text != text || got.word["outcome"] != "committed" || got.word["replayed"] != nil {
					t.Errorf("the caller sees %+v, want %q", got, text)
				}
				r.want(t, answer, executions, effect.Committed, 1)
				transitions := []string{"executing 1", "committed 1 complete_legacy"}
				if revision == modern {
					transitions = []string{"executing 1", "held 1 input_required", "executing 1", "committed 1 complete"}
				}
				r.wantTransitions(t, answer, transitions...)

				again := c.call(t.Context(), "confirm_refund", refund(answer))
				if again.text != text || again.word["replayed"] != true {
					t.Errorf("the caller sees %+v, want %q replayed", again, text)
				}
				c.call(t.Context(), "create_refund", refund(answer)).refusedWith(t, effect.CodeInProgress, effect.Committed)
				r.want(t, answer, executions, effect.Committed, 1)
			})
		}
	})
}

// A call whose continuation was lost or refused is not begun again, nor continued: what it did before it asked is not known.
// After a refused token a client continues it by itself.
func TestEffectOfALostContinuation(t *testing.T) {
	forEachSDK(t, func(t *testing.T, s sdk) {
		r := newRefunds(t, modern, byUser)
		for _, second := range []struct {
			name       string
			fault      fault
			executions int
			code       int
		}{
			{"lost", commitThen(func(*refunds, *net.TCPConn, []byte) {}), 1, -41010},
			{"refused", refusedAs(-32602), 0, -32602},
			{"token refused", refuse(http.StatusUnauthorized, challenge, ""), 0, effect.CodeAmbiguous},
		} {
			t.Run(second.name, func(t *testing.T) {
				c := s.connect(t, connection{endpoint: r.url, revision: modern, user: "ann", login: true})
				r.fault(second.name, func(r *refunds, w http.ResponseWriter, q *http.Request, next http.Handler) {
					r.fault(second.name, second.fault)
					next.ServeHTTP(w, q)
				})
				if got := c.call(t.Context(), "confirm_refund", refund(second.name)); got.code != second.code {
					t.Errorf("the caller sees %+v, want code %d", got, second.code)
				}
				c.call(t.Context(), "confirm_refund", refund(second.name)).refusedWith(t, effect.CodeAmbiguous, effect.Ambiguous)
				r.want(t, second.name, second.executions, effect.Ambiguous, 1)
			})
		}
	})
}

// The SDKs answer a tool up to ten times, as often as the gateway does by default. Here it lets eight answers through, and the call stays held.
func TestEffectWithTooManyQuestions(t *testing.T) {
	forEachSDK(t, func(t *testing.T, s sdk) {
		r := newRefunds(t, modern, "elicitation_rounds 8")
		c := s.connect(t, connection{endpoint: r.url, revision: modern})
		before := len(r.arrivals(http.MethodPost, "tools/call"))
		if got := c.call(t.Context(), "doubt_refund", refund("txn_1")); got.code != effect.CodeNoContinuation {
			t.Errorf("the caller sees %+v, want code %d", got, effect.CodeNoContinuation)
		}
		if n := len(r.arrivals(http.MethodPost, "tools/call")) - before; n != 9 {
			t.Errorf("%d calls reached the server, want the first one and 8 answers", n)
		}
		c.call(t.Context(), "doubt_refund", refund("txn_1")).refusedWith(t, effect.CodeInProgress, effect.Held)
		r.want(t, "txn_1", 0, effect.Held, 1)
	})
}

// Of clients that make the same call at the same time one gets the answer, and the others the same one again.
func TestEffectOfManyAtOnce(t *testing.T) {
	forEachRevision(t, func(t *testing.T, s sdk, revision string) {
		r := newRefunds(t, revision, "join 30s")
		for _, tool := range []string{"waits", "is quick"} {
			t.Run("the tool "+tool, func(t *testing.T) {
				args := map[string]any{"payment_id": tool, "wait": tool == "waits"}
				replies := make(chan reply)
				for range 8 {
					c := s.connect(t, connection{endpoint: r.url, revision: revision})
					go func() { replies <- c.call(t.Context(), "create_refund", args) }()
				}
				if tool == "waits" {
					<-r.running
					r.release <- struct{}{}
				}
				originals := 0
				for range 8 {
					got := <-replies
					got.refunded(t, tool, 1, got.word["replayed"] == true)
					if got.word["replayed"] != true {
						originals++
					}
				}
				if originals != 1 {
					t.Errorf("%d originals, want 1", originals)
				}
				r.want(t, tool, 1, effect.Committed, 1)
			})
		}
	})
}
