package exchange

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// callBody is a modern tool call, with more of its params.
func callBody(more string) string {
	return `{"jsonrpc":"2.0","id":"a\u0062","method":"tools/call","params":{"name":"create_refund",` + modernMeta + more + `}}`
}

// raw is a request as it stands on the wire.
type raw struct {
	method string   // POST if empty
	header []string // beside Host
	body   string   // with its framing
}

// modern are the header lines of an honest modern tool call.
var modern = []string{
	"Content-Type: application/json",
	"MCP-Protocol-Version: 2026-07-28",
	"Mcp-Method: tools/call",
	"Mcp-Name: create_refund",
}

// honest is an honest call with some header lines replaced, by name, and
// others added.
func honest(body string, lines ...string) raw {
	r := raw{body: body}
	named := func(line string) string { name, _, _ := strings.Cut(line, ":"); return strings.ToLower(name) }
	replaced := make(map[string]bool)
	for _, line := range lines {
		replaced[named(line)] = true
	}
	for _, line := range modern {
		if !replaced[named(line)] {
			r.header = append(r.header, line)
		}
	}
	for _, line := range lines {
		if _, value, _ := strings.Cut(line, ":"); value != "none" {
			r.header = append(r.header, line)
		}
	}
	if !replaced["transfer-encoding"] && !replaced["content-length"] {
		r.header = append(r.header, fmt.Sprintf("Content-Length: %d", len(body)))
	}
	return r
}

func (r raw) text(uri string) string {
	method := r.method
	if method == "" {
		method = http.MethodPost
	}
	return method + " " + uri + " HTTP/1.1\r\nHost: mcp.example.com\r\n" + strings.Join(r.header, "\r\n") + "\r\n\r\n" + r.body
}

// speak sends text on a new connection, ends the sending direction if close,
// and reads one response.
func speak(t testing.TB, s *incaddy.Site, uri, text string, end bool) answer {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, text) // an answer can come, and the connection go, before all is written
	if end {
		conn.(*net.TCPConn).CloseWrite()
	}
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err == nil && res.StatusCode == http.StatusContinue {
		res, err = http.ReadResponse(in, nil)
	}
	if err != nil {
		return answer{uri: uri, err: err}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{uri: uri, status: res.StatusCode, header: res.Header, body: string(body), err: err}
}

func chunks(pieces ...string) string {
	var b strings.Builder
	for _, p := range pieces {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(p), p)
	}
	return b.String() + "0\r\n"
}

// refusal is what a refused request gets.
type refusal struct {
	status int
	code   int
	id     string // "" where it cannot be read
	reason string
}

func (w refusal) check(t testing.TB, s *incaddy.Site, a answer) {
	t.Helper()
	if a.err != nil {
		t.Fatalf("reading the answer: %v", a.err)
	}
	var e rpcError
	if err := json.Unmarshal([]byte(a.body), &e); err != nil || e.Error == nil {
		t.Fatalf("answered %d %q", a.status, a.body)
	}
	if a.status != w.status || e.Error.Code != w.code || string(e.ID) != w.id {
		t.Errorf("answered %d %s, want %d, code %d and id %s", a.status, a.body, w.status, w.code, w.id)
	}
	if ct := a.header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("Content-Type %q", ct)
	}
	entry := s.Log.Access(t, a.uri)
	if entry.MCP == nil || entry.MCP.Refusal != w.reason || entry.MCP.Outcome != "" {
		t.Errorf("logged %+v, want the refusal %s and no outcome", entry.MCP, w.reason)
	}
}

