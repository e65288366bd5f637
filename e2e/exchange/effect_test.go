//go:build unix

package exchange

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/sqlite"
	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// protected is a site that protects create_refund, and the ledger it uses.
type protected struct {
	*incaddy.Site
	path string
}

const refundTool = `tool create_refund {
	effect refund {http.mcp.args.payment_id}
}
`

// protect runs a site whose ledger is a new one.
func protect(t *testing.T, options, rest string) *protected {
	t.Helper()
	path := filepath.Join(t.TempDir(), "effects.db")
	return &protected{runProtected(t, path, options, rest), path}
}

func runProtected(t *testing.T, path, options, rest string) *incaddy.Site {
	t.Helper()
	cfg := site(options, rest)
	cfg.Global = fmt.Sprintf("mcp_gateway {\nledger sqlite %q\n}", path)
	return incaddy.Run(t, cfg)
}

// ledger opens the ledger beside the gateway, as another process would.
func (p *protected) ledger(t *testing.T) effect.Ledger {
	t.Helper()
	l, err := sqlite.Open(t.Context(), p.path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

var refundKey = effect.NewKey("", "refund", "txn_1")

// refund is a call of the effect refundKey.
func refund() message { return message{args: `{"payment_id":"txn_1"}`} }

// record is what the ledger says of refundKey.
func (p *protected) record(t *testing.T) (effect.Record, []effect.Receipt) {
	t.Helper()
	r, receipts, err := p.ledger(t).Load(t.Context(), refundKey)
	if err != nil {
		t.Fatal(err)
	}
	return r, receipts
}

func (p *protected) wantState(t *testing.T, s effect.State, attempt int64) {
	t.Helper()
	if r, receipts := p.record(t); r.State != s || r.Attempt != attempt {
		t.Errorf("the record is %s, attempt %d; want %s, %d\n%+v", r.State, r.Attempt, s, attempt, receipts)
	}
}

// resolve settles refundKey.
func (p *protected) resolve(t *testing.T, committed bool) {
	t.Helper()
	change, err := p.ledger(t).Apply(t.Context(), effect.Resolution{Key: refundKey, Attempt: 1, Committed: committed, Who: "ann", Why: "looked at the books"})
	if err != nil || change.Answer != effect.Settled {
		t.Fatalf("resolving: %s, %v", change.Answer, err)
	}
}

// refusedWith wants the refusal of a protected call, and returns its data.
func (a answer) refusedWith(t *testing.T, code int) map[string]any {
	t.Helper()
	var e struct {
		ID    json.RawMessage
		Error *struct {
			Code int
			Data map[string]any
		}
	}
	if err := json.Unmarshal([]byte(a.body), &e); err != nil || a.status != http.StatusOK || e.Error == nil || e.Error.Code != code {
		t.Errorf("answered %d %s (%v), want %d under HTTP 200", a.status, a.body, err, code)
		return nil
	}
	return e.Error.Data
}

// commits are the ways in which the answer of a call that happened is lost.
var commits = []struct {
	name   string
	script brokenup.Script
}{
	{"before the head", brokenup.ReadThenClose},
	{"reset", brokenup.ReadThenReset},
	{"after the head", brokenup.Cut(brokenup.JSON(complete), 0)},
	{"mid JSON", brokenup.Cut(brokenup.JSON(complete), 20)},
	{"mid stream", brokenup.Cut(brokenup.SSE("data: "+complete+"\n\n"), 20)},
	{"garbage", brokenup.Answer(brokenup.JSON("<html>"))},
}

// The signature test: an upstream that acts and does not say so is called once,
// until a person says that it did not act.
func TestEffectIsNotRepeated(t *testing.T) {
	for _, c := range commits {
		t.Run(c.name, func(t *testing.T) {
			up := brokenup.TCP(t, c.script)
			p := protect(t, refundTool+"settle_after 1us", proxy(up.Addr()))

			call(t, p.Site, refund())
			p.wantState(t, effect.Ambiguous, 1)
			data := call(t, p.Site, refund()).refusedWith(t, effect.CodeAmbiguous)
			if data["state"] != "ambiguous" || data["key"] != refundKey.Text || data["attempt"] != 1.0 || data["next"] == "" {
				t.Errorf("the refusal says %v", data)
			}
			if n := deliveries(up); n != 1 {
				t.Fatalf("%d deliveries, want 1", n)
			}

			p.resolve(t, false)
			call(t, p.Site, refund())
			p.wantState(t, effect.Ambiguous, 2)
			if n := deliveries(up); n != 2 {
				t.Errorf("%d deliveries, want the one that was allowed", n)
			}
		})
	}
}

func TestEffectResolvedCommitted(t *testing.T) {
	up := brokenup.TCP(t, brokenup.ReadThenClose)
	p := protect(t, refundTool, proxy(up.Addr()))
	call(t, p.Site, refund())
	p.resolve(t, true)
	if data := call(t, p.Site, refund()).refusedWith(t, effect.CodeInProgress); data["state"] != "committed" {
		t.Errorf("the refusal says %v", data)
	}
	if n := deliveries(up); n != 1 {
		t.Errorf("%d deliveries, want 1", n)
	}
}

// An upstream that falls silent is waited for; the client is not.
func TestEffectOfAClientThatGoesAway(t *testing.T) {
	speak := make(chan struct{})
	arrived := make(chan struct{}, 1)
	up := brokenup.TCP(t, func(c *brokenup.Conn) {
		r, ok := c.Read()
		if !ok {
			return
		}
		arrived <- struct{}{}
		<-speak
		c.Reply(brokenup.JSON(complete).For(r))
	})
	p := protect(t, refundTool+"join 1m", proxy(up.Addr()))
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	m := refund()
	r := m.request(ctx, p.URL)
	go func() {
		defer close(gone)
		send(incaddy.Client(t, false), r, m.uri)
	}()
	<-arrived
	cancel()
	<-gone
	call(t, p.Site, message{args: `{"payment_id":"txn_1","amount":5}`}).refusedWith(t, effect.CodeInProgress)
	again := make(chan answer)
	go func() {
		m := refund()
		m.id = `"again"`
		again <- call(t, p.Site, m)
	}()
	close(speak)
	a := <-again
	var replay struct {
		ID     string
		Result struct {
			ResultType string
			Meta       map[string]struct {
				Outcome  string
				Replayed bool
			} `json:"_meta"`
		}
	}
	if err := json.Unmarshal([]byte(a.body), &replay); err != nil || replay.ID != "again" || replay.Result.ResultType != "complete" ||
		!replay.Result.Meta[outcomeMember].Replayed || replay.Result.Meta[outcomeMember].Outcome != "committed" {
		t.Errorf("the call that was repeated got %d %s (%v)", a.status, a.body, err)
	}
	p.wantState(t, effect.Committed, 1)
	if n := deliveries(up); n != 1 {
		t.Errorf("%d deliveries, want 1", n)
	}
}

func TestEffectThatWasNeverSent(t *testing.T) {
	p := protect(t, refundTool, proxy(brokenup.Refused(t)))
	for attempt := int64(1); attempt < 4; attempt++ {
		m := refund()
		neverConnected.check(t, p.Site, call(t, p.Site, m))
		p.wantState(t, effect.Failed, attempt)
	}
}

func TestEffectRefusals(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(ok))
	p := protect(t, refundTool, proxy(up.Addr()))
	for _, c := range []struct {
		name, args string
		code       int
		data       string
	}{
		{"no key", `{}`, effect.CodeNoKey, "{http.mcp.args.payment_id}"},
		{"null", `{"payment_id":null}`, effect.CodeNoKey, "{http.mcp.args.payment_id}"},
		{"a fraction", `{"payment_id":"a","items":[0,0,0,{"price":0.1}]}`, effect.CodeNotInteger, "/items/3/price"},
		{"a long integer", `{"payment_id":` + strings.Repeat("9", 5000) + `}`, effect.CodeNoKey, "{http.mcp.args.payment_id}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := call(t, p.Site, message{args: c.args})
			data := a.refusedWith(t, c.code)
			if data["placeholder"] != c.data && data["pointer"] != c.data {
				t.Errorf("the refusal says %s", a.body)
			}
		})
	}
	if n := deliveries(up); n != 0 {
		t.Errorf("%d deliveries of refused calls", n)
	}
}

