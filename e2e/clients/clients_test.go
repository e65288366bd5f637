// Package clients takes real MCP clients through the gateway: the official SDKs for Go and TypeScript, on every
// revision that the gateway accepts, against servers of the go-sdk.
package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/sqlite"
	"github.com/caddymcp/gateway/internal/e2etest"
)

// steps are what every client does, in this order.
var steps = []string{
	"connect", "list", "call", "parallel", "toolError", "refusal", "read", "prompt", "progress", "elicit", "cancel",
	"notified", "close",
}

const modern = "2026-07-28"

// A negotiation is the revision that the client asks for first, and the one that it ends up with.
type negotiation struct {
	name, asked, got string
}

var negotiations = []negotiation{
	{name: modern, asked: modern, got: modern},
	{name: "2025-11-25", asked: "2025-11-25", got: "2025-11-25"},
	{name: "2025-06-18", asked: "2025-06-18", got: "2025-06-18"},
	{name: "2025-03-26", asked: "2025-03-26", got: "2025-03-26"},
	// A client of both eras begins with server/discover. The refusal of a server that knows only the older one has to
	// come through as it is, or the client does not fall back to initialize.
	{name: "fallback", asked: modern, got: "2025-11-25"},
}

// protected makes every call of the steps an effect of its own.
const protected = `join 30s
tool * {
	effect call {http.mcp.name}
}
tool echo {
	effect echo {http.mcp.args.text}
}
`

func TestGo(t *testing.T) {
	forEachNegotiation(t, func(t *testing.T, endpoint string, n negotiation) {
		c := newGoClient(t, endpoint, n)
		for _, step := range steps {
			t.Run(step, func(t *testing.T) { c.take(t, step) })
		}
	})
}

func TestTypeScript(t *testing.T) {
	node := e2etest.Node(t, ".")
	forEachNegotiation(t, func(t *testing.T, endpoint string, n negotiation) {
		reports := runTypeScript(t, node, endpoint, n)
		for _, step := range steps {
			t.Run(step, func(t *testing.T) {
				failure, taken := reports[step]
				if !taken {
					t.Fatal("the client did not take this step")
				}
				if failure != nil {
					t.Fatal(*failure)
				}
			})
		}
	})
}

// runTypeScript returns what the client reports: an error, or nil, for each step that it took.
func runTypeScript(t *testing.T, node, endpoint string, n negotiation) map[string]*string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return readReports(t, exec.CommandContext(ctx, node, "client.mjs", endpoint, n.asked, n.got))
}

func readReports(t *testing.T, client *exec.Cmd) map[string]*string {
	client.Stderr = os.Stderr
	out, err := client.Output()
	if err != nil {
		t.Errorf("running the client: %v", err)
	}
	reports := make(map[string]*string)
	for line := range strings.Lines(string(out)) {
		var report struct {
			Step  string
			Error *string
		}
		if err := json.Unmarshal([]byte(line), &report); err != nil {
			t.Fatalf("the client wrote %q: %v", line, err)
		}
		reports[report.Step] = report.Error
	}
	return reports
}

// forEachNegotiation lets a client take its steps through a gateway of its own, and then looks at what reached the
// server. That every tool is protected makes no difference to a client.
func forEachNegotiation(t *testing.T, run func(t *testing.T, endpoint string, n negotiation)) {
	for _, n := range negotiations {
		t.Run(n.name, func(t *testing.T) {
			s, _, _ := n.through(t, "", run)
			t.Run("cancelled", s.wantCancelled)
		})
		t.Run(n.name+" protected", func(t *testing.T) {
			s, endpoint, storage := n.through(t, protected, run)
			if n.got != modern {
				t.Run("cancelled", s.wantCancelled)
			}
			t.Run("again", func(t *testing.T) { s.waitAgain(t, endpoint, n) })
			t.Run("effects", func(t *testing.T) { wantEffects(t, storage, n.got == modern) })
		})
	}
}

func (n negotiation) through(t *testing.T, options string, run func(t *testing.T, endpoint string, n negotiation)) (s *server, endpoint, storage string) {
	s = newServer(t, n.got == modern)
	storage = t.TempDir()
	urls, err := e2etest.StartGateway(storage, options, s.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { caddy.Stop() })

	run(t, urls[0], n)
	if n.asked == modern && len(s.arrivals(http.MethodPost, "server/discover")) == 0 {
		t.Error("no server/discover")
	}
	if n.got == modern {
		t.Run("traffic", s.wantModernTraffic)
	} else {
		t.Run("traffic", s.wantLegacyTraffic)
	}
	return s, urls[0], storage
}

