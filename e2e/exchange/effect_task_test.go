//go:build unix

package exchange

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// What an upstream answers to a call that becomes a task, in either generation.
const (
	modernTask = `{"jsonrpc":"2.0","id":$id,"result":{"resultType":"task","taskId":"t1","status":"working"}}`
	legacyTask = `{"jsonrpc":"2.0","id":$id,"result":{"task":{"taskId":"t1","status":"working"}}}`
)

// modernGet and legacyGet ask for a task.
func modernGet(id string) message {
	return message{method: "tasks/get", params: `,"taskId":"` + id + `"`, header: []string{"Mcp-Name: " + id}}
}

func legacyGet(method string) message {
	return message{method: method, params: `,"taskId":"t1"`, legacy: true}
}

// A call that became a task is settled by what passes by of the task.
func TestEffectTasks(t *testing.T) {
	for _, c := range []struct {
		name    string
		call    string // its answer
		ask     message
		answer  string
		events  bool
		options string // of the tool
		want    effect.State
		stored  string // in the answer to the call that is repeated
	}{
		{name: "working", call: modernTask, ask: modernGet("t1"),
			answer: `{"resultType":"complete","taskId":"t1","status":"working"}`, want: effect.Deferred},
		{name: "completed", call: modernTask, ask: modernGet("t1"),
			answer: `{"resultType":"complete","taskId":"t1","status":"completed","result":{"content":["done"]}}`, want: effect.Committed, stored: `"content":["done"]`},
		{name: "completed, as events", call: modernTask, ask: modernGet("t1"), events: true,
			answer: `{"resultType":"complete","taskId":"t1","status":"completed","result":{"content":["done"]}}`, want: effect.Committed, stored: `"content":["done"]`},
		{name: "completed with a tool error", call: modernTask, ask: modernGet("t1"),
			answer: `{"resultType":"complete","taskId":"t1","status":"completed","result":{"content":[],"isError":true}}`, want: effect.Ambiguous},
		{name: "failed", call: modernTask, ask: modernGet("t1"),
			answer: `{"resultType":"complete","taskId":"t1","status":"failed","error":{"code":-32602,"message":"no"}}`, want: effect.Ambiguous},
		{name: "cancelled", call: modernTask, ask: modernGet("t1"),
			answer: `{"resultType":"complete","taskId":"t1","status":"cancelled"}`, want: effect.Ambiguous},
		{name: "completed with a question", call: modernTask, ask: modernGet("t1"),
			answer: `{"resultType":"complete","taskId":"t1","status":"completed","result":{"resultType":"input_required","requestState":"s"}}`, want: effect.Ambiguous},
		{name: "another task in the answer", call: modernTask, ask: modernGet("t1"),
			answer: `{"resultType":"complete","taskId":"t2","status":"completed","result":{"content":[]}}`, want: effect.Deferred},
		{name: "another task", call: modernTask, ask: modernGet("t2"),
			answer: `{"resultType":"complete","taskId":"t2","status":"completed","result":{"content":[]}}`, want: effect.Deferred},
		{name: "legacy result", call: legacyTask, ask: legacyGet("tasks/result"),
			answer: `{"content":["done"],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}`, want: effect.Committed, stored: `"content":["done"]`},
		{name: "legacy result of another task", call: legacyTask, ask: legacyGet("tasks/result"),
			answer: `{"content":["done"],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t2"}}}`, want: effect.Deferred},
		{name: "legacy result that names no task", call: legacyTask, ask: legacyGet("tasks/result"),
			answer: `{"content":["done"]}`, want: effect.Committed, stored: `"content":["done"]`},
		{name: "legacy error of the task", call: legacyTask, ask: legacyGet("tasks/result"), options: "not_executed_on_error",
			answer: `{"content":[],"isError":true,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}`, want: effect.Failed},
		{name: "legacy error that names no task", call: legacyTask, ask: legacyGet("tasks/result"), options: "not_executed_on_error",
			answer: `{"content":["not ready"],"isError":true}`, want: effect.Deferred},
		{name: "legacy completed", call: legacyTask, ask: legacyGet("tasks/get"),
			answer: `{"taskId":"t1","status":"completed"}`, want: effect.Deferred},
		{name: "legacy cancelled", call: legacyTask, ask: legacyGet("tasks/cancel"),
			answer: `{"taskId":"t1","status":"cancelled"}`, want: effect.Ambiguous},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer := `{"jsonrpc":"2.0","id":$id,"result":` + c.answer + `}`
			reply := brokenup.JSON(answer)
			if c.events {
				reply = brokenup.SSE("data: " + answer + "\n\n")
			}
			up := brokenup.TCP(t, brokenup.Each(brokenup.JSON(c.call), reply))
			p := protect(t, strings.Replace(refundTool, "{\n", "{\n"+c.options+"\n", 1), proxy(up.Addr()))

			begin := refund()
			begin.legacy = c.ask.legacy
			call(t, p.Site, begin)
			p.wantState(t, effect.Deferred, 1)
			if data := call(t, p.Site, refund()).refusedWith(t, effect.CodeInProgress); data["taskId"] != "t1" {
				t.Errorf("the refusal says %v", data)
			}
			if a := call(t, p.Site, c.ask); !strings.Contains(a.body, strings.ReplaceAll(answer, "$id", "1")) {
				t.Errorf("the client got %q", a.body)
			}
			p.wantState(t, c.want, 1)
			if c.stored != "" {
				if a := call(t, p.Site, refund()); !strings.Contains(a.body, c.stored) || !strings.Contains(a.body, `"replayed":true`) {
					t.Errorf("the call that was repeated got %q", a.body)
				}
			}
		})
	}
}

