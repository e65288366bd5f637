package exchange

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// regional is a tool whose argument region is mirrored.
const regional = `{"name":"create_refund","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}`

// page is a tools/list result with these tools and more members.
func page(tools, more string) brokenup.Reply {
	return brokenup.JSON(`{"jsonrpc":"2.0","id":$id,"result":{"tools":[` + tools + `]` + more + `}}`)
}

// mcpServer answers lists with what the test sets, and calls with ok or what
// the test sets.
type mcpServer struct {
	up *brokenup.Upstream

	mu    sync.Mutex
	list  brokenup.Reply
	reply brokenup.Reply
}

func newServer(t *testing.T, list brokenup.Reply) *mcpServer {
	s := &mcpServer{list: list, reply: ok}
	s.up = brokenup.TCP(t, func(c *brokenup.Conn) {
		for {
			q, there := c.Read()
			if !there {
				return
			}
			r := s.answer(q)
			if !c.Reply(r) || r.Framing == brokenup.Unsized {
				return
			}
		}
	})
	return s
}

func (s *mcpServer) answer(q *brokenup.Request) brokenup.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.Contains(string(q.Body), `"method":"tools/list"`) {
		return s.list.For(q)
	}
	return s.reply.For(q)
}

func (s *mcpServer) set(list, reply brokenup.Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list, s.reply = list, reply
}

// The parts of a conversation: a list, and calls whose header agrees with the
// argument, lies, or is missing.
var (
	lists    = message{method: "tools/list"}
	agreeing = message{args: `{"region":"eu"}`, header: []string{"Mcp-Param-Region: eu"}}
	lying    = message{args: `{"region":"eu"}`, header: []string{"Mcp-Param-Region: us"}}
	without  = message{args: `{"region":"eu"}`}
)

// ask sends a message to the endpoint, of which all share one URI.
func ask(t *testing.T, s *incaddy.Site, m message) answer {
	t.Helper()
	m.plain = true
	return call(t, s, m)
}

func with(m message, header ...string) message {
	m.header = append(append([]string(nil), m.header...), header...)
	return m
}

// verifies wants the call that agrees to pass and the others to be refused.
func verifies(t *testing.T, s *incaddy.Site, header ...string) {
	t.Helper()
	passes(t, s, with(agreeing, header...), 0)
	refuses(t, s, with(lying, header...), "param_mismatch")
	refuses(t, s, with(without, header...), "param_missing")
}

// knowsNothing wants all to pass, what was sent unverified.
func knowsNothing(t *testing.T, s *incaddy.Site, header ...string) {
	t.Helper()
	passes(t, s, with(lying, header...), 1)
	passes(t, s, with(without, header...), 0)
}

func passes(t *testing.T, s *incaddy.Site, m message, unverified int) {
	t.Helper()
	a := ask(t, s, m)
	committed.check(t, s, a)
	line := s.Log.Access(t, a.uri).Line
	if want := fmt.Sprintf(`"unverified_params":%d`, unverified); strings.Contains(line, "unverified_params") != (unverified > 0) || unverified > 0 && !strings.Contains(line, want) {
		t.Errorf("logged %s, want %d unverified", line, unverified)
	}
}

func refuses(t *testing.T, s *incaddy.Site, m message, reason string) {
	t.Helper()
	a := ask(t, s, m)
	if a.status != http.StatusBadRequest || !strings.Contains(a.body, "-32020") {
		t.Errorf("answered %d %s, want a refusal", a.status, a.body)
	}
	if got := s.Log.Access(t, a.uri).MCP; got == nil || got.Refusal != reason {
		t.Errorf("logged %+v, want %s", got, reason)
	}
}

