package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// What is forwarded is the very body that was checked, and for each mirrored
// header the one trimmed value that was.
func TestForwarded(t *testing.T) {
	up := newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{Site: "mcp_gateway /mcp\nreverse_proxy " + up.addr()})
	body := " \n" + toolCall("refund", `{"a": 1e2, "b":"é\u00e9", "c":[ 2.50 ] }`) + "\n"
	request, _ := http.NewRequest(http.MethodPost, site.URL+"/mcp", io.NopCloser(strings.NewReader(body))) // chunked
	request.Header = http.Header{
		"Content-Type":         {"application/json; charset=UTF-8"},
		"Mcp-Protocol-Version": {"2026-07-28", "2026-07-28, 2026-07-28"},
		"Mcp-Method":           {"tools/call", "tools/call"},
		"Mcp-Name":             {"=?base64?cmVmdW5k?="},
		"Mcp-Param-Region":     {"eu"},
		"Accept-Encoding":      {"gzip"},
		"Expect":               {"100-continue"},
		"Authorization":        {"Bearer t"},
		"Trailer":              {"X-Checksum"},
	}
	request.Trailer = http.Header{"X-Checksum": {"1"}}
	if got := do(t, request); got.StatusCode != http.StatusOK {
		t.Fatalf("refused: %s", text(t, got))
	}
	got := up.one(t)
	if got.body != body {
		t.Errorf("the upstream received\n%q, want\n%q", got.body, body)
	}
	for name, want := range map[string]string{
		"Mcp-Protocol-Version": "2026-07-28",
		"Mcp-Method":           "tools/call",
		"Mcp-Name":             "=?base64?cmVmdW5k?=",
		"Mcp-Param-Region":     "eu",
		"Accept-Encoding":      "identity",
		"Content-Length":       fmt.Sprint(len(body)),
		"Authorization":        "Bearer t",
		"Expect":               "",
		"Trailer":              "",
	} {
		if values := strings.Join(got.header[name], "|"); values != want {
			t.Errorf("%s is %q, want %q", name, values, want)
		}
	}
}

// Only POST carries messages. The other methods pass, with what resumes or
// ends a session.
func TestOtherMethods(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	site := incaddy.Run(t, incaddy.Config{Site: "mcp_gateway /mcp {\norigins https://app.example\n}\nreverse_proxy " + up.addr()})
	for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodOptions} {
		request, _ := http.NewRequest(method, site.URL+"/mcp", nil)
		request.Header = http.Header{"Mcp-Session-Id": {"s"}, "Last-Event-Id": {"e"}, "Mcp-Method": {"a", "b"}, "Origin": {"https://app.example"}, "Accept-Encoding": {"gzip"}}
		if got := do(t, request); got.StatusCode != http.StatusNoContent {
			t.Errorf("%s: got %d", method, got.StatusCode)
		}
		seen := up.seen()
		header := seen[len(seen)-1].header
		if header.Get("Mcp-Session-Id") != "s" || header.Get("Last-Event-Id") != "e" || header.Get("Accept-Encoding") != "gzip" {
			t.Errorf("%s: the upstream received %v", method, header)
		}
	}
	before := len(up.seen())
	for _, method := range []string{http.MethodPut, http.MethodPatch, http.MethodHead} {
		request, _ := http.NewRequest(method, site.URL+"/mcp", strings.NewReader("{}"))
		got := do(t, request)
		if got.StatusCode != http.StatusMethodNotAllowed || got.Header.Get("Allow") != "POST, GET, DELETE, OPTIONS" {
			t.Errorf("%s: got %d, Allow %q", method, got.StatusCode, got.Header.Get("Allow"))
		}
	}
	request, _ := http.NewRequest(http.MethodGet, site.URL+"/mcp", nil)
	request.Header.Set("Origin", "https://evil.example")
	if got := do(t, request); got.StatusCode != http.StatusForbidden {
		t.Errorf("a GET from a foreign origin: got %d", got.StatusCode)
	}
	if len(up.seen()) != before {
		t.Error("a refused request reached the upstream")
	}
}

