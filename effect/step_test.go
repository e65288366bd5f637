package effect

import (
	"crypto/sha256"
	"reflect"
	"testing"
	"time"

	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/outcome"
)

var noon = time.Date(2026, 7, 28, 12, 0, 0, 123456000, time.UTC)

var testCall = Call{
	Key: NewKey("payments", "refund", "txn_1"), Token: Token{1}, Tool: "create_refund", Fingerprint: Fingerprint{2},
	Outline: Outline{"amount": 3}, Caller: "digest", Rounds: 8,
	Lease: 30 * time.Second, SettleAfter: 150 * time.Second, Retain: 720 * time.Hour,
	Who: "alice", Revision: "2026-07-28", Bytes: 100, Arguments: []byte(`{"amount":2000}`),
}

// What a record and its receipts say, field by field, on the longest way there is.
func TestRecordAndReceipts(t *testing.T) {
	record := Record{}
	var receipts []Receipt
	at := noon
	step := func(c Command) {
		t.Helper()
		change := Step(record, c, at)
		if !reflect.DeepEqual(change.Before, record) || !change.Written {
			t.Fatalf("%s: written: %v, from %+v", change.Event, change.Written, change.Before)
		}
		record = change.After
		receipts = append(receipts, change.Receipts...)
		at = at.Add(time.Second)
	}
	wants := func(want Record) {
		t.Helper()
		if !reflect.DeepEqual(record, want) {
			t.Fatalf("\n got %+v\nwant %+v", record, want)
		}
	}
	second := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }

	step(testCall)
	want := Record{
		Key: testCall.Key, State: Executing, Attempt: 1, Token: Token{1}, Tool: "create_refund", Fingerprint: Fingerprint{2},
		Outline: Outline{"amount": 3}, Caller: "digest", Who: "alice", Revision: "2026-07-28",
		Since: noon, Active: noon, Deadline: second(30), SettleAfter: 150 * time.Second, Retain: 720 * time.Hour,
	}
	wants(want)

	step(Outcome{
		Reservation: record.Reservation(), Outcome: outcome.Held, Observation: "input_required", Upstream: "a:1", Bytes: 200,
		RequestState: StateDigest{4}, HoldFor: 5 * time.Minute, Uncommitted: true,
	})
	want.State, want.Upstream, want.Observation, want.Since, want.Active, want.Deadline = Held, "a:1", "input_required", second(1), second(1), second(301)
	want.Hold = Hold{StateDigest{4}, 1, second(301), true}
	wants(want)

	next := testCall
	next.Token, next.Revision, next.RequestState = Token{5}, "2027-01-01", &StateDigest{4}
	step(next)
	want.State, want.Token, want.Revision, want.Observation, want.Since, want.Active, want.Deadline = Executing, Token{5}, "2027-01-01", "", second(2), second(2), second(32)
	wants(want)

	step(Renewal{record.Reservation(), 30 * time.Second})
	want.Active, want.Deadline = second(3), second(33)
	wants(want)

	step(Outcome{Reservation: Reservation{testCall.Key, 7, Token{1}}, Outcome: outcome.Committed, Observation: "complete", Upstream: "b:2", Bytes: 300})
	wants(want) // a stale outcome

	step(Outcome{
		Reservation: record.Reservation(), Outcome: outcome.Deferred, Observation: "task", Upstream: "a:1", Bytes: 400,
		TaskID: "task_1", TaskFor: time.Hour,
	})
	want.State, want.Observation, want.Since, want.Active, want.Deadline, want.TaskID = Deferred, "task", second(5), second(5), second(3605), "task_1"
	wants(want)

	at = second(3605)
	step(Sweeping{testCall.Key})
	want.State, want.Observation, want.Since, want.Deadline = Ambiguous, "deferred_timeout", second(3605), time.Time{}
	wants(want)

	step(Outcome{
		Reservation: record.Reservation(), Outcome: outcome.Committed, Observation: "complete", Upstream: "a:1", Bytes: 500,
		Answer: []byte("{}"), ReplayFor: time.Hour,
	})
	want.State, want.Observation, want.Since, want.Active = Committed, "complete", second(3606), second(3606)
	want.Answer, want.AnswerUntil = []byte("{}"), second(3606+3600)
	wants(want)

	step(Reopening{testCall.Key, 1, "carol", "sent back"})
	want.State, want.Observation, want.Since, want.Answer, want.AnswerUntil = Failed, "reopen", second(3607), nil, time.Time{}
	wants(want)

	f := Fingerprint{2}
	key := testCall.Key
	wantReceipts := []Receipt{
		{Key: key, At: noon, Attempt: 1, Event: CallSame, From: None, To: Executing, Who: "alice", Tool: "create_refund", Fingerprint: f, Revision: "2026-07-28", Bytes: 100, Arguments: testCall.Arguments},
		{Key: key, At: second(1), Attempt: 1, Event: OutcomeHeld, Answer: Recorded, From: Executing, To: Held, Who: "alice", Tool: "create_refund", Fingerprint: f, Observation: "input_required", Revision: "2026-07-28", Upstream: "a:1", Bytes: 200},
		{Key: key, At: second(2), Attempt: 1, Event: Continuation, From: Held, To: Executing, Who: "alice", Tool: "create_refund", Fingerprint: f, Revision: "2027-01-01", Bytes: 100, Arguments: testCall.Arguments},
		{Key: key, At: second(4), Attempt: 7, Event: StaleCommitted, Answer: Alarm, From: Executing, To: Executing, Observation: "complete", Upstream: "b:2", Bytes: 300},
		{Key: key, At: second(5), Attempt: 1, Event: OutcomeDeferred, Answer: Recorded, From: Executing, To: Deferred, Who: "alice", Tool: "create_refund", Fingerprint: f, Observation: "task", Revision: "2027-01-01", Upstream: "a:1", Bytes: 400},
		{Key: key, At: second(3605), Attempt: 1, Event: Timeout, Answer: Lapsed, From: Deferred, To: Ambiguous, Who: "alice", Tool: "create_refund", Fingerprint: f, Observation: "deferred_timeout", Revision: "2027-01-01"},
		{Key: key, At: second(3606), Attempt: 1, Event: OutcomeCommitted, Answer: Recorded, From: Ambiguous, To: Committed, Who: "alice", Tool: "create_refund", Fingerprint: f, Observation: "complete", Revision: "2027-01-01", Upstream: "a:1", Bytes: 500},
		{Key: key, At: second(3607), Attempt: 1, Event: Reopen, Answer: Settled, From: Committed, To: Failed, Who: "carol", Why: "sent back", Tool: "create_refund", Fingerprint: f, Observation: "reopen", Revision: "2027-01-01"},
	}
	for i := range wantReceipts {
		if !reflect.DeepEqual(receipts[i], wantReceipts[i]) {
			t.Errorf("\n got %+v\nwant %+v", receipts[i], wantReceipts[i])
		}
	}
	if len(receipts) != len(wantReceipts) {
		t.Errorf("%d receipts, want %d", len(receipts), len(wantReceipts))
	}
}

