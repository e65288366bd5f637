package exchange

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// result and failure are response bodies with the request's id.
func result(members string) string {
	return `{"jsonrpc":"2.0","id":$id,"result":{` + members + `}}`
}

func failure(code string) string { return failureTo("$id", code) }

func failureTo(id, code string) string {
	member := `"id":` + id + `,`
	if id == "" {
		member = ""
	}
	return `{"jsonrpc":"2.0",` + member + `"error":{"code":` + code + `,"message":"no"}}`
}

// TestOutcomeTable answers calls with everything the outcome table tells apart.
func TestOutcomeTable(t *testing.T) {
	json := brokenup.JSON
	html := brokenup.Reply{Header: []string{"Content-Type: text/html"}, Body: "<h1>no</h1>"}
	legacy := message{legacy: true}
	session := message{legacy: true, header: []string{"Mcp-Session-Id: s"}}
	upstream := func(outcome, observation string, status int) want {
		return want{outcome: outcome, observation: observation, status: status}
	}
	ours := func(observation string) want {
		return want{"ambiguous", observation, http.StatusOK, unknown, ""}
	}
	const asserted = "tool create_refund {\nnot_executed_on_error\n}"
	for _, tt := range []struct {
		name    string
		message message
		options string
		reply   brokenup.Reply
		want    want
	}{
		{"complete", message{}, "", ok, committed},
		{"complete, chunked", message{}, "", chunked(ok), committed},
		{"complete, to the end of the connection", message{}, "", unsized(ok), committed},
		{"complete under 201", message{}, "", ok.With(201), upstream("committed", "complete", 201)},
		{"complete without a media type", message{}, "", brokenup.Reply{Body: complete}, committed},

		{"result under 401", message{}, "", ok.With(401), upstream("ambiguous", "result_despite_refusal", 401)},
		{"result under 403", message{}, "", ok.With(403, "WWW-Authenticate: Bearer"), upstream("ambiguous", "result_despite_refusal", 403)},
		{"result under 404", session, "", ok.With(404), upstream("ambiguous", "result_despite_refusal", 404)},
		{"401", message{}, "", html.With(401, "WWW-Authenticate: Bearer"), upstream("failed", "http_refusal", 401)},
		{"401, chunked", message{}, "", chunked(html.With(401, "WWW-Authenticate: Bearer")), upstream("failed", "http_refusal", 401)},
		{"403 with a challenge", message{}, "", html.With(403, "WWW-Authenticate: Bearer"), upstream("failed", "http_refusal", 403)},
		{"403 without", message{}, "", html.With(403), ours("http_status")},
		{"legacy 404 with a session", session, "", html.With(404), upstream("failed", "http_refusal", 404)},
		{"legacy 404 without one", legacy, "", html.With(404), ours("http_status")},
		{"modern 404 with a session", message{header: []string{"Mcp-Session-Id: s"}}, "", html.With(404), ours("http_status")},

		{"isError", message{}, "", json(result(`"resultType":"complete","isError":true`)), upstream("ambiguous", "tool_error", 200)},
		{"isError of a tool that did not run then", message{}, asserted, json(result(`"resultType":"complete","isError":true`)), upstream("failed", "tool_error_not_executed", 200)},
		{"isError of another tool", message{tool: "create_order"}, asserted, json(result(`"resultType":"complete","isError":true`)), upstream("ambiguous", "tool_error", 200)},
		{"isError of an unknown kind", message{}, asserted, json(result(`"resultType":"odd","isError":true`)), upstream("ambiguous", "tool_error", 200)},
		{"legacy isError of a tool that did not run then", legacy, asserted, json(result(`"isError":true`)), upstream("failed", "tool_error_not_executed", 200)},
		{"input_required with a state", message{}, "", json(result(`"resultType":"input_required","requestState":"x"`)), upstream("held", "input_required", 200)},
		{"input_required without", message{}, "", json(result(`"resultType":"input_required"`)), upstream("ambiguous", "input_required_without_state", 200)},
		{"input_required with an empty state", message{}, "", json(result(`"resultType":"input_required","requestState":""`)), upstream("ambiguous", "input_required_without_state", 200)},
		{"task", message{}, "", json(result(`"resultType":"task"`)), upstream("deferred", "task", 200)},
		{"legacy task", legacy, "", json(result(`"task":{"taskId":"t"}`)), upstream("deferred", "task", 200)},
		{"legacy result", legacy, "", json(result(`"content":[]`)), upstream("committed", "complete_legacy", 200)},
		{"legacy result, complete", legacy, "", ok, committed},
		{"no resultType", message{}, "", json(result(`"content":[]`)), upstream("ambiguous", "unknown_result_type", 200)},
		{"another resultType", message{}, "", json(result(`"resultType":"partial"`)), upstream("ambiguous", "unknown_result_type", 200)},

		{"error -32700", message{}, "", json(failure("-32700")), upstream("ambiguous", "error", 200)},
		{"error -32700 without an id under 400", message{}, "", json(failureTo("", "-32700")).With(400), upstream("failed", "error_before_dispatch", 400)},
		{"error -32600 under 400", message{}, "", json(failure("-32600")).With(400), upstream("ambiguous", "error", 400)},
		{"error -32600 with id null under 400", message{}, "", json(failureTo("null", "-32600")).With(400), upstream("failed", "error_before_dispatch", 400)},
		{"error -32601 under 404", message{}, "", json(failure("-32601")).With(404), upstream("failed", "error_before_dispatch", 404)},
		{"error -32601 under 404, chunked", message{}, "", chunked(json(failure("-32601"))).With(404), upstream("failed", "error_before_dispatch", 404)},
		{"error -32602 under 400", message{}, "", json(failure("-32602")).With(400), upstream("failed", "error_before_dispatch", 400)},
		{"error -32020 without an id under 400", message{}, "", json(failureTo("", "-32020")).With(400), upstream("failed", "error_before_dispatch", 400)},
		{"error -32021 with id null under 400", message{}, "", json(failureTo("null", "-32021")).With(400), upstream("failed", "error_before_dispatch", 400)},
		{"error -32022", message{}, "", json(failure("-32022")), upstream("failed", "error_before_dispatch", 200)},
		{"error -32602 with another id under 400", message{}, "", json(failureTo("2", "-32602")).With(400), ours("wrong_id")},
		{"error -32602 without an id under 200", message{}, "", json(failureTo("", "-32602")), ours("wrong_id")},
		{"error -32602 with id null under 500", message{}, "", json(failureTo("null", "-32602")).With(500), ours("wrong_id")},
		{"error -32603", message{}, "", json(failure("-32603")), upstream("ambiguous", "error", 200)},
		{"error -32603 under 500", message{}, "", json(failure("-32603")).With(500), upstream("ambiguous", "error", 500)},
		{"error -32000", message{}, "", json(failure("-32000")), upstream("ambiguous", "error", 200)},
		{"error -32023", message{}, "", json(failure("-32023")), upstream("ambiguous", "error", 200)},
		{"error 0", message{}, "", json(failure("0")), upstream("ambiguous", "error", 200)},
		{"error of 30 digits", message{}, "", json(failure(strings.Repeat("9", 30))), upstream("ambiguous", "error", 200)},
		{"error -32000 with id null under 400", message{}, "", json(failureTo("null", "-32000")).With(400), upstream("ambiguous", "error_without_id", 400)},
		{"error -32000 without an id under 404", message{}, "", json(failureTo("", "-32000")).With(404), upstream("ambiguous", "error_without_id", 404)},
		{"error -32602, ambiguous for all", message{}, "ambiguous_codes -32602", json(failure("-32602")), upstream("ambiguous", "error", 200)},
		{"error -32601, not that one", message{}, "ambiguous_codes -32602", json(failure("-32601")), upstream("failed", "error_before_dispatch", 200)},
		{"error -32602, ambiguous for the tool", message{}, "tool create_* {\nambiguous_codes -32602\n}", json(failure("-32602")), upstream("ambiguous", "error", 200)},
		{"error -32602, ambiguous for another", message{}, "tool delete_* {\nambiguous_codes -32602\n}", json(failure("-32602")), upstream("failed", "error_before_dispatch", 200)},
		{"error -32602 without an id, ambiguous", message{}, "ambiguous_codes -32602", json(failureTo("", "-32602")).With(400), upstream("ambiguous", "error_without_id", 400)},

		{"redirect", message{}, "", html.With(307, "Location: /elsewhere"), upstream("ambiguous", "redirect", 307)},
		{"redirect of JSON", message{}, "", ok.With(308, "Location: /elsewhere"), upstream("ambiguous", "redirect", 308)},
		{"gzip that nobody asked for", message{}, "", brokenup.JSON("\x1f\x8b\x08 not looked at").With(200, "Content-Encoding: gzip"), upstream("ambiguous", "encoded", 200)},
		{"identity said aloud", message{}, "", ok.With(200, "Content-Encoding: identity"), committed},

		{"no JSON", message{}, "", html, ours("unreadable")},
		{"empty", message{}, "", json(""), ours("unreadable")},
		{"202 without a body", message{}, "", brokenup.Reply{}.With(202), ours("unreadable")},
		{"204", message{}, "", brokenup.Reply{Framing: brokenup.Unsized}.With(204), ours("unreadable")},
		{"JSON, but no message", message{}, "", json(`{"ok":true}`), ours("unreadable")},
		{"batch", message{}, "", json("[" + complete + "]"), ours("unreadable")},
		{"two messages", message{}, "", json(complete + complete), ours("unreadable")},
		{"result and error", message{}, "", json(`{"jsonrpc":"2.0","id":$id,"result":{"resultType":"complete"},"error":{"code":-32602,"message":""}}`), ours("unreadable")},
		{"neither", message{}, "", json(`{"jsonrpc":"2.0","id":$id}`), ours("unreadable")},
		{"isError no boolean", message{}, "", json(result(`"resultType":"complete","isError":"false"`)), ours("unreadable")},
		{"code no integer", message{}, "", json(failure(`"-32602"`)), ours("unreadable")},
		{"code twice", message{}, "", json(`{"jsonrpc":"2.0","id":$id,"error":{"code":1,"code":-32602,"message":""}}`), ours("unreadable")},
		{"resultType twice", message{}, "", json(result(`"resultType":"odd","resultType":"complete"`)), ours("unreadable")},
		{"duplicates and surrogates elsewhere", message{}, "", json(result(`"resultType":"complete","content":[{"a":"\ud800","a":1}]`)), committed},
		{"another id", message{}, "", json(`{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete"}}`), ours("wrong_id")},
		{"the id as a string", message{}, "", json(`{"jsonrpc":"2.0","id":"1","result":{"resultType":"complete"}}`), ours("wrong_id")},
		{"the id as a number", message{id: `"1"`}, "", json(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}`), want{"ambiguous", "wrong_id", 200, unknown, `"1"`}},
		{"the id written differently", message{id: `"ab"`}, "", json(`{"jsonrpc":"2.0","id":"a\u0062","result":{"resultType":"complete"}}`), committed},
		{"result under 500", message{}, "", ok.With(500), ours("result_under_error_status")},
		{"result under 400", message{}, "", ok.With(400), ours("result_under_error_status")},
		{"429", message{}, "", html.With(429, "Retry-After: 7"), ours("http_status")},
		{"500", message{}, "", html.With(500), ours("http_status")},
		{"503", message{}, "", html.With(503, "Retry-After: 7"), ours("http_status")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := brokenup.TCP(t, brokenup.Answer(tt.reply.With(tt.reply.Status, "Mcp-Session-Id: kept")))
			s := incaddy.Run(t, site(tt.options, proxy(up.Addr())))
			a := call(t, s, tt.message)
			tt.want.check(t, s, a)
			if n := deliveries(up); n != 1 {
				t.Errorf("%d bodies were delivered", n)
			}
			if got := a.header.Get("Mcp-Session-Id"); got != "kept" {
				t.Errorf("the upstream's header is %q", got)
			}
			for _, line := range tt.reply.Header {
				name, value, _ := strings.Cut(line, ": ")
				if tt.want.code != 0 && strings.HasPrefix(name, "Content-") {
					continue
				}
				if got := a.header.Get(name); got != value {
					t.Errorf("%s is %q, want the upstream's %q", name, got, value)
				}
			}
			if tt.want.code == 0 {
				tt.want.checkMarked(t, a.body, tt.reply.For(up.Requests()[0]).Body)
				return
			}
			var e rpcError
			var m mark
			if json := []byte(a.body); unmarshal(json, &e) == nil && e.Error != nil && unmarshal(e.Error.Data[outcomeMember], &m) == nil {
				if tt.reply.Status >= 300 && m.Status != tt.reply.Status {
					t.Errorf("the data give the status as %d, want %d", m.Status, tt.reply.Status)
				}
			}
		})
	}
}

func unmarshal(p []byte, v any) error { return json.Unmarshal(p, v) }

// checkMarked wants the upstream's body with the outcome spliced in, if it is a
// message, and otherwise as it was.
func (w want) checkMarked(t *testing.T, got, from string) {
	t.Helper()
	untouched := w.observation == "redirect" || w.observation == "encoded"
	var before, after map[string]any
	if untouched || json.Unmarshal([]byte(from), &before) != nil {
		if got != from {
			t.Errorf("answered %q, want %q as it was", got, from)
		}
		return
	}
	if err := json.Unmarshal([]byte(got), &after); err != nil {
		t.Fatalf("answered %q: %v", got, err)
	}
	body, member := "result", "_meta"
	if after["error"] != nil {
		body, member = "error", "data"
	}
	holder, _ := after[body].(map[string]any)
	marked, _ := holder[member].(map[string]any)
	said, _ := marked[outcomeMember].(map[string]any)
	if said["outcome"] != w.outcome || said["observation"] != w.observation {
		t.Errorf("marked %v, want %s/%s", said, w.outcome, w.observation)
	}
	delete(marked, outcomeMember)
	if len(marked) == 0 {
		delete(holder, member)
	}
	if !reflect.DeepEqual(before, after) {
		t.Errorf("answered %q, which is more than marked: %q", got, from)
	}
}

// The outcome is put into the upstream's bytes, which stay as they were.
func TestSplice(t *testing.T) {
	done := `{"outcome":"committed","observation":"complete"}`
	member := `"` + outcomeMember + `":`
	failed := member + `{"outcome":"failed","observation":"error_before_dispatch"}`
	for _, tt := range []struct {
		name, from string
		want       []string // one of them
	}{
		{"no _meta", `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}`, []string{
			`{"jsonrpc":"2.0","id":1,"result":{"_meta":{` + member + done + `},"resultType":"complete"}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{` + member + done + `}}}`,
		}},
		{"a _meta of its own", `{ "result" : {"resultType":"complete", "_meta" : {"a":1.50,"b":"\u00e9\/","c":1,"c":2} } ,"id":1,"jsonrpc":"2.0"}` + "\n", []string{
			`{ "result" : {"resultType":"complete", "_meta" : {` + member + done + `,"a":1.50,"b":"\u00e9\/","c":1,"c":2} } ,"id":1,"jsonrpc":"2.0"}` + "\n",
			`{ "result" : {"resultType":"complete", "_meta" : {"a":1.50,"b":"\u00e9\/","c":1,"c":2,` + member + done + `} } ,"id":1,"jsonrpc":"2.0"}` + "\n",
		}},
		{"an empty _meta", `{"jsonrpc":"2.0","id":1,"result":{"_meta":{},"resultType":"complete"}}`, []string{
			`{"jsonrpc":"2.0","id":1,"result":{"_meta":{` + member + done + `},"resultType":"complete"}}`,
		}},
		{"a mark of another gateway", `{"jsonrpc":"2.0","id":1,"result":{"_meta":{` + member + `"theirs"},"resultType":"complete"}}`, []string{
			`{"jsonrpc":"2.0","id":1,"result":{"_meta":{` + member + done + `},"resultType":"complete"}}`,
		}},
		{"a _meta that is no object", `{"jsonrpc":"2.0","id":1,"result":{"_meta":[],"resultType":"complete"}}`, nil},
		{"no data", `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`, []string{
			`{"jsonrpc":"2.0","id":1,"error":{"data":{` + failed + `},"code":-32602,"message":"no"}}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no","data":{` + failed + `}}}`,
		}},
		{"data of its own", `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no","data":{"x":1e1}}}`, []string{
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no","data":{` + failed + `,"x":1e1}}}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no","data":{"x":1e1,` + failed + `}}}`,
		}},
		{"data that are no object", `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no","data":"x"}}`, nil},
		{"data null", `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no","data":null}}`, nil},
	} {
		for framing, reply := range map[string]brokenup.Reply{
			"sized":   brokenup.JSON(tt.from).With(200, `Etag: "v1"`, "Digest: x"),
			"chunked": chunked(brokenup.JSON(tt.from)).With(200, `Etag: "v1"`, "Digest: x"),
		} {
			t.Run(tt.name+", "+framing, func(t *testing.T) {
				up := brokenup.TCP(t, brokenup.Answer(reply))
				s := incaddy.Run(t, site("", proxy(up.Addr())))
				a := call(t, s, message{})
				if a.err != nil {
					t.Fatal(a.err)
				}
				if tt.want == nil {
					if a.body != tt.from || a.header.Get("Etag") != `"v1"` {
						t.Errorf("answered %q %v, want it as it was", a.body, a.header)
					}
					return
				}
				found := false
				for _, want := range tt.want {
					found = found || a.body == want
				}
				if !found {
					t.Errorf("answered %s\nwant      %s", a.body, tt.want[0])
				}
				if a.header.Get("Etag") != "" || a.header.Get("Digest") != "" {
					t.Errorf("the digests of other bytes were left: %v", a.header)
				}
			})
		}
	}
}