// A tool is known once a list with it was relayed, in whatever form it came.
func TestLearning(t *testing.T) {
	text := `{ "result":{"nextCursor":"x" ,"tools":[` + regional + `],"d":1,"d":2},"jsonrpc":"2.0","id":$id }` + "\n"
	other := strings.Replace(regional, "create_refund", "x", 1)
	for _, tt := range []struct {
		name   string
		list   brokenup.Reply
		legacy bool
	}{
		{"JSON", page(regional, ""), false},
		{"JSON, chunked", chunked(page(regional, "")), false},
		{"JSON, to the end of the connection", unsized(page(regional, "")), false},
		{"oddly spelled", brokenup.JSON(text), false},
		{"the last of many", page(strings.Repeat(other+",", 5000)+regional, ""), false},
		{"events", brokenup.SSE(progress(1) + ": hello\n\nevent: message\ndata: " + `{"jsonrpc":"2.0","id":$id,"result":{"tools":[` + regional + "]}}\n\n"), false},
		{"an event on several lines", brokenup.SSE("data: {\"jsonrpc\":\"2.0\",\"id\":$id,\ndata: \"result\":{\"tools\":[" + regional + "]}}\n\n"), false},
		{"legacy", page(regional, ""), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := newServer(t, tt.list)
			s := incaddy.Run(t, site("", proxy(up.up.Addr())))
			knowsNothing(t, s)
			m := lists
			m.legacy = tt.legacy
			a := ask(t, s, m)
			if want := strings.ReplaceAll(tt.list.Body, "$id", "1"); a.body != want {
				t.Errorf("relayed %.200q, want %.200q", a.body, want)
			}
			verifies(t, s)
			for _, q := range up.up.Requests() {
				if strings.Contains(string(q.Body), "tools/list") && q.Header.Get("Accept-Encoding") != "identity" {
					t.Errorf("the list was asked for in %q", q.Header.Get("Accept-Encoding"))
				}
			}
		})
	}
}

// What teaches nothing is relayed all the same.
func TestNotLearned(t *testing.T) {
	for name, list := range map[string]brokenup.Reply{
		"another status":           page(regional, "").With(http.StatusAccepted),
		"encoded":                  page(regional, "").With(200, "Content-Encoding: gzip"),
		"an error":                 brokenup.JSON(failure("-32603")),
		"no JSON":                  brokenup.JSON("<html>"),
		"nothing":                  brokenup.JSON(""),
		"two results":              brokenup.JSON(`{"result":{"tools":[` + regional + `]},"result":{}}`),
		"an event for another":     brokenup.SSE(`data: {"jsonrpc":"2.0","id":2,"result":{"tools":[` + regional + `]}}` + "\n\n"),
		"a torn event":             brokenup.SSE(`data: {"jsonrpc":"2.0","id":$id,"result":{"tools":[` + regional + `]}}` + "\n"),
		"an event of another type": brokenup.SSE("event: x\n" + `data: {"jsonrpc":"2.0","id":$id,"result":{"tools":[` + regional + `]}}` + "\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			up := newServer(t, list)
			s := incaddy.Run(t, site("", proxy(up.up.Addr())))
			a := ask(t, s, lists)
			if want := strings.ReplaceAll(list.Body, "$id", "1"); a.body != want || a.err != nil {
				t.Errorf("relayed %q (%v), want %q", a.body, a.err, want)
			}
			knowsNothing(t, s)
		})
	}
	t.Run("a list that broke off", func(t *testing.T) {
		list := page(regional, "")
		up := brokenup.TCP(t, brokenup.Cut(list, len(list.Body)-4))
		s := incaddy.Run(t, site("", proxy(up.Addr())))
		if a := ask(t, s, lists); a.err == nil || a.body == "" || !strings.HasPrefix(strings.ReplaceAll(list.Body, "$id", "1"), a.body) {
			t.Errorf("answered %q %v", a.body, a.err)
		}
	})
}

// What one caller was shown says nothing of another's tools, unless it is said
// to be public.
func TestLearningPerCaller(t *testing.T) {
	alice, bob := "Authorization: Bearer alice", "Authorization: Bearer bob"
	for _, tt := range []struct {
		name, scope string
		options     string
		one, other  string // header lines of two requests
		shared      bool
	}{
		{"private", `,"cacheScope":"private"`, "", alice, bob, false},
		{"unsaid", "", "", alice, bob, false},
		{"public", `,"cacheScope":"public"`, "", alice, bob, true},
		{"the same caller", "", "", alice, alice, true},
		{"by cookie", "", "", "Cookie: a=1", "Cookie: a=2", false},
		{"by a header that says nothing of callers", "", "", "X-Tenant: 1", "X-Tenant: 2", true},
		{"by a header that does", "", "caller x-tenant", "X-Tenant: 1", "X-Tenant: 2", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := newServer(t, page(regional, tt.scope))
			s := incaddy.Run(t, site(tt.options, proxy(up.up.Addr())))
			ask(t, s, with(lists, tt.one))
			verifies(t, s, tt.one)
			if tt.shared {
				verifies(t, s, tt.other)
			} else {
				knowsNothing(t, s, tt.other)
			}
		})
	}
}

