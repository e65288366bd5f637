package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddymcp/gateway/internal/e2etest"
)

// TestServerThatValidatesNothing puts the gateway before a server that lists a tool with mirrored parameters and takes
// every call: what the suite finds refused, the gateway refused, by what it learned from the list that passed.
func TestServerThatValidatesNothing(t *testing.T) {
	const scenario = "http-custom-header-server-validation"
	suite := newSuite(t)
	s := new(trusting)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	endpoint := server.URL + "/mcp"
	urls, err := e2etest.StartGateway(t.TempDir(), "", endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { caddy.Stop() })

	// Three requests are to be refused, and each is checked for its status and its code.
	direct := suite.run(t, "server", "--scenario", scenario, "--spec-version", "2026-07-28", "--url", endpoint)
	if got, want := direct.score(), (score{passed: 4, failed: 6}); got != want {
		t.Errorf("direct: %v checks passed/failed, want %v", got, want)
	}
	s.forget()
	behind := suite.run(t, "server", "--scenario", scenario, "--spec-version", "2026-07-28", "--url", urls[0])
	if got, want := behind.score(), (score{passed: 10}); got != want {
		t.Errorf("behind the gateway: %v checks passed/failed, want %v\n%v", got, want, behind)
	}
	want := []string{"=?base64?SGVsbG8=", "=?base64?SGVsbG8=?=", "SGVsbG8="}
	if got := s.calls(); !slices.Equal(got, want) {
		t.Errorf("calls with %q reached the server, want %q", got, want)
	}
}

// TestClientParams holds the headers of go-sdk's client against the tools that the suite lists: a gateway that refuses
// what it cannot verify lets all of it pass.
func TestClientParams(t *testing.T) {
	suite := newSuite(t)
	client := goTool(t, "everything-client")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(clientBehindGateway, client)
	t.Setenv(gatewayOptions, "param_headers require")
	for scenario, want := range map[string]score{
		"http-custom-headers":   {passed: 18},
		"http-standard-headers": {passed: 9},
	} {
		t.Run(scenario, func(t *testing.T) {
			behind := suite.run(t, "client", "--scenario", scenario, "--spec-version", "2026-07-28", "--command", self)
			if got := behind.score(); got != want {
				t.Errorf("%v checks passed/failed, want %v\n%v", got, want, behind)
			}
		})
	}
}

// trusting is an MCP server that looks at no header. It remembers the Mcp-Param-Region of the calls that it took.
type trusting struct {
	mu      sync.Mutex
	regions []string
}

// trustingTools has a second mirrored parameter, which the suite has to fill in too.
const trustingTools = `{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"deploy","inputSchema":{"type":"object","properties":{` +
	`"region":{"type":"string","x-mcp-header":"Region"},"replicas":{"type":"integer","x-mcp-header":"Replicas"}},"required":["region","replicas"]}}]}`

func (s *trusting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request struct {
		ID     json.RawMessage
		Method string
	}
	if err != nil || json.Unmarshal(body, &request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	result := trustingTools
	if request.Method == "tools/call" {
		s.mu.Lock()
		s.regions = append(s.regions, r.Header.Get("Mcp-Param-Region"))
		s.mu.Unlock()
		result = `{"resultType":"complete","content":[]}`
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, request.ID, result)
}

// calls returns what the calls that arrived had in the header, sorted.
func (s *trusting) calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(slices.Values(s.regions))
}

func (s *trusting) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.regions = nil
}