// A task that cannot be told from others is settled by nothing, and the client
// is told what is on record.
func TestEffectTaskWithoutAUsableID(t *testing.T) {
	for name, id := range map[string]string{"long": `"` + strings.Repeat("t", 300) + `"`, "empty": `""`, "half a surrogate pair": `"\ud800"`, "a number": "1"} {
		t.Run(name, func(t *testing.T) {
			up := brokenup.TCP(t, brokenup.Answer(brokenup.JSON(strings.Replace(modernTask, `"t1"`, id, 1))))
			p := protect(t, refundTool, proxy(up.Addr()))
			want := want{outcome: "ambiguous", observation: "task"}
			m := refund()
			a := call(t, p.Site, m)
			want.checkMarked(t, a.body, strings.ReplaceAll(strings.Replace(modernTask, `"t1"`, id, 1), "$id", "1"))
			want.checkLog(t, p.Site, a.uri)
			p.wantState(t, effect.Ambiguous, 1)
		})
	}
}

// A task of another caller is not this one, whatever its id.
func TestEffectTaskOfAnotherCaller(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Each(brokenup.JSON(modernTask),
		brokenup.JSON(`{"jsonrpc":"2.0","id":$id,"result":{"resultType":"complete","taskId":"t1","status":"completed","result":{"content":[]}}}`)))
	p := protect(t, refundTool, proxy(up.Addr()))
	call(t, p.Site, refund())
	other := modernGet("t1")
	other.header = append(other.header, "Authorization: Bearer other")
	call(t, p.Site, other)
	p.wantState(t, effect.Deferred, 1)
}

// A notification tells of a task on any stream.
func TestEffectTaskNotices(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Each(brokenup.JSON(modernTask), brokenup.SSE(
		`data: {"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t1","status":"completed","result":{"content":["done"]}}}`+"\n\n")))
	p := protect(t, refundTool, proxy(up.Addr()))
	call(t, p.Site, refund())
	call(t, p.Site, message{method: "subscriptions/listen", params: `,"notifications":{}`})
	p.wantState(t, effect.Committed, 1)
}

// A server that lost its tasks may give one of their ids again. What it then
// says of that task is not said of the call that became the first one.
func TestEffectTaskIDGivenAgain(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Each(brokenup.JSON(modernTask), brokenup.JSON(modernTask),
		brokenup.JSON(`{"jsonrpc":"2.0","id":$id,"result":{"resultType":"complete","taskId":"t1","status":"completed","result":{"content":["txn_2"]}}}`)))
	p := protect(t, refundTool, proxy(up.Addr()))
	call(t, p.Site, refund())
	call(t, p.Site, message{args: `{"payment_id":"txn_2"}`})
	call(t, p.Site, modernGet("t1"))
	p.wantState(t, effect.Deferred, 1)
	if a := call(t, p.Site, refund()); strings.Contains(a.body, "txn_2") {
		t.Errorf("a call is answered with the result of another: %s", a.body)
	}
}

// What is read beside of a stream or of the answer about a task is held only
// while it comes: a stream may last for hours after its one large event.
func TestEffectStreamsHoldNothing(t *testing.T) {
	note := `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + large(900<<10) + `"}}`
	for _, c := range []struct{ name, text, end string }{
		{"events", streamHead + chunkOf("data: "+note+"\n\n: end\n\n"), ": end\n"},
		{"a task that is too large", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunkOf(note) + chunkOf(note+" end\n"), " end\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			stream := brokenup.TCP(t, func(conn *brokenup.Conn) {
				if _, ok := conn.Read(); ok {
					conn.Send(c.text)
					conn.Drain()
				}
			})
			up := brokenup.TCP(t, brokenup.Answer(ok))
			p := protect(t, refundTool+"max_body 1MiB\nresponse_buffer 1MiB\nmax_held 4MiB\n",
				"@task header Mcp-Method tasks/get\nhandle @task {\n"+proxy(stream.Addr(), "flush_interval -1")+"\n}\nhandle {\n"+proxy(up.Addr())+"\n}")
			for range 6 {
				m := modernGet("t1")
				res, err := incaddy.Client(t, false).Do(m.request(t.Context(), p.URL))
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				awaitLine(t, res.Body, c.end)
			}
			pad := message{tool: "look_up", args: `{"pad":"` + large(900<<10) + `"}`}
			if a := call(t, p.Site, pad); a.status != http.StatusOK {
				t.Errorf("there is no room for a call: %d %s", a.status, a.body)
			}
		})
	}
}

// awaitLine reads a body until a line ends like this.
func awaitLine(t *testing.T, body io.Reader, end string) {
	t.Helper()
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(line, end) {
			return
		}
	}
}
