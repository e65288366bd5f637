//go:build unix

package exchange

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup"
)

// answering is a response with a result.
func answering(result string) string { return `{"jsonrpc":"2.0","id":$id,"result":` + result + `}` }

// again is the mark of an answer that is given again.
const again = `"` + outcomeMember + `":{"outcome":"committed","replayed":true}`

// What is given again is the very result, under the id of the call that asks,
// fitted to its revision and marked. Nothing of the HTTP response is.
func TestReplay(t *testing.T) {
	for _, c := range []struct {
		name    string
		result  string
		legacy  bool // the call that happened
		toOlder bool // the one that asks again
		want    string
	}{
		{"a result", `{"resultType":"complete","content":[]}`, false, false, `{"_meta":{` + again + `},"resultType":"complete","content":[]}`},
		{"an empty legacy one", `{}`, true, true, `{"_meta":{` + again + `}}`},
		{"an empty legacy one to a modern client", `{}`, true, false, `{"_meta":{` + again + `},"resultType":"complete"}`},
		{"a legacy one to a modern client", `{"content":[]}`, true, false, `{"_meta":{` + again + `},"resultType":"complete","content":[]}`},
		{"a modern one to a legacy client", `{"content":[],"resultType":"complete"}`, false, true, `{"_meta":{` + again + `},"content":[]}`},
		{"with _meta", `{"resultType":"complete","_meta":{"a":1},"content":[]}`, false, false, `{"resultType":"complete","_meta":{` + again + `,"a":1},"content":[]}`},
		{"with an outcome of its own", `{"resultType":"complete","_meta":{"a":1,"` + outcomeMember + `":{"outcome":"failed"},"b":2}}`, false, false, `{"resultType":"complete","_meta":{"a":1,` + again + `,"b":2}}`},
		{"with only an outcome of its own", `{"resultType":"complete","_meta":{"` + outcomeMember + `":null}}`, false, false, `{"resultType":"complete","_meta":{` + again + `}}`},
		{"white space", "{ \"resultType\" : \"complete\" ,\n\"content\":\t[ ] }", false, false, "{\"_meta\":{" + again + "}, \"resultType\" : \"complete\" ,\n\"content\":\t[ ] }"},
		{"duplicate names", `{"resultType":"complete","structuredContent":{"a":1,"a":2}}`, false, false, `{"_meta":{` + again + `},"resultType":"complete","structuredContent":{"a":1,"a":2}}`},
		{"half a surrogate pair", `{"resultType":"complete","a":"\ud800","\udc00":[1e999,-0]}`, false, false, `{"_meta":{` + again + `},"resultType":"complete","a":"\ud800","\udc00":[1e999,-0]}`},
		{"no UTF-8", "{\"resultType\":\"complete\",\"a\":\"\xff\"}", false, false, "{\"_meta\":{" + again + "},\"resultType\":\"complete\",\"a\":\"\xff\"}"},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, events: %v", c.name, stream), func(t *testing.T) {
				text := answering(c.result)
				if stream {
					text = strings.ReplaceAll(text, "\n", "\ndata: ")
				}
				up := brokenup.TCP(t, brokenup.Answer(said(stream, text).With(http.StatusOK, "Set-Cookie: a=1", "Mcp-Session-Id: s", "X-Trace: 1")))
				p := protect(t, refundTool, proxy(up.Addr()))
				first := refund()
				first.legacy = c.legacy
				call(t, p.Site, first)
				p.wantState(t, effect.Committed, 1)
				for _, id := range []string{"2", `"2"`, `"\u0061\ud83d\ude00\""`, "-9007199254740991", `"` + strings.Repeat("i", 5000) + `"`} {
					m := refund()
					m.id, m.legacy = id, c.toOlder
					a := call(t, p.Site, m)
					if want := `{"jsonrpc":"2.0","id":` + id + `,"result":` + c.want + `}`; a.body != want || a.status != http.StatusOK {
						t.Errorf("answered %d\n %s, want\n %s", a.status, a.body, want)
					}
					if a.header.Get("Content-Type") != "application/json" || a.header["Set-Cookie"] != nil || a.header["Mcp-Session-Id"] != nil || a.header["X-Trace"] != nil {
						t.Errorf("the header of the answer is %v", a.header)
					}
				}
				if n := deliveries(up); n != 1 {
					t.Errorf("%d deliveries, want 1", n)
				}
			})
		}
	}
}