// What a caller was shown comes before what is public.
func TestPrivateBeforePublic(t *testing.T) {
	up := newServer(t, page(regional, `,"cacheScope":"public"`))
	s := incaddy.Run(t, site("", proxy(up.up.Addr())))
	ask(t, s, lists)
	up.set(page(strings.Replace(regional, `"Region"`, `"Zone"`, 1), `,"cacheScope":"private"`), ok)
	bob := "Authorization: Bearer bob"
	ask(t, s, with(lists, bob))
	passes(t, s, message{args: `{"region":"eu"}`, header: []string{bob, "Mcp-Param-Zone: eu"}}, 0)
	verifies(t, s, "Authorization: Bearer alice")
}

// Pages add up; a later definition takes the place of an earlier one.
func TestPages(t *testing.T) {
	up := newServer(t, page(regional, `,"nextCursor":"2"`))
	s := incaddy.Run(t, site("", proxy(up.up.Addr())))
	ask(t, s, lists)
	up.set(page(strings.Replace(regional, "create_refund", "create_order", 1), ""), ok)
	ask(t, s, lists)
	verifies(t, s)
	refuses(t, s, message{tool: "create_order", args: `{"region":"eu"}`}, "param_missing")

	up.set(page(strings.Replace(regional, `,"x-mcp-header":"Region"`, "", 1), ""), ok)
	ask(t, s, lists)
	knowsNothing(t, s)
	refuses(t, s, message{tool: "create_order", args: `{"region":"eu"}`}, "param_missing")
}

// A definition says nothing any more once its server says that the tools have
// changed, on whatever stream, or refuses headers that agreed with it; and it
// counts again when it is listed again.
func TestStale(t *testing.T) {
	changed := "data: " + `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n\n"
	on := func(m message) func(*testing.T, *incaddy.Site) {
		return func(t *testing.T, s *incaddy.Site) { ask(t, s, m) }
	}
	for _, tt := range []struct {
		name  string
		reply brokenup.Reply
		do    func(*testing.T, *incaddy.Site)
	}{
		{"on the stream of a call", brokenup.SSE(changed + final), on(message{tool: "another"})},
		{"on the stream of a subscription", brokenup.SSE(changed), on(message{method: "subscriptions/listen"})},
		{"on a GET stream", brokenup.SSE(changed), func(t *testing.T, s *incaddy.Site) {
			res, err := incaddy.Client(t, false).Get(s.URL + "/mcp")
			if err != nil {
				t.Fatal(err)
			}
			if a := readAnswer(res, ""); a.body != changed {
				t.Errorf("relayed %q", a.body)
			}
		}},
		{"by a refusal of headers", brokenup.JSON(failure("-32020")).With(400), on(agreeing)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list := page(regional, "")
			up := newServer(t, list)
			s := incaddy.Run(t, site("", proxy(up.up.Addr())))
			ask(t, s, lists)
			verifies(t, s)
			up.set(list, tt.reply)
			tt.do(t, s)
			up.set(list, ok)
			knowsNothing(t, s)
			ask(t, s, lists)
			verifies(t, s)
		})
	}
	t.Run("not on another caller's stream", func(t *testing.T) {
		list := page(regional, "")
		up := newServer(t, list)
		s := incaddy.Run(t, site("", proxy(up.up.Addr())))
		ask(t, s, lists)
		up.set(list, brokenup.SSE(changed))
		ask(t, s, message{method: "subscriptions/listen", header: []string{"Authorization: Bearer bob"}})
		up.set(list, ok)
		verifies(t, s)
	})
	t.Run("not by another path", func(t *testing.T) {
		list := page(regional, "")
		up := newServer(t, list)
		s := incaddy.Run(t, incaddy.Config{Site: "mcp_gateway\n" + proxy(up.up.Addr())})
		ask(t, s, lists)
		up.set(list, brokenup.SSE(changed))
		res, err := incaddy.Client(t, false).Get(s.URL + "/other")
		if err != nil {
			t.Fatal(err)
		}
		readAnswer(res, "")
		up.set(list, ok)
		verifies(t, s)
	})
}

// The notification passes at once, and counts before it passes.
func TestChangeIsRelayedAtOnce(t *testing.T) {
	release := make(chan struct{})
	list := page(regional, "")
	up := brokenup.TCP(t, func(c *brokenup.Conn) {
		for {
			q, there := c.Read()
			switch {
			case !there:
				return
			case strings.Contains(string(q.Body), "tools/list"):
				c.Reply(list.For(q))
			case strings.Contains(string(q.Body), "subscriptions/listen"):
				c.Head(brokenup.SSE(""))
				c.Chunk("data: " + `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n\n")
				<-release
				c.Send("0\r\n\r\n")
			default:
				c.Reply(ok.For(q))
			}
		}
	})
	s := incaddy.Run(t, site("", proxy(up.Addr())))
	ask(t, s, lists)
	verifies(t, s)
	m := message{method: "subscriptions/listen", plain: true}
	res, err := incaddy.Client(t, false).Do(m.request(t.Context(), s.URL))
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || !strings.Contains(line, "list_changed") {
		t.Errorf("relayed %q %v", line, err)
	}
	knowsNothing(t, s)
	res.Body.Close()
	close(release)
}

