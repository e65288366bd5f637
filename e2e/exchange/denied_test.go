package exchange

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

const (
	denied       = -41001
	listWithheld = -41017
)

// denies is a configuration under which delete_user and what begins with drop_
// may not be called.
const denies = "deny delete_user drop_*"

// codeOf is the code of a JSON-RPC error and its id.
func codeOf(t *testing.T, body string) (code int, id string) {
	t.Helper()
	var e rpcError
	if err := json.Unmarshal([]byte(body), &e); err != nil || e.Error == nil {
		t.Fatalf("no JSON-RPC error: %q (%v)", body, err)
	}
	return e.Error.Code, string(e.ID)
}

// A call of a denied tool is refused, however the tool is denied, and never
// forwarded.
func TestDeniedCalls(t *testing.T) {
	for _, tt := range []struct {
		options, tool string
		denied        bool
	}{
		{denies, "delete_user", true},
		{denies, "drop_", true},
		{denies, "drop_table", true},
		{denies, "delete_users", false},
		{denies, "create_refund", false},
		{"deny a\ndeny b c", "c", true},
		{"allow_only get_* create_refund", "create_refund", false},
		{"allow_only get_* create_refund", "get_a", false},
		{"allow_only get_* create_refund", "create_refunds", true},
		{"allow_only get_* create_refund", "Create_refund", true},
		{"allow_only get_*\ndeny get_secret", "get_secret", true},
		{"deny a\nparam_headers off", "a", true},
		{"tool a {\nnot_executed_on_error\n}\ndeny a", "a", true},
	} {
		t.Run(tt.options+", "+tt.tool, func(t *testing.T) {
			up := brokenup.TCP(t, brokenup.Answer(ok))
			s := incaddy.Run(t, site(tt.options, proxy(up.Addr())))
			for _, legacy := range []bool{false, true} {
				m := message{tool: tt.tool, legacy: legacy, id: `"a"`}
				a := call(t, s, m)
				e := s.Log.Access(t, a.uri)
				if !tt.denied {
					if a.status != http.StatusOK || !strings.Contains(a.body, `"outcome":"committed"`) {
						t.Errorf("answered %d %s", a.status, a.body)
					}
					if e.MCP.Refusal != "" {
						t.Errorf("logged %q", e.MCP.Refusal)
					}
					continue
				}
				code, id := codeOf(t, a.body)
				if a.status != http.StatusOK || code != denied || id != `"a"` {
					t.Errorf("answered %d %s", a.status, a.body)
				}
				if e.MCP.Refusal != "denied" || e.MCP.Outcome != "" || e.MCP.Name != tt.tool {
					t.Errorf("logged %+v", e.MCP)
				}
			}
			if n := deliveries(up); tt.denied && n != 0 {
				t.Errorf("%d bodies were delivered", n)
			}
		})
	}
}

// What is no call of a tool is not denied, whatever it names, and a row of the
// admission table answers first.
func TestOnlyCallsAreDenied(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(ok))
	s := incaddy.Run(t, site(denies, proxy(up.Addr())))
	a := call(t, s, message{method: "prompts/get", tool: "delete_user", header: []string{"Mcp-Name: delete_user"}})
	if a.status != http.StatusOK || strings.Contains(a.body, "error") {
		t.Errorf("answered %d %s", a.status, a.body)
	}
	for name, reason := range map[string]string{"Delete_User": "tool_name_lookalike", "delete_user\\u0000": "tool_name_nul"} {
		m := message{tool: "delete_user"}
		r := m.request(t.Context(), s.URL)
		body, _ := io.ReadAll(r.Body)
		text := strings.Replace(string(body), "delete_user", name, 1)
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
		if a := send(incaddy.Client(t, false), r, m.uri); a.status != http.StatusBadRequest {
			t.Errorf("%s: answered %d %s", name, a.status, a.body)
		}
		if got := s.Log.Access(t, m.uri).MCP.Refusal; got != reason {
			t.Errorf("%s: logged %q", name, got)
		}
	}
	if a := call(t, s, message{method: "Tools/Call", tool: "delete_user"}); a.status != http.StatusBadRequest {
		t.Errorf("a method in another case: answered %d %s", a.status, a.body)
	}
	if n := deliveries(up); n != 1 {
		t.Errorf("%d bodies were delivered, want the prompt's", n)
	}
}

