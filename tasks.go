package gateway

import (
	"context"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/outcome"
)

// A protected call that became a task is settled by what passes by of the task:
// the answers to tasks/get, tasks/result and tasks/cancel, and notifications of
// its status. They are read beside the relay.

// The JSON-RPC methods that ask for a task or tell of one.
const (
	tasksGet    = "tasks/get"
	tasksResult = "tasks/result"
	tasksCancel = "tasks/cancel"

	taskChanged       = "notifications/tasks"
	legacyTaskChanged = "notifications/tasks/status"
)

// asksForTask reports whether the answer to the message may tell what became of
// a protected call.
func (c *call) asksForTask() bool {
	if c.h.ledger == nil {
		return false
	}
	switch c.message.Method {
	case tasksGet, tasksResult, tasksCancel:
		return true
	}
	return false
}

func isTaskNotice(a *jsonrpc.Answer) bool {
	return a.Kind == jsonrpc.Other && (a.Method == taskChanged || a.Method == legacyTaskChanged)
}

// settleTask records what a message of the upstream says of a task, if that is
// what a protected call of the same caller at the same upstream became: task ids
// are a server's own. The answer is what was read of the message already.
func (c *call) settleTask(message []byte, answer *jsonrpc.Answer) {
	task, ended := c.readTask(message, answer)
	if !ended {
		return
	}
	defer c.h.ledger.acquire()()
	repl := c.request.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	_, caller, refusal := c.caller(repl)
	if refusal != nil {
		return
	}
	upstream, _ := repl.GetString(proxyUpstream)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.request.Context()), recordTime)
	defer cancel()
	record, found, err := c.h.ledger.Task(ctx, effect.Task{Namespace: c.h.Namespace, Upstream: upstream, Caller: caller, ID: task.ID})
	if err == nil && found {
		_, err = c.h.ledger.Apply(ctx, c.taskOutcome(&record, message, &task))
	}
	if err != nil {
		c.h.logger.Error("what became of a task could not be recorded", zap.Object("mcp", c), zap.Error(err))
	}
}

// readTask reads what a message says of a task, or reports that it does not say
// yet what became of it. In the answer to a request the task is the one that was
// asked for. An error in place of an answer may be that of the question.
func (c *call) readTask(message []byte, answer *jsonrpc.Answer) (task jsonrpc.Task, ended bool) {
	asked, notice := "", isTaskNotice(answer)
	if !notice {
		asked, _ = c.message.Params.TaskID.Text()
		if asked == "" || answer.Kind != jsonrpc.Result || answer.ID != jsonrpc.IDOurs {
			return jsonrpc.Task{}, false
		}
	}
	if c.message.Method == tasksResult && !notice {
		named, err := jsonrpc.RelatedTask(message)
		task = jsonrpc.Task{ID: asked, Status: jsonrpc.TaskCompleted, Answer: *answer}
		// A tool's error that names no task may say that the task is not done yet.
		return task, err == nil && (named == asked || named == "" && !answer.IsError)
	}
	task, err := jsonrpc.ReadTask(message)
	if err != nil || !notice && task.ID != asked {
		return jsonrpc.Task{}, false
	}
	return task, task.Status == jsonrpc.TaskCancelled || task.Answer.Kind != jsonrpc.Unreadable
}

// taskOutcome classifies by the outcome table what a task ended with. Whatever
// the code of an error in it, it was met while the task was carried out, and
// does not say that nothing was done.
func (c *call) taskOutcome(record *effect.Record, message []byte, task *jsonrpc.Task) effect.Outcome {
	o := effect.Outcome{
		Reservation: record.Reservation(), Outcome: outcome.Ambiguous, Observation: "task_cancelled",
		Upstream: record.Upstream, Bytes: int64(len(message)), ReplayFor: microseconds(c.h.Replay.For),
	}
	if task.Status == jsonrpc.TaskCancelled {
		return o
	}
	a := &task.Answer
	seen := outcome.Observation{
		Stage: outcome.Answered, Status: http.StatusOK, Message: outcome.Result, ID: outcome.Ours,
		HasResultType: a.HasResultType, ResultType: a.ResultType, IsError: a.IsError,
		Code: a.Code, CodeIsAmbiguous: true,
		NotExecutedOnError: c.h.tools.find(record.Tool).notExecutedOnError,
	}
	if a.Kind == jsonrpc.ErrorResponse {
		seen.Message = outcome.Error
	}
	verdict := outcome.Decide(&seen)
	o.Outcome, o.Observation = verdict.Outcome, "task_"+verdict.Observation
	if o.Outcome == outcome.Committed {
		o.Answer = c.h.stored(message, a)
	}
	if o.Outcome == outcome.Held || o.Outcome == outcome.Deferred {
		// A task asks for input in a way of its own, and does not become another.
		o.Outcome = outcome.Ambiguous
	}
	return o
}