// The id comes back byte for byte, or there is none where it could not be read.
func TestRefusalEchoesID(t *testing.T) {
	up := newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{Site: "mcp_gateway /mcp\nreverse_proxy " + up.addr()})
	for _, tt := range []struct{ id, want string }{
		{`"id":0,`, `0`},
		{`"id":"a\u0062\/",`, `"a\u0062\/"`},
		{`"id":9007199254740993,`, `9007199254740993`},
		{`"id":123456789012345678901234567890,`, `123456789012345678901234567890`},
		{`"id":"1",`, `"1"`},
		{`"id":null,`, ``},
		{`"id":1.5,`, ``},
		{``, ``},
	} {
		body := strings.Replace(toolCall("refund", "{}"), `"id":7,`, tt.id, 1)
		response := post(t, site.URL+"/mcp", "other", body)
		got := errorOf(t, response)
		if response.StatusCode != http.StatusBadRequest || string(got.ID) != tt.want {
			t.Errorf("%s: got status %d, id %s", tt.id, response.StatusCode, got.ID)
		}
	}
	if len(up.seen()) != 0 {
		t.Error("a refused request reached the upstream")
	}
}

// The id of a response belongs to a request of the server: a refusal that
// carried it would answer a request of the client's.
func TestRefusedResponseEchoesNoID(t *testing.T) {
	up := newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{Site: "mcp_gateway /mcp\nreverse_proxy " + up.addr()})
	for _, body := range []string{`{"jsonrpc":"2.0","id":7,"result":{}}`, `{"jsonrpc":"2.0","id":"a","error":{"code":1,"message":""}}`} {
		response := post(t, site.URL+"/mcp", "", body, "Mcp-Method", "")
		got := errorOf(t, response)
		if response.StatusCode != http.StatusBadRequest || got.Error.Code != -32600 || got.ID != nil {
			t.Errorf("%s: got status %d, code %d, id %s", body, response.StatusCode, got.Error.Code, got.ID)
		}
	}
	if len(up.seen()) != 0 {
		t.Error("a refused response reached the upstream")
	}
}

// With enforce off nothing is refused, and everything is seen.
func TestEnforceOff(t *testing.T) {
	up := newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{Site: "mcp_gateway /mcp* {\nenforce off\nmax_body 400\n}\nreverse_proxy " + up.addr()})
	site.Log.Await(t, "the warning", func(e *incaddy.Entry) bool {
		return e.Level == "warn" && strings.HasPrefix(e.Message, "enforce is off")
	})
	large := toolCall("refund", `{"x":"`+strings.Repeat("y", 100_000)+`"}`)
	tests := []struct{ name, tool, body, refusal, outcome string }{
		{"lying", "other", toolCall("refund", "{}"), "name_mismatch", "committed"},
		{"no JSON", "refund", `{"jsonrpc"`, "not_json", ""},
		{"too large", "refund", large, "body_too_large", ""},
		{"honest", "refund", toolCall("refund", "{}"), "", "committed"},
	}
	for i, tt := range tests {
		path := fmt.Sprintf("/mcp/%d", i)
		if got := post(t, site.URL+path, tt.tool, tt.body); got.StatusCode != http.StatusOK {
			t.Errorf("%s: got %d", tt.name, got.StatusCode)
		}
		seen := up.seen()
		if got := seen[len(seen)-1]; got.body != tt.body || got.header.Get("Mcp-Name") != tt.tool {
			t.Errorf("%s: the upstream received %d bytes as %q", tt.name, len(got.body), got.header.Get("Mcp-Name"))
		}
		if mcp := site.Log.Access(t, path).MCP; mcp.Refusal != tt.refusal || mcp.Outcome != tt.outcome {
			t.Errorf("%s: logged as %+v", tt.name, mcp)
		}
	}
	// Chunked, so that the size shows only while the body is read.
	request, _ := http.NewRequest(http.MethodPost, site.URL+"/mcp/chunked", io.NopCloser(strings.NewReader(large)))
	request.Header.Set("Content-Type", "application/json")
	text(t, do(t, request))
	seen := up.seen()
	if got := seen[len(seen)-1].body; got != large {
		t.Errorf("of a chunked body of %d bytes the upstream received %d", len(large), len(got))
	}
}

