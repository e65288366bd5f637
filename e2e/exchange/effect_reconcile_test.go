//go:build unix

package exchange

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
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

// Secrets in the URL or the headers of a reconciler are not logged, and a Host
// that is configured is the one that it sees.
func TestReconcileRequest(t *testing.T) {
	t.Setenv("BOOKS_TOKEN", "s3cret")
	up := brokenup.TCP(t, brokenup.ReadThenClose)
	books := brokenup.TCP(t, brokenup.ReadThenClose)
	p := protect(t, reconciled("create_refund", "http://"+books.Addr()+"/lookup?token={env.BOOKS_TOKEN}",
		"reconcile_header Authorization \"Bearer {env.BOOKS_TOKEN}\"", "reconcile_header Host books.internal"), proxy(up.Addr()))
	call(t, p.Site, refund())
	call(t, p.Site, refund()).refusedWith(t, effect.CodeAmbiguous)
	e := p.Log.Await(t, "that there was no answer", func(e *incaddy.Entry) bool { return strings.Contains(e.Message, "no usable answer") })
	if strings.Contains(e.Line, "s3cret") {
		t.Errorf("logged is %s", e.Line)
	}
	if got := string(books.Received()); !strings.Contains(got, "Authorization: Bearer s3cret\r\n") || !strings.Contains(got, "Host: books.internal\r\n") {
		t.Errorf("it got %s", got)
	}
}

// A header that cannot be sent is refused when the configuration is loaded.
func TestReconcileHeaderThatIsNone(t *testing.T) {
	t.Setenv("BOOKS_TOKEN", "s3cret\nX-More: 1")
	err := incaddy.Refused(t, site(reconciled("create_refund", "http://127.0.0.1:1/", "reconcile_header Authorization \"Bearer {env.BOOKS_TOKEN}\""), "respond 200"))
	if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "reconcile_header: the value of Authorization has bytes that no header can have") {
		t.Errorf("got %v", err)
	}
}

func TestReconcileURLThatIsNone(t *testing.T) {
	t.Setenv("BOOKS", "ftp://ann:s3cret@books")
	err := incaddy.Refused(t, site(reconciled("create_refund", "{env.BOOKS}"), "respond 200"))
	if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), `reconcile: "{env.BOOKS}" is no http or https URL`) {
		t.Errorf("got %v", err)
	}
}

// What is ambiguous when a configuration starts is asked about without a call.
func TestReconcileInTheBackground(t *testing.T) {
	up := brokenup.TCP(t, brokenup.ReadThenClose)
	p := protect(t, refundTool, proxy(up.Addr()))
	call(t, p.Site, refund())
	p.Stop(t)
	books := brokenup.TCP(t, word("committed"))
	p.Site = runProtected(t, p.path, reconciled("create_refund", "http://"+books.Addr()+"/"), proxy(up.Addr()))
	books.AwaitRequest(1)
	p.Log.Await(t, "that it is resolved", func(e *incaddy.Entry) bool { return strings.Contains(e.Message, "not ambiguous") })
	p.wantState(t, effect.Committed, 1)
	if _, receipts := p.record(t); receipts[len(receipts)-1].Who != "reconcile "+books.Addr() {
		t.Errorf("the receipts are %+v", receipts)
	}
}
