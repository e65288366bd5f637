package jsonrpc

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestReadTask(t *testing.T) {
	long := strings.Repeat("t", maxText+1)
	result := func(a Answer) Answer {
		a.Kind, a.ID = Result, IDOurs
		return a
	}
	for _, row := range []struct {
		name, message string
		want          Task
		answer        string // the text of the result
		err           error
	}{
		// 2025-11-25, basic/utilities/tasks.
		{"Getting Tasks", `{"jsonrpc":"2.0","id":3,"result":{"taskId":"786512e2","status":"working","statusMessage":"in progress","createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:40:00Z","ttl":30000,"pollInterval":5000}}`,
			Task{ID: "786512e2", Status: TaskWorking}, "", nil},
		{"Task Status Notification", `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"t","status":"completed","ttl":60000}}`,
			Task{ID: "t", Status: TaskCompleted}, "", nil},
		{"Cancelling Tasks", `{"jsonrpc":"2.0","id":6,"result":{"taskId":"t","status":"cancelled","statusMessage":"The task was cancelled by request."}}`,
			Task{ID: "t", Status: TaskCancelled}, "", nil},
		{"Task Execution Errors", `{"jsonrpc":"2.0","id":4,"result":{"taskId":"t","status":"failed","statusMessage":"Tool execution failed: API rate limit exceeded"}}`,
			Task{ID: "t", Status: TaskFailed}, "", nil},
		{"Input Required Status", `{"jsonrpc":"2.0","id":4,"result":{"taskId":"t","status":"input_required"}}`,
			Task{ID: "t", Status: TaskInputRequired}, "", nil},
		{"Protocol Errors", `{"jsonrpc":"2.0","id":70,"error":{"code":-32602,"message":"Failed to retrieve task: Task not found"}}`, Task{}, "", ErrNoTask},
		{"Listing Tasks", `{"jsonrpc":"2.0","id":5,"result":{"tasks":[{"taskId":"t","status":"working"}]}}`, Task{}, "", ErrNoTask},
		{"Creating Tasks", `{"jsonrpc":"2.0","id":5,"result":{"task":{"taskId":"t","status":"working"}}}`, Task{}, "", ErrNoTask},

		// io.modelcontextprotocol/tasks.
		{"Example Message Flow", `{"jsonrpc":"2.0","id":6,"result":{"resultType":"complete","taskId":"t","status":"completed","ttlMs":3600000,"result":{"content":[{"type":"text","text":"Hello, Luca!"}],"isError":false}}}`,
			Task{"t", TaskCompleted, result(Answer{})}, `{"content":[{"type":"text","text":"Hello, Luca!"}],"isError":false}`, nil},
		{"Task Status Notifications", `{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t","status":"completed","result": {"content":[],"isError":true} }}`,
			Task{"t", TaskCompleted, result(Answer{IsError: true})}, `{"content":[],"isError":true}`, nil},
		{"Task with JSON-RPC execution error", `{"jsonrpc":"2.0","id":4,"result":{"resultType":"task","taskId":"t","status":"failed","statusMessage":"x","error":{"code":-32603,"message":"API rate limit exceeded"}}}`,
			Task{"t", TaskFailed, Answer{Kind: ErrorResponse, ID: IDOurs, Code: -32603}}, "", nil},
		{"Task Polling, input", `{"jsonrpc":"2.0","id":4,"result":{"resultType":"complete","taskId":"t","status":"input_required","inputRequests":{"a":{"method":"elicitation/create"}}}}`,
			Task{ID: "t", Status: TaskInputRequired}, "", nil},
		{"Task Cancellation", `{"jsonrpc":"2.0","id":4,"result":{"resultType":"complete"}}`, Task{}, "", ErrNoTask},

		// What the table of outcomes needs of an answer.
		{"a result with a type", `{"result":{"taskId":"t","status":"completed","result":{"resultType":"complete"}}}`,
			Task{"t", TaskCompleted, result(Answer{ResultType: "complete", HasResultType: true})}, `{"resultType":"complete"}`, nil},
		{"a result first", `{"result":{"result":{},"status":"completed","taskId":"t"}}`, Task{"t", TaskCompleted, result(Answer{})}, `{}`, nil},
		{"a result that is no object", `{"result":{"taskId":"t","status":"completed","result":[]}}`,
			Task{"t", TaskCompleted, Answer{Problem: "result is of the wrong type", Doubtful: true}}, "", nil},
		{"a result with two isErrors", `{"result":{"taskId":"t","status":"completed","result":{"isError":true,"isError":false}}}`,
			Task{"t", TaskCompleted, Answer{Problem: "duplicate isError", Doubtful: true}}, "", nil},
		{"an error without a code", `{"result":{"taskId":"t","status":"failed","error":{}}}`,
			Task{"t", TaskFailed, Answer{Problem: "no code"}}, "", nil},

		// An answer that does not belong to the status is none.
		{"a result while working", `{"result":{"taskId":"t","status":"working","result":{}}}`, Task{ID: "t", Status: TaskWorking}, "", nil},
		{"a result of a failed task", `{"result":{"taskId":"t","status":"failed","result":{}}}`, Task{ID: "t", Status: TaskFailed}, "", nil},
		{"a result of a cancelled task", `{"result":{"taskId":"t","status":"cancelled","result":{}}}`, Task{ID: "t", Status: TaskCancelled}, "", nil},
		{"an error of a completed task", `{"result":{"taskId":"t","status":"completed","error":{"code":1}}}`, Task{ID: "t", Status: TaskCompleted}, "", nil},
		{"an error of a cancelled task", `{"result":{"taskId":"t","status":"cancelled","error":{"code":1}}}`, Task{ID: "t", Status: TaskCancelled}, "", nil},
		{"another status", `{"result":{"taskId":"t","status":"COMPLETED","result":{}}}`, Task{ID: "t"}, "", nil},

		{"escapes", `{"r\u0065sult":{"t\u0061skId":"\u0074","st\u0061tus":"workin\u0067"}}`, Task{ID: "t", Status: TaskWorking}, "", nil},
		{"oddities elsewhere", `{"x":1,"x":2,"result":{"taskId":"t","status":"working","y":1,"y":"` + "\xff" + `\ud800"},"params":[]}`, Task{ID: "t", Status: TaskWorking}, "", nil},
		{"the names elsewhere", `{"taskId":"a","status":"failed","result":{"taskId":"t","method":"x","params":1,"task":{"taskId":"b","status":"failed"},"status":"working"}}`, Task{ID: "t", Status: TaskWorking}, "", nil},
		{"params of a response", `{"params":{"taskId":"a","status":"working"},"result":{"taskId":"t","status":"working"}}`, Task{ID: "t", Status: TaskWorking}, "", nil},
		{"an id of 256 bytes", `{"result":{"taskId":"` + long[1:] + `","status":"working"}}`, Task{ID: long[1:], Status: TaskWorking}, "", nil},

		{"an id of 257 bytes", `{"result":{"taskId":"` + long + `","status":"working"}}`, Task{}, "", ErrNoTask},
		{"an id that is not all characters", `{"result":{"taskId":"\ud800","status":"working"}}`, Task{}, "", ErrNoTask},
		{"an empty id", `{"result":{"taskId":"","status":"working"}}`, Task{}, "", ErrNoTask},
		{"an id that is a number", `{"result":{"taskId":1,"status":"working"}}`, Task{}, "", ErrNoTask},
		{"no status", `{"result":{"taskId":"t"}}`, Task{}, "", ErrNoTask},
		{"another notification", `{"method":"notifications/progress","params":{"taskId":"t","status":"working"}}`, Task{}, "", ErrNoTask},
		{"a method that is no string", `{"method":1,"params":{"taskId":"t","status":"working"}}`, Task{}, "", ErrNoTask},
		{"params that are no object", `{"method":"notifications/tasks","params":[]}`, Task{}, "", ErrNoTask},
		{"an array", `[{"result":{"taskId":"t","status":"working"}}]`, Task{}, "", ErrNoTask},
		{"a method and a result", `{"method":"notifications/tasks","params":{"taskId":"t","status":"working"},"result":{}}`, Task{}, "", errMixed},
		{"a method and an error", `{"method":"notifications/tasks","params":{"taskId":"t","status":"working"},"error":{}}`, Task{}, "", errMixed},
		{"a result and an error", `{"result":{"taskId":"t","status":"working"},"error":null}`, Task{}, "", errMixed},
		{"two ids", `{"result":{"taskId":"t","status":"working","taskId":"t"}}`, Task{}, "", errTwoReaders},
		{"two statuses", `{"result":{"taskId":"t","status":"working","st\u0061tus":"completed"}}`, Task{}, "", errTwoReaders},
		{"two answers", `{"result":{"taskId":"t","status":"completed","result":{},"result":{}}}`, Task{}, "", errTwoReaders},
		{"two errors of the task", `{"result":{"taskId":"t","status":"failed","error":{},"error":{}}}`, Task{}, "", errTwoReaders},
		{"two results", `{"result":{"taskId":"t","status":"working"},"result":1}`, Task{}, "", errTwoReaders},
		{"two params", `{"method":"notifications/tasks","params":1,"params":{"taskId":"t","status":"working"}}`, Task{}, "", errTwoReaders},
		{"two methods", `{"method":"notifications/tasks","method":"notifications/tasks","params":{"taskId":"t","status":"working"}}`, Task{}, "", errTwoReaders},
		{"cut", `{"result":{"taskId":"t","status":"working"}`, Task{}, "", ErrNoJSON},
		{"more behind", `{"result":{"taskId":"t","status":"working"}}{}`, Task{}, "", ErrNoJSON},
		{"nothing", ``, Task{}, "", ErrNoJSON},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := ReadTask([]byte(row.message))
			if !errors.Is(err, row.err) {
				t.Fatalf("%v, want %v", err, row.err)
			}
			if text := row.message[got.Answer.ResultStart:got.Answer.ResultEnd]; text != row.answer {
				t.Errorf("the result is %s", text)
			}
			splice := got.Answer.Splice
			if got.Answer = got.Answer.apart(); got != row.want || splice.OK() {
				t.Errorf("%+v, want\n%+v", got, row.want)
			}
		})
	}
}

