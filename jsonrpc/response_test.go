package jsonrpc

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// response is a row of responses.json: a message of the upstream, the id of the request it may
// answer, and what is read. WithOutcome is the message after the member OutcomeMember with the
// value "V" was added, empty if there is no place for it.
type response struct {
	Name      string
	Source    string
	RequestID *string `json:"request_id"`
	text

	Kind            string
	Problem         string
	Doubtful        bool
	IDMatch         string `json:"id_match"`
	Method          string
	ResultType      *string `json:"result_type"`
	IsError         bool    `json:"is_error"`
	HasRequestState bool    `json:"has_request_state"`
	RequestState    string  `json:"request_state"` // its characters
	HasTaskID       bool    `json:"has_task_id"`
	TaskID          string  `json:"task_id"`
	Code            int64
	WithOutcome     string `json:"with_outcome"`
}

// shortResponses returns the rows whose messages have at most a thousand bytes.
func shortResponses(t *testing.T) []response {
	t.Helper()
	return slices.DeleteFunc(readTable[response](t, "responses.json"), func(row response) bool {
		return len(row.bytes(t)) > 1000
	})
}

// want returns the row as an Answer, but for what is where in the message.
func (row response) want() Answer {
	a := Answer{
		Kind:            map[string]ResponseKind{"unreadable": Unreadable, "result": Result, "error": ErrorResponse, "other": Other}[row.Kind],
		Problem:         row.Problem,
		Doubtful:        row.Doubtful,
		ID:              map[string]IDMatch{"": IDAbsent, "absent": IDAbsent, "null": IDNull, "ours": IDOurs, "other": IDOther}[row.IDMatch],
		Method:          row.Method,
		IsError:         row.IsError,
		HasRequestState: row.HasRequestState,
		HasTaskID:       row.HasTaskID,
		TaskID:          row.TaskID,
		Code:            row.Code,
	}
	if row.ResultType != nil {
		a.ResultType, a.HasResultType = *row.ResultType, true
	}
	if row.HasRequestState {
		a.RequestState = sha256.Sum256([]byte(row.RequestState))
	}
	return a
}

// apart returns what was read, but for what is where in the message.
func (a Answer) apart() Answer {
	a.Splice, a.ResultStart, a.ResultEnd = Splice{}, 0, 0
	return a
}

// checkResult compares the span of the result with the value that a decoder finds.
func checkResult(t *testing.T, message []byte, a Answer) {
	t.Helper()
	if a.Kind != Result {
		if a.ResultStart != 0 || a.ResultEnd != 0 {
			t.Errorf("%q: a result at [%d,%d)", message, a.ResultStart, a.ResultEnd)
		}
		return
	}
	var want map[string]json.RawMessage
	if json.Unmarshal(message, &want) != nil {
		return // too deep for encoding/json
	}
	if got := message[a.ResultStart:a.ResultEnd]; !bytes.Equal(got, want["result"]) {
		t.Errorf("%q: the result is %q", message, got)
	}
}

func (row response) requestID() []byte {
	if row.RequestID == nil {
		return nil
	}
	return []byte(*row.RequestID)
}

// pushed reads a message in pieces that end at the given offsets.
func pushed(id, message []byte, cuts ...int) Answer {
	var r ResponseReader
	r.Reset(id)
	start := 0
	for _, cut := range append(cuts, len(message)) {
		r.Write(message[start:cut])
		start = cut
	}
	return r.Close()
}

// edited applies a splice.
func edited(message []byte, s Splice, value string) string {
	start, end, text := s.Edit(nil, []byte(value))
	return string(message[:start]) + string(text) + string(message[end:])
}

func TestResponses(t *testing.T) {
	for _, row := range readTable[response](t, "responses.json") {
		t.Run(row.Name, func(t *testing.T) {
			message := row.bytes(t)
			got := pushed(row.requestID(), message)

			spliced := ""
			if got.Splice.OK() {
				spliced = edited(message, got.Splice, `"V"`)
			}
			if spliced != row.WithOutcome {
				t.Errorf("with the outcome:\n%s, want\n%s", spliced, row.WithOutcome)
			}
			checkResult(t, message, got)
			if read := got.apart(); read != row.want() {
				t.Errorf("%+v, want\n%+v (%s)", read, row.want(), row.Source)
			}
		})
	}
}

// What is read does not depend on where the message is cut into pieces.
func TestResponsesAtEverySplit(t *testing.T) {
	for _, row := range shortResponses(t) {
		message, id := row.bytes(t), row.requestID()
		whole := pushed(id, message)
		everywhere := make([]int, len(message))
		for cut := range message {
			everywhere[cut] = cut
			if got := pushed(id, message, cut); got != whole {
				t.Fatalf("%s, cut at %d: %+v, want %+v", row.Name, cut, got, whole)
			}
		}
		if got := pushed(id, message, everywhere...); got != whole {
			t.Errorf("%s, byte by byte: %+v, want %+v", row.Name, got, whole)
		}
	}
}

