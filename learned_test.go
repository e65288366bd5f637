package gateway_test

import (
	"net/http"
	"testing"

	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// What is learned, looked up and verified is counted.
func TestParamMetrics(t *testing.T) {
	const listed = `{"jsonrpc":"2.0","id":7,"result":{"tools":[` +
		`{"name":"refund","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}},` +
		`{"name":"plain","inputSchema":{"type":"object"}},` +
		`{"name":"bad","inputSchema":{"type":"object","properties":{"x":{"type":"array","x-mcp-header":"X"}}}}]}}`
	broken := false
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Mcp-Method") != "tools/list":
			committed(w, r)
		case broken:
			_, _ = w.Write([]byte("<html>"))
		default:
			_, _ = w.Write([]byte(listed))
		}
	})
	site := incaddy.Run(t, incaddy.Config{Site: "metrics /metrics\nmcp_gateway /mcp {\ntool declared {\nparam Region region\n}\n}\nreverse_proxy " + up.addr()})
	list := `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	lists := func() { text(t, post(t, site.URL+"/mcp", "", list, "Mcp-Method", "tools/list", "Mcp-Name", "")) }
	call := func(tool string) {
		text(t, post(t, site.URL+"/mcp", tool, toolCall(tool, `{"region":"eu"}`), "Mcp-Param-Region", "eu"))
	}
	before := metricsOf(t, site)
	call("refund")
	lists()
	lists()
	broken = true
	lists()
	call("refund")
	call("declared")
	after := metricsOf(t, site)
	for name, want := range map[string]float64{
		`tool_lists_total{result="learned"}`:                  1,
		`tool_lists_total{result="seen"}`:                     1,
		`tool_lists_total{result="unreadable"}`:               1,
		`tool_definitions_total{result="valid"}`:              2,
		`tool_definitions_total{result="type_not_primitive"}`: 1,
		`tool_lookups_total{result="unknown"}`:                1,
		`tool_lookups_total{result="learned"}`:                1,
		`tool_lookups_total{result="declared"}`:               1,
		`tool_lookups_total{result="stale"}`:                  0,
		`param_headers_total{verified="true"}`:                2,
		`param_headers_total{verified="false"}`:               1,
	} {
		name = "caddy_mcp_gateway_" + name
		if got := after[name] - before[name]; got != want {
			t.Errorf("%s grew by %v, want %v", name, got, want)
		}
	}
}