// A lapse and what follows it are two transitions, each with its receipt.
func TestLapseComesFirst(t *testing.T) {
	r := Step(Record{}, testCall, noon).After
	change := Step(r, Outcome{Reservation: r.Reservation(), Outcome: outcome.Failed, Observation: "never_connected"}, noon.Add(time.Minute))
	if len(change.Receipts) != 2 || change.Receipts[0].To != Ambiguous || change.Receipts[1].From != Ambiguous || change.Receipts[1].To != Failed {
		t.Errorf("receipts: %+v", change.Receipts)
	}
	if change.Before.State != Executing || change.After.State != Failed {
		t.Errorf("from %s to %s", change.Before.State, change.After.State)
	}
}

// Times are kept as every store can keep them.
func TestTimesAreWholeMicroseconds(t *testing.T) {
	local := noon.Add(999 * time.Nanosecond).In(time.FixedZone("", 3600))
	if got := Step(Record{}, testCall, local).After; !reflect.DeepEqual(got, Step(Record{}, testCall, noon).After) {
		t.Errorf("since %v, until %v", got.Since, got.Deadline)
	}
}

func TestDigestState(t *testing.T) {
	state := func(params string) jsonrpc.Member {
		m := parsed(t, `"pay"`, `{"state":`+params+`}`)
		return m.Argument("state")
	}
	plain, present := DigestState(state(`"a/b"`))
	if !present || plain != sha256.Sum256([]byte("a/b")) {
		t.Error("a string is not known by its characters")
	}
	if escaped, _ := DigestState(state(`"\u0061\/b"`)); escaped != plain {
		t.Error("another spelling of a string is another state")
	}
	for _, text := range []string{`1`, `null`, `{}`, `""`, `"1"`} {
		if got, present := DigestState(state(text)); !present || got == plain {
			t.Errorf("%s: present: %v", text, present)
		}
	}
	number, _ := DigestState(state(`1`))
	if text, _ := DigestState(state(`"1"`)); text == number {
		t.Error("a number continues what a string held")
	}
	if text, _ := DigestState(state(`"not a string\u00001"`)); text == number {
		t.Error("a number continues what a string held that was made for it")
	}
	if _, present := DigestState(jsonrpc.Member{}); present {
		t.Error("an absent requestState is present")
	}
}
