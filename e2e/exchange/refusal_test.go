package exchange

import (
	"net/http"
	"testing"

	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

const challenge = "WWW-Authenticate: Bearer"

// A refusal is believed for its status, unless its body may be the answer that
// the status denies, to a reader that is laxer than this one.
func TestRefusalsWithABody(t *testing.T) {
	json := brokenup.JSON
	refusal := want{"failed", "http_refusal", http.StatusUnauthorized, 0, ""}
	doubtful := want{"ambiguous", "result_despite_refusal", http.StatusUnauthorized, 0, ""}
	for _, tt := range []struct {
		name  string
		reply brokenup.Reply
		want  want
	}{
		{"nothing", json(""), refusal},
		{"an error that is no JSON-RPC", json(`{"error":"invalid_token","error_description":"expired"}`), refusal},
		{"a page in Chinese", brokenup.Reply{Body: "未授权"}, refusal},
		{"an HTML page with a byte order mark", brokenup.Reply{Body: "\ufeff<h1>no</h1>"}, refusal},
		{"text in brackets", json("[401] Unauthorized"), refusal},
		{"an error of another form", json(`{"jsonrpc":"2.0","id":1,"error":"unauthorized"}`), refusal},
		{"text that says to be JSON", json("Unauthorized"), refusal},
		{"a JSON string", json(`"Unauthorized"`), refusal},
		{"an HTML page", brokenup.Reply{Body: "<h1>no</h1>"}, refusal},
		{"a JSON-RPC error", json(failure("-32603")), refusal},

		{"a result", json(complete), doubtful},
		{"a result with another id", json(`{"jsonrpc":"2.0","id":"$id","result":{"resultType":"complete"}}`), doubtful},
		{"a result without id", json(`{"jsonrpc":"2.0","result":{"resultType":"complete"}}`), doubtful},
		{"events", brokenup.SSE(final), doubtful},
		{"a batch", json("[" + complete + "]"), doubtful},
		{"two texts", json(complete + "\n" + complete), doubtful},
		{"a text after another", json(`{"error":"x"}` + complete), doubtful},
		{"isError twice", json(result(`"resultType":"complete","isError":true,"isError":false`)), doubtful},
		{"no version", json(`{"id":$id,"result":{"resultType":"complete"}}`), doubtful},
		{"a byte order mark", json("\ufeff" + complete), doubtful},
		{"a comma too many", json(`{"jsonrpc":"2.0","id":$id,"result":{"resultType":"complete"},}`), doubtful},
		{"without its end", unsized(json(`{"jsonrpc":"2.0","id":$id,"result":{"resultType":"complete"}`)), doubtful},
		{"in a coding that was not asked for", json("\x1f\x8b\x08 not looked at").With(0, "Content-Encoding: gzip"), want{"ambiguous", "encoded", http.StatusUnauthorized, 0, ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := brokenup.TCP(t, brokenup.Answer(tt.reply.With(http.StatusUnauthorized, challenge)))
			s := incaddy.Run(t, site("", proxy(up.Addr())))
			a := call(t, s, message{})
			tt.want.check(t, s, a)
			if got := a.header.Get("WWW-Authenticate"); got != "Bearer" {
				t.Errorf("the challenge is %q", got)
			}
		})
	}
}

// Only the upstream that got the call can say that it did not run it.
func TestRefusalsOfSomebodyElse(t *testing.T) {
	said := func(outcome, observation string, status int) want { return want{outcome, observation, status, 0, ""} }
	refused := brokenup.Reply{Body: "no"}.With(http.StatusUnauthorized, challenge)
	invalid := brokenup.JSON(failure("-32602")).With(http.StatusBadRequest)
	const down = "@down status 503\n"
	respond := func(status, body string) string {
		return down + "handle_response @down {\nheader Content-Type application/json\nrespond `" + body + "` " + status + "\n}"
	}
	second := func(script brokenup.Script) func(*testing.T) string {
		return func(t *testing.T) string {
			up := brokenup.TCP(t, script)
			return down + "handle_response @down {\nreverse_proxy " + up.Addr() + " {\ntransport fastcgi\n}\n}"
		}
	}
	lines := func(text string) func(*testing.T) string { return func(*testing.T) string { return text } }
	for _, tt := range []struct {
		name   string
		script brokenup.Script
		lines  func(*testing.T) string
		want   want
	}{
		{"the upstream's own", brokenup.Answer(refused), lines(""), said("failed", "http_refusal", 401)},
		{"the upstream's own, read from a buffer", brokenup.Answer(refused), lines("request_buffers 64KiB"), said("failed", "http_refusal", 401)},
		{"the upstream's own, in spite of handle_response", brokenup.Answer(refused), lines(respond("401", "no")), said("failed", "http_refusal", 401)},
		{"the upstream's own, copied", brokenup.Answer(refused), lines("@no status 401\nhandle_response @no {\ncopy_response\n}"), said("failed", "http_refusal", 401)},
		{"the upstream's own, with a challenge that the site adds", brokenup.Answer(brokenup.Reply{Body: "no"}.With(401)), lines("header_down +WWW-Authenticate Bearer"), said("failed", "http_refusal", 401)},
		{"the upstream's own error under the id of the Python SDK's transport", brokenup.Answer(brokenup.JSON(failureTo(`"server-error"`, "-32600")).With(400)), lines(""), said("failed", "error_before_dispatch", 400)},
		{"the upstream's own error", brokenup.Answer(invalid), lines(""), said("failed", "error_before_dispatch", 400)},
		{"the upstream's own error, cut after its last byte", func(c *brokenup.Conn) {
			q, _ := c.Read()
			r := invalid.For(q)
			r.Framing = brokenup.Chunked
			c.Head(r)
			c.Chunk(r.Body)
		}, lines(""), said("failed", "error_before_dispatch", 400)},
		{"the upstream's own error as an event", brokenup.Answer(brokenup.SSE("data: " + failure("-32602") + "\n\n")), lines(""), said("failed", "error_before_dispatch", 200)},

		{"a handler's 401", brokenup.Answer(unavailable), lines(respond("401", "no")), said("ambiguous", "http_refusal", 401)},
		{"a handler's 401 for a 401", brokenup.Answer(refused), lines("@no status 401\nhandle_response @no {\nrespond no 401\n}"), said("ambiguous", "http_refusal", 401)},
		{"a handler's error", brokenup.Answer(unavailable), lines(respond("400", `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`)), said("ambiguous", "error_before_dispatch", 400)},
		{"a handler's error of the same status", brokenup.Answer(unavailable), lines(respond("503", `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`)), said("ambiguous", "error_before_dispatch", 503)},
		{"another status", brokenup.Answer(unavailable), lines(down + "replace_status @down 401"), said("ambiguous", "http_refusal", 401)},
		{"another challenge", brokenup.Answer(brokenup.Reply{Body: "no"}.With(403)), lines("header_down +WWW-Authenticate Bearer"), said("ambiguous", "http_refusal", 403)},
		{"a handler's stream", brokenup.Answer(ok), lines("handle_response {\nheader Content-Type text/event-stream\nrespond `data: " + `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}` + "\n\n` 200\n}"), said("ambiguous", "error_before_dispatch", 200)},
		{"a second upstream's 401", brokenup.Answer(unavailable), second(fastCGI("Status: 401 No\r\n\r\n")), said("ambiguous", "http_refusal", 401)},
		{"a second upstream's error", brokenup.Answer(unavailable), second(fastCGI("Status: 400 No\r\nContent-Type: application/json\r\n\r\n" + `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}`)), said("ambiguous", "error_before_dispatch", 400)},
		{"a second upstream's 503, then 401", brokenup.Answer(brokenup.Reply{Body: "no"}.With(401)), func(t *testing.T) string {
			up := brokenup.TCP(t, fastCGI("Status: 401 No\r\n\r\n"))
			return "@no status 401\nhandle_response @no {\nreverse_proxy " + up.Addr() + " {\ntransport fastcgi\n}\n}"
		}, said("ambiguous", "http_refusal", 401)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := brokenup.TCP(t, tt.script)
			s := incaddy.Run(t, site("", proxy(up.Addr(), tt.lines(t))))
			a := call(t, s, message{})
			tt.want.checkLog(t, s, a.uri)
			if a.err != nil || a.status != tt.want.status {
				t.Errorf("answered %d %q (%v), want status %d", a.status, a.body, a.err, tt.want.status)
			}
			if n := deliveries(up); n != 1 {
				t.Errorf("%d bodies were delivered", n)
			}
		})
	}
}
