package effect

// Answer is what becomes of a command.
type Answer uint8

// The answers.
const (
	// To a call.
	Forward        Answer = iota // it holds the reservation: it may go to the upstream
	Replay                       // the stored result is its answer
	InProgress                   // an earlier call is at the upstream
	InputAwaited                 // an earlier call is held
	RoundsSpent                  // an earlier call is held, and may not be continued once more
	TaskAccepted                 // an earlier call became a task
	Done                         // it has happened, and there is no result to replay
	Conflict                     // it has happened, with other arguments or by another tool
	Unknown                      // nobody knows whether it has happened
	NoContinuation               // the requestState continues nothing that is held

	// To what is said of a reservation.
	Recorded  // it is on record
	Stale     // it changed nothing: the reservation is not the record's any more
	Alarm     // the same, and it says that the effect happened: perhaps twice
	Withdrawn // the reservation was given back
	Renewed   // the lease is as long again
	Alive     // the lease has run out, but not what the upstream may do
	Gone      // there is nothing to do: nothing is written any more for this reservation

	// To the passing of time.
	Lapsed  // the lease, or the time for an input or a task, has run out
	Retired // the record is deleted

	// To a person or a reconciler.
	Settled      // it is on record
	TooEarly     // the upstream may still be at work
	OtherAttempt // it was another attempt that was judged
	NoEffect     // there is no such record
	NotAmbiguous // nothing is to be resolved
	NotCommitted // nothing is to be reopened
)

// answers is how each is called, the code it refuses a call with, if it does,
// and what then is to be done: the one sentence of error.data.
var answers = [...]struct {
	name   string
	code   int
	advice string
}{
	Forward:        {"forward", 0, ""},
	Replay:         {"replay", 0, ""},
	InProgress:     {"in_progress", CodeInProgress, "An earlier call for the same effect is still running: wait, then repeat exactly this call to get its answer, and do not try another tool for the same effect."},
	InputAwaited:   {"held", CodeInProgress, "An earlier call for the same effect waits for the input it asked for: answer that with its requestState, and do not begin again."},
	RoundsSpent:    {"rounds_spent", CodeInProgress, "An earlier call for the same effect has asked for input more often than it may be given (elicitation_rounds): do not begin again; repeat exactly this call once the time for the input is over, to learn what became of it."},
	TaskAccepted:   {"deferred", CodeInProgress, "An earlier call for the same effect was accepted as a task: ask for that task's result, and do not begin again."},
	Done:           {"committed", CodeInProgress, "The effect has happened, and its result is not available here: treat it as done and do not repeat it."},
	Conflict:       {"conflict", CodeInProgress, "The effect has happened with other arguments: do not repeat it; if another effect is meant, what identifies it must differ too."},
	Unknown:        {"ambiguous", CodeAmbiguous, "The outcome of an earlier call is unknown: do not repeat it or try another tool for the same effect; a person must check whether it happened and resolve it."},
	NoContinuation: {"no_continuation", CodeNoContinuation, "The requestState continues no call that is held for this effect, tool, arguments and caller: nothing was forwarded; do not send it again."},

	Recorded:  {"recorded", 0, ""},
	Stale:     {"stale", 0, ""},
	Alarm:     {"alarm", 0, ""},
	Withdrawn: {"withdrawn", 0, ""},
	Renewed:   {"renewed", 0, ""},
	Alive:     {"alive", 0, ""},
	Gone:      {"gone", 0, ""},

	Lapsed:  {"lapsed", 0, ""},
	Retired: {"retired", 0, ""},

	Settled:      {"settled", 0, ""},
	TooEarly:     {"too_early", 0, "The upstream may still be at work on this attempt: it can be resolved as failed only later."},
	OtherAttempt: {"other_attempt", 0, "The record is of another attempt than the one that was judged: look at it again."},
	NoEffect:     {"no_effect", 0, "There is no such effect on record."},
	NotAmbiguous: {"not_ambiguous", 0, "The effect is not ambiguous: only an ambiguous one can be resolved."},
	NotCommitted: {"not_committed", 0, "The effect is not committed: only a committed one can be reopened."},
}

// Answers returns every answer.
func Answers() []Answer {
	all := make([]Answer, len(answers))
	for i := range all {
		all[i] = Answer(i) //nolint:gosec // there are few
	}
	return all
}

// String returns the answer's stable name in snake case.
func (a Answer) String() string { return answers[a].name }

// Code returns the JSON-RPC error code with which the answer refuses a call,
// and 0 if it does not.
func (a Answer) Code() int { return answers[a].code }

// Advice returns the one sentence that tells a model or a person what to do
// next, empty where there is nothing to say.
func (a Answer) Advice() string { return answers[a].advice }