// The proxy flushes after every piece of a chunked response. While that is
// held, nothing of it, not even its status, may reach the client.
func TestHeldResponseIsNotFlushed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		script brokenup.Script
		status int
		code   int // in the body
	}{
		{"upstream's status", brokenup.Answer(chunked(brokenup.JSON(failure("-32601")).With(404))), 404, -32601},
		{"upstream's answer replaced", brokenup.Answer(chunked(brokenup.Reply{Body: "<h1>busy</h1>"}.With(503))), 200, unknown},
		{"cut", brokenup.Cut(chunked(brokenup.JSON(failure("-32601")).With(404)), 20), 200, unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := site("", proxy(brokenup.TCP(t, tt.script).Addr()))
			config.NoAccessLog = true
			a := call(t, incaddy.Run(t, config), message{})
			var e rpcError
			if err := json.Unmarshal([]byte(a.body), &e); err != nil || e.Error == nil {
				t.Fatalf("answered %d %q (%v, %v)", a.status, a.body, a.err, err)
			}
			if a.status != tt.status || e.Error.Code != tt.code || a.header.Get("Content-Type") != "application/json" {
				t.Errorf("answered %d %v %q", a.status, a.header, a.body)
			}
		})
	}
}

// What the client gets of a response that is too large to be held.
func TestLargerThanResponseBuffer(t *testing.T) {
	pad := `,"content":[{"type":"text","text":"` + large(300_000) + `"}]`
	whole := `{"jsonrpc":"2.0","id":$id,"result":{"resultType":"complete"` + pad + `}}`
	run := func(t *testing.T, script brokenup.Script) (answer, *incaddy.Site) {
		up := brokenup.TCP(t, script)
		s := incaddy.Run(t, site("response_buffer 1KiB", proxy(up.Addr())))
		return call(t, s, message{}), s
	}
	t.Run("readable", func(t *testing.T) {
		for name, r := range map[string]brokenup.Reply{"sized": brokenup.JSON(whole), "chunked": chunked(brokenup.JSON(whole))} {
			a, s := run(t, brokenup.Answer(r))
			committed.check(t, s, a)
			if a.body != strings.ReplaceAll(whole, "$id", "1") {
				t.Errorf("%s: %d bytes came, which are not the upstream's %d", name, len(a.body), len(whole)-2)
			}
		}
	})
	t.Run("readable, under 401", func(t *testing.T) {
		a, s := run(t, brokenup.Answer(brokenup.Reply{Body: large(300_000)}.With(401, "WWW-Authenticate: Bearer")))
		want{"failed", "http_refusal", 401, 0, ""}.check(t, s, a)
		if a.body != large(300_000) {
			t.Errorf("%d bytes came", len(a.body))
		}
	})
	cut := func(t *testing.T, w want, script brokenup.Script) {
		a, s := run(t, script)
		w.checkLog(t, s, a.uri)
		if a.err == nil {
			t.Errorf("the client got a complete answer of %d bytes", len(a.body))
		}
		if strings.Contains(a.body, "}}") {
			t.Error("the client got the end of a message")
		}
	}
	bad := strings.TrimSuffix(whole, "}") + `,"result":{}}`
	t.Run("unreadable at its end", func(t *testing.T) { cut(t, unreadable, brokenup.Answer(brokenup.JSON(bad))) })
	t.Run("unreadable at its end, chunked", func(t *testing.T) { cut(t, unreadable, brokenup.Answer(chunked(brokenup.JSON(bad)))) })
	t.Run("wrong id", func(t *testing.T) {
		cut(t, want{observation: "wrong_id", outcome: "ambiguous"}, brokenup.Answer(brokenup.JSON(strings.ReplaceAll(whole, "$id", "2"))))
	})
	t.Run("cut", func(t *testing.T) { cut(t, responseCut, brokenup.Cut(brokenup.JSON(whole), 200_000)) })
	t.Run("cut, chunked", func(t *testing.T) { cut(t, responseCut, brokenup.Cut(chunked(brokenup.JSON(whole)), 200_000)) })
	t.Run("cut by the end of the connection", func(t *testing.T) { cut(t, unreadable, brokenup.Cut(unsized(brokenup.JSON(whole)), 200_000)) })
	t.Run("no JSON from the start", func(t *testing.T) {
		a, s := run(t, brokenup.Answer(brokenup.Reply{Body: "<html>" + large(300_000)}))
		unreadable.check(t, s, a)
	})
}