// With enforce off a denied tool stays denied, in whatever message somebody may
// read a call of it.
func TestDeniedWithEnforceOff(t *testing.T) {
	calls := func(tool string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + tool + `","arguments":{"name":"delete_user"}}}`
	}
	bad, good := calls("delete_user"), calls("a")
	for _, tt := range []struct {
		name, body string
		header     string
		denied     bool
		id         string
	}{
		{"admitted", bad, "", true, "7"},
		{"another tool", good, "", false, ""},
		{"row 1", bad, "Origin: https://evil.example", true, "7"},
		{"row 3", bad, "Content-Type: text/plain", true, "7"},
		{"row 4, as far as it was read", bad + strings.Repeat(" ", 3000), "", true, ""},
		{"row 5", bad + "]", "", true, ""},
		{"row 6, the first name", strings.Replace(bad, `"name"`, `"name":"delete_user","name":"a","n"`, 1), "", true, "7"},
		{"row 6, the last name", strings.Replace(bad, `"name"`, `"name":"a","name"`, 1), "", true, "7"},
		{"row 6, the method", strings.Replace(bad, `"method"`, `"method":"ping","method"`, 1), "", true, "7"},
		{"row 6, the method last", strings.Replace(bad, `"params"`, `"method":"ping","params"`, 1), "", true, "7"},
		{"row 7", "[" + good + "," + bad + "]", "", true, ""},
		{"row 7, other tools", "[" + good + "]", "", false, ""},
		{"row 8", strings.Replace(bad, "2.0", "1.0", 1), "", true, "7"},
		{"row 8, a case variant", strings.Replace(bad, `"params"`, `"Params"`, 1), "", true, "7"},
		{"row 9", strings.Replace(bad, `"id":7,`, "", 1), "", true, ""},
		{"row 10", calls("Delete_User"), "", true, "7"},
		{"row 10, a NUL", calls(`delete_user\u0000x`), "", true, "7"},
		{"row 20", bad, "Mcp-Name: a", true, "7"},
		{"no JSON", "<" + bad, "", false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := brokenup.TCP(t, brokenup.Answer(ok))
			s := incaddy.Run(t, site(denies+"\nenforce off\nmax_body 1KiB", proxy(up.Addr())))
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/mcp", io.MultiReader(strings.NewReader(tt.body)))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("MCP-Protocol-Version", "2025-11-25")
			if name, value, found := strings.Cut(tt.header, ": "); found {
				r.Header.Set(name, value)
			}
			a := send(incaddy.Client(t, false), r, "/mcp")
			refusal := s.Log.Access(t, "/mcp").MCP.Refusal
			if !tt.denied {
				if n := deliveries(up); n != 1 || refusal == "denied" {
					t.Errorf("answered %d %s, %d bodies were delivered, logged %q", a.status, a.body, n, refusal)
				}
				return
			}
			if code, id := codeOf(t, a.body); code != denied || id != tt.id || a.status != http.StatusOK {
				t.Errorf("answered %d %s", a.status, a.body)
			}
			if n := len(up.Received()); n != 0 || refusal != "denied" {
				t.Errorf("%d bytes were forwarded, logged %q", n, refusal)
			}
		})
	}
}

// The tools of the lists below. What is hidden has the word secret in it.
const (
	shown      = `{"name":"create_refund","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}`
	secret     = `{"name":"delete_user","description":"secret","inputSchema":{"type":"object"}}`
	secretToo  = `{"description":"secret","name":"drop_table"}`
	alsoShown  = `{"name":"get_a"}`
	ambivalent = `{"name":"a","name":"delete_user","description":"secret"}`
)