// A page of an allowed origin can read what the gateway answers itself. One that
// could not would take it for a network failure.
func TestOwnAnswersAreSharedWithTheOrigin(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Mcp-Name") {
		case "lost":
			panic(http.ErrAbortHandler)
		case "marked":
			w.Header().Set("Access-Control-Allow-Origin", "*")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	site := incaddy.Run(t, incaddy.Config{Site: `
		handle /mcp {
			mcp_gateway {
				origins https://app.example.com
			}
			reverse_proxy ` + up.addr() + `
		}
		handle /dead {
			mcp_gateway {
				origins https://app.example.com
			}
			reverse_proxy 127.0.0.1:1
		}`})
	const app = "https://app.example.com"
	for _, tt := range []struct {
		name, path, header, tool, origin string
		status                           int
		want                             string
	}{
		{"a refusal", "/mcp", "other", "refund", app, http.StatusBadRequest, app},
		{"an answer that was lost", "/mcp", "lost", "lost", app, http.StatusOK, app},
		{"a call that was not sent", "/dead", "refund", "refund", app, http.StatusBadGateway, app},
		{"an answer that the server shared", "/mcp", "marked", "marked", app, http.StatusOK, "*"},
		{"the origin in another spelling", "/mcp", "other", "refund", "HTTPS://app.example.com:443", http.StatusBadRequest, "HTTPS://app.example.com:443"},
		{"an origin that is not allowed", "/mcp", "refund", "refund", "https://evil.example", http.StatusForbidden, ""},
		{"no origin", "/mcp", "other", "refund", "", http.StatusBadRequest, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			response := post(t, site.URL+tt.path, tt.header, toolCall(tt.tool, "{}"), "Origin", tt.origin)
			if got := response.Header.Get("Access-Control-Allow-Origin"); response.StatusCode != tt.status || got != tt.want {
				t.Errorf("status %d, shared with %q", response.StatusCode, got)
			}
			if varies := response.Header.Get("Vary") == "Origin"; varies != (tt.want == tt.origin && tt.origin != "") {
				t.Errorf("Vary: %s", response.Header.Get("Vary"))
			}
			text(t, response)
		})
	}
}

// What a matcher takes for the endpoint and the server for something else is
// refused, whatever the method.
func TestPathIsPlain(t *testing.T) {
	up := newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{Site: "handle /mcp {\nmcp_gateway\nreverse_proxy " + up.addr() + "\n}"})
	call := toolCall("refund", "{}")
	for _, method := range []string{"POST", "GET", "DELETE", "OPTIONS"} {
		conn, err := net.Dial("tcp", site.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "%s /admin/users/..%%2f..%%2fmcp HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nMcp-Protocol-Version: 2026-07-28\r\n"+
			"Mcp-Method: tools/call\r\nMcp-Name: refund\r\nContent-Length: %d\r\n\r\n%s", method, len(call), call)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := errorOf(t, response); response.StatusCode != http.StatusBadRequest || got.Error.Code != -32600 {
			t.Errorf("%s: got %d, %+v", method, response.StatusCode, got)
		}
	}
	if len(up.seen()) != 0 {
		t.Error("a refused request reached the upstream")
	}
}

// A second gateway inside the first passes everything through.
func TestNested(t *testing.T) {
	up := newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{Site: `
		route {
			mcp_gateway {
				enforce off
			}
			mcp_gateway
			reverse_proxy ` + up.addr() + `
		}`})
	got := text(t, post(t, site.URL+"/mcp", "other", toolCall("refund", "{}")))
	if !strings.Contains(got, `"outcome":"committed"`) || strings.Count(got, "io.github.caddymcp/outcome") != 1 {
		t.Errorf("got %s", got)
	}
}

