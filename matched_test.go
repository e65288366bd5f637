package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

const matchWrite = "@write mcp {\ntool create_* delete_*\nmethod tools/call\nrevision 2026-07-28\n}\n"

// Ahead of mcp_gateway and inside of it a request goes where its body says, and
// a lying one nowhere at all.
func TestMatcherRoutes(t *testing.T) {
	for _, tt := range []struct{ name, site string }{
		{"outside", matchWrite + "handle @write {\nmcp_gateway *\nreverse_proxy %[1]s\n}\nhandle {\nmcp_gateway *\nreverse_proxy %[2]s\n}"},
		{"inside", matchWrite + "mcp_gateway /mcp\nreverse_proxy @write %[1]s\nreverse_proxy %[2]s"},
		{"both", matchWrite + "header @write X-Seen 1\nmcp_gateway /mcp\nreverse_proxy @write %[1]s\nreverse_proxy %[2]s"},
		{"in a set", "@write {\npath /mcp\nmcp tool create_*\nmcp tool delete_*\n}\nmcp_gateway /mcp\nreverse_proxy @write %[1]s\nreverse_proxy %[2]s"},
		{"negated", "@other not mcp tool create_* delete_*\nmcp_gateway /mcp\nreverse_proxy @other %[2]s\nreverse_proxy %[1]s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			writes, others := newUpstream(t, committed), newUpstream(t, committed)
			site := incaddy.Run(t, incaddy.Config{Site: fmt.Sprintf(tt.site, writes.addr(), others.addr())})
			list := `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
			for _, c := range []struct {
				name, tool, body string
				more             []string
				status           int
				want             *upstream
			}{
				{"a write", "create_refund", toolCall("create_refund", "{}"), nil, 200, writes},
				{"another", "delete_refund", toolCall("delete_refund", "{}"), nil, 200, writes},
				{"a read", "get_refund", toolCall("get_refund", "{}"), nil, 200, others},
				{"a list", "", list, []string{"Mcp-Method", "tools/list", "Mcp-Name", ""}, 200, others},
				{"a write that its header hides", "get_refund", toolCall("create_refund", "{}"), nil, 400, nil},
				{"a read that its header calls a write", "create_refund", toolCall("get_refund", "{}"), nil, 400, nil},
				{"two names", "get_refund", strings.Replace(toolCall("create_refund", "{}"), `"name"`, `"name":"get_refund","name"`, 1), nil, 400, nil},
				{"a batch", "create_refund", "[" + toolCall("create_refund", "{}") + "]", nil, 400, nil},
			} {
				before := [...]int{len(writes.seen()), len(others.seen())}
				response := post(t, site.URL+"/mcp", c.tool, c.body, c.more...)
				text(t, response)
				if response.StatusCode != c.status {
					t.Errorf("%s: got %d", c.name, response.StatusCode)
				}
				for i, u := range []*upstream{writes, others} {
					got := u.seen()[before[i]:]
					if want := u == c.want; (len(got) > 0) != want || want && got[0].body != c.body {
						t.Errorf("%s: upstream %d received %+v", c.name, i, got)
					}
				}
			}
		})
	}
}

// arrived is a request as an upstream has it, framing included.
type arrived struct {
	Body     string
	Length   int64
	Encoding []string
	Trailer  http.Header
	Expect   string
}

// The request goes on as if no matcher had looked: to a plain reverse_proxy, and
// through mcp_gateway.
func TestMatcherLeavesRequest(t *testing.T) {
	var got arrived
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = arrived{string(body), r.ContentLength, r.TransferEncoding, r.Trailer, r.Header.Get("Expect")}
		r.Body = io.NopCloser(bytes.NewReader(body))
		committed(w, r)
	}))
	t.Cleanup(up.Close)
	proxy := "reverse_proxy " + strings.TrimPrefix(up.URL, "http://")
	// Of the matchers one matches and one does not.
	const look = matchWrite + "@read mcp tool get_*\nheader @write X-Write 1\nheader @read X-Read 1\n"
	const otherBody = "request_body {\nmax_size 8MiB\n}\n" // wraps the one there is
	large := toolCall("create_refund", `{"x":"`+strings.Repeat("é", 100_000)+`"}`)
	requests := []struct {
		name, body string
		chunked    bool
		trailer    http.Header
		expect     string
	}{
		{name: "sized", body: " \n" + toolCall("create_refund", "{}") + "\t"},
		{name: "chunked", body: toolCall("create_refund", "{}"), chunked: true},
		{name: "trailers", body: toolCall("create_refund", "{}"), chunked: true, trailer: http.Header{"X-Checksum": {"1"}}},
		{name: "expecting", body: toolCall("create_refund", "{}"), expect: "100-continue"},
		{name: "large", body: large},
		{name: "large, chunked", body: large, chunked: true},
		{name: "empty", body: ""},
		{name: "no MCP", body: "\x00\xff{]"},
	}
	for _, tt := range []struct{ name, before, site string }{
		{"plain", "", proxy},
		{"gateway", "", "mcp_gateway /mcp\n" + proxy},
		{"another body between", otherBody, proxy},
		{"another body between, gateway", otherBody, "mcp_gateway\n" + proxy},
		{"buffers", "", proxy + " {\nrequest_buffers 1MiB\nlb_retries 2\n}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var without []arrived
			for _, looking := range []string{"", look} {
				site := incaddy.Run(t, incaddy.Config{Servers: "protocols h1 h2c", Site: "route {\n" + looking + tt.before + tt.site + "\n}"})
				for _, http2 := range []bool{false, true} {
					for _, sent := range requests {
						got = arrived{}
						response := send(t, site.URL+"/mcp", sent.body, sent.chunked, sent.trailer, sent.expect, http2)
						text(t, response)
						if looking == "" {
							without = append(without, got)
							continue
						}
						if want := without[0]; !reflect.DeepEqual(got, want) {
							t.Errorf("%s, HTTP/2 %v: the upstream received %.300v, and without a matcher %.300v", sent.name, http2, got, want)
						}
						without = without[1:]
						if want := strings.Contains(sent.body, "create_"); (response.Header.Get("X-Write") != "") != want || response.Header.Get("X-Read") != "" {
							t.Errorf("%s, HTTP/2 %v: matched as %v", sent.name, http2, response.Header)
						}
					}
				}
				site.Stop(t)
			}
		})
	}
}

func send(t *testing.T, url, body string, chunked bool, trailer http.Header, expect string, http2 bool) *http.Response {
	t.Helper()
	var reader io.Reader = strings.NewReader(body)
	if chunked {
		reader = io.NopCloser(reader)
	}
	request, err := http.NewRequest(http.MethodPost, url, reader)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{
		"Content-Type":         {"application/json"},
		"Mcp-Protocol-Version": {"2026-07-28"},
		"Mcp-Method":           {"tools/call"},
		"Mcp-Name":             {"create_refund"},
	}
	if expect != "" {
		request.Header.Set("Expect", expect)
	}
	request.Trailer = trailer
	client := incaddy.Client(t, false)
	transport := client.Transport.(*http.Transport)
	transport.ExpectContinueTimeout = time.Minute
	if http2 {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// A body that the matcher cannot read is answered before any handler, and an
// error route still finds it.
func TestMatcherErrors(t *testing.T) {
	up := newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{Site: matchWrite + "basic_auth @write {\nalice $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\n" +
		"mcp_gateway /mcp {\nenforce off\nmax_body 16MiB\n}\nreverse_proxy " + up.addr() +
		"\nhandle_errors {\nreverse_proxy /rescued " + up.addr() + "\n}"})
	large := toolCall("create_refund", `{"x":"`+strings.Repeat("y", 5<<20)+`"}`)
	// Not so large that the connection is reset before its client has the answer.
	larger := large[:4<<20+100_000]
	for _, response := range []*http.Response{
		send(t, site.URL+"/mcp", large, false, nil, "100-continue", false),
		send(t, site.URL+"/mcp", larger, true, nil, "", false),
	} {
		if response.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("too large: got %d", response.StatusCode)
		}
	}
	conn, err := net.Dial("tcp", site.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /mcp?torn HTTP/1.1\r\nHost: a\r\nContent-Length: 300\r\n\r\n%s", toolCall("create_refund", "{}"))
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if entry := site.Log.Access(t, "/mcp?torn"); entry.Status != http.StatusBadRequest {
		t.Errorf("a torn body: got %d", entry.Status)
	}
	if got := post(t, site.URL+"/mcp", "create_refund", toolCall("create_refund", "{}")); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a password: got %d", got.StatusCode)
	}
	if n := len(up.seen()); n != 0 {
		t.Errorf("the upstream received %d requests", n)
	}
	text(t, send(t, site.URL+"/rescued", large, true, nil, "", false))
	if got := up.one(t).body; got != large {
		t.Errorf("an error route found %d bytes of %d", len(got), len(large))
	}
}

// The limits of a matcher and of the handler are two. A body between them gets
// its answer from the one that is smaller.
func TestMatcherMaxBody(t *testing.T) {
	up := newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{Site: "@write mcp {\ntool create_*\nmax_body 8MiB\n}\nheader @write X-Write 1\nmcp_gateway /mcp {\nmax_body 1KiB\n}\nreverse_proxy " + up.addr()})
	response := post(t, site.URL+"/mcp", "create_refund", toolCall("create_refund", `{"x":"`+strings.Repeat("y", 5<<20)+`"}`))
	if got := errorOf(t, response); response.StatusCode != http.StatusRequestEntityTooLarge || response.Header.Get("X-Write") == "" {
		t.Errorf("got %d, %+v", response.StatusCode, got)
	}
	if len(up.seen()) != 0 {
		t.Error("the upstream received it")
	}
}

// With enforce off what the handler could not read is an error for a matcher
// inside, and what it would have refused by its body matches nothing.
func TestMatcherInsideEnforceOff(t *testing.T) {
	up, writes := newUpstream(t, committed), newUpstream(t, committed)
	site := incaddy.Run(t, incaddy.Config{Site: "@write mcp tool *\nmcp_gateway /mcp {\nenforce off\nmax_body 1KiB\n}\nreverse_proxy @write " + writes.addr() + "\nreverse_proxy " + up.addr()})
	for _, tt := range []struct {
		name, body string
		more       []string
		status     int
		want       *upstream
	}{
		{"too large", toolCall("refund", `{"x":"`+strings.Repeat("y", 2000)+`"}`), nil, 413, nil},
		{"two names", strings.Replace(toolCall("refund", "{}"), `"name"`, `"name":"a","name"`, 1), nil, 200, up},
		{"another name in the header", toolCall("other", "{}"), nil, 200, writes},
		{"no content type", toolCall("refund", "{}"), []string{"Content-Type", ""}, 200, writes},
	} {
		before := [...]int{len(up.seen()), len(writes.seen())}
		response := post(t, site.URL+"/mcp", "refund", tt.body, tt.more...)
		if text(t, response); response.StatusCode != tt.status {
			t.Errorf("%s: got %d", tt.name, response.StatusCode)
		}
		for i, u := range []*upstream{up, writes} {
			if got := len(u.seen()) - before[i]; (got == 1) != (u == tt.want) {
				t.Errorf("%s: upstream %d received %d requests", tt.name, i, got)
			}
		}
	}
}

// To be asked inside of mcp_gateway is not to read the body: that nothing was
// sent can still be proven.
func TestMatcherInsideReadsNothing(t *testing.T) {
	site := incaddy.Run(t, incaddy.Config{Site: matchWrite + "mcp_gateway /mcp\nhandle {\nerror @write nobody 503\n}\nreverse_proxy " + brokenup.Refused(t)})
	response := post(t, site.URL+"/mcp", "create_refund", toolCall("create_refund", "{}"))
	if text(t, response); response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("got %d", response.StatusCode)
	}
	if mcp := site.Log.Access(t, "/mcp").MCP; mcp.Outcome != "failed" || mcp.Observation != "never_connected" {
		t.Errorf("logged as %+v", mcp)
	}
}
