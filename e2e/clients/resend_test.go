package clients

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caddymcp/gateway/effect"
)

// byUser tells callers apart by what they call themselves.
const byUser = "principal {http.request.header.X-User}"

var (
	challenge = http.Header{"Www-Authenticate": {`Bearer error="invalid_token"`}}
	ofJSON    = http.Header{"Content-Type": {"application/json"}}
)

func refusedAs(code int) fault {
	return refuse(http.StatusBadRequest, ofJSON, fmt.Sprintf(`{"jsonrpc":"2.0","id":$id,"error":{"code":%d,"message":"no"}}`, code))
}

// refusals are those after which a client, or its user, sends a call again.
var refusals = []struct {
	name        string
	refusal     fault
	observation string // of the first attempt
	code        int    // of the error, where the client does not send again by itself and shows it
	login       bool   // the client has one
	era         string // "modern" or "legacy"; both if empty
	resent      []string
	lost        bool // the client cannot be used any more
}{
	{name: "header mismatch", refusal: refusedAs(-32020), observation: "error_before_dispatch", code: -32020, era: "modern", resent: []string{"TypeScript"}},
	{name: "unsupported version", refusal: refusedAs(-32022), observation: "error_before_dispatch", code: -32022, era: "modern"},
	{name: "token refused", refusal: refuse(http.StatusUnauthorized, challenge, ""), observation: "http_refusal", login: true, resent: []string{"Go", "TypeScript"}},
	{name: "token refused without a challenge", refusal: refuse(http.StatusUnauthorized, nil, ""), observation: "http_refusal", login: true, resent: []string{"Go", "TypeScript"}},
	{name: "scope refused", refusal: refuse(http.StatusForbidden, challenge, ""), observation: "http_refusal", login: true, resent: []string{"Go"}},
	{name: "session gone", refusal: refuse(http.StatusNotFound, nil, "session not found"), observation: "http_refusal", era: "legacy", lost: true},
}

// What a client sends again by itself, and what its user repeats, passes at once after a refusal that proves that nothing
// happened.
func TestResendAfterRefusal(t *testing.T) {
	forEachRevision(t, func(t *testing.T, s sdk, revision string) {
		r := newRefunds(t, revision, "")
		for _, refusal := range refusals {
			if refusal.era != "" && (refusal.era == "modern") != (revision == modern) {
				continue
			}
			t.Run(refusal.name, func(t *testing.T) {
				how := connection{endpoint: r.url, revision: revision, login: refusal.login}
				c := s.connect(t, how)
				payment := refusal.name
				r.fault(payment, refusal.refusal)
				before := len(r.arrivals(http.MethodPost, "tools/call"))

				first := c.call(t.Context(), "create_refund", refund(payment))
				if slices.Contains(refusal.resent, s.name) {
					first.refunded(t, payment, 1, false)
				} else {
					if first.failure == nil || first.code != refusal.code {
						t.Errorf("the caller sees %+v, want code %d", first, refusal.code)
					}
					r.want(t, payment, 0, effect.Failed, 1)
					if refusal.lost {
						c = s.connect(t, how)
					}
					c.call(t.Context(), "create_refund", refund(payment)).refunded(t, payment, 1, false)
				}
				c.call(t.Context(), "create_refund", refund(payment)).refunded(t, payment, 1, true)
				r.want(t, payment, 1, effect.Committed, 2)
				r.wantTransitions(t, payment, "executing 1", "failed 1 "+refusal.observation, "executing 2", "committed 2 "+complete(revision))
				if n := len(r.arrivals(http.MethodPost, "tools/call")) - before; n != 2 {
					t.Errorf("%d calls reached the server, want 2", n)
				}
			})
		}
	})
}