// Lists come without what is denied, and all else of them stays.
func TestDeniedToolsAreNotListed(t *testing.T) {
	list := func(tools string) string { return `{"jsonrpc":"2.0","id":$id,"result":{"tools":[` + tools + `]}}` }
	all := list(secret + ", " + shown + "," + secretToo + " ," + alsoShown + "," + secret)
	left := list(shown + " ," + alsoShown)
	event := func(text string) string { return "event: message\nid: 5\ndata: " + text + "\n\n" }
	for _, tt := range []struct {
		name  string
		reply brokenup.Reply
		want  string
	}{
		{"JSON", brokenup.JSON(all), left},
		{"JSON, chunked", chunked(brokenup.JSON(all)), left},
		{"JSON, to the end of the connection", unsized(brokenup.JSON(all)), left},
		{"nothing denied in it", brokenup.JSON(list(shown)), list(shown)},
		{"all of it denied", brokenup.JSON(list(secret + "," + secretToo)), list("")},
		{"a page", brokenup.JSON(`{ "result": {"tools": [` + secret + `], "nextCursor":"2"},"id":$id , "jsonrpc":"2.0"}` + "\n"), `{ "result": {"tools": [], "nextCursor":"2"},"id":$id , "jsonrpc":"2.0"}` + "\n"},
		{"a tool that two readers read differently", brokenup.JSON(list(ambivalent + "," + shown)), list(shown)},
		{"under another status", brokenup.JSON(all).With(http.StatusCreated), left},
		{"many", brokenup.JSON(list(strings.Repeat(secret+",", 4000) + shown)), list(shown)},
		{"an error", brokenup.JSON(failure("-32603")), failure("-32603")},
		{"nothing", brokenup.JSON(""), ""},
		{"accepted", brokenup.JSON("").With(http.StatusAccepted), ""},
		{"a refusal", brokenup.Reply{Body: "<h1>no"}.With(http.StatusUnauthorized), "<h1>no"},
		{"a redirect", brokenup.Reply{Body: "<h1>there"}.With(http.StatusTemporaryRedirect, "Location: /there"), "<h1>there"},
		{"events", brokenup.SSE(progress(1) + ": ping\n\n" + event(all) + progress(2)), progress(1) + ": ping\n\n" + event(left) + progress(2)},
		{"events under another status", brokenup.SSE(event(all)).With(http.StatusAccepted), event(left)},
		{"an event on several lines", brokenup.SSE("data: " + strings.ReplaceAll(all, "},", "},\r\ndata:") + "\r\n\r\n"), ""},
		{"an event of another type", brokenup.SSE("event: x\ndata: " + all + "\n\n"), "event: x\ndata: " + left + "\n\n"},
		{"events that are no messages", brokenup.SSE("data: ping\n\nid: 1\ndata:\n\n" + event(all)), "data: ping\n\nid: 1\ndata:\n\n" + event(left)},
		{"a list for another request", brokenup.SSE("data: " + strings.ReplaceAll(all, "$id", "2") + "\n\n"), "data: " + strings.ReplaceAll(left, "$id", "2") + "\n\n"},
		{"a torn event", brokenup.SSE(progress(1) + "data: " + all + "\n"), progress(1)},
	} {
		for _, mode := range []string{"learn", "off"} {
			t.Run(tt.name+", "+mode, func(t *testing.T) {
				reply := tt.reply.With(0, "Content-Digest: sha-256=:x:", `Etag: "v1"`)
				reply.Status = tt.reply.Status
				up := newServer(t, reply)
				s := incaddy.Run(t, site(denies+"\nparam_headers "+mode, proxy(up.up.Addr())))
				for range 2 { // the second time it is known
					a := ask(t, s, lists)
					want := strings.ReplaceAll(tt.want, "$id", "1")
					if want == "" && tt.reply.Body != "" {
						if strings.Contains(a.body, "secret") || !strings.Contains(a.body, "create_refund") || !strings.Contains(a.body, "get_a") {
							t.Errorf("relayed %q", a.body)
						}
					} else if a.body != want || a.err != nil {
						t.Errorf("relayed %.600q (%v), want %.600q", a.body, a.err, want)
					}
					changed := a.body != strings.ReplaceAll(tt.reply.Body, "$id", "1")
					if changed && (a.header.Get("Content-Digest") != "" || a.header.Get("Etag") != "") {
						t.Errorf("the digests of other bytes were left: %v", a.header)
					}
					if length := a.header.Get("Content-Length"); length != "" && length != strconv.Itoa(len(a.body)) {
						t.Errorf("Content-Length %s of %d bytes", length, len(a.body))
					}
				}
			})
		}
	}
}

// Parameters are learned all the same.
func TestHidingLearns(t *testing.T) {
	up := newServer(t, page(secret+","+regional, ""))
	s := incaddy.Run(t, site(denies, proxy(up.up.Addr())))
	knowsNothing(t, s)
	ask(t, s, lists)
	verifies(t, s)
}

