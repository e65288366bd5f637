package effect

import (
	"time"

	"github.com/caddymcp/gateway/outcome"
)

// Command is what can be done to the record of one key: a Call, Outcome,
// Withdrawal, Renewal, Resolution, Reopening or Sweeping. Each can be repeated
// after an error without harm. Durations are whole microseconds, as the store
// keeps them.
type Command interface {
	// Target returns the key of the record.
	Target() Key

	event(r *Record, now time.Time) Event
	// apply changes r, which is in its new state already, and completes the
	// receipt of the transition.
	apply(r *Record, receipt *Receipt, now time.Time)
}

// Call asks for a reservation: a call has passed every other gate and is about
// to be forwarded. Nothing may be forwarded under any answer but Forward.
type Call struct {
	Key          Key
	Token        Token // new for the call, the same when it is repeated
	Tool         string
	Fingerprint  Fingerprint
	Outline      Outline
	Caller       string
	RequestState *StateDigest // nil if the call has no requestState

	Rounds      int           // how many times an attempt may be continued; 0 is never
	Lease       time.Duration // until the record is ambiguous, unless it is renewed
	SettleAfter time.Duration
	Retain      time.Duration

	Who       string
	Revision  string
	Bytes     int64 // of the request
	Arguments []byte
}

// Target returns the key of the record.
func (c Call) Target() Key { return c.Key }

func (c Call) event(r *Record, _ time.Time) Event {
	stranger := r.State != None && c.Caller != r.Caller
	other := r.State != None && c.Fingerprint != r.Fingerprint // the tool's name is in it
	switch {
	case r.State != None && c.Token == r.Token:
		return CallAgain
	case c.RequestState == nil:
		return c.either(stranger, other, CallSame, CallConflict, CallStranger)
	case r.State == Held && !stranger && !other && c.RequestState.equal(r.Hold.Digest) && r.Hold.Round <= c.Rounds:
		return Continuation
	default:
		return c.either(stranger, other, StraySame, StrayConflict, StrayStranger)
	}
}

func (c Call) either(stranger, other bool, same, conflict, strange Event) Event {
	switch {
	case stranger:
		return strange
	case other:
		return conflict
	}
	return same
}

func (c Call) apply(r *Record, receipt *Receipt, now time.Time) {
	if receipt.Event != Continuation {
		*r = Record{Key: c.Key, State: Executing, Attempt: r.Attempt + 1, Since: now}
	}
	r.Token = c.Token
	r.Tool, r.Fingerprint, r.Outline, r.Caller = c.Tool, c.Fingerprint, c.Outline, c.Caller
	r.Who, r.Revision = c.Who, c.Revision
	r.Active, r.Deadline = now, now.Add(c.Lease)
	r.SettleAfter, r.Retain = c.SettleAfter, c.Retain
	receipt.Bytes, receipt.Arguments = c.Bytes, c.Arguments
}

// Outcome records what became of a reservation: of the exchange with the
// upstream, or later of the task that it became.
type Outcome struct {
	Reservation
	Outcome     outcome.Outcome
	Observation string
	Upstream    string
	Bytes       int64 // of the response

	// Of Committed: the result member to replay, nil to keep none, and for how long.
	Answer    []byte
	ReplayFor time.Duration

	// Of Held.
	RequestState StateDigest
	HoldFor      time.Duration
	Uncommitted  bool // a tool that asks for input has not acted

	// Of Deferred.
	TaskID  string
	TaskFor time.Duration
}

// Target returns the key of the record.
func (r Reservation) Target() Key { return r.Key }

// of reports whether the reservation is the record's.
func (r Reservation) of(record *Record) bool {
	return record.State != None && r.Attempt == record.Attempt && r.Token == record.Token
}

func (o Outcome) event(r *Record, _ time.Time) Event {
	own := o.of(r)
	switch {
	case !own && o.Outcome == outcome.Committed:
		return StaleCommitted
	case !own:
		return StaleOutcome
	case o.Outcome == outcome.Failed && r.Hold.Round > 0:
		return OutcomeAmbiguous // an earlier leg may have acted: SDKs run a handler again from its top
	case o.Outcome == outcome.Deferred && r.State == Ambiguous && r.TaskID != "":
		return StaleOutcome // the time for its task has passed
	}
	switch o.Outcome {
	case outcome.Committed:
		return OutcomeCommitted
	case outcome.Failed:
		return OutcomeFailed
	case outcome.Held:
		return OutcomeHeld
	case outcome.Deferred:
		return OutcomeDeferred
	default:
		return OutcomeAmbiguous
	}
}