// TestRefused sends what must not be forwarded: the upstream is not even
// connected to.
func TestRefused(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(ok))
	config := site("max_body 16KiB", proxy(up.Addr()))
	config.Servers = "timeouts {\nread_body 300ms\n}"
	s := incaddy.Run(t, config)
	id := `"a\u0062"`
	big := callBody(`,"arguments":{"pad":"` + large(16<<10) + `"}`)
	const chunkedLine = "Transfer-Encoding: chunked"
	for _, tt := range []struct {
		name string
		raw  raw
		want refusal
	}{
		{"too large", honest(big), refusal{413, -32600, "", "body_too_large"}},
		{"too large, chunked", honest(chunks(big[:9000], big[9000:])+"\r\n", chunkedLine), refusal{413, -32600, "", "body_too_large"}},
		{"too large by its word only", honest("{", "Content-Length: 99999999"), refusal{413, -32600, "", "body_too_large"}},
		{"stalled", honest(callBody("")[:20], "Content-Length: 500"), refusal{408, -32600, "", "body_stalled"}},
		{"stalled, chunked", honest("5\r\n{\"jso\r\n", chunkedLine), refusal{408, -32600, "", "body_stalled"}},
		{"bad chunk", honest("zz\r\n", chunkedLine), refusal{400, -32600, "", "body_broken"}},
		{"compressed", honest(callBody(""), "Content-Encoding: gzip"), refusal{415, -32600, "", "content_encoding"}},
		{"another charset", honest(callBody(""), "Content-Type: application/json; charset=utf-7"), refusal{415, -32600, "", "content_type"}},
		{"no media type", honest(callBody(""), "Content-Type:none"), refusal{415, -32600, "", "content_type_missing"}},
		{"another method", raw{method: "PUT", header: modern}, refusal{405, -32600, "", "http_method"}},
		{"a page's script", honest(callBody(""), "Origin: https://evil.example"), refusal{403, -32600, "", "origin_not_allowed"}},

		{"empty", honest(""), refusal{400, -32700, "", "not_json"}},
		{"no JSON", honest("hello"), refusal{400, -32700, "", "not_json"}},
		{"byte order mark", honest("\ufeff" + callBody("")), refusal{400, -32700, "", "not_json"}},
		{"two values", honest(callBody("") + "{}"), refusal{400, -32700, "", "not_json"}},
		{"duplicate, escaped", honest(callBody(`,"n\u0061me":"delete_everything"`)), refusal{400, -32600, id, "duplicate_name"}},
		{"batch", honest("[" + callBody("") + "]"), refusal{400, -32600, "", "batch"}},
		{"Name beside name", honest(callBody(`,"Name":"delete_everything"`)), refusal{400, -32600, id, "params_case_variant"}},

		{"another tool in the header", honest(callBody(""), "Mcp-Name: read_only"), refusal{400, -32020, id, "name_mismatch"}},
		{"the tool in another case", honest(callBody(""), "Mcp-Name: Create_refund"), refusal{400, -32020, id, "name_mismatch"}},
		{"another method in the header", honest(callBody(""), "Mcp-Method: ping"), refusal{400, -32020, id, "method_mismatch"}},
		{"another version in the header", honest(callBody(""), "MCP-Protocol-Version: 2025-11-25"), refusal{400, -32020, id, "version_mismatch"}},
		{"no version header", honest(callBody(""), "MCP-Protocol-Version:none"), refusal{400, -32020, id, "version_missing_modern"}},
		{"no tool in the header", honest(callBody(""), "Mcp-Name:none"), refusal{400, -32020, id, "name_missing"}},
		{"two tools in the header", honest(callBody(""), "Mcp-Name: create_refund", "Mcp-Name: read_only"), refusal{400, -32020, id, "header_repeated"}},
		{"broken sentinel", honest(callBody(""), "Mcp-Name: =?base64?!!?="), refusal{400, -32020, id, "name_sentinel"}},
		{"raw bytes", honest(callBody(""), "Mcp-Name: create_refund\u00fc"), refusal{400, -32020, id, "header_bytes"}},
		{"Connection takes a header away", honest(callBody(""), "Connection: keep-alive, mcp-name"), refusal{400, -32020, id, "connection_header"}},
		{"trailer after the check", honest(chunks(callBody(""))+"Mcp-Name: read_only\r\n\r\n", chunkedLine, "Trailer: Mcp-Name"), refusal{400, -32020, id, "trailer"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			uri := fmt.Sprintf("/mcp?n=%d", serial.Add(1))
			tt.want.check(t, s, speak(t, s, uri, tt.raw.text(uri), false))
			if n := up.Connections(); n != 0 {
				t.Errorf("the upstream was connected to %d times and received %q", n, up.Received())
			}
		})
	}

	t.Run("torn", func(t *testing.T) {
		uri := fmt.Sprintf("/mcp?n=%d", serial.Add(1))
		a := speak(t, s, uri, honest(callBody("")[:20], "Content-Length: 500").text(uri), true)
		if a.err == nil { // else the connection was gone with its client
			refusal{400, -32600, "", "body_broken"}.check(t, s, a)
		}
		if n := up.Connections(); n != 0 {
			t.Errorf("the upstream was connected to %d times", n)
		}
	})
}

