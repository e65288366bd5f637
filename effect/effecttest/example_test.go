package effecttest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/effecttest"
	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/outcome"
)

// The way of a protected call whose answer is lost between gateway and client.
func Example() {
	template, _ := effect.ParseTemplate([]string{"refund", "{http.mcp.args.payment_id}"})
	ledger := effecttest.NewMemory(effecttest.NewClock())
	ctx := context.Background()

	handle := func(id int, token effect.Token) {
		var m jsonrpc.Message
		_ = m.Parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"create_refund","arguments":{"payment_id":"txn_1"}}}`, id))
		key, refusal := template.Key("payments", &m, func(string) (any, bool) { return nil, false })
		if refusal != nil {
			fmt.Println(refusal.Code, refusal)
			return
		}
		fingerprint, outline, refusal := effect.Identify(&m)
		if refusal != nil {
			fmt.Println(refusal.Code, refusal)
			return
		}
		change, err := ledger.Apply(ctx, effect.Call{
			Key: key, Token: token, Tool: "create_refund", Fingerprint: fingerprint, Outline: outline, Caller: "alice",
			Rounds: 8, Lease: 30 * time.Second, SettleAfter: 150 * time.Second, Retain: 30 * 24 * time.Hour,
		})
		if err != nil {
			fmt.Println(effect.CodeNotRecorded) // and withdraw it once the ledger answers
			return
		}
		switch change.Answer {
		case effect.Forward: // what follows is the exchange with the upstream, and its verdict
		case effect.Replay:
			fmt.Println("replayed:", string(change.After.Answer))
			return
		default:
			fmt.Println(change.Answer.Code(), string(change.AppendData(nil)))
			return
		}
		_, _ = ledger.Apply(ctx, effect.Outcome{
			Reservation: change.After.Reservation(), Outcome: outcome.Committed, Observation: "complete", Upstream: "127.0.0.1:9000",
			Answer: []byte(`{"content":[]}`), ReplayFor: 24 * time.Hour,
		})
		fmt.Println("forwarded and recorded")
	}
	handle(1, effect.Token{1})
	handle(2, effect.Token{2})
	// Output:
	// forwarded and recorded
	// replayed: {"content":[]}
}
