package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

func TestAccessLog(t *testing.T) {
	up := newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{Site: "mcp_gateway /mcp*\nreverse_proxy " + up.addr()})

	text(t, post(t, site.URL+"/mcp?call", "refund", toolCall("refund", "{}")))
	entry := site.Log.Access(t, "/mcp?call")
	want := incaddy.MCP{Method: "tools/call", Name: "refund", Revision: "2026-07-28", ID: "7", Outcome: "committed", Observation: "complete"}
	if got := fmt.Sprintf("%s", *entry.MCP); got != fmt.Sprintf("%s", want) {
		t.Errorf("a call is logged as %s, want %s", got, want)
	}

	text(t, post(t, site.URL+"/mcp?lie", "refund", toolCall("delete", "{}")))
	entry = site.Log.Access(t, "/mcp?lie")
	want = incaddy.MCP{Method: "tools/call", Name: "delete", Revision: "2026-07-28", ID: "7", Refusal: "name_mismatch"}
	if got := fmt.Sprintf("%s", *entry.MCP); got != fmt.Sprintf("%s", want) {
		t.Errorf("a refusal is logged as %s, want %s", got, want)
	}

	text(t, post(t, site.URL+"/mcp?long", strings.Repeat("x", 300), toolCall(strings.Repeat("x", 300), "{}")))
	if got := site.Log.Access(t, "/mcp?long").MCP.Name; got != strings.Repeat("x", 256)+"…" {
		t.Errorf("a long name is logged as %q", got)
	}

	request, _ := http.NewRequest(http.MethodGet, site.URL+"/mcp?stream", nil)
	text(t, do(t, request))
	if entry := site.Log.Access(t, "/mcp?stream"); entry.MCP != nil {
		t.Errorf("a GET, which carries no message, is logged as %+v", entry.MCP)
	}
}

