// Package exchange tests what the gateway says about tool calls whose upstream
// is broken, slow, early, torn or simply answers: a real Caddy between a real
// client and the upstreams of brokenup, whose logs are the truth that every
// claim is held against.
package exchange

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	_ "github.com/caddymcp/gateway"
	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// The gateway's own error codes.
const (
	unknown = -41010
	notSent = -41011
)

const outcomeMember = "io.github.caddymcp/outcome"

// site is a configuration with mcp_gateway and its options ahead of what else
// the site does.
func site(options, rest string) incaddy.Config {
	return incaddy.Config{Site: "mcp_gateway /mcp {\n" + options + "\n}\n" + rest}
}

// proxy is a reverse_proxy to an upstream, with lines of its block.
func proxy(addr string, lines ...string) string {
	return "reverse_proxy " + addr + " {\n" + strings.Join(lines, "\n") + "\n}"
}

// transport is the transport block of a reverse_proxy.
func transport(lines ...string) string {
	return "transport http {\n" + strings.Join(lines, "\n") + "\n}"
}

// ok is the answer of an upstream that did what it was asked.
var ok = brokenup.JSON(complete)

const complete = `{"jsonrpc":"2.0","id":$id,"result":{"resultType":"complete","content":[]}}`

// message is a request as a client writes it.
type message struct {
	id     string // JSON token; 1 if empty
	method string // tools/call if empty
	tool   string // create_refund if empty
	args   string // JSON; {} if empty
	params string // more members of params, each after a comma
	legacy bool   // revision 2025-11-25 instead of 2026-07-28
	header []string
	plain  bool   // without a query: what is learned belongs to a whole URI
	uri    string // by which the log finds it; filled by the sender
}

var serial atomic.Int64