// Past max_held requests are refused and responses relayed.
func TestMaxHeld(t *testing.T) {
	padding := strings.Repeat("x", 4000)
	arrived, finish := make(chan struct{}), make(chan struct{})
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Name") == "slow" {
			arrived <- struct{}{}
			<-finish
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","x":"%s"}}`, padding)
	})
	site := incaddy.Run(t, incaddy.Config{Site: "mcp_gateway /mcp {\nmax_body 5000\nresponse_buffer 5000\nmax_held 10000\n}\nreverse_proxy " + up.addr()})

	// Two calls under way hold some 8,300 bytes.
	var slow sync.WaitGroup
	uris := []string{"/mcp?slow=1", "/mcp?slow=2"}
	for _, uri := range uris {
		slow.Go(func() { post(t, site.URL+uri, "slow", toolCall("slow", `{"x":"`+padding+`"}`)) })
		<-arrived
	}
	response := post(t, site.URL+"/mcp", "refund", toolCall("refund", `{"x":"`+padding+`"}`))
	got := errorOf(t, response)
	if response.StatusCode != http.StatusServiceUnavailable || got.Error.Code != -41015 || response.Header.Get("Retry-After") == "" {
		t.Errorf("got %d, %+v", response.StatusCode, got)
	}
	if len(up.seen()) != 2 {
		t.Error("the refused request reached the upstream")
	}

	// The response is complete and classified, though not marked.
	answer := text(t, post(t, site.URL+"/mcp", "refund", toolCall("refund", "{}")))
	if !strings.Contains(answer, padding+`"}}`) || strings.Contains(answer, "caddymcp") {
		t.Errorf("got %d bytes: %.100s", len(answer), answer)
	}
	site.Log.Await(t, "the relayed call", func(e *incaddy.Entry) bool { return e.Access() && e.MCP != nil && e.MCP.Outcome == "committed" })

	// Once they are over, there is room again.
	close(finish)
	slow.Wait()
	for _, uri := range uris {
		site.Log.Access(t, uri)
	}
	if answer := text(t, post(t, site.URL+"/mcp", "refund", toolCall("refund", `{"x":"`+padding+`"}`))); !strings.Contains(answer, "caddymcp") {
		t.Errorf("got %d bytes: %.100s", len(answer), answer)
	}
}

// A client may wait with its body until it is told to go on; a refusal by the
// head alone comes without that.
func TestExpectContinue(t *testing.T) {
	up := newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{Site: "mcp_gateway /mcp {\nmax_body 1KiB\n}\nreverse_proxy " + up.addr()})
	for _, tt := range []struct {
		length int
		want   string
	}{{100, "HTTP/1.1 100 Continue"}, {2000, "HTTP/1.1 413 Request Entity Too Large"}} {
		conn, err := net.Dial("tcp", site.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", tt.length)
		reader := bufio.NewReader(conn)
		line, err := reader.ReadString('\n')
		if err != nil || strings.TrimSpace(line) != tt.want {
			t.Errorf("%d bytes: got %q, %v", tt.length, line, err)
		}
		if tt.length == 100 {
			continue
		}
		// It is not told to go on afterwards either.
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(reader); err != nil || strings.Contains(string(rest), "Continue") {
			t.Errorf("%d bytes: then %q, %v", tt.length, rest, err)
		}
	}
}

// A client that writes its whole body before it reads gets the refusal of a
// body that the gateway does not want.
func TestRefusalReachesBusyClient(t *testing.T) {
	const length = 20 << 20
	up := newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{Site: "mcp_gateway /mcp {\nmax_body 1KiB\n}\nreverse_proxy " + up.addr()})
	body := make([]byte, length)
	for _, tt := range []struct {
		times                           int
		name, head, before, after, want string
	}{
		{10, "too large", fmt.Sprintf("Content-Length: %d", length), "", "", "413"},
		{2, "too large, chunked", "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n", length), "\r\n0\r\n\r\n", "413"},
		{2, "foreign origin", fmt.Sprintf("Content-Length: %d\r\nOrigin: https://evil.example", length), "", "", "403"},
	} {
		for range tt.times {
			conn, err := net.Dial("tcp", site.Addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n%s\r\n\r\n%s", tt.head, tt.before)
			if _, err := conn.Write(body); err != nil {
				t.Errorf("%s: sending the body: %v", tt.name, err)
			}
			io.WriteString(conn, tt.after)
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Errorf("%s: reading the answer: %v", tt.name, err)
				continue
			}
			if errorOf(t, response); !strings.HasPrefix(response.Status, tt.want) {
				t.Errorf("%s: got %s", tt.name, response.Status)
			}
		}
	}
}

