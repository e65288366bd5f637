package jsonrpc

import "errors"

// Task is what a message of the upstream says of a task.
type Task struct {
	ID     string // never empty
	Status TaskStatus

	// Answer is what the request that became the task would have been answered with, had it not:
	// a result, or an error. Its id counts as IDOurs, ResultStart and ResultEnd are offsets in the
	// message that was read, and there is no Splice. It is the zero Answer if the message does not
	// hold it.
	//
	// An error in it was met while the task was carried out: whatever its code, it is no proof
	// that nothing was done. And its result needs no resultType in any revision: none of the
	// extension's examples has one, the status says that it is complete.
	Answer Answer
}

// TaskStatus is the status of a task; empty is any that is not defined.
type TaskStatus string

// The statuses of tasks, the same in 2025-11-25 and in the extension. The last three are final.
const (
	TaskWorking       TaskStatus = "working"
	TaskInputRequired TaskStatus = "input_required"
	TaskCompleted     TaskStatus = "completed"
	TaskFailed        TaskStatus = "failed"
	TaskCancelled     TaskStatus = "cancelled"
)

// ErrNoTask says that a message tells of no task: most often it is an error, or the empty
// acknowledgement of an update or a cancellation.
var ErrNoTask = errors.New("no task with an id and a status")

// ReadTask reads the response to tasks/get or tasks/cancel, or a notification of a task's status.
// That the response is the one to the request, by its id, a ResponseReader has found out.
//
// The task is result in a response, params in a notification:
//
//   - 2025-11-25, basic/utilities/tasks: "Getting Tasks", "Cancelling Tasks" and "Task Status
//     Notification" (notifications/tasks/status) have taskId and status, and never the answer: a
//     client gets that with tasks/result ("Retrieving Task Results"; see [RelatedTask]). A tool
//     call whose result has isError is failed ("Task Status").
//   - io.modelcontextprotocol/tasks: "Task Polling" and "Task Status Notifications"
//     (notifications/tasks) have the answer inline, as result of a completed and as error of a
//     failed task ("Task Status"). A tool call whose result has isError is completed. There is no
//     tasks/result, and tasks/cancel is acknowledged with an empty result ("Task Cancellation").
//     The resultType of the response is "complete", but "task" in two examples of "Task
//     Execution Errors": it is not read.
//
// A result or error that does not belong to the status is a member like any other.
//
// An error other than ErrNoTask says that nothing can be learned from the message: it is no JSON
// text, or two readers could see two tasks in it. An answer that is read as strictly as one of a
// call, and cannot be, is Unreadable with a Problem.
func ReadTask(message []byte) (Task, error) {
	var r taskReader
	r.begin(message, taskMembers)
	if err := r.end(r.message()); err != nil {
		return Task{}, err
	}
	found := &r.result
	if r.hasMethod {
		found = &r.params
	}
	switch {
	case r.hasMethod && (r.hasResult || r.hasError), r.hasResult && r.hasError:
		return Task{}, errMixed
	case r.hasMethod && r.method != "notifications/tasks" && r.method != "notifications/tasks/status",
		found.id == "", found.status == "":
		return Task{}, ErrNoTask
	}
	return found.task(message), nil
}

const errMixed = laxError("more than one of a method, a result and an error")

// taskReader is one pass over a message that may tell of a task.
type taskReader struct {
	laxReader
	method                         string
	hasMethod, hasResult, hasError bool
	params, result                 taskMember
}

var taskMembers = []string{"method", "params", "result", "error", "taskId", "status"}

func (r *taskReader) message() error {
	return r.object(func(name string) (known bool, err error) {
		switch name {
		case "method":
			r.hasMethod = true
			r.method, err = r.string()
			return true, err
		case "params":
			return true, r.task(&r.params)
		case "result":
			r.hasResult = true
			return true, r.task(&r.result)
		case "error":
			r.hasError = true
			return true, r.SkipValue()
		}
		return false, nil
	})
}

// taskMember is what was read of a member that may be a task.
type taskMember struct {
	id, status  string // empty if longer than 256 bytes or not all characters
	result, err span   // zero if there is none
}

func (r *taskReader) task(m *taskMember) error {
	return r.object(func(name string) (known bool, err error) {
		switch name {
		case "taskId":
			m.id, err = r.shortText()
		case "status":
			m.status, err = r.shortText()
		case "result":
			m.result, err = r.span()
		case "error":
			m.err, err = r.span()
		default:
			return false, nil
		}
		return true, err
	})
}

// span skips the next value and returns where it is.
func (r *taskReader) span() (span, error) {
	raw, err := r.raw()
	end := r.InputOffset()
	return span{end - int64(len(raw)), end}, err
}

func (m *taskMember) task(message []byte) Task {
	t := Task{ID: m.id}
	switch status := TaskStatus(m.status); status {
	case TaskWorking, TaskInputRequired, TaskCompleted, TaskFailed, TaskCancelled:
		t.Status = status
	}
	switch {
	case t.Status == TaskCompleted && m.result.end > 0:
		t.Answer = answerOf(message, "result", m.result)
	case t.Status == TaskFailed && m.err.end > 0:
		t.Answer = answerOf(message, "error", m.err)
	}
	return t
}

// answerOf reads a value in the message as the given member of a response.
func answerOf(message []byte, member string, value span) Answer {
	head := `{"jsonrpc":"2.0","id":1,"` + member + `":`
	var r ResponseReader
	r.Reset([]byte("1"))
	r.Write([]byte(head))
	r.Write(message[value.start:value.end])
	r.Write([]byte("}"))
	a := r.Close()
	a.Splice = Splice{}
	if a.Kind == Result {
		a.ResultStart, a.ResultEnd = value.start, value.end
	}
	return a
}

// relatedTaskMember is the member of _meta that names the task a message belongs to.
const relatedTaskMember = "io.modelcontextprotocol/related-task"

var relatedMembers = []string{"result", "_meta", relatedTaskMember, "taskId"}

// RelatedTask returns the id of the task that a result names in its _meta, empty if there is none.
// It must stand in the response to tasks/result, "as the result structure itself does not contain
// the task ID" (2025-11-25, basic/utilities/tasks, "Related Task Metadata"); which task was asked
// for is what the request says ("Associating Task-Related Messages").
//
// That response is otherwise "exactly what the underlying request would have returned" ("Result
// Retrieval"), and a ResponseReader's Answer has it all. But an error in it can also be that of
// tasks/result itself, -32602 for a task that is gone ("Protocol Errors"): of the call it proves
// nothing.
//
// An error says that the message is no JSON text, or that two readers could see two ids in it.
func RelatedTask(message []byte) (id string, err error) {
	var r laxReader
	r.begin(message, relatedMembers)
	err = r.end(r.member("result", func() error {
		return r.member("_meta", func() error {
			return r.member(relatedTaskMember, func() error {
				return r.member("taskId", func() (err error) {
					id, err = r.shortText()
					return err
				})
			})
		})
	}))
	if err != nil {
		return "", err
	}
	return id, nil
}