// What is declared wins over what was learned, and needs no list.
func TestDeclaredParams(t *testing.T) {
	up := newServer(t, page(strings.Replace(regional, `"Region"`, `"Zone"`, 1), ""))
	s := incaddy.Run(t, site("tool create_* {\nparam Region region\n}", proxy(up.up.Addr())))
	verifies(t, s)
	ask(t, s, lists)
	verifies(t, s)
	passes(t, s, message{tool: "delete_refund", header: []string{"Mcp-Param-Region: x"}}, 1)
}

func TestParamHeaderModes(t *testing.T) {
	t.Run("require", func(t *testing.T) {
		up := newServer(t, page(regional, ""))
		s := incaddy.Run(t, site("param_headers require", proxy(up.up.Addr())))
		refuses(t, s, agreeing, "param_unknown_tool")
		passes(t, s, without, 0)
		ask(t, s, lists)
		verifies(t, s)
		refuses(t, s, with(agreeing, "Mcp-Param-Zone: x"), "param_not_bound")
	})
	t.Run("off", func(t *testing.T) {
		up := newServer(t, page(regional, ""))
		s := incaddy.Run(t, site("param_headers off", proxy(up.up.Addr())))
		ask(t, s, lists)
		knowsNothing(t, s)
	})
	t.Run("enforce off", func(t *testing.T) {
		up := newServer(t, page(regional, ""))
		s := incaddy.Run(t, site("enforce off", proxy(up.up.Addr())))
		ask(t, s, lists)
		a := ask(t, s, lying)
		committed.check(t, s, a)
		if got := s.Log.Access(t, a.uri).MCP.Refusal; got != "param_mismatch" {
			t.Errorf("logged %q", got)
		}
	})
}

// Only what was verified is a placeholder that handlers inside can trust.
func TestParamPlaceholder(t *testing.T) {
	up := newServer(t, page(regional, ""))
	s := incaddy.Run(t, site("", proxy(up.up.Addr(), "header_up X-Region {http.mcp.param.Region}", "header_up X-Lower {http.mcp.param.region}")))
	seen := func(m message) (string, string) {
		a := ask(t, s, m)
		for _, q := range up.up.Requests() {
			if q.Header.Get(incaddy.CallHeader) == a.uri {
				return q.Header.Get("X-Region"), q.Header.Get("X-Lower")
			}
		}
		t.Fatalf("%s did not arrive", a.uri)
		return "", ""
	}
	if region, lower := seen(agreeing); region != "" || lower != "" {
		t.Errorf("unverified, and shown as %q, %q", region, lower)
	}
	ask(t, s, lists)
	if region, lower := seen(agreeing); region != "eu" || lower != "eu" {
		t.Errorf("verified, and shown as %q, %q", region, lower)
	}
	encoded := message{args: `{"region":"é "}`, header: []string{"Mcp-Param-Region: =?base64?w6kg?="}}
	if region, _ := seen(encoded); region != "é " && region != "é" {
		t.Errorf("encoded, and shown as %q", region)
	}
}