// TestAdmitted sends what is unusual and right, and looks at what arrives.
func TestAdmitted(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(ok))
	s := incaddy.Run(t, site("", proxy(up.Addr())))
	body := callBody(`, "arguments" : {"amount":1.50,"note":"\u00e9 é"} `)
	for _, tt := range []struct {
		name string
		raw  raw
		path string // the upstream sees of Mcp-Name
	}{
		{"chunked", honest(chunks(body[:7], body[7:])+"\r\n", "Transfer-Encoding: chunked"), "create_refund"},
		{"padded", honest(body, "Mcp-Name: \t create_refund \t"), "create_refund"},
		{"sentinel", honest(body, "Mcp-Name: =?base64?Y3JlYXRlX3JlZnVuZA==?="), "=?base64?Y3JlYXRlX3JlZnVuZA==?="},
		{"equal copies", honest(body, "Mcp-Name: create_refund", "mcp-name: create_refund", "MCP-Protocol-Version: 2026-07-28, 2026-07-28"), "create_refund"},
		{"Expect", honest(body, "Expect: 100-continue"), "create_refund"},
		{"a harmless trailer", honest(chunks(body)+"X-Trailer: t\r\n\r\n", "Transfer-Encoding: chunked", "Trailer: X-Trailer"), "create_refund"},
		{"Connection takes another header away", honest(body, "Connection: x-hop", "X-Hop: 1"), "create_refund"},
		{"gzip welcome", honest(body, "Accept-Encoding: gzip, br"), "create_refund"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			uri := fmt.Sprintf("/mcp?n=%d", serial.Add(1))
			a := speak(t, s, uri, tt.raw.text(uri), false)
			want{outcome: "committed", observation: "complete", status: 200}.check(t, s, a)
			requests := up.Requests()
			q := requests[len(requests)-1]
			if string(q.Body) != body {
				t.Errorf("the body that arrived is %q", q.Body)
			}
			if got := q.Header["Mcp-Name"]; len(got) != 1 || got[0] != tt.path {
				t.Errorf("Mcp-Name arrived as %q", got)
			}
			if got := q.Header["Mcp-Protocol-Version"]; len(got) != 1 || got[0] != "2026-07-28" {
				t.Errorf("MCP-Protocol-Version arrived as %q", got)
			}
			if len(q.Trailer) > 0 || q.Header.Get("Expect") != "" || q.Header.Get("X-Hop") != "" || q.Header.Get("Accept-Encoding") != "identity" {
				t.Errorf("header %v and trailer %v arrived", q.Header, q.Trailer)
			}
		})
	}
}

// On HTTP/2 a field value reaches Go untrimmed, and its names are lower case.
func TestHTTP2Client(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(ok))
	config := site("", proxy(up.Addr()))
	config.Servers = "protocols h1 h2c"
	s := incaddy.Run(t, config)
	id := `"a\u0062"`
	for _, tt := range []struct {
		name    string
		fields  []string
		refusal *refusal // nil: admitted
	}{
		{"honest", []string{"mcp-name: create_refund"}, nil},
		{"padded", []string{"mcp-name:  \tcreate_refund\t "}, nil},
		{"equal copies, one padded", []string{"mcp-name: create_refund", "mcp-name:  create_refund "}, nil},
		{"another tool", []string{"mcp-name: read_only"}, &refusal{400, -32020, id, "name_mismatch"}},
		{"another tool, padded", []string{"mcp-name:  read_only "}, &refusal{400, -32020, id, "name_mismatch"}},
		{"two tools", []string{"mcp-name: create_refund", "mcp-name: read_only"}, &refusal{400, -32020, id, "header_repeated"}},
		{"only padding", []string{"mcp-name:   "}, &refusal{400, -32020, id, "name_mismatch"}},
		{"no-break space", []string{"mcp-name: create_refund\u00a0"}, &refusal{400, -32020, id, "header_bytes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := deliveries(up)
			uri := fmt.Sprintf("/mcp?n=%d", serial.Add(1))
			fields := append([]string{"content-type: application/json", "mcp-protocol-version: 2026-07-28 ", "mcp-method:  tools/call"}, tt.fields...)
			a := speakHTTP2(t, s, uri, fields, callBody(""))
			if tt.refusal != nil {
				tt.refusal.check(t, s, a)
				if n := deliveries(up); n != before {
					t.Error("it was forwarded")
				}
				return
			}
			committed.check(t, s, a)
			requests := up.Requests()
			for name, value := range map[string]string{"Mcp-Name": "create_refund", "Mcp-Method": "tools/call", "Mcp-Protocol-Version": "2026-07-28"} {
				if got := requests[len(requests)-1].Header[name]; len(got) != 1 || got[0] != value {
					t.Errorf("%s arrived as %q", name, got)
				}
			}
		})
	}

	t.Run("a broken upstream", func(t *testing.T) {
		for addr, w := range map[string]want{
			brokenup.TCP(t, brokenup.ReadThenClose).Addr(): sent,
			brokenup.TCP(t, brokenup.Cut(ok, 20)).Addr():   responseCut,
			brokenup.Refused(t):                            neverConnected,
		} {
			config := site("", proxy(addr))
			config.Servers = "protocols h1 h2c"
			s := incaddy.Run(t, config)
			a := call2(t, s, message{})
			w.check(t, s, a)
		}
		for _, script := range []brokenup.Script{brokenup.Answer(brokenup.SSE(progress(1))), brokenup.Cut(brokenup.SSE(progress(1)), 40)} {
			config := site("", proxy(brokenup.TCP(t, script).Addr()))
			config.Servers = "protocols h1 h2c"
			s := incaddy.Run(t, config)
			a := call2(t, s, message{})
			want{"ambiguous", "stream_ended", 200, 0, ""}.check(t, s, a)
			if said := events(t, a.body); len(said) == 0 {
				t.Errorf("no event came: %q", a.body)
			} else {
				want{"ambiguous", "stream_ended", 200, unknown, ""}.checkError(t, said[len(said)-1].data)
			}
		}
	})
}