// A revision that nobody knows is shown as it was sent, and not as the one by
// which the message is read for want of a better.
func TestShownRevision(t *testing.T) {
	up := newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{Site: "mcp_gateway /mcp {\nenforce off\n}\nreverse_proxy " + up.addr()})
	call := toolCall("refund", "{}")
	future, none := strings.ReplaceAll(call, "2026-07-28", "2031-01-01"), strings.ReplaceAll(call, "2026-07-28", "")
	for i, tt := range []struct{ name, header, body, want string }{
		{"known", "2026-07-28", call, "2026-07-28"},
		{"known, legacy", "2025-06-18", none, "2025-06-18"},
		{"equal copies", "2026-07-28, 2026-07-28", call, "2026-07-28"},
		{"unknown", "2031-01-01", future, "2031-01-01"},
		{"unknown, in the body", "", future, "2031-01-01"},
		{"unknown, in the header", "2031-01-01", call, "2031-01-01"},
		{"different copies", "2031-01-01, 2026-07-28", call, "2031-01-01, 2026-07-28"},
		{"long", strings.Repeat("9", 300), call, strings.Repeat("9", 256) + "…"},
		{"none", "", strings.Replace(call, "2026-07-28", "2025-11-25", 1), "2025-03-26"},
	} {
		uri := fmt.Sprintf("/mcp?n=%d", i)
		text(t, post(t, site.URL+uri, "refund", tt.body, "Mcp-Protocol-Version", tt.header))
		if got := site.Log.Access(t, uri).MCP.Revision; got != tt.want {
			t.Errorf("%s: shown as %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Body-derived placeholders are for the handlers inside; outside, what is
// evaluated after the response sees all of them.
func TestPlaceholders(t *testing.T) {
	up := newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{Site: `
		log_append outcome {http.mcp.outcome}
		log_append observation {http.mcp.observation}
		log_append n {http.mcp.args.n}
		mcp_gateway /mcp
		reverse_proxy ` + up.addr() + ` {
			header_up X-Method {http.mcp.method}
			header_up X-Name {http.mcp.name}
			header_up X-Revision {http.mcp.revision}
			header_up X-Id {http.mcp.id}
			header_up X-String {http.mcp.args.s}
			header_up X-Integer {http.mcp.args.n}
			header_up X-Bool {http.mcp.args.deep.b}
			header_up X-Fraction [{http.mcp.args.f}]
			header_up X-Object [{http.mcp.args.deep}]
			header_up X-Null [{http.mcp.args.z}]
			header_up X-Absent [{http.mcp.args.nosuch}]
			header_up X-Twofold [{http.mcp.args.two.fold}]
			header_up X-Lookalike [{http.mcp.args.look}]
			header_up X-Before [{http.mcp.outcome}]
		}`})
	arguments := `{"s":"a\u0062c","n":-42,"deep":{"b":true},"f":1.0,"z":null,"two.fold":1,"two":{"fold":2},"look":1,"Look":2}`
	text(t, post(t, site.URL+"/mcp", "refund", toolCall("refund", arguments)))

	header := up.one(t).header
	for name, want := range map[string]string{
		"X-Method": "tools/call", "X-Name": "refund", "X-Revision": "2026-07-28", "X-Id": "7",
		"X-String": "abc", "X-Integer": "-42", "X-Bool": "true",
		// Nothing that has no one canonical text, or two readings, resolves.
		"X-Fraction": "[]", "X-Object": "[]", "X-Null": "[]", "X-Absent": "[]", "X-Twofold": "[]", "X-Lookalike": "[]",
		"X-Before": "[]",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if line := site.Log.Access(t, "/mcp").Line; !strings.Contains(line, `"outcome":"committed","observation":"complete","n":-42`) && !strings.Contains(line, `"n":-42,"observation":"complete","outcome":"committed"`) {
		t.Errorf("log_append outside saw: %s", line)
	}
}

// Where there is no message the placeholders are empty, and not their own text.
func TestPlaceholdersWithoutMessage(t *testing.T) {
	up := newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{Site: `
		mcp_gateway /mcp
		reverse_proxy ` + up.addr() + ` {
			header_up X-Method [{http.mcp.method}]
			header_up X-Argument [{http.mcp.args.a.b}]
			header_up X-Outcome [{http.mcp.outcome}]
		}`})
	for i, method := range []string{http.MethodGet, http.MethodDelete, http.MethodOptions} {
		request, _ := http.NewRequest(method, site.URL+"/mcp", nil)
		text(t, do(t, request))
		for _, name := range []string{"X-Method", "X-Argument", "X-Outcome"} {
			if got := up.seen()[i].header.Get(name); got != "[]" {
				t.Errorf("%s: %s is %q", method, name, got)
			}
		}
		if mcp := site.Log.Access(t, "/mcp").MCP; mcp != nil {
			t.Errorf("%s: logged as %+v", method, mcp)
		}
	}
}

func TestMetrics(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "lost") {
			panic(http.ErrAbortHandler)
		}
		committed(w, r)
	})
	site := incaddy.Run(t, incaddy.Config{Site: "metrics /metrics\nmcp_gateway /mcp*\nreverse_proxy " + up.addr()})
	before := metricsOf(t, site)
	for range 2 {
		text(t, post(t, site.URL+"/mcp", "refund", toolCall("refund", "{}")))
	}
	text(t, post(t, site.URL+"/mcp/lost", "refund", toolCall("refund", "{}")))
	text(t, post(t, site.URL+"/mcp", "other", toolCall("refund", "{}")))
	after := metricsOf(t, site)
	for name, want := range map[string]float64{
		`caddy_mcp_gateway_calls_total{observation="complete",outcome="committed"}`:  2,
		`caddy_mcp_gateway_calls_total{observation="sent",outcome="ambiguous"}`:      1,
		`caddy_mcp_gateway_call_duration_seconds_count{outcome="committed"}`:         2,
		`caddy_mcp_gateway_call_duration_seconds_count{outcome="ambiguous"}`:         1,
		`caddy_mcp_gateway_refusals_total{enforced="true",refusal="name_mismatch"}`:  1,
		`caddy_mcp_gateway_refusals_total{enforced="false",refusal="name_mismatch"}`: 0,
		`caddy_mcp_gateway_repeats_stopped_total`:                                    0,
	} {
		if got := after[name] - before[name]; got != want {
			t.Errorf("%s grew by %v, want %v", name, got, want)
		}
	}
	if held := after["caddy_mcp_gateway_held_bytes"]; held != 0 {
		t.Errorf("%v bytes are held although nothing is under way", held)
	}
}

// What the gateway logs of a refusal has no credentials in it, whether they came
// in a header or in the query.
func TestRefusalLogsNoCredentials(t *testing.T) {
	site := incaddy.Run(t, incaddy.Config{Site: "mcp_gateway /mcp\nrespond 204"})
	for i, more := range [][]string{
		{"Content-Type", "text/plain"},
		{"Connection", "Authorization, Mcp-Name"},
		{"Mcp-Name", "other"},
		{"Origin", "https://evil.example"},
	} {
		more = append(more, "Authorization", "Bearer hush", "Mcp-Session-Id", "hush", "Cookie", "hush=1", "Referer", "https://a.example/?hush")
		text(t, post(t, fmt.Sprintf("%s/mcp?n=%d&token=hush", site.URL, i), "refund", toolCall("refund", `{"card":"hush"}`), more...))
		site.Log.Access(t, fmt.Sprintf("/mcp?n=%d&token=hush", i))
	}
	entries := site.Log.Entries(func(e *incaddy.Entry) bool { return e.Logger == "http.handlers.mcp_gateway" && e.Message == "refused" })
	if len(entries) != 4 {
		t.Errorf("%d refusals were logged", len(entries))
	}
	for _, e := range entries {
		if strings.Contains(e.Line, "hush") {
			t.Errorf("logged: %s", e.Line)
		}
	}
}

