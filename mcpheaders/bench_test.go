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
	policy := &Policy{Revisions: allRevisions(), Tools: []string{"charge", "create_refund"}}
	b.ReportAllocs()
	for b.Loop() {
		if refusal := policy.Head("POST", header); refusal != nil {
			b.Fatal(refusal.Text)
		}
		var msg jsonrpc.Message
		if _, refusal := policy.Message(&msg, msg.Parse(body), header, nil); refusal != nil {
			b.Fatal(refusal.Text)
		}
	}
}

// BenchmarkLadder is the part of it that this package does.
func BenchmarkLadder(b *testing.B) {
	body, header := modernCall(b)
	policy := &Policy{Revisions: allRevisions(), Tools: []string{"charge", "create_refund"}}
	var msg jsonrpc.Message
	err := msg.Parse(body)
	b.ReportAllocs()
	for b.Loop() {
		if refusal := policy.Head("POST", header); refusal != nil {
			b.Fatal(refusal.Text)
		}
		if _, refusal := policy.Message(&msg, err, header, nil); refusal != nil {
			b.Fatal(refusal.Text)
		}
	}
}

// BenchmarkUnconfiguredTool calls a tool that the configuration does not name,
// which is held against the look of each of 100 that it does.
func BenchmarkUnconfiguredTool(b *testing.B) {
	body, _ := modernCall(b)
	var msg jsonrpc.Message
	if err := msg.Parse(body); err != nil {
		b.Fatal(err)
	}
	policy := &Policy{}
	for i := range 100 {
		policy.Tools = append(policy.Tools, "create_refund"+strings.Repeat("_", i+1))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, found := policy.lookalike(msg.Params.Name); found {
			b.Fatal("found")
		}
	}
}