// An id is echoed byte for byte, by the gateway's own answers too.
func TestIDs(t *testing.T) {
	ids := []string{
		"0", "-1", "9007199254740993", "123456789012345678901234567890",
		`""`, `"a\"\\\/\u0041"`, `"ü"`, `"` + large(2000) + `"`,
	}
	answering := brokenup.TCP(t, brokenup.Answer(ok))
	dying := brokenup.TCP(t, brokenup.ReadThenClose)
	for _, tt := range []struct {
		addr string
		want want
	}{
		{answering.Addr(), committed},
		{dying.Addr(), sent},
		{brokenup.Refused(t), neverConnected},
	} {
		s := incaddy.Run(t, site("", proxy(tt.addr)))
		for _, id := range ids {
			w := tt.want
			w.id = id
			a := call(t, s, message{id: id})
			w.check(t, s, a)
			if !strings.Contains(a.body, `"id":`+id+`,`) {
				t.Errorf("id %.60s is not in %.200q", id, a.body)
			}
		}
	}
	t.Run("of more digits than a double has", func(t *testing.T) {
		up := brokenup.TCP(t, brokenup.Answer(brokenup.JSON(`{"jsonrpc":"2.0","id":9007199254740992,"result":{"resultType":"complete"}}`)))
		s := incaddy.Run(t, site("", proxy(up.Addr())))
		want{"ambiguous", "wrong_id", 200, unknown, "9007199254740993"}.check(t, s, call(t, s, message{id: "9007199254740993"}))
	})
}