// Arguments and sessions that clients send in headers are in the access log, as
// all headers are, unless a filter deletes them.
func TestLogFilter(t *testing.T) {
	up := newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{NoAccessLog: true, Site: `
		log {
			output incaddy
			format filter {
				request>headers>Mcp-Session-Id delete
				request>headers>Mcp-Param-Region delete
			}
		}
		mcp_gateway /mcp
		reverse_proxy ` + up.addr()})
	text(t, post(t, site.URL+"/mcp", "refund", toolCall("refund", "{}"), "Mcp-Session-Id", "hush", "Mcp-Param-Region", "hush"))
	line := site.Log.Access(t, "/mcp").Line
	if strings.Contains(line, "hush") || !strings.Contains(line, "Mcp-Name") {
		t.Errorf("logged: %s", line)
	}
}

// A stream that lasts does not keep the body of its request, nor a share of
// max_held for it; the log still shows what the body said.
func TestStreamKeepsNoBody(t *testing.T) {
	const small = `{"a":"b"}`
	large := strings.Repeat("x", 100_000)
	for _, tt := range []struct {
		name, params string
		held         float64
		argument     string
	}{
		{"without arguments", `"x":"` + large + `"`, 0, ""},
		{"small arguments", `"x":"` + large + `","arguments":` + small, float64(len(small)), "b"},
		{"large arguments", `"arguments":{"a":"b","x":"` + large + `"}`, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			finish := make(chan struct{})
			up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_ = http.NewResponseController(w).Flush()
				<-finish
			})
			site := incaddy.Run(t, incaddy.Config{Site: "metrics /metrics\nheader >X-Argument {http.mcp.args.a}\nmcp_gateway /mcp\nreverse_proxy " + up.addr()})
			body := `{"jsonrpc":"2.0","id":"s1","method":"resources/subscribe","params":{"uri":"a:b",` + tt.params +
				`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
			response := post(t, site.URL+"/mcp", "a:b", body, "Mcp-Method", "resources/subscribe")
			if response.StatusCode != http.StatusOK {
				t.Fatalf("refused: %s", text(t, response))
			}
			if got := response.Header.Get("X-Argument"); got != tt.argument {
				t.Errorf("the argument is %q", got)
			}
			if held := metricsOf(t, site)["caddy_mcp_gateway_held_bytes"]; held != tt.held {
				t.Errorf("%v bytes are held while the stream is open", held)
			}
			close(finish)
			text(t, response)
			want := incaddy.MCP{Method: "resources/subscribe", Name: "a:b", Revision: "2026-07-28", ID: `"s1"`}
			if mcp := site.Log.Access(t, "/mcp").MCP; *mcp != want {
				t.Errorf("logged as %+v, want %+v", *mcp, want)
			}
			if got := up.one(t).body; got != body {
				t.Errorf("the upstream received %d bytes", len(got))
			}
		})
	}
}

func metricsOf(t *testing.T, site *incaddy.Site) map[string]float64 {
	t.Helper()
	request, _ := http.NewRequest(http.MethodGet, site.URL+"/metrics", nil)
	values := make(map[string]float64)
	for line := range strings.Lines(text(t, do(t, request))) {
		var value float64
		name, number, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok && !strings.HasPrefix(line, "#") {
			fmt.Sscan(number, &value)
			values[name] = value
		}
	}
	return values
}

// An operator hears of every ambiguous call, and of none of its arguments or
// credentials.
func TestAmbiguousCallIsLogged(t *testing.T) {
	up := newUpstream(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	site := incaddy.Run(t, incaddy.Config{Site: "mcp_gateway /mcp\nreverse_proxy " + up.addr()})
	text(t, post(t, site.URL+"/mcp", "refund", toolCall("refund", `{"card":"4111"}`), "Authorization", "Bearer hush"))
	entry := site.Log.Await(t, "the ambiguous call", func(e *incaddy.Entry) bool { return e.Message == "ambiguous tool call" })
	if entry.Level != "warn" || entry.Logger != "http.handlers.mcp_gateway" || entry.MCP.Outcome != "ambiguous" || entry.MCP.Observation != "sent" || entry.MCP.Name != "refund" {
		t.Errorf("got %s", entry.Line)
	}
	if !strings.Contains(entry.Line, up.addr()) {
		t.Errorf("the upstream is not named: %s", entry.Line)
	}
	for _, secret := range []string{"4111", "hush"} {
		for _, e := range site.Log.Entries(func(e *incaddy.Entry) bool { return strings.Contains(e.Line, secret) }) {
			t.Errorf("%q is logged: %s", secret, e.Line)
		}
	}
}
