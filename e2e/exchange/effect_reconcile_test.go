//go:build unix

package exchange

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup"
)

// reconciled is the block of a tool of which somebody can be asked.
func reconciled(tool, url string, lines ...string) string {
	return fmt.Sprintf("tool %s {\neffect refund {http.mcp.args.payment_id}\nreconcile %s\n%s\n}\n", tool, url, strings.Join(lines, "\n"))
}

// word answers with one word.
func word(w string) brokenup.Script { return brokenup.Answer(brokenup.Reply{Body: w}) }

// Who is asked about an effect is whoever knows of the tool that may have made
// it, and not of one that shares its key: they may look in other books.
func TestReconcileAsksForTheToolOnRecord(t *testing.T) {
	up := brokenup.TCP(t, brokenup.ReadThenClose)
	others := brokenup.TCP(t, word("not_executed"))
	p := protect(t, refundTool+reconciled("refund_card", "http://"+others.Addr()+"/")+"settle_after 1us", proxy(up.Addr()))
	call(t, p.Site, refund())
	m := refund()
	m.tool = "refund_card"
	call(t, p.Site, m).refusedWith(t, effect.CodeAmbiguous)
	p.wantState(t, effect.Ambiguous, 1)
	if n := deliveries(up); n != 1 {
		t.Errorf("%d deliveries, want 1", n)
	}
	if n := deliveries(others); n != 0 {
		t.Errorf("the books of the other tool were asked %d times", n)
	}
}
