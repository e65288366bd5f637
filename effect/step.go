package effect

import "time"

// Change is what a command does to a record.
type Change struct {
	Before Record // as it was loaded
	After  Record // as it is now; its State is None if there is none
	Event  Event
	Answer Answer

	// Written says that After is to be stored in place of Before, or that
	// there are receipts to store: a refused duplicate writes nothing.
	Written  bool
	Receipts []Receipt

	// Stranger says that the caller may be told the code and the state and
	// nothing else: the upstream never authorized it to see the rest.
	Stranger bool

	// Differs are the top-level arguments in which a Conflict differs from the
	// call that happened.
	Differs []string
}

// Step decides what a command does to a record, at the time of the store. The
// zero Record is that of a key that has none.
//
// First time is made to count: what has run out lapses, whoever reads it. Then
// the command meets the record, and the table says the rest.
func Step(r Record, c Command, now time.Time) Change {
	now = now.UTC().Truncate(time.Microsecond)
	change := Change{Before: r, After: r}
	if r.runsOut(now) {
		change.meet(lapse{r.Key}, now)
	}
	change.dropAnswer(now)
	change.meet(c, now)
	return change
}

// meet applies one command.
func (ch *Change) meet(c Command, now time.Time) {
	r := &ch.After
	from := r.State
	ch.Event = c.event(r, now)
	r.State, ch.Answer = Next(from, ch.Event)
	if ch.Answer == Replay && r.Answer == nil {
		ch.Answer = Done
	}
	ch.Stranger = ch.Event.stranger()
	if call, ok := c.(Call); ok {
		switch {
		case ch.Answer == Conflict:
			ch.Differs = r.Outline.Differs(call.Outline)
		case ch.Answer == InputAwaited && ch.Event == CallSame && r.Hold.Round > call.Rounds:
			ch.Answer = RoundsSpent
		}
	}
	moved, late := r.State != from, ch.Answer == Stale || ch.Answer == Alarm
	renewal := ch.Answer == Renewed || ch.Answer == Alive
	if !moved && !late && !renewal || late && from == None {
		return
	}
	receipt := Receipt{Key: r.Key, At: now, Event: ch.Event, Answer: ch.Answer, From: from, To: r.State}
	if moved {
		r.Since = now
	}
	c.apply(r, &receipt, now)
	ch.Written = true
	if !renewal && ch.Answer != Retired {
		ch.file(receipt)
	}
}

// file completes a receipt with what the record says, if it is of its attempt.
func (ch *Change) file(receipt Receipt) {
	r := &ch.After
	receipt.Key = r.Key
	if receipt.Attempt == 0 {
		receipt.Attempt = r.Attempt
	}
	if receipt.Attempt == r.Attempt {
		receipt.Tool, receipt.Fingerprint, receipt.Revision = r.Tool, r.Fingerprint, r.Revision
		if receipt.Who == "" {
			receipt.Who = r.Who
		}
	}
	if receipt.From != receipt.To {
		r.Observation = receipt.Observation
	}
	ch.Receipts = append(ch.Receipts, receipt)
}

// dropAnswer drops a stored result whose time is over.
func (ch *Change) dropAnswer(now time.Time) {
	r := &ch.After
	if r.Answer == nil || now.Before(r.AnswerUntil) {
		return
	}
	r.Answer, r.AnswerUntil = nil, time.Time{}
	ch.Written = true
}
