//go:build unix

package exchange

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// sameConn sends messages over one connection, which it wants never to be
// dropped.
func sameConn(t *testing.T, s *incaddy.Site) func(m message) answer {
	t.Helper()
	client := incaddy.Client(t, true)
	return func(m message) answer {
		t.Helper()
		a := send(client, m.request(t.Context(), s.URL), m.uri)
		if a.err != nil {
			t.Fatalf("the connection was dropped: %v", a.err)
		}
		return a
	}
}

// Two spellings of one payment are one effect.
func TestKeyOfOnePayment(t *testing.T) {
	for _, c := range []struct {
		name, effect string
		first        string
		second       string
		again        bool // the second is the same call, which is replayed; or else a conflict
	}{
		{"a number and its text", "refund {http.mcp.args.id}", `{"id":123}`, `{"id":"123"}`, false},
		{"escapes", "refund {http.mcp.args.id}", `{"id":"txn_1"}`, `{"\u0069d":"\u0074xn_1"}`, true},
		{"white space and order", "refund {http.mcp.args.id}", `{"id":"txn_1","amount":5}`, "{ \"amount\" : 5,\n\"id\":\"txn_1\" }", true},
		{"a dotted name and a nested one", "refund {http.mcp.args.order.id}", `{"order":{"id":1}}`, `{"order.id":1}`, false},
		{"another amount", "refund {http.mcp.args.id}", `{"id":"txn_1","amount":5}`, `{"id":"txn_1","amount":6}`, false},
		{"text that is not normalized is other text elsewhere", "refund {http.mcp.args.id}", `{"id":1,"note":"é"}`, `{"id":1,"note":"e\u0301"}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := brokenup.TCP(t, brokenup.Answer(ok))
			p := protect(t, "tool create_refund {\neffect "+c.effect+"\n}", proxy(up.Addr()))
			speak := sameConn(t, p.Site)
			committed.check(t, p.Site, speak(message{args: c.first}))
			a := speak(message{args: c.second})
			if c.again {
				a.replays(t, "1")
			} else if data := a.refusedWith(t, effect.CodeInProgress); data["conflict"] != true || data["state"] != "committed" {
				t.Errorf("the refusal says %s", a.body)
			}
			if n := deliveries(up); n != 1 {
				t.Errorf("%d deliveries, want 1", n)
			}
		})
	}
}

// Two payments are two effects, however much they look alike.
func TestKeysOfTwoPayments(t *testing.T) {
	for _, c := range []struct{ name, effect, first, second string }{
		{"a separator that moves", "{http.mcp.args.a} {http.mcp.args.b}", `{"a":"a:b","b":"c"}`, `{"a":"a","b":"b:c"}`},
		{"a comma and quotes", "{http.mcp.args.a} {http.mcp.args.b}", `{"a":"a\",\"b","b":"c"}`, `{"a":"a","b":"b\",\"c"}`},
		{"a backslash", "{http.mcp.args.a} {http.mcp.args.b}", `{"a":"a\\","b":"b"}`, `{"a":"a","b":"\\b"}`},
		{"swapped", "{http.mcp.args.a} {http.mcp.args.b}", `{"a":"x","b":"y"}`, `{"a":"y","b":"x"}`},
		{"another case", "refund {http.mcp.args.a}", `{"a":"txn_a"}`, `{"a":"TXN_A"}`},
		{"white space", "refund {http.mcp.args.a}", `{"a":"txn"}`, `{"a":"txn "}`},
		{"zeros in front", "refund {http.mcp.args.a}", `{"a":"7"}`, `{"a":"007"}`},
		{"a NUL", "refund {http.mcp.args.a}", `{"a":"txn"}`, `{"a":"txn\u0000"}`},
		{"not normalized", "refund {http.mcp.args.a}", `{"a":"é"}`, `{"a":"e\u0301"}`},
		{"a placeholder as text", "refund {http.mcp.args.a}", `{"a":"{http.mcp.args.b}","b":"x"}`, `{"a":"x","b":"x"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := brokenup.TCP(t, brokenup.Answer(ok))
			p := protect(t, "tool create_refund {\neffect "+c.effect+"\n}", proxy(up.Addr()))
			speak := sameConn(t, p.Site)
			for _, args := range []string{c.first, c.second} {
				committed.check(t, p.Site, speak(message{args: args}))
				speak(message{args: args}).replays(t, "1")
			}
			if n := deliveries(up); n != 2 {
				t.Errorf("%d deliveries, want one for each", n)
			}
		})
	}
}

