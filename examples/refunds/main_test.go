package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestTools(t *testing.T) {
	for _, revision := range []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"} {
		t.Run(revision, func(t *testing.T) {
			ctx := t.Context()
			srv := httptest.NewServer(newHandler(new(ledger)))
			t.Cleanup(srv.Close)
			client := mcp.NewClient(&mcp.Implementation{Name: "refunds-test", Version: "1.0.0"}, nil)
			session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: srv.URL + "/mcp"},
				&mcp.ClientSessionOptions{ProtocolVersion: revision})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { session.Close() })
			if got := session.InitializeResult().ProtocolVersion; got != revision {
				t.Fatalf("negotiated %s, want %s", got, revision)
			}

			call := func(name string, args any) (*mcp.CallToolResult, error) {
				return session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
			}
			wantList := func(want string) {
				t.Helper()
				res, err := call("list_refunds", map[string]any{})
				if err != nil {
					t.Fatal(err)
				}
				if got := structured(t, res); got != want {
					t.Fatalf("list_refunds answers\n%s, want\n%s", got, want)
				}
			}

			wantList(`{"refunds":[]}`)
			res, err := call("create_refund", map[string]any{"payment_id": "pay_1", "amount": 1250})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := structured(t, res), `{"amount":1250,"id":"re_1","payment_id":"pay_1"}`; got != want {
				t.Fatalf("create_refund answers %s, want %s", got, want)
			}
			res, err = call("create_refund", map[string]any{"payment_id": "pay_1", "amount": 0})
			if err != nil {
				t.Fatal(err)
			}
			if !res.IsError {
				t.Fatal("a refund of nothing was no tool error")
			}
			wantList(`{"refunds":[{"amount":1250,"id":"re_1","payment_id":"pay_1"}]}`)
		})
	}
}

// TestLostAnswer speaks HTTP itself, because an SDK client may repeat a call by itself whose connection was dropped.
func TestLostAnswer(t *testing.T) {
	l := new(ledger)
	srv := httptest.NewServer(newHandler(l))
	t.Cleanup(srv.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/mcp", strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"create_refund",`+
			`"arguments":{"payment_id":"pay_1","amount":1250,"lose_answer":true},`+
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("MCP-Protocol-Version", "2026-07-28")
	req.Header.Set("Mcp-Method", "tools/call")
	req.Header.Set("Mcp-Name", "create_refund")

	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		resp.Body.Close()
		t.Fatalf("the call was answered with status %d, want a dropped connection", resp.StatusCode)
	}
	if len(l.refunds) != 1 || l.refunds[0] != (refund{ID: "re_1", PaymentID: "pay_1", Amount: 1250}) {
		t.Fatalf("refunds are %+v, want the one that was asked for", l.refunds)
	}
}

// structured returns the structured content of a result as JSON with sorted names.
func structured(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	if res.IsError {
		t.Fatalf("the tool answered with an error: %+v", res.Content)
	}
	b, err := json.Marshal(res.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
