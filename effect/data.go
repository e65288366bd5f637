package effect

import (
	"encoding/json"
	"time"
)

// refusalData is the error.data of a refused call.
type refusalData struct {
	State     State      `json:"state"`
	Key       string     `json:"key,omitempty"`
	Attempt   int64      `json:"attempt,omitempty"`
	Since     *time.Time `json:"since,omitempty"` // when the state began
	Task      string     `json:"taskId,omitempty"`
	Conflict  bool       `json:"conflict,omitempty"`
	Arguments []string   `json:"arguments,omitempty"` // that differ
	Next      string     `json:"next"`                // what to do
}

// AppendData appends the error.data of a call that is refused, a JSON object.
// A stranger is told the state and what to do next, and nothing else.
func (ch *Change) AppendData(dst []byte) []byte {
	r := &ch.After
	data := refusalData{State: r.State, Next: ch.Answer.Advice()}
	if !ch.Stranger && r.State != None {
		data.Key, data.Attempt, data.Since = r.Key.Text, r.Attempt, &r.Since
		data.Conflict, data.Arguments = ch.Answer == Conflict, ch.Differs
		if ch.Answer == TaskAccepted {
			data.Task = r.TaskID
		}
	}
	text, _ := json.Marshal(data) // none of its members can fail
	return append(dst, text...)
}