// A list is asked for as it can be read, although nothing is learned of it.
func TestHiddenListIsAskedForUncompressed(t *testing.T) {
	up := newServer(t, page(secret, ""))
	s := incaddy.Run(t, site(denies+"\nparam_headers off", proxy(up.up.Addr())))
	for _, accepts := range []string{"application/json, text/event-stream", "application/json", "*/*"} {
		m := lists
		r := m.request(t.Context(), s.URL)
		r.Header.Set("Accept", accepts)
		r.Header.Set("Accept-Encoding", "gzip")
		send(incaddy.Client(t, false), r, m.uri)
		requests := up.up.Requests()
		if got := requests[len(requests)-1].Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("it was asked for in %q where %s is accepted", got, accepts)
		}
	}
}

// What cannot be read in one way, or not be held, is withheld.
func TestWithheldLists(t *testing.T) {
	list := `{"jsonrpc":"2.0","id":$id,"result":{"tools":[` + secret + `]}}`
	long := `{"jsonrpc":"2.0","id":$id,"result":{"tools":[{"name":"a","description":"secret ` + large(300<<10) + `"},` + secret + `]}}`
	small := "max_body 100KiB\nresponse_buffer 100KiB\nmax_held 400KiB" // lists have a quarter
	for _, tt := range []struct {
		name, options string
		reply         brokenup.Reply
		before        string // of a stream
	}{
		{"encoded", "", brokenup.JSON(list).With(200, "Content-Encoding: gzip"), ""},
		{"encoded events", "", brokenup.SSE("data: "+list+"\n\n").With(200, "Content-Encoding: gzip"), ""},
		{"two results", "", brokenup.JSON(`{"id":1,"result":{},"result":{"tools":[` + secret + `]}}`), ""},
		{"two lists", "", brokenup.JSON(`{"id":1,"result":{"tools":[],"tools":[` + secret + `]}}`), ""},
		{"a list in another case", "", brokenup.JSON(`{"id":1,"result":{"Tools":[` + secret + `]}}`), ""},
		{"a batch", "", brokenup.JSON("[" + list + "]"), ""},
		{"no JSON", "", brokenup.JSON(list + "]"), ""},
		{"no JSON at all", "", brokenup.Reply{Body: "<h1>secret"}, ""},
		{"with a byte order mark", "", brokenup.JSON("\ufeff" + list), ""},
		{"too many", "", brokenup.JSON(`{"result":{"tools":[` + strings.Repeat("{},", 10_000) + secret + `]}}`), ""},
		{"too large", "", brokenup.JSON(strings.Replace(long, large(1000), large(17<<20), 1)), ""},
		{"too large, chunked", "", chunked(brokenup.JSON(strings.Replace(long, large(1000), large(17<<20), 1))), ""},
		{"more than lists may hold", small, brokenup.JSON(long), ""},
		{"more than lists may hold, chunked", small, chunked(brokenup.JSON(long)), ""},
		{"an event that is no JSON", "", brokenup.SSE(progress(1) + "data: " + list + "}\n\n" + "data: " + list + "\n\n"), progress(1)},
		{"an event that is no JSON, and what follows it", "", brokenup.SSE(progress(1) + "data: " + list + "}\n\n: secret\n\n"), progress(1)},
		{"an event that is a batch", "", brokenup.SSE(progress(1) + "data: [" + list + "]\n\n"), progress(1)},
		{"an event that is larger than lists may hold", small, brokenup.SSE(progress(1) + "data: " + long + "\n\n"), progress(1)},
		{"an event that is too large", "", brokenup.SSE(progress(1) + "data: " + strings.Replace(long, large(1000), large(17<<20), 1) + "\n\n"), progress(1)},
	} {
		for _, mode := range []string{"learn", "off"} {
			t.Run(tt.name+", "+mode, func(t *testing.T) {
				up := newServer(t, tt.reply)
				s := incaddy.Run(t, site(denies+"\nparam_headers "+mode+"\n"+tt.options, proxy(up.up.Addr())))
				a := ask(t, s, lists)
				if strings.Contains(a.body, "secret") {
					t.Fatalf("shown: %.300q", a.body)
				}
				body := a.body
				if tt.before != "" {
					found := events(t, strings.TrimPrefix(a.body, tt.before+"\n"))
					if !strings.HasPrefix(a.body, tt.before) || len(found) != 1 {
						t.Fatalf("relayed %q", a.body)
					}
					body = found[0].data
				} else if ct := a.header.Get("Content-Type"); ct != "application/json" || a.header.Get("Content-Encoding") != "" {
					t.Errorf("the error came as %q, %v", ct, a.header)
				}
				if code, id := codeOf(t, body); code != listWithheld || id != "1" || a.status != http.StatusOK {
					t.Errorf("answered %d %s", a.status, a.body)
				}
				s.Log.Await(t, "why the list is withheld", func(e *incaddy.Entry) bool {
					return e.Level == "warn" && strings.Contains(e.Line, "a list of tools is withheld")
				})
				// Nothing of it is held any more.
				if a := call(t, s, message{}); a.status != http.StatusOK {
					t.Errorf("a call after it: %d %s", a.status, a.body)
				}
			})
		}
	}
}