// A result that is not kept has happened all the same.
func TestReplayOfWhatIsNotKept(t *testing.T) {
	sizedResult := func(size int) string {
		const empty = `{"resultType":"complete","text":""}`
		return strings.Replace(empty, `""`, `"`+large(size-len(empty))+`"`, 1)
	}
	for _, c := range []struct {
		name, options, result string
		kept                  bool
	}{
		{"off", "replay off", sizedResult(100), false},
		{"as large as can be", "replay 2000B", sizedResult(2000), true},
		{"one byte larger", "replay 2000B", sizedResult(2001), false},
		{"as large as can be by default", "", sizedResult(64 << 10), true},
		{"larger than that", "", sizedResult(64<<10 + 1), false},
		{"its time is over", "replay 64KiB 1us", sizedResult(100), false},
		{"larger than what is held", "response_buffer 16KiB", sizedResult(20 << 10), true},
		{"larger than what is held, as large as can be", "response_buffer 16KiB\nreplay 20000B", sizedResult(20_000), true},
		{"larger than what is held, and one byte larger", "response_buffer 16KiB\nreplay 20000B", sizedResult(20_001), false},
		{"larger than the memory there is", "max_body 1KiB\nresponse_buffer 1KiB\nmax_held 8KiB", sizedResult(40 << 10), false},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, events: %v", c.name, stream), func(t *testing.T) {
				up := brokenup.TCP(t, brokenup.Answer(said(stream, answering(c.result))))
				p := protect(t, refundTool+c.options, proxy(up.Addr()))
				if a := call(t, p.Site, refund()); !strings.Contains(a.body, c.result[1:]) {
					t.Errorf("the first call got %d %.200s", a.status, a.body)
				}
				p.wantState(t, effect.Committed, 1)
				a := call(t, p.Site, refund())
				if c.kept {
					if text := string(a.replays(t, "1")["text"]); !strings.HasSuffix(c.result, `"text":`+text+"}") {
						t.Errorf("a text of %d bytes is given again", len(text))
					}
				} else if data := a.refusedWith(t, effect.CodeInProgress); data["state"] != "committed" || data["conflict"] != nil || data["key"] != refundKey.Text || data["arguments"] != nil {
					t.Errorf("the refusal says %.500s", a.body)
				}
				call(t, p.Site, message{args: `{"payment_id":"txn_1","amount":1}`}).refusedWith(t, effect.CodeInProgress)
				if n := deliveries(up); n != 1 {
					t.Errorf("%d deliveries, want 1", n)
				}
			})
		}
	}
}

// Who asks for the same with other arguments is told which are other, and not
// what they were.
func TestReplayConflict(t *testing.T) {
	const args = `{"payment_id":"txn_1","amount":1234,"to":{"iban":"DE00","secret":7},"a/b":"one"}`
	for _, c := range []struct {
		name string
		m    message
		want []any // the arguments that are named; nil if none is
	}{
		{"a value", message{args: strings.Replace(args, "1234", "4321", 1)}, []any{"amount"}},
		{"the type of a value", message{args: strings.Replace(args, "1234", `"1234"`, 1)}, []any{"amount"}},
		{"a value within", message{args: strings.Replace(args, "DE00", "FR00", 1)}, []any{"to"}},
		{"one less", message{args: strings.Replace(args, `,"a/b":"one"`, "", 1)}, []any{"a/b"}},
		{"one more", message{args: strings.Replace(args, "{", `{"null":null,`, 1)}, []any{"null"}},
		{"two", message{args: strings.NewReplacer("1234", "4321", "one", "two").Replace(args)}, []any{"a/b", "amount"}},
		{"the tool", message{tool: "pay_back", args: args}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := brokenup.TCP(t, brokenup.Answer(ok))
			p := protect(t, refundTool+"tool pay_back {\neffect refund {http.mcp.args.payment_id}\n}", proxy(up.Addr()))
			committed.check(t, p.Site, call(t, p.Site, message{args: args}))
			a := call(t, p.Site, c.m)
			data := a.refusedWith(t, effect.CodeInProgress)
			named, _ := data["arguments"].([]any)
			if data["conflict"] != true || data["state"] != "committed" || !slices.Equal(named, c.want) {
				t.Errorf("the refusal says %s, want the arguments %v", a.body, c.want)
			}
			for _, value := range []string{"1234", "DE00", "secret", "one\""} {
				if strings.Contains(a.body, value) {
					t.Errorf("the refusal tells %s: %s", value, a.body)
				}
			}
			call(t, p.Site, message{args: args}).replays(t, "1")
			if n := deliveries(up); n != 1 {
				t.Errorf("%d deliveries, want 1", n)
			}
		})
	}
}

// What is proven not to have happened is made again, also with other arguments
// or by somebody else.
func TestReplayOfAFailure(t *testing.T) {
	notExecuted := answering(`{"resultType":"complete","isError":true,"content":[]}`)
	for _, c := range []struct {
		name  string
		reply brokenup.Reply
	}{
		{"not_executed_on_error", brokenup.JSON(notExecuted)},
		{"not_executed_on_error, events", said(true, notExecuted)},
		{"invalid params", brokenup.JSON(failure("-32602"))},
		{"headers that do not agree", brokenup.JSON(failure("-32020")).With(http.StatusBadRequest)},
		{"unauthorized", brokenup.JSON("{}").With(http.StatusUnauthorized, "WWW-Authenticate: Bearer")},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := brokenup.TCP(t, brokenup.Each(c.reply, c.reply, ok))
			p := protect(t, strings.Replace(refundTool, "{\n", "{\nnot_executed_on_error\n", 1), proxy(up.Addr()))
			for attempt, m := range []message{refund(), with(refund(), "Authorization: Bearer b")} {
				call(t, p.Site, m)
				p.wantState(t, effect.Failed, int64(attempt)+1)
			}
			call(t, p.Site, message{args: `{"payment_id":"txn_1","amount":1}`})
			p.wantState(t, effect.Committed, 3)
			if n := deliveries(up); n != 3 {
				t.Errorf("%d deliveries, want 3", n)
			}
		})
	}
}

// An error of the tool is no answer to be given again: without the operator's
// word nobody knows what happened.
func TestReplayOfAToolError(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(brokenup.JSON(answering(`{"resultType":"complete","isError":true,"content":[]}`))))
	p := protect(t, refundTool, proxy(up.Addr()))
	a := call(t, p.Site, refund())
	var r struct{ Result struct{ IsError bool } }
	if err := json.Unmarshal([]byte(a.body), &r); err != nil || !r.Result.IsError {
		t.Errorf("answered %s, want the tool's error", a.body)
	}
	p.wantState(t, effect.Ambiguous, 1)
	call(t, p.Site, refund()).refusedWith(t, effect.CodeAmbiguous)
}
