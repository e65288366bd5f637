package gateway

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

const benchCall = `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"create_refund","arguments":{"payment_id":"pay_8f3a1c",` +
	`"amount":2000,"currency":"EUR","reason":"the customer returned the goods within the period"},"_meta":{` +
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{}}}}`

const benchAnswer = `{"jsonrpc":"2.0","id":17,"result":{"content":[{"type":"text","text":"refunded 20.00 EUR of payment pay_8f3a1c"}],"resultType":"complete"}}`

// BenchmarkToolCall is what the handler adds to a tool call: a next handler
// that fires the hooks of a transport and answers from memory stands for
// reverse_proxy.
func BenchmarkToolCall(b *testing.B) {
	benchmarkCall(b, func(h *Handler) caddyhttp.Handler {
		return caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
			return h.ServeHTTP(w, r, caddyhttp.HandlerFunc(benchUpstream))
		})
	})
}

// BenchmarkWithoutGateway is the same without the handler.
func BenchmarkWithoutGateway(b *testing.B) {
	benchmarkCall(b, func(*Handler) caddyhttp.Handler { return caddyhttp.HandlerFunc(benchUpstream) })
}

func benchUpstream(w http.ResponseWriter, r *http.Request) error {
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
		trace.GetConn("")
		trace.WroteHeaders()
		trace.WroteRequest(httptrace.WroteRequestInfo{})
		trace.GotFirstResponseByte()
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return err
	}
	w.Header()["Content-Type"] = []string{"application/json"}
	w.WriteHeader(http.StatusOK)
	_, err := io.WriteString(w, benchAnswer)
	return err
}

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

func benchmarkCall(b *testing.B, chain func(*Handler) caddyhttp.Handler) {
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	h := new(Handler)
	if err := h.Provision(ctx); err != nil {
		b.Fatal(err)
	}
	handler := chain(h)
	header := http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "User-Agent": {"bench"},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"create_refund"},
	}
	server := new(caddyhttp.Server)
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(benchCall))
		r.Header = header
		w := &discard{make(http.Header)}
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, server)
		if err := handler.ServeHTTP(w, r); err != nil {
			b.Fatal(err)
		}
	}
}