// Whoever recorded TLS early data can send it again: a tool call waits for the
// handshake, anything else does not.
func TestEarlyData(t *testing.T) {
	up := newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{Site: "mcp_gateway /mcp\nreverse_proxy " + up.addr()})
	for _, value := range []string{"1", "1, 1", "?1", "0", " "} {
		response := post(t, site.URL+"/mcp", "refund", toolCall("refund", "{}"), "Early-Data", value)
		if got := errorOf(t, response); response.StatusCode != http.StatusTooEarly || got.Error.Code != -41016 || string(got.ID) != "7" {
			t.Errorf("%q: got %d, %+v", value, response.StatusCode, got)
		}
	}
	if len(up.seen()) != 0 {
		t.Error("the refused request reached the upstream")
	}
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	if got := post(t, site.URL+"/mcp", "", list, "Early-Data", "1", "Mcp-Method", "tools/list", "Mcp-Name", ""); got.StatusCode != http.StatusOK {
		t.Errorf("a list: got %d", got.StatusCode)
	}
}

// An inner handler that drops the connection before any proxy is reached is
// left to do so, like one that refuses.
func TestInnerAbort(t *testing.T) {
	site := incaddy.Run(t, incaddy.Config{Site: "mcp_gateway /mcp\nhandle {\nabort\n}"})
	request, _ := http.NewRequest(http.MethodPost, site.URL+"/mcp", strings.NewReader(toolCall("refund", "{}")))
	request.Header = http.Header{"Content-Type": {"application/json"}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"refund"}}
	if response, err := incaddy.Client(t, false).Do(request); err == nil {
		t.Errorf("got an answer: %s", text(t, response))
	}
	if mcp := site.Log.Access(t, "/mcp").MCP; mcp.Outcome != "failed" || mcp.Observation != "never_connected" {
		t.Errorf("logged as %+v", mcp)
	}
}

// Another protocol on the same connection would carry calls that nobody checks.
func TestNoProtocolSwitch(t *testing.T) {
	up := newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{Site: "mcp_gateway /mcp\nreverse_proxy " + up.addr()})
	request, _ := http.NewRequest(http.MethodGet, site.URL+"/mcp", nil)
	request.Header = http.Header{"Connection": {"Upgrade, HTTP2-Settings"}, "Upgrade": {"h2c"}, "Http2-Settings": {"AAMAAABk"}}
	text(t, do(t, request))
	if got := up.one(t).header; got.Get("Upgrade") != "" || got.Get("Http2-Settings") != "" {
		t.Errorf("the upstream received %v", got)
	}
}

// A server may let a header override the method: the body of what is no POST
// does not reach it.
func TestBodyOfOtherMethods(t *testing.T) {
	for _, enforce := range []string{"on", "off"} {
		up := newUpstream(t, committed)
		site := incaddy.Run(t, incaddy.Config{Site: "mcp_gateway /mcp {\nenforce " + enforce + "\n}\nreverse_proxy " + up.addr()})
		for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodOptions} {
			for name, body := range map[string]io.Reader{"sized": strings.NewReader(toolCall("refund", "{}")), "chunked": io.MultiReader(strings.NewReader(toolCall("refund", "{}")))} {
				request, _ := http.NewRequest(method, site.URL+"/mcp", body)
				request.Header.Set("X-Http-Method-Override", "POST")
				text(t, do(t, request))
				up.mu.Lock()
				got := up.received[len(up.received)-1]
				up.mu.Unlock()
				if got.method != method || (got.body == "") != (enforce == "on") {
					t.Errorf("enforce %s, %s, %s: the upstream received %s %q", enforce, method, name, got.method, got.body)
				}
			}
		}
	}
}