// Caddy removes headers whose names contain "_" or ".": that is said when such
// a tool is learned and when a call misses it, and stops with Caddy's option.
func TestLostHeaders(t *testing.T) {
	for name, option := range map[string]string{"Tenant_Id": "expected_underscore_headers", "Tenant.Id": "expected_dot_headers"} {
		list := page(strings.Replace(regional, `"Region"`, `"`+name+`"`, 1), "")
		m := message{args: `{"region":"eu"}`, header: []string{"Mcp-Param-" + name + ": eu"}}
		reported := func(s *incaddy.Site) int {
			return len(s.Log.Entries(func(e *incaddy.Entry) bool { return strings.Contains(e.Line, `"header_lost"`) }))
		}
		t.Run(name+" is lost", func(t *testing.T) {
			s := incaddy.Run(t, site("", proxy(newServer(t, list).up.Addr())))
			ask(t, s, lists)
			a := ask(t, s, m)
			if !strings.Contains(a.body, option) || a.status != http.StatusBadRequest {
				t.Errorf("answered %d %s", a.status, a.body)
			}
			if got := s.Log.Access(t, a.uri).MCP.Refusal; got != "param_lost" {
				t.Errorf("logged %q", got)
			}
			if reported(s) != 1 {
				t.Error("it was not reported when it was learned")
			}
		})
		for _, entry := range []string{"Mcp-Param-" + name, "mcp-param-tenant" + name[6:7] + "*"} {
			t.Run(entry+" is kept", func(t *testing.T) {
				config := site("", proxy(newServer(t, list).up.Addr()))
				config.Servers = option + " " + entry
				s := incaddy.Run(t, config)
				ask(t, s, lists)
				passes(t, s, m, 0)
				if reported(s) != 0 {
					t.Error("it was reported as lost")
				}
			})
		}
	}
}

// An invalid definition binds nothing, and is reported.
func TestInvalidDefinition(t *testing.T) {
	s := incaddy.Run(t, site("", proxy(newServer(t, page(regional+","+regional, "")).up.Addr())))
	ask(t, s, lists)
	knowsNothing(t, s)
	s.Log.Await(t, "the fault", func(e *incaddy.Entry) bool {
		return strings.Contains(e.Line, `"reason":"tool_repeated"`) && strings.Contains(e.Line, `"tool":"create_refund"`)
	})
}

// What was learned outlives a reload of the configuration, and nothing else.
func TestReloadKeepsWhatWasLearned(t *testing.T) {
	up := newServer(t, page(regional, ""))
	config := site("", proxy(up.up.Addr()))
	hosted := func(s *incaddy.Site, m message) answer {
		m.plain = true
		for {
			r := m.request(t.Context(), s.URL)
			r.Host = "mcp.example.com"
			a := send(incaddy.Client(t, false), r, m.uri)
			if a.err == nil || t.Context().Err() != nil {
				return a
			}
			// While it loads a configuration Caddy drops connections.
		}
	}
	first := incaddy.Run(t, config)
	_, config.Port, _ = strings.Cut(first.Addr, ":")
	hosted(first, lists)
	for range 3 {
		next := incaddy.Run(t, config)
		if a := hosted(next, lying); a.status != http.StatusBadRequest {
			t.Errorf("after a reload: %d %s", a.status, a.body)
		}
	}
	elsewhere := site("namespace other", proxy(up.up.Addr()))
	elsewhere.Port = config.Port
	other := incaddy.Run(t, elsewhere)
	if a := hosted(other, lying); a.status != http.StatusOK {
		t.Errorf("under another namespace: %d %s", a.status, a.body)
	}
	other.Stop(t)
	anew := incaddy.Run(t, config)
	if a := hosted(anew, lying); a.status != http.StatusOK {
		t.Errorf("after a stop: %d %s", a.status, a.body)
	}
}

