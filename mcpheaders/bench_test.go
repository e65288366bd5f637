package mcpheaders

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/jsonrpc"
)

// modernCall is a usual call of a modern client: 400 bytes of body, 12 headers.
func modernCall(tb testing.TB) (body []byte, header http.Header) {
	tb.Helper()
	text := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"create_refund","arguments":{"payment_id":"pay_29ac",` +
		`"amount":2000,"currency":"EUR","note":"~"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"agent","version":"1.4.0"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	body = []byte(strings.Replace(text, "~", strings.Repeat("n", 400-len(text)+1), 1))
	if len(body) != 400 {
		tb.Fatalf("the body has %d bytes", len(body))
	}
	return body, http.Header{
		"Accept":               {"application/json, text/event-stream"},
		"Accept-Encoding":      {"gzip, br"},
		"Authorization":        {"Bearer eyJhbGciOiJFZERTQSJ9"},
		"Content-Length":       {"400"},
		"Content-Type":         {"application/json"},
		"Mcp-Method":           {"tools/call"},
		"Mcp-Name":             {"create_refund"},
		"Mcp-Param-Currency":   {"EUR"},
		"Mcp-Protocol-Version": {"2026-07-28"},
		"Traceparent":          {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		"User-Agent":           {"agent/1.4.0"},
		"X-Forwarded-For":      {"192.0.2.7"},
	}
}

// BenchmarkAdmission400 is all that admission adds to a call.
func BenchmarkAdmission400(b *testing.B) {
	body, header := modernCall(b)
	policy := &Policy{Revisions: allRevisions(), Tools: NewToolNames([]string{"charge", "create_refund"})}
	b.ReportAllocs()
	for b.Loop() {
		if refusal := policy.Head("POST", header); refusal != nil {
			b.Fatal(refusal.Text)
		}
		var msg jsonrpc.Message
		if _, refusal := policy.Message(&msg, msg.Parse(body), header, nil, nil); refusal != nil {
			b.Fatal(refusal.Text)
		}
	}
}

// BenchmarkLadder is the part of it that this package does.
func BenchmarkLadder(b *testing.B) {
	body, header := modernCall(b)
	policy := &Policy{Revisions: allRevisions(), Tools: NewToolNames([]string{"charge", "create_refund"})}
	var msg jsonrpc.Message
	err := msg.Parse(body)
	b.ReportAllocs()
	for b.Loop() {
		if refusal := policy.Head("POST", header); refusal != nil {
			b.Fatal(refusal.Text)
		}
		if _, refusal := policy.Message(&msg, err, header, nil, nil); refusal != nil {
			b.Fatal(refusal.Text)
		}
	}
}

// BenchmarkToolNames looks names up among 200 configured ones. The last name is
// as large as a body may be.
func BenchmarkToolNames(b *testing.B) {
	var names []string
	for i := range 200 {
		names = append(names, "create_refund"+strings.Repeat("_", i))
	}
	tools := NewToolNames(names)
	for _, test := range []struct{ look, name string }{
		{"configured", "create_refund"},
		{"unconfigured", "create_invoice"},
		{"unconfigured in Unicode", "größe"},
		{"4 MiB", strings.Repeat("\ufdfa", 4<<20/3)},
	} {
		b.Run(test.look, func(b *testing.B) {
			name := []byte(test.name)
			b.ReportAllocs()
			for b.Loop() {
				if _, found := tools.lookalike(name); found {
					b.Fatal("found")
				}
			}
		})
	}
}

// BenchmarkParams5 is what row 21 adds to a call with five bound parameters:
// the difference between a tool that is known and one that is not.
func BenchmarkParams5(b *testing.B) {
	const schema = `{"type":"object","properties":{"payment_id":{"type":"string","x-mcp-header":"Payment-Id"},"amount":{"type":"integer","x-mcp-header":"Amount"},` +
		`"currency":{"type":"string","x-mcp-header":"Currency"},"dry_run":{"type":"boolean","x-mcp-header":"Dry-Run"},` +
		`"scope":{"type":"object","properties":{"tenant":{"type":"string","x-mcp-header":"TenantId"}}},"note":{"type":"string"}}}`
	bindings, err := ReadBindings([]byte(schema))
	if err != nil {
		b.Fatal(err)
	}
	_, header := modernCall(b)
	for name, value := range map[string]string{"Payment-Id": "pay_29ac", "Amount": "2000", "Currency": "EUR", "Dry-Run": "false", "Tenantid": "acme"} {
		header["Mcp-Param-"+name] = []string{value}
	}
	body := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"create_refund","arguments":{"payment_id":"pay_29ac",` +
		`"amount":2000,"currency":"EUR","note":"` + strings.Repeat("n", 100) + `","dry_run":false,"scope":{"tenant":"acme","labels":["a","b"]}},` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
	var msg jsonrpc.Message
	if err := msg.Parse(body); err != nil {
		b.Fatal(err)
	}
	policy := &Policy{Revisions: allRevisions()}
	for _, bench := range []struct {
		name     string
		bindings *Bindings
		verified int
	}{{"unknown", nil, 0}, {"known", bindings, 5}} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				admission, refusal := policy.Message(&msg, nil, header, nil, bench.bindings)
				if refusal != nil || len(admission.Params) != bench.verified {
					b.Fatal(refusal, admission)
				}
			}
		})
	}
}

// BenchmarkReadBindings reads what learning a list of tools reads for each: a
// schema that binds, and one that does not.
func BenchmarkReadBindings(b *testing.B) {
	plain := `"note":{"type":"string","description":"` + strings.Repeat("A note that the customer sees. ", 20) + `"}}}`
	for name, schema := range map[string]string{
		"binding": `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},` + plain,
		"plain":   `{"type":"object","properties":{"region":{"type":"string"},` + plain,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(schema)))
			for b.Loop() {
				if _, err := ReadBindings([]byte(schema)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
