//go:build linux

package crash

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/effect"
)

// Eight Caddys share one ledger, and eight callers of each make the same call.
func TestManyProcesses(t *testing.T) {
	const processes, callers, payments = 8, 8, 5
	for _, c := range []struct {
		name    string
		options string
		script  string
		// others reports whether a caller who was not let through may be told so.
		others func(a *answer) bool
	}{
		{"while it waits", "", waits, func(a *answer) bool { return a.refusedFor(effect.CodeInProgress, effect.Executing) }},
		{"while it ends", "", answers, func(a *answer) bool {
			return a.replayed() != "" || a.refusedFor(effect.CodeInProgress, effect.Executing)
		}},
		{"joined", "join 1m", answers, func(a *answer) bool { return a.replayed() != "" }},
		{"and its answer is lost", "", hangsUp, func(a *answer) bool {
			return a.refusedFor(effect.CodeInProgress, effect.Executing) || a.refusedFor(effect.CodeAmbiguous, effect.Ambiguous)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlace(t, "")
			p.options = c.options
			up := serve(t, p)
			caddys := make([]*process, processes)
			for i := range caddys {
				caddys[i] = p.launch(t, fmt.Sprint("caddy", i))
			}
			for _, c := range caddys {
				c.await(t, c.serving)
			}
			for n := range payments {
				payment := fmt.Sprint("txn_", n)
				told := make(chan answer, processes*callers)
				for i := range processes * callers {
					go func() { told <- newCall(payment, c.script).to(caddys[i%processes]) }()
				}
				refused, passed := 0, []string(nil)
				for range processes * callers {
					a := <-told
					switch {
					case c.others(&a):
						if refused++; refused == processes*callers-1 && c.script == waits {
							up.speak <- struct{}{} // to the one that is left
						}
					default:
						passed = append(passed, a.String())
						if c.script == hangsUp && a.code() != codeUnknown || c.script != hangsUp && a.committed() == "" {
							t.Errorf("answered %s", &a)
						}
					}
				}
				if len(passed) != 1 {
					t.Errorf("%d calls were let through:\n%s", len(passed), strings.Join(passed, "\n"))
				}
				if executed := up.executions(payment); len(executed) != 1 {
					t.Errorf("executed by %v", executed)
				}
			}
		})
	}
}