func TestRelatedTask(t *testing.T) {
	const key = `"io.modelcontextprotocol/related-task"`
	for _, row := range []struct {
		message, want string
		err           error
	}{
		{`{"jsonrpc":"2.0","id":4,"result":{"content":[],"isError":false,"_meta":{` + key + `:{"taskId":"786512e2"}}}}`, "786512e2", nil},
		{`{"result":{"_meta":{"x":1,"x":2,` + key + `:{"t\u0061skId":"\u0074","y":{"taskId":"z"}}},"taskId":1,"taskId":2},"_meta":1}`, "t", nil},
		{`{"result":{"_meta":{}}}`, "", nil},
		{`{"result":{}}`, "", nil},
		{`{"error":{"code":-32602}}`, "", nil},
		{`{"result":{"_meta":{` + key + `:{"taskId":1}}}}`, "", nil},
		{`{"result":{"_meta":{` + key + `:"t"}}}`, "", nil},
		{`{"_meta":{` + key + `:{"taskId":"t"}}}`, "", nil},
		{`[]`, "", nil},
		{`{"result":{"_meta":{` + key + `:{"taskId":"t","taskId":"t"}}}}`, "", errTwoReaders},
		{`{"result":{"_meta":{` + key + `:{"taskId":"t"},` + key + `:1}}}`, "", errTwoReaders},
		{`{"result":{"_meta":{` + key + `:{"taskId":"t"}},"_meta":{}}}`, "", errTwoReaders},
		{`{"result":{"_meta":{` + key + `:{"taskId":"t"}}},"result":{}}`, "", errTwoReaders},
		{`{"result":{"_meta":{` + key + `:{"taskId":"t"}}}} x`, "", ErrNoJSON},
		{`{"result":`, "", ErrNoJSON},
	} {
		if got, err := RelatedTask([]byte(row.message)); got != row.want || !errors.Is(err, row.err) {
			t.Errorf("%s: %q, %v, want %q, %v", row.message, got, err, row.want, row.err)
		}
	}
}

