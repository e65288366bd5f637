package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// upstream is a real MCP-speaking HTTP server that records what it received.
type upstream struct {
	*httptest.Server
	answer http.HandlerFunc

	mu       sync.Mutex
	received []received
}

type received struct {
	method string
	header http.Header
	body   string
}

// committed answers every call with a result.
func committed(w http.ResponseWriter, r *http.Request) {
	var request struct{ ID json.RawMessage }
	_ = json.NewDecoder(r.Body).Decode(&request)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","content":[]}}`, request.ID)
}

func newUpstream(t *testing.T, answer http.HandlerFunc) *upstream {
	t.Helper()
	u := &upstream{answer: answer}
	u.Server = httptest.NewServer(http.HandlerFunc(u.serve))
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	u.mu.Lock()
	u.received = append(u.received, received{r.Method, r.Header.Clone(), string(body)})
	u.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	u.answer(w, r)
}

func (u *upstream) addr() string { return strings.TrimPrefix(u.URL, "http://") }

// seen returns what was received so far.
func (u *upstream) seen() []received {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]received(nil), u.received...)
}

// one returns the only request received.
func (u *upstream) one(t *testing.T) received {
	t.Helper()
	seen := u.seen()
	if len(seen) != 1 {
		t.Fatalf("the upstream received %d requests, want 1: %+v", len(seen), seen)
	}
	return seen[0]
}

// toolCall is the body of a modern tools/call with the given id and arguments.
func toolCall(tool, arguments string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments +
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
}

// post sends a body with the headers that a modern client sends with a call of
// the tool; more are pairs of a name and a value, which replace or, when the
// value is empty, remove.
func post(t *testing.T, url, tool, body string, more ...string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{
		"Content-Type":         {"application/json"},
		"Accept":               {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {"2026-07-28"},
		"Mcp-Method":           {"tools/call"},
		"Mcp-Name":             {tool},
	}
	for i := 0; i < len(more); i += 2 {
		if more[i+1] == "" {
			request.Header.Del(more[i])
		} else {
			request.Header.Set(more[i], more[i+1])
		}
	}
	return do(t, request)
}

func do(t *testing.T, request *http.Request) *http.Response {
	t.Helper()
	response, err := incaddy.Client(t, false).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

func text(t *testing.T, response *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// problem is the error of a JSON-RPC answer.
type problem struct {
	ID    json.RawMessage `json:"id"`
	Error struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

func errorOf(t *testing.T, response *http.Response) problem {
	t.Helper()
	var p problem
	body := text(t, response)
	if err := json.Unmarshal([]byte(body), &p); err != nil || p.Error.Code == 0 {
		t.Fatalf("not a JSON-RPC error: %v: %s", err, body)
	}
	if got := response.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("the error came as %q", got)
	}
	return p
}
