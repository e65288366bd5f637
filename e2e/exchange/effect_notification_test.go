//go:build unix

package exchange

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// A call without an id has no answer, and so no outcome: nothing of it goes
// on, whatever else is right or wrong with it.
func TestNotificationOfAProtectedTool(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(brokenup.Reply{Status: http.StatusAccepted}))
	p := protect(t, refundTool+"principal {http.request.header.X-User}", proxy(up.Addr()))
	notify := func(tool, args string) answer {
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
		body := fmt.Sprintf(`{"jsonrpc":"2.0","method":"tools/call","params":{"name":%q,"arguments":%s,%s}}`, tool, args, meta)
		m := message{tool: tool}
		r := m.request(t.Context(), p.URL)
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		return send(incaddy.Client(t, false), r, m.uri)
	}
	for _, args := range []string{refund().args, `{}`, `{"payment_id":"txn_1","n":0.5}`} {
		a := notify("create_refund", args)
		var e rpcError
		if err := unmarshal([]byte(a.body), &e); err != nil || a.status != http.StatusBadRequest || e.Error == nil || e.Error.Code != -32600 || e.ID != nil {
			t.Errorf("%s: answered %d %s", args, a.status, a.body)
		}
	}
	p.wantState(t, effect.None, 0)
	if n := deliveries(up); n != 0 {
		t.Errorf("%d deliveries", n)
	}
}