func (o Outcome) apply(r *Record, receipt *Receipt, now time.Time) {
	receipt.Attempt, receipt.Bytes, receipt.Observation = o.Attempt, o.Bytes, o.Observation
	receipt.Upstream = o.Upstream
	if receipt.Answer != Recorded {
		return
	}
	r.Upstream, r.Active = o.Upstream, now
	r.Deadline = time.Time{}
	switch r.State {
	case Committed:
		if o.Answer != nil {
			r.Answer, r.AnswerUntil = o.Answer, now.Add(o.ReplayFor)
		}
	case Held:
		r.Deadline = now.Add(o.HoldFor)
		r.Hold = Hold{o.RequestState, r.Hold.Round + 1, r.Deadline, o.Uncommitted}
	case Deferred:
		r.Deadline = now.Add(o.TaskFor)
		r.TaskID = o.TaskID
	}
}

// Withdrawal gives back a reservation under which not one byte was forwarded.
// A continuation that is withdrawn is held again.
type Withdrawal struct{ Reservation }

func (w Withdrawal) event(r *Record, _ time.Time) Event {
	switch {
	case !w.of(r):
		return StaleWithdraw
	case r.Hold.Round > 0:
		return WithdrawContinuation
	}
	return Withdraw
}

func (w Withdrawal) apply(r *Record, receipt *Receipt, now time.Time) {
	receipt.Observation = receipt.Event.String()
	r.Active = now
	r.Deadline = time.Time{}
	if r.State == Held {
		r.Deadline = r.Hold.Deadline
	}
}

// Renewal begins the lease anew while the exchange lives. A lease that has run
// out is never extended: then it only says that the upstream may be at work.
type Renewal struct {
	Reservation
	Lease time.Duration
}

func (w Renewal) event(r *Record, _ time.Time) Event {
	if w.of(r) {
		return Renew
	}
	return StaleRenew
}

func (w Renewal) apply(r *Record, _ *Receipt, now time.Time) {
	r.Active = now
	if later := now.Add(w.Lease); r.State == Executing && later.After(r.Deadline) {
		r.Deadline = later
	}
}

// Resolution settles an ambiguous record: a person or a reconciler found out
// whether the attempt happened.
type Resolution struct {
	Key       Key
	Attempt   int64 // that was judged
	Committed bool  // or else it failed
	Who       string
	Why       string

	// Since is when the state began that was judged, or zero: then the attempt
	// alone tells. A judgement that took its time may be of an attempt that has
	// asked for input and gone on since.
	Since time.Time
}

// Target returns the key of the record.
func (s Resolution) Target() Key { return s.Key }

func (s Resolution) event(r *Record, now time.Time) Event {
	switch {
	case s.Attempt != r.Attempt, !s.Since.IsZero() && !s.Since.Equal(r.Since):
		return ResolveOther
	case s.Committed:
		return ResolveCommitted
	case now.Before(r.SettleAt()):
		return ResolveEarly
	}
	return ResolveFailed
}

func (s Resolution) apply(_ *Record, receipt *Receipt, _ time.Time) {
	receipt.Observation = receipt.Event.String()
	receipt.Who, receipt.Why = s.Who, s.Why
}

// Reopening takes back that an effect has happened: a person found that it has
// not. It counts as a proof.
type Reopening struct {
	Key     Key
	Attempt int64 // that was judged
	Who     string
	Why     string
}

// Target returns the key of the record.
func (o Reopening) Target() Key { return o.Key }

func (o Reopening) event(r *Record, _ time.Time) Event {
	if o.Attempt != r.Attempt {
		return ReopenOther
	}
	return Reopen
}

func (o Reopening) apply(r *Record, receipt *Receipt, _ time.Time) {
	receipt.Observation = receipt.Event.String()
	receipt.Who, receipt.Why = o.Who, o.Why
	r.Answer, r.AnswerUntil = nil, time.Time{}
}

// Sweeping does what time has made due: it turns what has run out, drops
// stored results and deletes records.
type Sweeping struct{ Key Key }

// Target returns the key of the record.
func (s Sweeping) Target() Key { return s.Key }

func (s Sweeping) event(r *Record, now time.Time) Event {
	if (r.State == Committed || r.State == Failed) && !now.Before(r.retained()) {
		return Retire
	}
	return Keep
}

func (s Sweeping) apply(r *Record, _ *Receipt, _ time.Time) { *r = Record{} }

// lapse is the end of a lease, or of the time for an input or a task. It comes
// before every command.
type lapse struct{ Key Key }

func (l lapse) Target() Key { return l.Key }

func (l lapse) event(r *Record, _ time.Time) Event {
	if r.State == Held && r.Hold.Uncommitted {
		return TimeoutUncommitted
	}
	return Timeout
}

func (l lapse) apply(r *Record, receipt *Receipt, now time.Time) {
	receipt.Observation = receipt.From.String() + "_timeout"
	r.Deadline = time.Time{}
	if r.Active.After(now) {
		r.Active = now // the clock was set back: the time until it can be settled begins here
	}
	if receipt.From == Held {
		// The leg that asked has had its say: a repeat of it must not hold the effect again.
		r.Token = Token{}
	}
}