// Knowledge belongs to what the client asked for: neither a rewrite nor a host
// of the client's choice makes two endpoints one.
func TestEndpointsAreApart(t *testing.T) {
	plain := page(strings.Replace(regional, `,"x-mcp-header":"Region"`, "", 1), `,"cacheScope":"public"`)
	bound := page(regional, `,"cacheScope":"public"`)
	at := func(s *incaddy.Site, target, host string, m message) answer {
		r := m.request(t.Context(), s.URL)
		r.URL.Path, r.URL.RawQuery = target, ""
		if path, query, ok := strings.Cut(target, "?"); ok {
			r.URL.Path, r.URL.RawQuery = path, query
		}
		if host != "" {
			r.Host = host
		}
		return send(incaddy.Client(t, false), r, "")
	}
	t.Run("a rewrite", func(t *testing.T) {
		one, other := newServer(t, bound), newServer(t, plain)
		block := func(path, addr string) string {
			return "handle " + path + " {\nrewrite /mcp\nmcp_gateway\n" + proxy(addr) + "\n}\n"
		}
		s := incaddy.Run(t, incaddy.Config{Site: block("/one", one.up.Addr()) + block("/other", other.up.Addr())})
		at(s, "/one", "", lists)
		at(s, "/other", "", lists)
		if a := at(s, "/one", "", lying); a.status != http.StatusBadRequest {
			t.Errorf("a lie passed: %d", a.status)
		}
		if a := at(s, "/other", "", without); a.status != http.StatusOK {
			t.Errorf("refused for another's tool: %d %s", a.status, a.body)
		}
	})
	t.Run("a query", func(t *testing.T) {
		up := newServer(t, bound)
		s := incaddy.Run(t, site("", proxy(up.up.Addr())))
		at(s, "/mcp", "", lists)
		up.set(plain, ok)
		at(s, "/mcp?v=2", "", lists)
		if a := at(s, "/mcp", "", lying); a.status != http.StatusBadRequest {
			t.Errorf("a lie passed: %d", a.status)
		}
	})
	t.Run("another site's host", func(t *testing.T) {
		one, other := newServer(t, bound), newServer(t, plain)
		config := site("", proxy(one.up.Addr()))
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, addr, _ := net.SplitHostPort(free.Addr().String())
		free.Close()
		config.Also = "http://:" + addr + " {\nbind 127.0.0.1\nmcp_gateway /mcp\n" + proxy(other.up.Addr()) + "\n}"
		s := incaddy.Run(t, config)
		at(s, "/mcp", "", lists)
		second := *s
		second.URL = "http://127.0.0.1:" + addr
		at(&second, "/mcp", s.Addr, lists)
		if a := at(s, "/mcp", "", lying); a.status != http.StatusBadRequest {
			t.Errorf("a lie passed: %d", a.status)
		}
	})
}

