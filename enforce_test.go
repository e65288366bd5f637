package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// offences are requests that enforce off lets through although they fail a row
// of the admission table, and that a lenient server may run a tool for. Opaque
// ones cannot be read as a tool call. The limit of their bodies is 1 KiB.
var offences = []struct {
	name, refusal, id, body string
	header                  []string
	chunked, opaque         bool
}{
	{name: "row 1", refusal: "origin_not_allowed", id: "7", body: toolCall("refund", "{}"), header: []string{"Origin", "https://evil.example"}},
	{name: "row 3", refusal: "content_type", id: "7", body: toolCall("refund", "{}"), header: []string{"Content-Type", "text/plain"}},
	{name: "rows 3 and 20", refusal: "content_type", id: "7", body: toolCall("other", "{}"), header: []string{"Content-Type", "text/plain"}},
	{name: "row 4", refusal: "body_too_large", body: toolCall("refund", `{"x":"`+strings.Repeat("y", 3000)+`"}`), opaque: true},
	{name: "row 4, chunked", refusal: "body_too_large", body: toolCall("refund", `{"x":"`+strings.Repeat("y", 3000)+`"}`), chunked: true, opaque: true},
	{name: "row 5", refusal: "not_json", body: toolCall("refund", "{}") + "]", opaque: true},
	{name: "row 6", refusal: "duplicate_name", id: "7", body: toolCall("refund", `{"a":1,"a":2}`)},
	{name: "row 6, of the id", refusal: "duplicate_name", body: strings.Replace(toolCall("refund", "{}"), `"id":7`, `"id":7,"id":8`, 1), opaque: true},
	{name: "row 6, of the method", refusal: "duplicate_name", body: strings.Replace(toolCall("refund", "{}"), `{`, `{"method":"tools/list",`, 1), id: "7"},
	{name: "row 6, the other way round", id: "7", refusal: "duplicate_name", body: strings.Replace(toolCall("refund", "{}"), `"params"`, `"method":"tools/list","params"`, 1), opaque: true},
	{name: "row 7", refusal: "batch", body: "[" + toolCall("refund", "{}") + "]", opaque: true},
	{name: "row 8", refusal: "not_version_2", id: "7", body: strings.Replace(toolCall("refund", "{}"), "2.0", "1.0", 1)},
	{name: "row 8, a case variant", id: "7", refusal: "case_variant", body: strings.Replace(toolCall("refund", "{}"), `"method"`, `"Method"`, 1), opaque: true},
	{name: "row 8, an id that is no integer", refusal: "bad_id", body: strings.Replace(toolCall("refund", "{}"), `"id":7`, `"id":7.5`, 1), opaque: true},
	{name: "row 9", refusal: "call_without_id", body: strings.Replace(toolCall("refund", "{}"), `"id":7,`, "", 1), opaque: true},
	{name: "row 20", refusal: "name_mismatch", id: "7", body: toolCall("other", "{}")},
}

// offend sends the offence of the given index.
func offend(t *testing.T, site *incaddy.Site, i int, uri string) *http.Response {
	t.Helper()
	o := offences[i]
	if !o.chunked {
		return post(t, site.URL+uri, "refund", o.body, o.header...)
	}
	request, _ := http.NewRequest(http.MethodPost, site.URL+uri, io.NopCloser(strings.NewReader(o.body)))
	request.Header.Set("Content-Type", "application/json")
	return do(t, request)
}

const lenientSite = "mcp_gateway /mcp {\nenforce off\nmax_body 1KiB\ntool * {\nnot_executed_on_error\n}\n}\n"

// With enforce off nothing is refused, and a tool call is sent at most once all
// the same, whatever is wrong with it.
func TestEnforceOffSendsOnce(t *testing.T) {
	for i, o := range offences {
		t.Run(o.name, func(t *testing.T) {
			up := brokenup.TCP(t, brokenup.ReadThenClose)
			site := incaddy.Run(t, incaddy.Config{Site: lenientSite +
				"reverse_proxy " + up.Addr() + " {\nrequest_buffers 64KiB\nlb_retries 3\nlb_retry_match {\nmethod POST\n}\n}"})
			response := offend(t, site, i, "/mcp")
			got := errorOf(t, response)
			if response.StatusCode != http.StatusOK || got.Error.Code != -41010 || string(got.ID) != o.id {
				t.Errorf("got %d, %+v", response.StatusCode, got)
			}
			if n := strings.Count(string(up.Received()), `"tools/call"`); n != 1 {
				t.Errorf("%d bodies were delivered", n)
			}
			mcp := site.Log.Access(t, "/mcp").MCP
			if mcp.Refusal != o.refusal || mcp.Outcome != "ambiguous" || mcp.Observation != "sent" || mcp.ID != o.id {
				t.Errorf("logged as %+v", mcp)
			}
		})
	}
}

// What was not sent is said to be safe to repeat, and what was lost is not.
func TestEnforceOffNeverConnected(t *testing.T) {
	site := incaddy.Run(t, incaddy.Config{Site: lenientSite + "reverse_proxy " + brokenup.Refused(t)})
	for i, o := range offences {
		response := offend(t, site, i, "/mcp")
		got := errorOf(t, response)
		if response.StatusCode != http.StatusBadGateway || got.Error.Code != -41011 || string(got.ID) != o.id {
			t.Errorf("%s: got %d, %+v", o.name, response.StatusCode, got)
		}
	}
}

// With enforce off an answer is marked where it can be told to be the call's;
// any other passes as it is.
func TestEnforceOffAnswers(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","isError":true,"content":[]}}`
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "["+answer+"]")
	})
	marked := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	})
	site := incaddy.Run(t, incaddy.Config{Site: lenientSite +
		"@marked query marked=1\nreverse_proxy @marked " + marked.addr() + "\nreverse_proxy " + up.addr()})
	for i, o := range offences {
		uri := fmt.Sprintf("/mcp?n=%d", i)
		if !o.opaque {
			uri += "&marked=1"
		}
		response := offend(t, site, i, uri)
		got, mcp := text(t, response), site.Log.Access(t, uri).MCP
		if mcp.Refusal != o.refusal {
			t.Errorf("%s: logged as %+v", o.name, mcp)
		}
		if o.opaque {
			if response.StatusCode != http.StatusInternalServerError || got != "["+answer+"]" || mcp.Outcome != "" {
				t.Errorf("%s: got %d: %s, logged as %+v", o.name, response.StatusCode, got, mcp)
			}
			continue
		}
		// Not failed: that a tool does nothing when it answers with an error is
		// said of calls that are surely its own.
		if !strings.Contains(got, `"outcome":"ambiguous","observation":"tool_error"`) || mcp.Outcome != "ambiguous" {
			t.Errorf("%s: got %s, logged as %+v", o.name, got, mcp)
		}
	}
}
