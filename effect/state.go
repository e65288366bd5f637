package effect

// State is what is known of an effect.
type State uint8

// The states, as the design's table names them. Of each it says what leaves it.
const (
	None      State = iota // there is no record
	Executing              // reserved, a call may be at the upstream: its outcome, or the lease runs out
	Held                   // the tool asked for input: its one continuation, or the time for it passes
	Deferred               // the tool returned a task: the task's result, or the time for it passes
	Committed              // it happened: a person reopens it
	Failed                 // it is proven not to have happened: the next attempt
	Ambiguous              // unknown: a resolution, or the late finish of the same attempt; never time
)

var stateNames = [...]string{"none", "executing", "held", "deferred", "committed", "failed", "ambiguous"}

// States returns every state, None among them.
func States() []State { return []State{None, Executing, Held, Deferred, Committed, Failed, Ambiguous} }

// String returns the lower-case word used in answers, metrics, receipts and
// stores.
func (s State) String() string { return stateNames[s] }

// Event is what meets a record: a command, as far as it fits the record.
type Event uint8

// The events. A call is of a stranger if its caller is not the record's, and a
// conflict if its tool or fingerprint is not. It strays if it has a
// requestState that continues nothing. What is said of a reservation counts if
// attempt and token are the record's, and is stale otherwise.
const (
	CallSame Event = iota
	CallConflict
	CallStranger
	CallAgain    // with the token of the record: the repeat of a reserve whose answer was lost
	Continuation // with the requestState that is held
	StraySame
	StrayConflict
	StrayStranger

	OutcomeCommitted
	OutcomeFailed
	OutcomeAmbiguous
	OutcomeHeld
	OutcomeDeferred
	StaleCommitted
	StaleOutcome

	Withdraw             // nothing was forwarded
	WithdrawContinuation // nothing of this leg was
	StaleWithdraw
	Renew
	StaleRenew

	Timeout
	TimeoutUncommitted // of a tool that has not acted when it asks for input
	Retire             // the record was retained long enough
	Keep               // a sweep finds nothing to do

	ResolveCommitted
	ResolveFailed
	ResolveEarly // as failed, while the upstream may still be at work
	ResolveOther // another attempt than the record's
	Reopen
	ReopenOther
)

var eventNames = [...]string{
	"call_same", "call_conflict", "call_stranger", "call_again", "continuation", "stray_same", "stray_conflict", "stray_stranger",
	"outcome_committed", "outcome_failed", "outcome_ambiguous", "outcome_held", "outcome_deferred", "stale_committed", "stale_outcome",
	"withdraw", "withdraw_continuation", "stale_withdraw", "renew", "stale_renew",
	"timeout", "timeout_uncommitted", "retire", "keep",
	"resolve_committed", "resolve_failed", "resolve_early", "resolve_other", "reopen", "reopen_other",
}

// String returns the event's stable name in snake case.
func (e Event) String() string { return eventNames[e] }

// stranger reports whether a caller may only be told code and state.
func (e Event) stranger() bool { return e == CallStranger || e == StrayStranger }

// cell is one square of the table: the state that follows, and the answer.
type cell struct {
	to     State
	stays  bool // the state stays, and to says nothing
	answer Answer
}

func to(s State, a Answer) cell { return cell{to: s, answer: a} }
func stay(a Answer) cell        { return cell{stays: true, answer: a} }