// A request that outlives its configuration goes on with what was learned.
func TestStreamOutlivesAReload(t *testing.T) {
	release := make(chan struct{})
	up := brokenup.TCP(t, func(c *brokenup.Conn) {
		q, there := c.Read()
		if !there {
			return
		}
		c.Head(brokenup.SSE(""))
		c.Chunk(": open\n\n")
		<-release
		c.Chunk("data: " + `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n\n" + strings.ReplaceAll(final, "$id", q.ID()))
		c.Send("0\r\n\r\n")
	})
	config := site("", proxy(up.Addr(), "stream_close_delay 1m"))
	config.Global = "grace_period 1ms"
	s := incaddy.Run(t, config)
	m := message{method: "subscriptions/listen"}
	res, err := incaddy.Client(t, false).Do(m.request(t.Context(), s.URL))
	if err != nil {
		t.Fatal(err)
	}
	stream := bufio.NewReader(res.Body)
	if _, err := stream.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	incaddy.Run(t, incaddy.Config{Site: "respond ok"})
	close(release)
	if rest, err := io.ReadAll(stream); err != nil || !strings.Contains(string(rest), "list_changed") {
		t.Errorf("relayed %q, %v", rest, err)
	}
	res.Body.Close()
}

// The caller of a GET is who sent it, whatever handlers beneath make of the
// headers that go to the server.
func TestChangeOnGETBehindRewrittenHeaders(t *testing.T) {
	changed := "data: " + `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n\n"
	list := page(regional, "")
	up := newServer(t, list)
	s := incaddy.Run(t, incaddy.Config{Site: "route {\nmcp_gateway /mcp\nrequest_header Authorization \"Bearer of-the-server\"\n" + proxy(up.up.Addr()) + "\n}"})
	const alice = "Authorization: Bearer alice"
	ask(t, s, with(lists, alice))
	verifies(t, s, alice)
	up.set(list, brokenup.SSE(changed))
	r, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/mcp", nil)
	r.Header.Set("Authorization", "Bearer alice")
	res, err := incaddy.Client(t, false).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if a := readAnswer(res, ""); a.body != changed {
		t.Errorf("relayed %q", a.body)
	}
	up.set(list, ok)
	knowsNothing(t, s, alice)
}

// A caller that is told of a change is told of it also if its list is public.
func TestChangeOfPublicList(t *testing.T) {
	changed := "data: " + `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n\n"
	list := page(regional, `,"cacheScope":"public"`)
	up := newServer(t, list)
	s := incaddy.Run(t, site("", proxy(up.up.Addr())))
	ask(t, s, lists)
	verifies(t, s)
	up.set(list, brokenup.SSE(changed))
	ask(t, s, message{method: "subscriptions/listen"})
	up.set(list, ok)
	knowsNothing(t, s)
}

// A request that was refused by its head has verified nothing, also where it
// goes on: the server may decode another body than the one that was read.
func TestRefusedHeadVerifiesNothing(t *testing.T) {
	up := newServer(t, page(regional, ""))
	s := incaddy.Run(t, site("enforce off\ntool create_refund {\nparam Region region\n}", proxy(up.up.Addr(), "header_up X-Region {http.mcp.param.Region}")))
	m := agreeing
	r := m.request(t.Context(), s.URL)
	r.Header.Set("Content-Type", "application/json; charset=utf-7")
	a := send(incaddy.Client(t, false), r, m.uri)
	if got := s.Log.Access(t, a.uri).MCP.Refusal; got != "content_type" {
		t.Fatalf("logged %q", got)
	}
	if got := up.up.Requests()[0].Header.Get("X-Region"); got != "" {
		t.Errorf("refused, and shown as verified: %q", got)
	}
}

// zoned is the tool after its server renamed the header.
var zoned = strings.Replace(regional, `"Region"`, `"Zone"`, 1)

var inZone = message{args: `{"region":"eu"}`, header: []string{"Mcp-Param-Zone: eu"}}

// A client that was shown a new list calls by it, also when the gateway could
// not read that list: what it knew before is out of date.
func TestUnreadableListIsNewer(t *testing.T) {
	for name, list := range map[string]brokenup.Reply{
		"a tool with two names":              page(zoned+`,{"name":"x","name":"y"}`, ""),
		"encoded all the same":               page(zoned, "").With(200, "Content-Encoding: gzip"),
		"larger than is read":                page(zoned, `,"_meta":{"x":"`+strings.Repeat("x", 17<<20)+`"}`),
		"a stream, larger, with two results": brokenup.SSE(`data: {"jsonrpc":"2.0","id":$id,"result":{},"result":{"tools":[` + zoned + `],"_meta":{"x":"` + strings.Repeat("x", 17<<20) + `"}}}` + "\n\n"),
		"a stream, larger":                   brokenup.SSE(`data: {"jsonrpc":"2.0","id":$id,"result":{"tools":[` + zoned + `],"_meta":{"x":"` + strings.Repeat("x", 17<<20) + `"}}}` + "\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			up := newServer(t, page(regional, ""))
			s := incaddy.Run(t, site("", proxy(up.up.Addr())))
			ask(t, s, lists)
			verifies(t, s)
			up.set(list, ok)
			if a := ask(t, s, lists); a.err != nil || a.status/100 != 2 {
				t.Fatalf("the list was answered with %d %v", a.status, a.err)
			}
			a := ask(t, s, inZone)
			if a.status != http.StatusOK {
				t.Errorf("a call by the new list was answered with %d %s", a.status, a.body)
			}
		})
	}
}

// Odd ways to write a header, and what may come of them: the server gets what
// the body says, or nothing.
func TestOddlyWrittenHeaders(t *testing.T) {
	up := newServer(t, page(regional, ""))
	s := incaddy.Run(t, site("tool create_refund {\nparam Region region\n}", proxy(up.up.Addr(), "header_up X-Region {http.mcp.param.Region}")))
	for _, tt := range []struct{ head, value string }{
		{"Mcp-Param-Region: eu\r\n west\r\n", "eu west"},
		{"Mcp-Param-Region:\r\n eu\r\n", "eu"},
		{"Mcp-Param-Region: eu\r\n\teu\r\n", "eu"},
		{"mCP-pARAM-rEGION:eu\r\nMCP-PARAM-REGION: eu \r\n", "eu"},
		{"Mcp-Param-Region: eu\r\nmcp-param-region: us\r\n", "eu"},
		{"Mcp-Param-Region : us\r\nMcp-Param-Region: eu\r\n", "eu"},
		{"Mcp-Param-Region: eu\r\nMcp_Param_Region: us\r\nMcp-Param.Region: us\r\n", "eu"},
		{"Mcp-Param-Region: eu\r\nConnection: mcp-PARAM-region\r\n", "eu"},
		{"Mcp-Param-Region: eu\r\nKeep-Alive: x\r\nConnection: keep-alive,, \tMcp-Param-Region\r\n", "eu"},
		{"Mcp-Param-Region: eu\x00\r\n", "eu"},
		{"Mcp-Param-Region: eu\x0b\r\n", "eu"},
		{"Mcp-Param-Region: \xa0eu\r\n", "eu"},
		{"Mcp-Param-Region: eu\r\r\n", "eu"},
		{"Mcp-Param-Region: eu\nX: y\r\n", "eu"},
	} {
		before := len(up.up.Requests())
		m := message{args: `{"region":"` + tt.value + `"}`}
		r := m.request(t.Context(), s.URL)
		body := new(strings.Builder)
		_, _ = io.Copy(body, r.Body)
		conn, err := net.Dial("tcp", s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nMcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: create_refund\r\nContent-Length: %d\r\n%s\r\n%s", body.Len(), tt.head, body)
		if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		for _, q := range up.up.Requests()[before:] {
			if got := q.Header.Values("Mcp-Param-Region"); len(got) != 1 || got[0] != tt.value || q.Header.Get("X-Region") != tt.value {
				t.Errorf("%q: the server got %q, verified %q, and the body says %q", tt.head, got, q.Header.Get("X-Region"), tt.value)
			}
		}
	}
}

// A header that Caddy removes since another spelling of it is listed is lost, too.
func TestLostForAnotherSpelling(t *testing.T) {
	for option, entry := range map[string]string{"expected_underscore_headers": "Mcp-Param-Tenant_*", "expected_dot_headers": "mcp-param-tenant.id"} {
		t.Run(option, func(t *testing.T) {
			list := page(strings.Replace(regional, `"Region"`, `"Tenant-Id"`, 1), "")
			config := site("", proxy(newServer(t, list).up.Addr()))
			config.Servers = option + " " + entry
			s := incaddy.Run(t, config)
			ask(t, s, lists)
			refuses(t, s, message{args: `{"region":"eu"}`, header: []string{"Mcp-Param-Tenant-Id: eu"}}, "param_missing")
			e := s.Log.Await(t, "the fault", func(e *incaddy.Entry) bool { return strings.Contains(e.Line, `"header_lost"`) })
			if !strings.Contains(e.Line, option) {
				t.Errorf("logged %s, want it to name %s", e.Line, option)
			}
		})
	}
}

// With off nothing is held against the body, but a header still has one value,
// of characters that a header may have (rows 12 and 13).
func TestParamHeadersOff(t *testing.T) {
	up := newServer(t, page(regional, ""))
	s := incaddy.Run(t, site("param_headers off", proxy(up.up.Addr())))
	ask(t, s, lists)
	passes(t, s, lying, 1)
	for _, header := range [][]string{{"Mcp-Param-Region: eu", "Mcp-Param-Region: us"}, {"Mcp-Param-Region: \xc3\xa9"}} {
		a := ask(t, s, message{args: `{"region":"eu"}`, header: header})
		if a.status != http.StatusBadRequest {
			t.Errorf("%q: answered %d", header, a.status)
		}
	}
}

// What comes on a stream that a client listens to must be readable, or a change
// would be missed.
func TestStreamsAreAskedForPlainly(t *testing.T) {
	up := newServer(t, page(regional, ""))
	s := incaddy.Run(t, site("", proxy(up.up.Addr())))
	up.set(page(regional, ""), brokenup.SSE(""))
	ask(t, s, message{method: "subscriptions/listen", header: []string{"Accept-Encoding: gzip"}})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/mcp", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "gzip")
	r.Header.Set("Accept", "text/event-stream")
	res, err := incaddy.Client(t, false).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	readAnswer(res, "")
	for _, q := range up.up.Requests() {
		if got := q.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("%s asked for %q", q.Method, got)
		}
	}
}
