package effect

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/caddymcp/gateway/outcome"
)

// What a refused call is told of the record.
func TestRefusalData(t *testing.T) {
	other := testCall
	other.Token, other.Fingerprint, other.Outline = Token{2}, Fingerprint{3}, Outline{"amount": 4}
	stranger := other
	stranger.Caller = "mallory"
	executing := Step(Record{}, testCall, noon).After
	end := func(o Outcome) Record {
		o.Reservation = executing.Reservation()
		return Step(executing, o, noon.Add(time.Second)).After
	}
	committed := end(Outcome{Outcome: outcome.Committed})
	const record = `"key":"[\"refund\",\"txn_1\"]","attempt":1,"since":"2026-07-28T12:00:01.123456Z"`
	for _, c := range []struct {
		name   string
		record Record
		call   Call
		want   string // but for next
		code   int
	}{
		{"conflict", committed, other, `{"state":"committed",` + record + `,"conflict":true,"arguments":["amount"],`, -41004},
		{"ambiguous", end(Outcome{}), other, `{"state":"ambiguous",` + record + `,`, -41005},
		{"a task", end(Outcome{Outcome: outcome.Deferred, TaskID: "task_1", TaskFor: time.Hour}), other, `{"state":"deferred",` + record + `,"taskId":"task_1",`, -41004},
		{"a stranger", committed, stranger, `{"state":"committed",`, -41004},
		{"a stranger at a task", end(Outcome{Outcome: outcome.Deferred, TaskID: "task_1", TaskFor: time.Hour}), stranger, `{"state":"deferred",`, -41004},
		{"a stranger at what is ambiguous", end(Outcome{}), stranger, `{"state":"ambiguous",`, -41005},
	} {
		t.Run(c.name, func(t *testing.T) {
			change := Step(c.record, c.call, noon.Add(2*time.Second))
			next, _ := json.Marshal(change.Answer.Advice())
			if got, want := string(change.AppendData(nil)), c.want+`"next":`+string(next)+`}`; got != want {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
			if got := change.Answer.Code(); got != c.code {
				t.Errorf("code %d, want %d", got, c.code)
			}
		})
	}
	stray := other
	stray.RequestState = &StateDigest{}
	change := Step(Record{}, stray, noon)
	next, _ := json.Marshal(NoContinuation.Advice())
	if got := string(change.AppendData(nil)); got != `{"state":"none","next":`+string(next)+`}` {
		t.Errorf("a continuation of nothing is told %s", got)
	}
}

// Every name can be read again, and no other.
func TestNames(t *testing.T) {
	for i, s := range States() {
		var read State
		if err := read.UnmarshalText([]byte(s.String())); err != nil || read != s || int(s) != i {
			t.Errorf("%s: read as %s, %v", s, read, err)
		}
	}
	for i := range table {
		var read Event
		if err := read.UnmarshalText([]byte(Event(i).String())); err != nil || read != Event(i) {
			t.Errorf("%s: read as %s, %v", Event(i), read, err)
		}
	}
	for i := range answers {
		var read Answer
		if err := read.UnmarshalText([]byte(Answer(i).String())); err != nil || read != Answer(i) {
			t.Errorf("%s: read as %s, %v", Answer(i), read, err)
		}
	}
	for _, unmarshal := range []func([]byte) error{new(State).UnmarshalText, new(Event).UnmarshalText, new(Answer).UnmarshalText} {
		if unmarshal([]byte("Committed")) == nil {
			t.Error("a name that is none was read")
		}
	}
	if text, _ := json.Marshal(map[State]Fingerprint{Held: {0xab}}); string(text) != `{"held":"ab00000000000000000000000000000000000000000000000000000000000000"}` {
		t.Errorf("got %s", text)
	}
}