// A refusal of the gateway's own comes before the record: a client that knows an old definition of the tool is refused, and
// reserves nothing.
func TestResendAfterOwnRefusal(t *testing.T) {
	forEachSDK(t, func(t *testing.T, s sdk) {
		r := newRefunds(t, modern, "param_headers require")
		c := s.connect(t, connection{endpoint: r.url, revision: modern})
		mcp.AddTool(r.features, &mcp.Tool{Name: "create_refund", InputSchema: &jsonschema.Schema{
			Type: "object",
			Properties: map[string]*jsonschema.Schema{
				"payment_id": {Type: "string", Extra: map[string]any{"x-mcp-header": "Payment"}},
			},
		}}, r.create)
		s.connect(t, connection{endpoint: r.url, revision: modern}) // it lists the tools, and the gateway learns

		first := c.call(t.Context(), "create_refund", refund("txn_1"))
		if s.name == "TypeScript" {
			first.refunded(t, "txn_1", 1, false)
		} else {
			if first.code != -32020 {
				t.Errorf("the caller sees %+v, want code -32020", first)
			}
			r.want(t, "txn_1", 0, effect.None, 0)
			c = s.connect(t, connection{endpoint: r.url, revision: modern})
			c.call(t.Context(), "create_refund", refund("txn_1")).refunded(t, "txn_1", 1, false)
		}
		r.want(t, "txn_1", 1, effect.Committed, 1)
		if n := len(r.arrivals(http.MethodPost, "tools/call")); n != 1 {
			t.Errorf("%d calls reached the server, want 1", n)
		}
	})
}

// complete is the observation of a call that was answered.
func complete(revision string) string {
	if revision == modern {
		return "complete"
	}
	return "complete_legacy"
}

// The SDK for Go logs in again and sends a call once more after any 403. One without a challenge may be the tool's own word,
// and proves nothing.
func TestResendAfterUnprovenRefusal(t *testing.T) {
	forBothEras(t, func(t *testing.T, s sdk, revision string) {
		r := newRefunds(t, revision, byUser)
		c := s.connect(t, connection{endpoint: r.url, revision: revision, user: "ann", login: true})
		r.fault("txn_1", commitThen(func(_ *refunds, conn *net.TCPConn, _ []byte) {
			fmt.Fprint(conn, "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n",
				`{"jsonrpc":"2.0","error":{"code":-32000,"message":"the limit of the day is reached"}}`)
		}))
		first := c.call(t.Context(), "create_refund", refund("txn_1"))
		if s.name == "Go" {
			first.refusedWith(t, effect.CodeAmbiguous, effect.Ambiguous)
		} else if first.failure == nil {
			t.Errorf("the caller sees %+v, want a failure", first)
		}
		c.call(t.Context(), "create_refund", refund("txn_1")).refusedWith(t, effect.CodeAmbiguous, effect.Ambiguous)
		r.want(t, "txn_1", 1, effect.Ambiguous, 1)
	})
}

// A caller who comes back with a new token is another one, unless it is configured who callers are.
func TestReplayAfterNewToken(t *testing.T) {
	for _, principal := range []bool{false, true} {
		t.Run(fmt.Sprintf("principal %t", principal), func(t *testing.T) {
			forBothEras(t, func(t *testing.T, s sdk, revision string) {
				options := ""
				if principal {
					options = byUser
				}
				r := newRefunds(t, revision, options)
				l := newLine(t, r.url)
				c := s.connect(t, connection{endpoint: l.url, revision: revision, user: "ann", login: true})
				l.loses.Store(true)
				c.call(t.Context(), "create_refund", refund("txn_1")).lost(t)
				r.fault("txn_2", refuse(http.StatusUnauthorized, challenge, ""))
				c.call(t.Context(), "create_refund", refund("txn_2")).refunded(t, "txn_2", 1, false)

				again := c.call(t.Context(), "create_refund", refund("txn_1"))
				if principal {
					again.refunded(t, "txn_1", 1, true)
				} else if again.code != effect.CodeInProgress || again.data["state"] != "committed" || len(again.data) != 2 {
					t.Errorf("the caller sees %+v, want code and state alone", again)
				}
				c.call(t.Context(), "create_refund", refund("txn_2")).refunded(t, "txn_2", 1, true)
				r.want(t, "txn_1", 1, effect.Committed, 1)
			})
		})
	}
}

// wantTransitions checks the receipts of a payment: the state that each led to, the attempt, and the observation.
func (r *refunds) wantTransitions(t *testing.T, payment string, want ...string) {
	t.Helper()
	_, receipts := r.record(t, payment)
	var got []string
	for _, receipt := range receipts {
		line := fmt.Sprintf("%s %d", receipt.To, receipt.Attempt)
		if receipt.Observation != "" {
			line += " " + receipt.Observation
		}
		got = append(got, line)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the receipts are %q, want %q", got, want)
	}
}