// A client cannot fill the ledger with the name of a tool.
func TestEffectOfALongName(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(ok))
	p := protect(t, "tool create_* {\neffect refund {http.mcp.args.payment_id}\n}", proxy(up.Addr()))
	m := refund()
	m.legacy, m.tool = true, "create_"+large(2000)
	call(t, p.Site, m).refusedWith(t, effect.CodeNoKey)
	p.wantState(t, effect.None, 0)
	m.tool = m.tool[:1024]
	call(t, p.Site, m)
	p.wantState(t, effect.Committed, 1)
}

// A client that has an event id could go on with the stream where nobody sees
// the outcome.
func TestEffectStreamsHaveNoIDs(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(brokenup.SSE("id: 1\ndata:\n\nid: 2\ndata: "+complete+"\n\n")))
	p := protect(t, refundTool, proxy(up.Addr()))
	if a := call(t, p.Site, refund()); strings.Contains(a.body, "id: ") || !strings.Contains(a.body, `"committed"`) {
		t.Errorf("the client got %q", a.body)
	}
	other := message{tool: "look_up"}
	if a := call(t, p.Site, other); !strings.Contains(a.body, "id: 1\n") || !strings.Contains(a.body, "id: 2\n") {
		t.Errorf("a tool without an effect lost its ids: %q", a.body)
	}
}

// The first gateway decides: one inside it that has something to protect does
// not let a call through that it cannot protect.
func TestEffectInsideAnotherGateway(t *testing.T) {
	for _, lines := range []string{refundTool, "deny create_refund"} {
		up := brokenup.TCP(t, brokenup.Answer(ok))
		p := protect(t, "", "route {\nmcp_gateway {\n"+lines+"\n}\n"+proxy(up.Addr())+"\n}")
		if a := call(t, p.Site, refund()); a.status != http.StatusInternalServerError {
			t.Errorf("%s: answered %d %s", lines, a.status, a.body)
		}
		if n := deliveries(up); n != 0 {
			t.Errorf("%s: %d deliveries", lines, n)
		}
	}
}

// What a server first refuses and then gives a result of may be made twice, and
// somebody must hear of it.
func TestEffectOfARefusalWithAResult(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(brokenup.SSE("data: "+failure("-32602")+"\n\ndata: "+complete+"\n\n")))
	p := protect(t, refundTool, proxy(up.Addr()))
	call(t, p.Site, refund())
	p.wantState(t, effect.Failed, 1)
	if _, receipts := p.record(t); receipts[len(receipts)-1].Answer != effect.Alarm {
		t.Errorf("the receipts are %+v", receipts)
	}
}