// Of a list that breaks off nothing is shown.
func TestHiddenListBreaksOff(t *testing.T) {
	reply := page(shown+","+secret+","+alsoShown, "")
	up := brokenup.TCP(t, brokenup.Cut(reply, len(reply.Body)-30))
	s := incaddy.Run(t, site(denies, proxy(up.Addr())))
	if a := ask(t, s, lists); a.err == nil || a.body != "" {
		t.Errorf("answered %q %v", a.body, a.err)
	}
}

// A list whose end never comes does not keep the client waiting once it is too
// large, nor does an event.
func TestEndlessListIsWithheld(t *testing.T) {
	for name, reply := range map[string]brokenup.Reply{"JSON": brokenup.JSON("{"), "an event": brokenup.SSE("data: {")} {
		t.Run(name, func(t *testing.T) {
			up := brokenup.TCP(t, func(c *brokenup.Conn) {
				c.Read()
				c.Head(chunked(reply))
				for c.Chunk(reply.Body + large(1<<20)) {
					reply.Body = ""
				}
			})
			s := incaddy.Run(t, site(denies, proxy(up.Addr())))
			m := lists
			r := m.request(t.Context(), s.URL)
			res, err := incaddy.Client(t, false).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			line, _ := bufio.NewReader(res.Body).ReadString('}')
			if !strings.Contains(line, strconv.Itoa(listWithheld)) {
				t.Errorf("answered %.300q", line)
			}
			up.AwaitEnd(1) // nor is it read for ever
		})
	}
}

// Trailers come as trailers behind a list that was held, and none behind one
// that is withheld.
func TestTrailersOfHiddenLists(t *testing.T) {
	for name, body := range map[string]string{"cut": page(secret+","+shown, "").Body, "withheld": "[]"} {
		for _, announced := range []string{"Trailer: X-Sum, Content-Digest\r\n", ""} {
			t.Run(name+" "+announced, func(t *testing.T) {
				up := brokenup.TCP(t, func(c *brokenup.Conn) {
					if q, ok := c.Read(); ok {
						c.Send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + announced + "Transfer-Encoding: chunked\r\n\r\n")
						c.Chunk(strings.ReplaceAll(body, "$id", q.ID()))
						c.Send("0\r\nX-Sum: 17\r\nContent-Digest: sha-256=:x:\r\n\r\n")
					}
				})
				s := incaddy.Run(t, site(denies, proxy(up.Addr())))
				m := lists
				res, err := incaddy.Client(t, false).Do(m.request(t.Context(), s.URL))
				if err != nil {
					t.Fatal(err)
				}
				a := readAnswer(res, m.uri)
				if a.header.Get("X-Sum") != "" || a.err != nil {
					t.Errorf("trailers came as header fields: %v %v", a.header, a.err)
				}
				if name == "withheld" {
					if code, _ := codeOf(t, a.body); code != listWithheld || len(res.Trailer) != 0 {
						t.Errorf("answered %s with trailers %v", a.body, res.Trailer)
					}
					return
				}
				if want := strings.ReplaceAll(page(shown, "").Body, "$id", "1"); a.body != want || res.Trailer.Get("X-Sum") != "17" || res.Trailer.Get("Content-Digest") != "" {
					t.Errorf("answered %s with trailers %v", a.body, res.Trailer)
				}
			})
		}
	}
}