// Everything that is no tool call is relayed as it is.
func TestOtherMethods(t *testing.T) {
	body := `{ "jsonrpc":"2.0","id":$id,"result":{"resultType":"odd","tools":[],"tools":[]} }` + "\n"
	for _, method := range []string{"tools/list", "ping", "server/discover", "tasks/get"} {
		for _, reply := range []brokenup.Reply{brokenup.JSON(body), chunked(brokenup.JSON(body)), brokenup.JSON("<no").With(500), brokenup.SSE("data: 1\n\n: torn")} {
			t.Run(fmt.Sprint(method, " ", reply.Status, reply.Framing), func(t *testing.T) {
				up := brokenup.TCP(t, brokenup.Answer(reply))
				s := incaddy.Run(t, site("", proxy(up.Addr())))
				a := call(t, s, message{method: method})
				if q := up.AwaitRequest(1); a.body != reply.For(q).Body {
					t.Errorf("answered %q, want %q", a.body, reply.Body)
				}
				if e := s.Log.Access(t, a.uri); e.MCP == nil || e.MCP.Method != method || e.MCP.Outcome != "" {
					t.Errorf("logged %s", e.Line)
				}
			})
		}
	}
	t.Run("a broken upstream is Caddy's to report", func(t *testing.T) {
		s := incaddy.Run(t, site("", proxy(brokenup.Refused(t))))
		if a := call(t, s, message{method: "tools/list"}); a.status != http.StatusBadGateway || a.body != "" {
			t.Errorf("answered %d %q", a.status, a.body)
		}
	})
}
