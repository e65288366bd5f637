package clients

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caddymcp/gateway/internal/e2etest"
)

// The tools whose parameters are mirrored. The second has, beside one that is, a property with a list of types; the
// third mirrors such a one.
var mirroringTools = map[string]string{
	"mirror": `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"amount":{"type":"integer","x-mcp-header":"Amount"},` +
		`"dry_run":{"type":"boolean","x-mcp-header":"Dry-Run"},"filter":{"type":"object","properties":{"tenant":{"type":"string","x-mcp-header":"TenantId"},` +
		`"deep":{"type":"object","properties":{"er":{"type":"integer","x-mcp-header":"Deeper"}}}}},"note":{"type":"string"}}}`,
	"listed":   `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"note":{"type":["string","null"]}}}`,
	"nullable": `{"type":"object","properties":{"region":{"type":["string","null"],"x-mcp-header":"Region"}}}`,
}

// A paramCall is a call with mirrored parameters, and what its headers say, decoded. Where the SDKs send other headers,
// the TypeScript SDK's are apart.
type paramCall struct {
	name, tool, args string
	headers          map[string]string
	typeScript       map[string]string
	goRefused        bool // the Go SDK sends none of the headers that it must
}

var paramCalls = []paramCall{
	{name: "plain", args: `{"region":"eu","note":"n"}`, headers: map[string]string{"Region": "eu"}},
	{name: "all", args: `{"region":"eu","amount":42,"dry_run":true,"filter":{"tenant":"acme","deep":{"er":7}}}`,
		headers: map[string]string{"Region": "eu", "Amount": "42", "Dry-Run": "true", "TenantId": "acme", "Deeper": "7"}},
	{name: "nested", args: `{"filter":{"tenant":"acme"}}`, headers: map[string]string{"TenantId": "acme"}},
	{name: "zero and false", args: `{"amount":0,"dry_run":false}`, headers: map[string]string{"Amount": "0", "Dry-Run": "false"}},
	{name: "negative", args: `{"amount":-2000}`, headers: map[string]string{"Amount": "-2000"}},
	{name: "the largest integer", args: `{"amount":9007199254740991}`, headers: map[string]string{"Amount": "9007199254740991"}},
	{name: "the smallest integer", args: `{"amount":-9007199254740991}`, headers: map[string]string{"Amount": "-9007199254740991"}},
	{name: "non-ASCII", args: `{"region":"zwölf 文件 🙂"}`, headers: map[string]string{"Region": "zwölf 文件 🙂"}},
	{name: "padded", args: `{"region":" eu "}`, headers: map[string]string{"Region": " eu "}},
	{name: "padded with a no-break space", args: `{"region":"` + "\u00a0" + `eu"}`, headers: map[string]string{"Region": "\u00a0eu"}},
	{name: "tab inside", args: `{"region":"e\tu"}`, headers: map[string]string{"Region": "e\tu"}},
	{name: "line break", args: `{"region":"e\r\nu"}`, headers: map[string]string{"Region": "e\r\nu"}},
	{name: "spaces only", args: `{"region":"  "}`, headers: map[string]string{"Region": "  "}},
	{name: "like an encoded value", args: `{"region":"=?base64?ZXU=?="}`, headers: map[string]string{"Region": "=?base64?ZXU=?="}},
	{name: "like half an encoded value", args: `{"region":"=?base64?ZXU="}`, headers: map[string]string{"Region": "=?base64?ZXU="}},
	{name: "comma and quotes", args: `{"region":"a, \"b\""}`, headers: map[string]string{"Region": `a, "b"`}},
	{name: "empty", args: `{"region":"","filter":{"tenant":""}}`, headers: map[string]string{"Region": "", "TenantId": ""}},
	{name: "null", args: `{"region":null,"amount":null,"dry_run":null,"filter":{"tenant":null}}`},
	{name: "null on the way", args: `{"filter":null}`},
	{name: "absent", args: `{"note":"n"}`},
	{name: "absent inside", args: `{"filter":{}}`},

	// The Go SDK reads a tool's schema into a struct whose types are strings: one list among them, on whatever
	// property, and it sends no header at all. The specification wants it, and so the call is refused.
	{name: "beside a list of types", tool: "listed", args: `{"region":"eu"}`,
		goRefused: true, typeScript: map[string]string{"Region": "eu"}},
	// Neither mirrors a property with a list of types: for the TypeScript SDK the definition is invalid, and it leaves
	// the tool out of the list. The header is not required then.
	{name: "of a list of types", tool: "nullable", args: `{"region":"eu"}`},
}