// wantCancelled checks that the step cancel reached the tool.
func (s *server) wantCancelled(t *testing.T) {
	select {
	case <-s.cancelled:
	case <-time.After(10 * time.Second):
		t.Error("the tool was not cancelled")
	}
}

// waitAgain repeats the call that was cancelled. On the modern revision a client cancels by leaving: the protected tool was
// not disturbed, and its answer is there. On the older ones a notification reached the tool, and nobody knows what it did.
func (s *server) waitAgain(t *testing.T, endpoint string, n negotiation) {
	close(s.release)
	c := newGoClient(t, endpoint, n)
	c.take(t, "connect")
	err := c.call(t.Context(), "wait", map[string]any{}, "waited", "committed")
	if n.got == modern {
		if err != nil || len(s.cancelled) != 0 {
			t.Errorf("the call was cancelled %d times: %v", len(s.cancelled), err)
		}
		return
	}
	var rpc *jsonrpc.Error
	if !errors.As(err, &rpc) || rpc.Code != effect.CodeAmbiguous {
		t.Errorf("the error is %v, want code %d", err, effect.CodeAmbiguous)
	}
}

// wantEffects checks what the ledger says of the steps.
func wantEffects(t *testing.T, storage string, modern bool) {
	waited := effect.Committed
	if !modern {
		waited = effect.Ambiguous
	}
	ledger, err := sqlite.Open(t.Context(), filepath.Join(storage, "effects.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	records, err := ledger.List(t.Context(), effect.Filter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]effect.State)
	for _, r := range records {
		got[r.Key.Text] = r.State
	}
	want := map[string]effect.State{
		`["echo","zwölf"]`: effect.Committed, `["call","fail"]`: effect.Ambiguous, `["call","missing"]`: effect.Failed,
		`["call","count"]`: effect.Committed, `["call","greet"]`: effect.Committed, `["call","grow"]`: effect.Committed,
		`["call","wait"]`: waited,
	}
	for i := range 8 {
		want[fmt.Sprintf(`["echo","text %d"]`, i)] = effect.Committed
	}
	if !maps.Equal(got, want) {
		t.Errorf("the effects are %v, want %v", got, want)
	}
}

func (s *server) wantModernTraffic(t *testing.T) {
	if n := len(s.arrivals(http.MethodPost, "subscriptions/listen")); n == 0 {
		t.Error("no subscriptions/listen")
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if n := len(s.arrivals(method, "")); n != 0 {
			t.Errorf("%d requests with method %s, want none without sessions", n, method)
		}
	}
	var names, regions []string
	for _, a := range s.arrivals(http.MethodPost, "tools/call") {
		names = append(names, a.header.Get("Mcp-Name"))
		regions = append(regions, a.header.Values("Mcp-Param-Region")...)
	}
	// One user's call of greet is two of the protocol: the answer to a question is a call of its own.
	if n := strings.Count(strings.Join(names, " "), "greet"); n != 2 {
		t.Errorf("greet was called %d times in %v, want 2", n, names)
	}
	if len(regions) != 1 || regions[0] != "eu" {
		t.Errorf("Mcp-Param-Region was %q, want it on the one call with a region", regions)
	}
}

func (s *server) wantLegacyTraffic(t *testing.T) {
	sessions := make(map[string]bool)
	for _, want := range []struct {
		httpMethod, rpcMethod string
	}{
		{http.MethodPost, "notifications/initialized"},
		{http.MethodPost, "tools/list"},
		{http.MethodGet, ""},
		{http.MethodDelete, ""},
	} {
		found := s.arrivals(want.httpMethod, want.rpcMethod)
		if len(found) != 1 {
			t.Errorf("%d times %s %s, want once", len(found), want.httpMethod, want.rpcMethod)
		}
		for _, a := range found {
			sessions[a.header.Get("Mcp-Session-Id")] = true
		}
	}
	if len(sessions) != 1 || sessions[""] {
		t.Errorf("the sessions were %v, want one", sessions)
	}
	// The question of greet is a request of the server's, and the answer to it a response, which has no method.
	if n := len(s.arrivals(http.MethodPost, "")); n != 1 {
		t.Errorf("%d responses, want 1", n)
	}
}