// FuzzReadTask compares what is read of a task with what a decoder reads.
func FuzzReadTask(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":6,"result":{"taskId":"t","status":"completed","result":{"isError":false,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t","status":"failed","error":{"code":-32603}}}`))
	f.Add([]byte(`{"method":"notifications/tasks/status","params":{"taskId":"t","status":"completed"},"result":{"taskId":"u","status":"working"}}`))
	f.Add([]byte(`{"result":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}},"status":"failed","taskId":"t","error":{"code":1},"result":{}}}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		checkRelated(t, message)
		got, err := ReadTask(message)
		if err != nil {
			if got != (Task{}) {
				t.Fatalf("%q: %+v beside %v", message, got, err)
			}
			return
		}
		where, answer := "result", map[TaskStatus]string{TaskCompleted: "result", TaskFailed: "error"}[got.Status]
		outer := object(message)
		if outer == nil {
			return // too deep for encoding/json
		}
		if outer["method"] != nil {
			where = "params"
		}
		task := object(outer[where])
		var id, status string
		if json.Unmarshal(task["taskId"], &id) != nil || id != got.ID {
			t.Errorf("%q: id %q, want %q", message, got.ID, id)
		}
		if json.Unmarshal(task["status"], &status) != nil || got.Status != "" && status != string(got.Status) {
			t.Errorf("%q: status %q, want %q", message, got.Status, status)
		}
		var inner json.RawMessage
		if answer != "" {
			inner = task[answer]
		}
		if read := got.Answer.Kind != Unreadable || got.Answer.Problem != ""; read != (inner != nil) {
			t.Fatalf("%q: %+v, but the answer is %q", message, got, inner)
		}
		if inner == nil {
			return
		}
		alone := []byte(`{"jsonrpc":"2.0","id":1,"` + answer + `":` + string(inner) + `}`)
		want := pushed([]byte("1"), alone)
		if got.Answer.apart() != want.apart() {
			t.Errorf("%q: %+v, want %+v", message, got.Answer, want)
		}
		if want.Kind == Result && string(message[got.Answer.ResultStart:got.Answer.ResultEnd]) != string(inner) {
			t.Errorf("%q: the result is at [%d,%d)", message, got.Answer.ResultStart, got.Answer.ResultEnd)
		}
	})
}

// checkRelated compares the id that is read of a task's result with what a decoder reads.
func checkRelated(t *testing.T, message []byte) {
	t.Helper()
	id, err := RelatedTask(message)
	if id == "" || err != nil {
		return
	}
	outer := object(message)
	if outer == nil {
		return // too deep for encoding/json
	}
	var want string
	related := object(object(object(outer["result"])["_meta"])[relatedTaskMember])
	if json.Unmarshal(related["taskId"], &want) != nil || id != want {
		t.Errorf("%q: related to %q, want %q", message, id, want)
	}
}

// object decodes an object, nil if the text is none.
func object(text []byte) (members map[string]json.RawMessage) {
	if json.Unmarshal(text, &members) != nil {
		return nil
	}
	return members
}