func TestGoParams(t *testing.T) {
	s, endpoint := newMirroringServer(t)
	client := mcp.NewClient(&mcp.Implementation{Name: "params-test-go", Version: "1.0.0"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: endpoint},
		&mcp.ClientSessionOptions{ProtocolVersion: modern})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if _, err := session.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range calls() {
		t.Run(c.name, func(t *testing.T) {
			before := len(s.arrivals(http.MethodPost, "tools/call"))
			err := c.callWithGo(t.Context(), session)
			if !c.goRefused {
				if err != nil {
					t.Fatal(err)
				}
				wantMirrored(t, s.arrivals(http.MethodPost, "tools/call")[before:], c.headers)
				return
			}
			var rpc *jsonrpc.Error
			if !errors.As(err, &rpc) || rpc.Code != -32020 {
				t.Errorf("the error is %v, want code -32020", err)
			}
			if got := s.arrivals(http.MethodPost, "tools/call")[before:]; len(got) != 0 {
				t.Errorf("%d calls reached the server", len(got))
			}
		})
	}
}

func (c paramCall) callWithGo(ctx context.Context, session *mcp.ClientSession) error {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: c.tool, Arguments: json.RawMessage(c.args)})
	if err != nil {
		return err
	}
	if got := result.Content[0].(*mcp.TextContent).Text; got != c.args {
		return fmt.Errorf("the tool was called with %s, want %s", got, c.args)
	}
	return nil
}

func TestTypeScriptParams(t *testing.T) {
	node := e2etest.Node(t, ".")
	s, endpoint := newMirroringServer(t)
	type call struct {
		Name string          `json:"name"`
		Tool string          `json:"tool"`
		Args json.RawMessage `json:"args"`
	}
	var list []call
	for _, c := range calls() {
		list = append(list, call{c.name, c.tool, json.RawMessage(c.args)})
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reports := readReports(t, exec.CommandContext(ctx, node, "params.mjs", endpoint, string(text)))
	arrived := s.arrivals(http.MethodPost, "tools/call")
	if len(arrived) != len(list) {
		t.Fatalf("%d calls reached the server, want %d\n%v", len(arrived), len(list), reports)
	}
	for i, c := range calls() {
		t.Run(c.name, func(t *testing.T) {
			if failure := reports[c.name]; failure != nil {
				t.Error(*failure)
			}
			want := c.headers
			if c.typeScript != nil {
				want = c.typeScript
			}
			wantMirrored(t, arrived[i:i+1], want)
		})
	}
}

// calls returns the calls, mirror being the tool of those that name none.
func calls() []paramCall {
	all := append([]paramCall(nil), paramCalls...)
	for i := range all {
		if all[i].tool == "" {
			all[i].tool = "mirror"
		}
	}
	return all
}

// wantMirrored wants one call to have arrived with these headers. That the gateway refuses what it cannot verify makes
// each that arrived a verified one.
func wantMirrored(t *testing.T, arrived []arrival, want map[string]string) {
	t.Helper()
	if len(arrived) != 1 {
		t.Fatalf("%d calls reached the server, want 1", len(arrived))
	}
	got := make(map[string]string)
	for name, values := range arrived[0].header {
		if name, ok := strings.CutPrefix(name, "Mcp-Param-"); ok {
			got[name] = decode(t, values[0])
		}
	}
	canonical := make(map[string]string)
	for name, value := range want {
		canonical[strings.TrimPrefix(http.CanonicalHeaderKey("Mcp-Param-"+name), "Mcp-Param-")] = value
	}
	if !maps.Equal(got, canonical) {
		t.Errorf("the headers say %q, want %q", got, canonical)
	}
}

// decode returns what a header value says.
func decode(t *testing.T, value string) string {
	t.Helper()
	inner, prefixed := strings.CutPrefix(value, "=?base64?")
	inner, suffixed := strings.CutSuffix(inner, "?=")
	if !prefixed || !suffixed {
		return value
	}
	text, err := base64.StdEncoding.DecodeString(inner)
	if err != nil {
		t.Errorf("the header %q: %v", value, err)
	}
	return string(text)
}

// newMirroringServer starts a server whose tools answer with their arguments, and a gateway before it that refuses every
// header that it cannot verify. It returns the gateway's endpoint.
func newMirroringServer(t *testing.T) (s *server, endpoint string) {
	t.Helper()
	features := mcp.NewServer(&mcp.Implementation{Name: "params-test", Version: "1.0.0"}, nil)
	for name, schema := range mirroringTools {
		features.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(schema)},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return text(string(r.Params.Arguments)), nil
			})
	}
	s = &server{closing: make(chan struct{})}
	s.serve(t, features, true)
	urls, err := e2etest.StartGateway(t.TempDir(), "param_headers require", s.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { caddy.Stop() })
	return s, urls[0]
}