// A legacy client can come back with a GET for a list that it asked for with a
// POST. The stream goes on event by event, and one that cannot be read is left
// out.
func TestHidingOnGetStreams(t *testing.T) {
	list := func(tools string) string {
		return `data: {"jsonrpc":"2.0","id":3,"result":{"tools":[` + tools + "]}}\n\n"
	}
	request := `data: {"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"tools":[{"name":"delete_user"}]}}` + "\n\n"
	more := make(chan string)
	up := brokenup.TCP(t, func(c *brokenup.Conn) {
		q, there := c.Read()
		if !there {
			return
		}
		if got := q.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("events were asked for in %q", got)
		}
		c.Head(brokenup.SSE(""))
		for text := range more {
			c.Chunk(text)
		}
		c.Send("0\r\n\r\n")
	})
	s := incaddy.Run(t, site(denies, proxy(up.Addr())))
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/mcp", http.NoBody)
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Last-Event-ID", "4")
	go func() { more <- ": open\n\n" }()
	res, err := incaddy.Client(t, false).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	stream := bufio.NewReader(res.Body)
	for _, step := range []struct{ sent, want string }{
		{"", ": open\n\n"},
		{request, request},
		{list(secret + "," + shown), list(shown)},
		{"data: {\"secret\":\n\n" + progress(1), progress(1)},
		{"data: ping\n\n", "data: ping\n\n"},
	} {
		if step.sent != "" {
			more <- step.sent
		}
		got := make([]byte, len(step.want))
		if _, err := io.ReadFull(stream, got); err != nil || string(got) != step.want {
			t.Fatalf("got %q, %v; want %q", got, err, step.want)
		}
	}
	close(more)
	if rest, err := io.ReadAll(stream); len(rest) > 0 || err != nil {
		t.Errorf("then came %q, %v", rest, err)
	}
}

// A GET stream breaks off before an event that cannot be held, and is not begun
// where it cannot be read.
func TestGetStreamsThatCannotBeRead(t *testing.T) {
	get := func(t *testing.T, reply brokenup.Reply, options string) answer {
		up := brokenup.TCP(t, brokenup.Answer(reply))
		s := incaddy.Run(t, site(denies+"\n"+options, proxy(up.Addr())))
		r, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, s.URL+"/mcp", http.NoBody)
		r.Header.Set("Accept", "text/event-stream")
		res, err := incaddy.Client(t, false).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return readAnswer(res, "")
	}
	t.Run("too large", func(t *testing.T) {
		a := get(t, brokenup.SSE(progress(1)+`data: {"secret":"`+large(300<<10)+"\"}\n\n"+progress(2)), "max_body 100KiB\nresponse_buffer 100KiB\nmax_held 400KiB")
		if a.err == nil || a.body != progress(1) {
			t.Errorf("got %.300q, %v", a.body, a.err)
		}
	})
	t.Run("encoded", func(t *testing.T) {
		a := get(t, brokenup.SSE("data: {\"secret\":1}\n\n").With(200, "Content-Encoding: gzip"), "")
		if code, id := codeOf(t, a.body); code != listWithheld || id != "" || a.status != http.StatusBadGateway {
			t.Errorf("answered %d %s", a.status, a.body)
		}
	})
	t.Run("what is no stream passes", func(t *testing.T) {
		body := fmt.Sprintf(`{"result":{"tools":[%s]}}`, secret)
		if a := get(t, brokenup.JSON(body).With(200, "Content-Encoding: x"), ""); a.body != body || a.err != nil {
			t.Errorf("got %q, %v", a.body, a.err)
		}
	})
}

// Without deny and allow_only nothing is held, whatever it is.
func TestNothingIsHiddenWithoutAWord(t *testing.T) {
	body := "[" + page(ambivalent, "").Body + "]"
	up := newServer(t, brokenup.JSON(body).With(200, `Etag: "v1"`))
	s := incaddy.Run(t, site("tool create_refund", proxy(up.up.Addr())))
	a := ask(t, s, lists)
	if want := strings.ReplaceAll(body, "$id", "1"); a.body != want || a.header.Get("Etag") != `"v1"` {
		t.Errorf("relayed %q, %v", a.body, a.header)
	}
}