// request builds the HTTP request, under a URI that nobody else uses.
func (m *message) request(ctx context.Context, url string) *http.Request {
	if m.id == "" {
		m.id = "1"
	}
	if m.method == "" {
		m.method = "tools/call"
	}
	if m.tool == "" {
		m.tool = "create_refund"
	}
	if m.args == "" {
		m.args = "{}"
	}
	revision, meta := "2025-11-25", ""
	if !m.legacy {
		revision = "2026-07-28"
		meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"name":%q,"arguments":%s%s%s}}`,
		m.id, m.method, m.tool, m.args, m.params, meta)
	m.uri = fmt.Sprintf("/mcp?n=%d", serial.Add(1))
	target := m.uri
	if m.plain {
		target = "/mcp"
	}
	// The reader's type is hidden, so that the client cannot send it twice.
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+target, io.MultiReader(strings.NewReader(body)))
	if err != nil {
		panic(err)
	}
	r.ContentLength = int64(len(body))
	if m.plain {
		r.Header.Set(incaddy.CallHeader, m.uri)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("MCP-Protocol-Version", revision)
	if !m.legacy {
		r.Header.Set("Mcp-Method", m.method)
		if m.method == "tools/call" {
			r.Header.Set("Mcp-Name", m.tool)
		}
	}
	for _, line := range m.header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// answer is what a client got.
type answer struct {
	uri    string
	status int // 0: none
	header http.Header
	body   string
	err    error // of the request or of reading the body
}

// call sends a message and reads the whole answer.
func call(t testing.TB, s *incaddy.Site, m message) answer {
	t.Helper()
	return send(incaddy.Client(t, false), m.request(t.Context(), s.URL), m.uri)
}

func send(c *http.Client, r *http.Request, uri string) answer {
	res, err := c.Do(r)
	if err != nil {
		return answer{uri: uri, err: err}
	}
	return readAnswer(res, uri)
}

func readAnswer(res *http.Response, uri string) answer {
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{uri: uri, status: res.StatusCode, header: res.Header, body: string(body), err: err}
}

// want is what the design says about a call.
type want struct {
	outcome     string
	observation string
	status      int
	code        int    // of the gateway's own error; 0 where the answer is the upstream's
	id          string // the request's id token; 1 if empty
}

// The verdicts that need no more words.
var (
	neverConnected = want{"failed", "never_connected", http.StatusBadGateway, notSent, ""}
	sent           = want{"ambiguous", "sent", http.StatusOK, unknown, ""}
	responseCut    = want{"ambiguous", "response_cut", http.StatusOK, unknown, ""}
	unreadable     = want{"ambiguous", "unreadable", http.StatusOK, unknown, ""}
	httpStatus     = want{"ambiguous", "http_status", http.StatusOK, unknown, ""}
	committed      = want{"committed", "complete", http.StatusOK, 0, ""}
)

// check holds an answer and its access log entry against w.
func (w want) check(t testing.TB, s *incaddy.Site, a answer) {
	t.Helper()
	w.checkLog(t, s, a.uri)
	if a.err != nil {
		t.Errorf("reading the answer: %v (so far %d %q)", a.err, a.status, a.body)
		return
	}
	if a.status != w.status {
		t.Errorf("status %d, want %d; body %q", a.status, w.status, a.body)
	}
	if w.code == 0 {
		return
	}
	if ct := a.header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("Content-Type %q of the gateway's own answer", ct)
	}
	w.checkError(t, a.body)
}

// checkLog holds the access log entry of a request against w.
func (w want) checkLog(t testing.TB, s *incaddy.Site, uri string) {
	t.Helper()
	e := s.Log.Access(t, uri)
	if e.MCP == nil {
		t.Errorf("no mcp object in the access log: %s", e.Line)
		return
	}
	if e.MCP.Outcome != w.outcome || e.MCP.Observation != w.observation {
		t.Errorf("logged %s/%s, want %s/%s", e.MCP.Outcome, e.MCP.Observation, w.outcome, w.observation)
	}
}

// rpcError is a JSON-RPC error response.
type rpcError struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Error   *struct {
		Code    int                        `json:"code"`
		Message string                     `json:"message"`
		Data    map[string]json.RawMessage `json:"data"`
	} `json:"error"`
}

// mark is the value of the member that the gateway adds.
type mark struct {
	Outcome     string `json:"outcome"`
	Observation string `json:"observation"`
	Status      int    `json:"status"`
}

// checkError wants one JSON-RPC error of the gateway, marked with the outcome.
func (w want) checkError(t testing.TB, body string) {
	t.Helper()
	var e rpcError
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error == nil {
		t.Errorf("no JSON-RPC error: %q (%v)", body, err)
		return
	}
	id := w.id
	if id == "" {
		id = "1"
	}
	if e.JSONRPC != "2.0" || string(e.ID) != id || e.Error.Code != w.code || e.Error.Message == "" {
		t.Errorf("answered %s, want id %s and code %d", body, id, w.code)
	}
	var m mark
	if err := json.Unmarshal(e.Error.Data[outcomeMember], &m); err != nil {
		t.Errorf("error.data is not marked: %s (%v)", body, err)
	}
	if m.Outcome != w.outcome || m.Observation != w.observation {
		t.Errorf("marked %s/%s, want %s/%s", m.Outcome, m.Observation, w.outcome, w.observation)
	}
}

// checkTruth holds the one claim that must never be false against the bytes
// that the upstreams received, and that no body was delivered twice.
func checkTruth(t testing.TB, s *incaddy.Site, uri string, ups ...*brokenup.Upstream) {
	t.Helper()
	e := s.Log.Access(t, uri)
	if e.MCP == nil {
		return
	}
	bodies := 0
	for _, u := range ups {
		if u == nil {
			continue
		}
		if e.MCP.Observation == "never_connected" && bytes.Contains(u.Received(), []byte(uri)) {
			t.Errorf("said %q of a call of which an upstream received %q", e.MCP.Observation, u.Received())
		}
		for _, r := range u.Requests() {
			if r.Target == uri && len(r.Body) > 0 {
				bodies++
			}
		}
	}
	if bodies > 1 {
		t.Errorf("the body was delivered %d times", bodies)
	}
}

// deliveries counts the whole bodies that reached the upstreams.
func deliveries(ups ...*brokenup.Upstream) int {
	n := 0
	for _, u := range ups {
		n += len(slices.DeleteFunc(u.Requests(), func(r *brokenup.Request) bool { return len(r.Body) == 0 }))
	}
	return n
}

// leavesNothing runs a test and wants every goroutine gone that it started.
func leavesNothing(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Run(name, f)
	// The lock of Caddy's storage notices within seconds that it was released.
	lock := goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.keepLockfileFresh")
	if err := goleak.Find(before, lock); err != nil {
		t.Errorf("%s left running: %v", name, err)
	}
}
