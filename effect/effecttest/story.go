package effecttest

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"testing"
	"time"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/outcome"
)

// The times of a call in a story.
const (
	lease       = 30 * time.Second
	settleAfter = 150 * time.Second
	retain      = 30 * 24 * time.Hour
	replayFor   = 24 * time.Hour
	holdFor     = 5 * time.Minute
	taskFor     = time.Hour
	rounds      = 8
)

// story is one ledger and what happens to an effect in it.
type story struct {
	t      *testing.T
	ledger effect.Ledger
	clock  *Clock
	key    effect.Key
	tokens uint64
	last   effect.Change
}

func newStory(t *testing.T, open Open) *story {
	clock := NewClock()
	s := &story{t: t, ledger: open(t, clock), clock: clock, key: effect.NewKey("payments", "refund", "txn_1")}
	t.Cleanup(func() {
		if err := s.ledger.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return s
}

// apply applies a command that must not fail.
func (s *story) apply(c effect.Command) *story {
	s.t.Helper()
	change, err := s.ledger.Apply(s.t.Context(), c)
	if err != nil {
		s.t.Fatal(err)
	}
	s.last = change
	return s
}

// wants checks the answer and the state that followed, and that what the
// ledger holds is what it said.
func (s *story) wants(answer effect.Answer, state effect.State) {
	s.t.Helper()
	if s.last.Answer != answer || s.last.After.State != state {
		s.t.Fatalf("%s: got %s and %s, want %s and %s", s.last.Event, s.last.Answer, s.last.After.State, answer, state)
	}
	if record, _ := s.load(); record.State != state {
		s.t.Fatalf("%s: the ledger says %s, the change %s", s.last.Event, record.State, state)
	}
}

func (s *story) load() (effect.Record, []effect.Receipt) {
	s.t.Helper()
	record, receipts, err := s.ledger.Load(s.t.Context(), s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	return record, receipts
}

func (s *story) after(d time.Duration) *story {
	s.clock.Advance(d)
	return s
}

// sweep sweeps the ledger.
func (s *story) sweep() *story {
	s.t.Helper()
	if _, err := effect.Sweep(s.t.Context(), s.ledger); err != nil {
		s.t.Fatal(err)
	}
	return s
}

// variation changes a call of a story.
type variation func(*effect.Call)

func otherArguments(c *effect.Call) {
	c.Fingerprint = sha256.Sum256([]byte("other"))
	c.Outline = effect.Outline{"payment_id": 1, "amount": 3}
}
func stranger(c *effect.Call) { c.Caller = "mallory" }
func continuing(state string) variation {
	return func(c *effect.Call) { c.RequestState = new(digest(state)) }
}

func digest(state string) effect.StateDigest { return sha256.Sum256([]byte(state)) }

// newToken returns one that no call had.
func (s *story) newToken() (t effect.Token) {
	s.tokens++
	binary.BigEndian.PutUint64(t[:], s.tokens)
	return t
}

// command returns the command of a call.
func (s *story) command(variations ...variation) effect.Call {
	c := effect.Call{
		Key: s.key, Token: s.newToken(), Tool: "create_refund",
		Fingerprint: sha256.Sum256([]byte("same")), Outline: effect.Outline{"payment_id": 1, "amount": 2}, Caller: "alice",
		Rounds: rounds, Lease: lease, SettleAfter: settleAfter, Retain: retain,
		Who: "alice", Revision: "2026-07-28", Bytes: 123, Arguments: []byte(`{"payment_id":"txn_1","amount":2}`),
	}
	for _, vary := range variations {
		vary(&c)
	}
	return c
}

func (s *story) call(variations ...variation) *story {
	s.t.Helper()
	return s.apply(s.command(variations...))
}

// reserved makes the call that begins most stories.
func (s *story) reserved(variations ...variation) effect.Reservation {
	s.t.Helper()
	s.call(variations...).wants(effect.Forward, effect.Executing)
	return s.last.After.Reservation()
}

// result is the outcome of a reservation.
func result(r effect.Reservation, o outcome.Outcome) effect.Outcome {
	return effect.Outcome{Reservation: r, Outcome: o, Observation: "seen_" + o.String(), Upstream: "127.0.0.1:9000", Bytes: 456}
}

func committed(r effect.Reservation) effect.Outcome {
	o := result(r, outcome.Committed)
	o.Answer, o.ReplayFor = []byte(`{"content":[]}`), replayFor
	return o
}

func held(r effect.Reservation, state string) effect.Outcome {
	o := result(r, outcome.Held)
	o.RequestState, o.HoldFor = digest(state), holdFor
	return o
}

func uncommitted(o effect.Outcome) effect.Outcome {
	o.Uncommitted = true
	return o
}

func deferred(r effect.Reservation) effect.Outcome {
	o := result(r, outcome.Deferred)
	o.TaskID, o.TaskFor = taskName.ID, taskFor
	return o
}

func (s *story) resolution(attempt int64, committed bool) effect.Resolution {
	return effect.Resolution{Key: s.key, Attempt: attempt, Committed: committed, Who: "carol", Why: "looked at the books"}
}

func (s *story) reopening(attempt int64) effect.Reopening {
	return effect.Reopening{Key: s.key, Attempt: attempt, Who: "carol", Why: "the bank sent it back"}
}

// trail is what the receipts say, in short.
func (s *story) trail() []string {
	_, receipts := s.load()
	var trail []string
	for _, r := range receipts {
		trail = append(trail, r.Event.String()+" "+r.From.String()+">"+r.To.String()+" "+r.Answer.String()+" "+strconv.FormatInt(r.Attempt, 10))
	}
	return trail
}