// call2 is call over HTTP/2 without TLS.
func call2(t testing.TB, s *incaddy.Site, m message) answer {
	t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	return send(&http.Client{Transport: tr}, m.request(t.Context(), s.URL), m.uri)
}

// speakHTTP2 sends one request with its field values as they stand, which no
// client library does.
func speakHTTP2(t testing.TB, s *incaddy.Site, uri string, fields []string, body string) answer {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, line := range append([]string{":method: POST", ":scheme: http", ":authority: mcp.example.com", ":path: " + uri}, fields...) {
		i := 1 + strings.Index(line[1:], ": ")
		encoder.WriteField(hpack.HeaderField{Name: line[:i], Value: line[i+2:]})
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	io.WriteString(conn, http2.ClientPreface)
	framer.WriteSettings()
	framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	framer.WriteData(1, true, []byte(body))
	a := answer{uri: uri, header: make(http.Header)}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			a.err = err
			return a
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			fmt.Sscan(f.PseudoValue("status"), &a.status)
			for _, field := range f.RegularFields() {
				a.header.Add(field.Name, field.Value)
			}
			if f.StreamEnded() {
				return a
			}
		case *http2.DataFrame:
			a.body += string(f.Data())
			if f.StreamEnded() {
				return a
			}
		case *http2.RSTStreamFrame:
			a.err = fmt.Errorf("stream reset: %v", f.ErrCode)
			return a
		}
	}
}

// TestConcurrency sends good and bad requests on many connections at once and
// leaves nothing running.
func TestConcurrency(t *testing.T) {
	leavesNothing(t, "64 clients", func(t *testing.T) {
		up := brokenup.TCP(t, brokenup.Answer(ok))
		s := incaddy.Run(t, site("max_body 16KiB", proxy(up.Addr())))
		var clients sync.WaitGroup
		for n := range 64 {
			clients.Go(func() {
				client := incaddy.Client(t, true)
				for i := range 10 {
					id := fmt.Sprintf(`"%d-%d"`, n, i)
					m := message{id: id}
					w := committed
					r := m.request(t.Context(), s.URL)
					switch i % 3 {
					case 1:
						r.Header.Set("Mcp-Name", "another")
						w = want{status: http.StatusBadRequest}
					case 2:
						r.ContentLength = -1
						r.Body = io.NopCloser(io.MultiReader(r.Body, strings.NewReader(strings.Repeat(" ", 20<<10))))
						w = want{status: http.StatusRequestEntityTooLarge}
					}
					a := send(client, r, m.uri)
					// A server may answer, and close, while the client still sends.
					if a.err != nil && i%3 == 2 {
						continue
					}
					w.check(t, s, a)
					if i%3 != 2 && !strings.Contains(a.body, `"id":`+id+`,`) {
						t.Errorf("answered %q, want id %s", a.body, id)
					}
				}
			})
		}
		clients.Wait()
		if n := deliveries(up); n != 64*4 {
			t.Errorf("%d bodies were delivered, want %d", n, 64*4)
		}
	})
}