// A call whose effect cannot be told, or told in one way only, is refused by an
// answer that says what is wrong; its connection goes on.
func TestCallsWithoutOneKey(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(ok))
	p := protect(t, "tool create_refund {\neffect refund {http.mcp.args.payment_id} {http.mcp.args.order.id} {http.request.header.X-Desk}\n}", proxy(up.Addr()))
	speak := sameConn(t, p.Site)
	const payment, order, desk = "{http.mcp.args.payment_id}", "{http.mcp.args.order.id}", "{http.request.header.X-Desk}"
	const deepest = 40 // of what an encoder writes by hand
	for _, c := range []struct {
		name, args string
		status     int
		code       int
		says       string // as the placeholder or the pointer; "" for none
	}{
		{"no arguments", `{}`, 200, effect.CodeNoKey, payment},
		{"one part is absent", `{"payment_id":"a"}`, 200, effect.CodeNoKey, order},
		{"null", `{"payment_id":null,"order":{"id":1}}`, 200, effect.CodeNoKey, payment},
		{"a boolean", `{"payment_id":true,"order":{"id":1}}`, 200, effect.CodeNoKey, payment},
		{"a fraction", `{"payment_id":1.5,"order":{"id":1}}`, 200, effect.CodeNoKey, payment},
		{"an integer with a point", `{"payment_id":2.0,"order":{"id":1}}`, 200, effect.CodeNoKey, payment},
		{"an exponent", `{"payment_id":2e0,"order":{"id":1}}`, 200, effect.CodeNoKey, payment},
		{"negative zero", `{"payment_id":-0,"order":{"id":1}}`, 200, effect.CodeNoKey, payment},
		{"an array", `{"payment_id":["a"],"order":{"id":1}}`, 200, effect.CodeNoKey, payment},
		{"an object", `{"payment_id":{},"order":{"id":1}}`, 200, effect.CodeNoKey, payment},
		{"an empty text", `{"payment_id":"","order":{"id":1}}`, 200, effect.CodeNoKey, payment},
		{"a text of 5,000 digits", `{"payment_id":"` + strings.Repeat("7", 5000) + `","order":{"id":1}}`, 200, effect.CodeNoKey, payment},
		{"a case variant", `{"Payment_id":"a","order":{"id":1}}`, 200, effect.CodeNoKey, payment},
		{"a case variant beside it", `{"payment_id":"a","Payment_id":"b","order":{"id":1}}`, 200, effect.CodeNoKey, payment},
		{"a case variant within", `{"payment_id":"a","order":{"id":1,"ID":2}}`, 200, effect.CodeNoKey, order},
		{"a name that ends for some at its NUL", `{"payment_id":"a","payment_id\u0000":"b","order":{"id":1}}`, 200, effect.CodeNoKey, payment},
		{"a dotted path that is two things", `{"payment_id":"a","order":{"id":1},"order.id":1}`, 200, effect.CodeNoKey, order},
		{"no header", `{"payment_id":"a","order":{"id":1}}`, 200, effect.CodeNoKey, desk},
		{"a fraction elsewhere", `{"payment_id":"a","order":{"id":1},"items":[0,1,2,{"price":0.1}]}`, 200, effect.CodeNotInteger, "/items/3/price"},
		{"an integer with a point elsewhere", `{"payment_id":"a","order":{"id":1},"a/b":{"~":2.0}}`, 200, effect.CodeNotInteger, "/a~1b/~0"},
		{"an exponent elsewhere", `{"payment_id":"a","order":{"id":1},"n":2e0}`, 200, effect.CodeNotInteger, "/n"},
		{"negative zero elsewhere", `{"payment_id":"a","order":{"id":1},"n":-0}`, 200, effect.CodeNotInteger, "/n"},
		{"an integer of 5,000 digits elsewhere", `{"payment_id":"a","order":{"id":1},"n":` + strings.Repeat("7", 5000) + `}`, 200, effect.CodeNotInteger, "/n"},
		{"2^53", `{"payment_id":"a","order":{"id":1},"n":9007199254740992}`, 200, effect.CodeNotInteger, "/n"},
		{"a fraction deep down", `{"payment_id":"a","order":{"id":1},"n":` + strings.Repeat("[", deepest) + "0.5" + strings.Repeat("]", deepest) + `}`, 200, effect.CodeNotInteger, "/n" + strings.Repeat("/0", deepest)},
		{"half a surrogate pair", `{"payment_id":"\ud800","order":{"id":1}}`, 400, -32700, ""},
		{"half a surrogate pair elsewhere", `{"payment_id":"a","order":{"id":1},"note":"\udc00"}`, 400, -32700, ""},
		{"nested too deep", `{"payment_id":"a","order":{"id":1},"n":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`, 400, -32700, ""},
		{"twice", `{"payment_id":"a","payment_id":"b","order":{"id":1}}`, 400, -32600, ""},
		{"arguments that are no object", `["a"]`, 400, -32602, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := message{args: c.args}
			if c.says != desk {
				m = with(m, "X-Desk: 1")
			}
			a := speak(m)
			if c.status != http.StatusOK {
				var e rpcError
				if err := unmarshal([]byte(a.body), &e); err != nil || a.status != c.status || e.Error == nil || e.Error.Code != c.code {
					t.Errorf("answered %d %s, want %d under HTTP %d", a.status, a.body, c.code, c.status)
				}
				return
			}
			data := a.refusedWith(t, c.code)
			name := map[int]string{effect.CodeNoKey: "placeholder", effect.CodeNotInteger: "pointer"}[c.code]
			if data[name] != c.says || len(data) != 1 {
				t.Errorf("the refusal says %s, want %s as the %s", a.body, c.says, name)
			}
		})
	}
	if n := deliveries(up); n != 0 {
		t.Errorf("%d deliveries of refused calls", n)
	}
	if census, err := p.ledger(t).Census(t.Context()); err != nil || len(census.Records) != 0 {
		t.Errorf("on record are %v (%v)", census.Records, err)
	}

	// The same connection takes what is right, and what is not protected.
	committed.check(t, p.Site, speak(with(message{args: `{"payment_id":"a","order":{"id":1},"n":9007199254740991,"note":"0.10"}`}, "X-Desk: 1")))
	committed.check(t, p.Site, speak(message{tool: "list_refunds", args: `{"payment_id":0.10,"n":[2.0,2e0,-0,1e999,` + strings.Repeat("7", 5000) + `]}`}))
}

// A tool may be protected by the beginning of its name.
func TestKeyOfAPattern(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(ok))
	p := protect(t, "tool create_* {\neffect pay {http.mcp.args.payment_id} {http.mcp.name}\n}\ntool create_note {\n}", proxy(up.Addr()))
	for tool, protected := range map[string]bool{"create_refund": true, "create_": true, "create_note": false, "Create_refund": false} {
		t.Run(tool, func(t *testing.T) {
			m := message{tool: tool, args: refund().args}
			committed.check(t, p.Site, call(t, p.Site, m))
			again := call(t, p.Site, m)
			if protected {
				again.replays(t, "1")
			} else if strings.Contains(again.body, "replayed") {
				t.Errorf("answered %s", again.body)
			}
		})
	}
}
