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