// The squares, by what they say.
var (
	reserve  = to(Executing, Forward)
	again    = stay(Forward)
	running  = stay(InProgress)
	waiting  = stay(InputAwaited)
	accepted = stay(TaskAccepted)
	replay   = stay(Replay)
	done     = stay(Done)
	conflict = stay(Conflict)
	unknown  = stay(Unknown)
	stray    = stay(NoContinuation)

	happened = to(Committed, Recorded)
	disproof = to(Failed, Recorded)
	doubt    = to(Ambiguous, Recorded)
	asks     = to(Held, Recorded)
	task     = to(Deferred, Recorded)
	recorded = stay(Recorded)
	stale    = stay(Stale)
	alarm    = stay(Alarm)

	undone    = to(Failed, Withdrawn)
	unasked   = to(Held, Withdrawn)
	withdrawn = stay(Withdrawn)
	renewed   = stay(Renewed)
	alive     = stay(Alive)
	gone      = stay(Gone)

	lapsed  = to(Ambiguous, Lapsed)
	spared  = to(Failed, Lapsed)
	retired = to(None, Retired)

	yes      = to(Committed, Settled)
	no       = to(Failed, Settled)
	early    = stay(TooEarly)
	other    = stay(OtherAttempt)
	absent   = stay(NoEffect)
	certain  = stay(NotAmbiguous)
	uncommon = stay(NotCommitted)
)

// table is every event in every state: the design's "States" and "A call meets
// a record". Only from none and failed does a call get through that continues
// nothing.
var table = [...][len(stateNames)]cell{
	// none, executing, held, deferred, committed, failed, ambiguous
	CallSame:      {reserve, running, waiting, accepted, replay, reserve, unknown},
	CallConflict:  {reserve, running, waiting, accepted, conflict, reserve, unknown},
	CallStranger:  {reserve, running, waiting, accepted, done, reserve, unknown},
	CallAgain:     {reserve, again, waiting, accepted, replay, gone, unknown},
	Continuation:  {stray, running, reserve, accepted, replay, stray, unknown},
	StraySame:     {stray, running, stray, accepted, replay, stray, unknown},
	StrayConflict: {stray, running, stray, accepted, conflict, stray, unknown},
	StrayStranger: {stray, running, stray, accepted, done, stray, unknown},

	OutcomeCommitted: {alarm, happened, alarm, happened, recorded, alarm, happened},
	OutcomeFailed:    {stale, disproof, stale, disproof, stale, recorded, disproof},
	OutcomeAmbiguous: {stale, doubt, stale, doubt, stale, stale, recorded},
	OutcomeHeld:      {stale, asks, recorded, stale, stale, stale, asks},
	OutcomeDeferred:  {stale, task, stale, recorded, stale, stale, task},
	StaleCommitted:   {alarm, alarm, alarm, alarm, alarm, alarm, alarm},
	StaleOutcome:     {stale, stale, stale, stale, stale, stale, stale},

	Withdraw:             {gone, undone, gone, gone, gone, withdrawn, undone},
	WithdrawContinuation: {gone, unasked, withdrawn, gone, gone, gone, unasked},
	StaleWithdraw:        {gone, gone, gone, gone, gone, gone, gone},
	Renew:                {gone, renewed, gone, gone, gone, gone, alive},
	StaleRenew:           {gone, gone, gone, gone, gone, gone, gone},

	Timeout:            {gone, lapsed, lapsed, lapsed, gone, gone, gone},
	TimeoutUncommitted: {gone, lapsed, spared, lapsed, gone, gone, gone},
	Retire:             {gone, gone, gone, gone, retired, retired, gone},
	Keep:               {gone, gone, gone, gone, gone, gone, gone},

	ResolveCommitted: {absent, certain, certain, certain, certain, certain, yes},
	ResolveFailed:    {absent, certain, certain, certain, certain, certain, no},
	ResolveEarly:     {absent, certain, certain, certain, certain, certain, early},
	ResolveOther:     {absent, certain, certain, certain, certain, certain, other},
	Reopen:           {absent, uncommon, uncommon, uncommon, no, uncommon, uncommon},
	ReopenOther:      {absent, uncommon, uncommon, uncommon, other, uncommon, uncommon},
}

// Next returns the state that follows when an event meets a state, and the
// answer. An answer of Replay is Done where no result is kept.
func Next(s State, e Event) (State, Answer) {
	c := table[e][s]
	if c.stays {
		return s, c.answer
	}
	return c.to, c.answer
}