// A reader that is reset reads the next message as a new one does.
func TestResponseReaderReset(t *testing.T) {
	var r ResponseReader
	for _, row := range shortResponses(t) {
		message, id := row.bytes(t), row.requestID()
		r.Reset(id)
		for i := range id {
			id[i] = 'x' // the reader has copied it
		}
		r.Write(message)
		if got, want := r.Close(), pushed(row.requestID(), message); got != want {
			t.Errorf("%s: %+v, want %+v", row.Name, got, want)
		}
		if r.Reset(nil); r.Broken() {
			t.Errorf("%s: broken after a reset", row.Name)
		}
	}
}

func TestResponseReaderZeroValue(t *testing.T) {
	var r ResponseReader
	r.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
	if got := r.Close(); got.Kind != Result || got.ID != IDOther {
		t.Errorf("%+v", got)
	}
}

// Broken is told as soon as it is known, and not for a message that only has wrong members.
func TestResponseReaderBroken(t *testing.T) {
	for _, row := range []struct {
		fine, breaks string
		doubtful     bool
	}{
		{`{"a":1`, `x`, true},
		{`{"a":tru`, `x`, true},
		{`{"a":"\u12`, `x`, true},
		{`{"jsonrpc":"1.0","jsonrpc":2,"result":[]}`, `}`, true},
		{`[]`, `[`, false},
		{` `, `<`, false},
		{``, "\ufeff", true},
		{``, "\x00", true},
		{` `, `U`, false},
	} {
		var r ResponseReader
		r.Write([]byte(row.fine))
		if r.Broken() {
			t.Errorf("%s: broken already", row.fine)
		}
		r.Write([]byte(row.breaks))
		if !r.Broken() {
			t.Errorf("%s%s: not broken", row.fine, row.breaks)
		}
		r.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
		if got := r.Close(); got != (Answer{Problem: "not a JSON text", Doubtful: row.doubtful}) {
			t.Errorf("%s%s: %+v", row.fine, row.breaks, got)
		}
	}
}

// The reader's memory stays bounded whatever is long in a message.
func TestResponseReaderMemory(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	digits := strings.Repeat("7", 1<<20)
	for name, message := range map[string]string{
		"a name":          `{"` + long + `":1}`,
		"a string":        `{"a":"` + long + `"}`,
		"a number":        `{"a":` + digits + `}`,
		"an id":           `{"id":"` + long + `"}`,
		"a number as id":  `{"id":` + digits + `}`,
		"a method":        `{"method":"` + long + `"}`,
		"a code":          `{"error":{"code":` + digits + `}}`,
		"a request state": `{"result":{"requestState":"` + long + `"}}`,
		"a version":       `{"jsonrpc":"` + long + `"}`,
		"members":         `{` + strings.Repeat(`"a":{},`, 1<<17) + `"b":[]}`,
		"elements":        `[` + strings.Repeat(`[0],`, 1<<18) + `0]`,
		"white space":     strings.Repeat(" ", 1<<20) + `{}`,
	} {
		var r ResponseReader
		r.Reset([]byte("1"))
		r.Write([]byte(message))
		r.Close()
		if kept := cap(r.token) + 8*cap(r.levels); kept > 8<<10 {
			t.Errorf("%s: %d bytes are kept", name, kept)
		}
	}
	var r ResponseReader
	r.Write([]byte(strings.Repeat("[", maxLevels+1)))
	if kept := 8 * cap(r.levels); kept > maxLevels/8*2 {
		t.Errorf("levels: %d bytes are kept", kept)
	}
}

// No text of the upstream's choice gets into a problem, which is logged.
func TestResponseProblemsAreFixedTexts(t *testing.T) {
	for _, row := range shortResponses(t) {
		message := strings.NewReplacer(`"2.0"`, `"hunter2"`, `"x"`, `"hunter2"`, `"m"`, `"hunter2"`).Replace(string(row.bytes(t)))
		if got := pushed(nil, []byte(message)); strings.Contains(got.Problem, "hunter2") {
			t.Errorf("%s: %s", row.Name, got.Problem)
		}
	}
}

func BenchmarkResponse(b *testing.B) {
	for name, message := range map[string]string{
		"400B":       `{"jsonrpc":"2.0","id":42,"result":{"resultType":"complete","content":[{"type":"text","text":"` + strings.Repeat("refunded ", 20) + `"}],"structuredContent":{"refund":"re_1","amount":2000,"ok":true},"isError":false,"_meta":{"a":1}}}`,
		"1MiBString": `{"jsonrpc":"2.0","id":42,"result":{"content":[{"type":"text","text":"` + strings.Repeat("refunded ", 1<<20/9) + `"}]}}`,
		"1MiBRows":   `{"jsonrpc":"2.0","id":42,"result":{"content":[` + strings.Repeat(`{"id":12345,"name":"row","ok":true},`, 1<<20/36) + `0]}}`,
	} {
		b.Run(name, func(b *testing.B) {
			var r ResponseReader
			id, text := []byte("42"), []byte(message)
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r.Reset(id)
				r.Write(text)
				if r.Close().Kind != Result {
					b.Fatal("not read")
				}
			}
		})
	}
}
