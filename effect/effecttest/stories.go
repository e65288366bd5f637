package effecttest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/outcome"
)

// The stories, each of one effect and in the design's order.
var stories = []struct {
	name string
	tell func(*story)
}{
	{"a committed call is replayed to its caller alone", func(s *story) {
		r := s.reserved()
		s.apply(committed(r)).wants(effect.Recorded, effect.Committed)
		s.call().wants(effect.Replay, effect.Committed)
		if !bytes.Equal(s.last.After.Answer, committed(r).Answer) || s.last.Stranger || s.last.Written {
			s.t.Errorf("the replay is %s, of a stranger: %v, written: %v", s.last.After.Answer, s.last.Stranger, s.last.Written)
		}
		s.call(stranger).wants(effect.Done, effect.Committed)
		if !s.last.Stranger {
			s.t.Error("another caller is to be told no more than code and state")
		}
		s.call(otherArguments).wants(effect.Conflict, effect.Committed)
		if !slices.Equal(s.last.Differs, []string{"amount"}) {
			s.t.Errorf("differs in %v", s.last.Differs)
		}
		s.call(stranger, otherArguments).wants(effect.Done, effect.Committed)
		if s.last.Differs != nil {
			s.t.Error("another caller is told what differs")
		}
		s.after(replayFor).call().wants(effect.Done, effect.Committed)
	}},
	{"a result that is not kept is not replayed", func(s *story) {
		s.apply(result(s.reserved(), outcome.Committed)).wants(effect.Recorded, effect.Committed)
		s.call().wants(effect.Done, effect.Committed)
	}},
	{"a sweep drops the result and keeps the record", func(s *story) {
		s.apply(committed(s.reserved()))
		s.after(replayFor).sweep()
		if record, _ := s.load(); record.State != effect.Committed || record.Answer != nil {
			s.t.Errorf("%s with result %q", record.State, record.Answer)
		}
	}},
	{"a failed call lets the next through at once", func(s *story) {
		s.apply(result(s.reserved(), outcome.Failed)).wants(effect.Recorded, effect.Failed)
		if r := s.reserved(stranger, otherArguments); r.Attempt != 2 {
			s.t.Errorf("attempt %d, want 2", r.Attempt)
		}
	}},
	{"a call that is going on refuses every other", func(s *story) {
		s.reserved()
		s.call().wants(effect.InProgress, effect.Executing)
		s.call(otherArguments).wants(effect.InProgress, effect.Executing)
		s.call(stranger).wants(effect.InProgress, effect.Executing)
		s.call(continuing("state")).wants(effect.InProgress, effect.Executing)
		if s.last.Written {
			s.t.Error("a refused duplicate writes")
		}
	}},
	{"what is ambiguous stays so whatever time passes", func(s *story) {
		s.apply(result(s.reserved(), outcome.Ambiguous)).wants(effect.Recorded, effect.Ambiguous)
		s.after(100*retain).sweep().call().wants(effect.Unknown, effect.Ambiguous)
		s.call(otherArguments).wants(effect.Unknown, effect.Ambiguous)
		s.call(stranger).wants(effect.Unknown, effect.Ambiguous)
		s.call(continuing("state")).wants(effect.Unknown, effect.Ambiguous)
	}},
	{"a failure that is observed later settles the same attempt", func(s *story) {
		r := s.reserved()
		s.after(lease).apply(result(r, outcome.Failed)).wants(effect.Recorded, effect.Failed)
		s.reserved()
	}},
	{"a reservation can be repeated with its token", func(s *story) {
		c := s.command()
		s.apply(c).wants(effect.Forward, effect.Executing)
		s.after(time.Second).apply(c).wants(effect.Forward, effect.Executing)
		if s.last.After.Attempt != 1 || s.last.Written {
			s.t.Errorf("attempt %d, written: %v", s.last.After.Attempt, s.last.Written)
		}
		s.after(lease).apply(c).wants(effect.Unknown, effect.Ambiguous)
	}},
	{"a reservation that is withdrawn is not made again", func(s *story) {
		c := s.command()
		s.apply(c).wants(effect.Forward, effect.Executing)
		w := effect.Withdrawal{Reservation: s.last.After.Reservation()}
		s.apply(w).wants(effect.Withdrawn, effect.Failed)
		s.apply(w).wants(effect.Withdrawn, effect.Failed)
		s.apply(c).wants(effect.Gone, effect.Failed)
		s.reserved()
		s.apply(w).wants(effect.Gone, effect.Executing)
	}},
	{"a reservation that ran out unused can be withdrawn", func(s *story) {
		w := effect.Withdrawal{Reservation: s.reserved()}
		s.after(lease).call().wants(effect.Unknown, effect.Ambiguous)
		s.apply(w).wants(effect.Withdrawn, effect.Failed)
	}},
	{"nothing is withdrawn that does not exist", func(s *story) {
		s.apply(effect.Withdrawal{Reservation: effect.Reservation{Key: s.key, Attempt: 1, Token: s.newToken()}}).wants(effect.Gone, effect.None)
	}},

	{"a lease runs out into what is ambiguous", func(s *story) {
		r := s.reserved()
		s.after(lease-time.Microsecond).call().wants(effect.InProgress, effect.Executing)
		s.after(time.Microsecond).call().wants(effect.Unknown, effect.Ambiguous)
		s.apply(effect.Renewal{Reservation: r, Lease: lease}).wants(effect.Alive, effect.Ambiguous)
	}},
	{"a clock that is set back keeps nothing under way", func(s *story) {
		s.reserved()
		s.after(-lease).call().wants(effect.InProgress, effect.Executing)
		s.after(-time.Microsecond).call().wants(effect.Unknown, effect.Ambiguous)
		s.after(settleAfter-time.Microsecond).apply(s.resolution(1, false)).wants(effect.TooEarly, effect.Ambiguous)
		s.after(time.Microsecond).apply(s.resolution(1, false)).wants(effect.Settled, effect.Failed)
	}},
	{"a sweep makes it true without traffic", func(s *story) {
		s.reserved()
		s.after(lease).sweep()
		if got, want := s.trail(), []string{"call_same none>executing forward 1", "timeout executing>ambiguous lapsed 1"}; !slices.Equal(got, want) {
			s.t.Errorf("got %q, want %q", got, want)
		}
	}},
	{"a lease is renewed while the exchange lives", func(s *story) {
		r := s.reserved()
		for range 10 {
			s.after(lease-time.Second).apply(effect.Renewal{Reservation: r, Lease: lease}).wants(effect.Renewed, effect.Executing)
		}
		s.apply(effect.Renewal{Reservation: r, Lease: time.Second}).wants(effect.Renewed, effect.Executing)
		s.after(lease-time.Second).call().wants(effect.InProgress, effect.Executing) // a lease is not shortened
		stale := r
		stale.Token = s.newToken()
		s.apply(effect.Renewal{Reservation: stale, Lease: lease}).wants(effect.Gone, effect.Executing)
		s.after(time.Second).call().wants(effect.Unknown, effect.Ambiguous)
	}},
	{"the late finish of the same attempt settles it", func(s *story) {
		r := s.reserved()
		s.after(lease).sweep().apply(committed(r)).wants(effect.Recorded, effect.Committed)
		s.call().wants(effect.Replay, effect.Committed)
	}},
	{"an outcome can be repeated", func(s *story) {
		r := s.reserved()
		for _, o := range []effect.Outcome{committed(r), result(r, outcome.Committed)} {
			s.apply(o).wants(effect.Recorded, effect.Committed)
		}
		if got := len(s.trail()); got != 2 {
			s.t.Errorf("%d receipts, want 2", got)
		}
	}},
	{"the finish of an older attempt changes nothing and is on record", func(s *story) {
		old := s.reserved()
		s.apply(result(old, outcome.Failed))
		s.reserved()
		s.apply(result(old, outcome.Ambiguous)).wants(effect.Stale, effect.Executing)
		s.apply(committed(old)).wants(effect.Alarm, effect.Executing)
		want := []string{
			"call_same none>executing forward 1", "outcome_failed executing>failed recorded 1", "call_same failed>executing forward 2",
			"stale_outcome executing>executing stale 1", "stale_committed executing>executing alarm 1",
		}
		if got := s.trail(); !slices.Equal(got, want) {
			s.t.Errorf("got %q, want %q", got, want)
		}
	}},
	{"a finish after a resolution changes nothing", func(s *story) {
		r := s.reserved()
		s.after(lease+settleAfter).apply(s.resolution(1, false)).wants(effect.Settled, effect.Failed)
		s.apply(result(r, outcome.Ambiguous)).wants(effect.Stale, effect.Failed)
		s.apply(committed(r)).wants(effect.Alarm, effect.Failed)
	}},
	{"a finish without a record leaves none", func(s *story) {
		r := effect.Reservation{Key: s.key, Attempt: 1, Token: s.newToken()}
		s.apply(committed(r)).wants(effect.Alarm, effect.None)
		s.apply(result(r, outcome.Failed)).wants(effect.Stale, effect.None)
		if s.last.Written {
			s.t.Error("what has no record is written")
		}
	}},
	{"a token speaks for its own attempt alone", func(s *story) {
		c := s.command()
		s.apply(c)
		old := s.last.After.Reservation()
		s.apply(effect.Withdrawal{Reservation: old})
		s.apply(result(s.reserved(), outcome.Failed))
		s.apply(c).wants(effect.Forward, effect.Executing) // a repeat that took so long is as good as new
		s.apply(result(old, outcome.Failed)).wants(effect.Stale, effect.Executing)
		s.apply(effect.Withdrawal{Reservation: old}).wants(effect.Gone, effect.Executing)
	}},

	{"only an ambiguous record is resolved, and only the attempt that was judged", func(s *story) {
		s.apply(s.resolution(1, true)).wants(effect.NoEffect, effect.None)
		r := s.reserved()
		s.apply(s.resolution(1, true)).wants(effect.NotAmbiguous, effect.Executing)
		s.apply(result(r, outcome.Ambiguous))
		s.apply(s.resolution(2, true)).wants(effect.OtherAttempt, effect.Ambiguous)
		s.apply(s.resolution(1, true)).wants(effect.Settled, effect.Committed)
		s.apply(s.resolution(1, true)).wants(effect.NotAmbiguous, effect.Committed)
		s.call().wants(effect.Done, effect.Committed)
		_, receipts := s.load()
		if last := receipts[len(receipts)-1]; last.Who != "carol" || last.Why != "looked at the books" {
			s.t.Errorf("by %q because %q", last.Who, last.Why)
		}
	}},
	{"it is resolved as failed only when the upstream is done", func(s *story) {
		s.apply(result(s.reserved(), outcome.Ambiguous))
		s.after(settleAfter-time.Microsecond).apply(s.resolution(1, false)).wants(effect.TooEarly, effect.Ambiguous)
		s.after(time.Microsecond).apply(s.resolution(1, false)).wants(effect.Settled, effect.Failed)
		if r := s.reserved(); r.Attempt != 2 {
			s.t.Errorf("attempt %d, want 2", r.Attempt)
		}
	}},
	{"the reservation is a sign of life", func(s *story) {
		s.reserved()
		s.after(settleAfter-time.Microsecond).apply(s.resolution(1, false)).wants(effect.TooEarly, effect.Ambiguous)
		s.after(time.Microsecond).apply(s.resolution(1, false)).wants(effect.Settled, effect.Failed)
	}},
	{"a renewal is a sign of life", func(s *story) {
		r := s.reserved()
		s.after(lease - 1*time.Second).apply(effect.Renewal{Reservation: r, Lease: lease})
		s.after(settleAfter-time.Microsecond).apply(s.resolution(1, false)).wants(effect.TooEarly, effect.Ambiguous)
		s.after(time.Microsecond).apply(s.resolution(1, false)).wants(effect.Settled, effect.Failed)
	}},
	{"so is one that comes when the lease has run out", func(s *story) {
		r := s.reserved()
		s.after(settleAfter).apply(effect.Renewal{Reservation: r, Lease: lease}).wants(effect.Alive, effect.Ambiguous)
		s.after(settleAfter-time.Microsecond).apply(s.resolution(1, false)).wants(effect.TooEarly, effect.Ambiguous)
		s.after(time.Microsecond).apply(s.resolution(1, false)).wants(effect.Settled, effect.Failed)
		s.apply(effect.Renewal{Reservation: r, Lease: lease}).wants(effect.Gone, effect.Failed)
	}},
	{"a judgement is of the state that was judged", func(s *story) {
		r := s.reserved()
		s.apply(result(r, outcome.Ambiguous))
		judged := s.resolution(1, false)
		judged.Since = s.last.After.Since
		s.after(settleAfter).apply(held(r, "a")) // the late finish of the same attempt
		s.call(continuing("a")).wants(effect.Forward, effect.Executing)
		s.apply(result(s.last.After.Reservation(), outcome.Ambiguous))
		s.after(settleAfter).apply(judged).wants(effect.OtherAttempt, effect.Ambiguous)
		judged.Since = s.last.After.Since
		s.apply(judged).wants(effect.Settled, effect.Failed)
	}},
	{"a person reopens what is committed", func(s *story) {
		s.apply(s.reopening(1)).wants(effect.NoEffect, effect.None)
		r := s.reserved()
		s.apply(s.reopening(1)).wants(effect.NotCommitted, effect.Executing)
		s.apply(committed(r))
		s.apply(s.reopening(2)).wants(effect.OtherAttempt, effect.Committed)
		s.apply(s.reopening(1)).wants(effect.Settled, effect.Failed)
		if s.last.After.Answer != nil {
			s.t.Error("what did not happen has a result")
		}
		if r := s.reserved(); r.Attempt != 2 {
			s.t.Errorf("attempt %d, want 2", r.Attempt)
		}
	}},

	{"a held call is continued once", func(s *story) {
		r := s.reserved()
		s.apply(held(r, "one")).wants(effect.Recorded, effect.Held)
		s.apply(held(r, "one")).wants(effect.Recorded, effect.Held)
		s.call().wants(effect.InputAwaited, effect.Held)
		s.call(otherArguments).wants(effect.InputAwaited, effect.Held)
		s.call(stranger).wants(effect.InputAwaited, effect.Held)
		for _, mismatch := range [][]variation{
			{continuing("two")}, {continuing("")}, {continuing("one"), otherArguments}, {continuing("one"), stranger},
		} {
			s.call(mismatch...).wants(effect.NoContinuation, effect.Held)
			if s.last.Written {
				s.t.Error("a mismatch writes")
			}
		}
		next := s.reserved(continuing("one"))
		if next.Attempt != r.Attempt || next.Token == r.Token {
			s.t.Errorf("the continuation is %v after %v", next, r)
		}
		s.call(continuing("one")).wants(effect.InProgress, effect.Executing)
		s.apply(committed(r)).wants(effect.Alarm, effect.Executing) // the earlier leg has had its say
		s.apply(committed(next)).wants(effect.Recorded, effect.Committed)
		s.call(continuing("one")).wants(effect.Replay, effect.Committed) // the re-issue of the last leg
	}},
	{"nothing is continued that is not held", func(s *story) {
		s.call(continuing("one")).wants(effect.NoContinuation, effect.None)
		s.apply(result(s.reserved(), outcome.Failed))
		s.call(continuing("one")).wants(effect.NoContinuation, effect.Failed)
	}},
	{"a continuation never fails", func(s *story) {
		s.apply(held(s.reserved(), "one"))
		s.apply(result(s.reserved(continuing("one")), outcome.Failed)).wants(effect.Recorded, effect.Ambiguous)
		s.call().wants(effect.Unknown, effect.Ambiguous)
	}},
	{"a continuation that runs out never fails", func(s *story) {
		s.apply(held(s.reserved(), "one"))
		r := s.reserved(continuing("one"))
		s.after(lease).sweep().apply(result(r, outcome.Failed)).wants(effect.Recorded, effect.Ambiguous)
	}},
	{"a continuation that is withdrawn is held again", func(s *story) {
		s.apply(held(s.reserved(), "one"))
		deadline := s.last.After.Deadline
		w := effect.Withdrawal{Reservation: s.after(time.Second).reserved(continuing("one"))}
		s.apply(w).wants(effect.Withdrawn, effect.Held)
		s.apply(w).wants(effect.Withdrawn, effect.Held)
		if got := s.last.After.Deadline; !got.Equal(deadline) {
			s.t.Errorf("held until %v, want %v", got, deadline)
		}
		s.reserved(continuing("one"))
	}},
	{"a call is continued so many times and not more", func(s *story) {
		r := s.reserved()
		for round := range rounds {
			state := fmt.Sprint(round)
			s.apply(held(r, state)).wants(effect.Recorded, effect.Held)
			r = s.reserved(continuing(state))
		}
		s.apply(held(r, "more")).wants(effect.Recorded, effect.Held)
		s.call(continuing("more")).wants(effect.NoContinuation, effect.Held)
	}},
	{"a hold runs out into what is ambiguous", func(s *story) {
		r := s.reserved()
		s.apply(held(r, "one"))
		s.after(holdFor).call(continuing("one")).wants(effect.Unknown, effect.Ambiguous)
		s.apply(held(r, "one")).wants(effect.Stale, effect.Ambiguous) // a late repeat
	}},
	{"a hold of what is uncommitted runs out into what failed", func(s *story) {
		s.apply(uncommitted(held(s.reserved(), "one")))
		s.after(holdFor).call(continuing("one")).wants(effect.NoContinuation, effect.Failed)
		if r := s.reserved(); r.Attempt != 2 {
			s.t.Errorf("attempt %d, want 2", r.Attempt)
		}
	}},

	{"a task settles its call", func(s *story) {
		s.apply(deferred(s.reserved())).wants(effect.Recorded, effect.Deferred)
		s.call().wants(effect.TaskAccepted, effect.Deferred)
		s.call(otherArguments).wants(effect.TaskAccepted, effect.Deferred)
		s.apply(committed(s.task().Reservation())).wants(effect.Recorded, effect.Committed)
		s.call().wants(effect.Replay, effect.Committed)
		s.noTask(taskName)
	}},
	{"a task is found by all that names it", func(s *story) {
		s.apply(deferred(s.reserved()))
		for _, change := range []func(*effect.Task){
			func(t *effect.Task) { t.Namespace = "" }, func(t *effect.Task) { t.Upstream = "127.0.0.1:9001" },
			func(t *effect.Task) { t.Caller = "mallory" }, func(t *effect.Task) { t.ID = "task_2" },
		} {
			other := taskName
			change(&other)
			s.noTask(other)
		}
	}},
	{"an id that two tasks have is that of none", func(s *story) {
		first := s.reserved()
		s.apply(deferred(first))
		s.key = effect.NewKey("payments", "refund", "txn_2")
		s.apply(deferred(s.reserved()))
		s.noTask(taskName)
		s.apply(committed(first))
		if key := s.task().Key; key != s.key {
			s.t.Errorf("found %v", key)
		}
	}},
	{"a call without a task is none", func(s *story) {
		s.apply(result(s.reserved(), outcome.Ambiguous))
		s.noTask(effect.Task{Namespace: "payments", Upstream: "127.0.0.1:9000", Caller: "alice"})
	}},
	{"a task that takes too long is ambiguous until it ends", func(s *story) {
		r := s.reserved()
		s.apply(deferred(r))
		s.after(taskFor).sweep().call().wants(effect.Unknown, effect.Ambiguous)
		s.apply(deferred(r)).wants(effect.Stale, effect.Ambiguous) // a late repeat
		s.apply(result(s.task().Reservation(), outcome.Failed)).wants(effect.Recorded, effect.Failed)
	}},
	{"a task that is cancelled is ambiguous", func(s *story) {
		s.apply(deferred(s.reserved()))
		s.apply(result(s.task().Reservation(), outcome.Ambiguous)).wants(effect.Recorded, effect.Ambiguous)
	}},

	{"what is committed is retained and then forgotten", func(s *story) {
		s.apply(committed(s.reserved()))
		s.after(retain-time.Microsecond).sweep().call().wants(effect.Done, effect.Committed)
		s.after(time.Microsecond).call().wants(effect.Done, effect.Committed) // until a sweep
		s.sweep()
		if record, receipts := s.load(); record.State != effect.None || receipts != nil {
			s.t.Errorf("%s with %d receipts", record.State, len(receipts))
		}
		if r := s.reserved(); r.Attempt != 1 {
			s.t.Errorf("attempt %d, want 1", r.Attempt)
		}
	}},
	{"what failed is retained and then forgotten", func(s *story) {
		s.apply(result(s.reserved(), outcome.Failed))
		s.after(retain).sweep()
		if record, receipts := s.load(); record.State != effect.None || receipts != nil {
			s.t.Errorf("%s with %d receipts", record.State, len(receipts))
		}
	}},
	{"what is resolved is retained from then on", func(s *story) {
		s.apply(result(s.reserved(), outcome.Ambiguous))
		s.after(2*retain).apply(s.resolution(1, true)).wants(effect.Settled, effect.Committed)
		s.sweep().call().wants(effect.Done, effect.Committed)
	}},
	{"namespaces are apart", func(s *story) {
		s.apply(committed(s.reserved()))
		for _, key := range []effect.Key{
			effect.NewKey("", "refund", "txn_1"), effect.NewKey("payments2", "refund", "txn_1"), effect.NewKey("PAYMENTS", "refund", "txn_1"),
			effect.NewKey("payments", "refund", "TXN_1"), effect.NewKey("payments", "refund", "txn_1", ""), effect.NewKey("payments", "refund\",\"txn_1"),
			effect.NewKey("payments", "refund", "txn_1\x00"), effect.NewKey("payments", "refund", "😀'%_\\"), effect.NewKey("payments", "refund", string(bytes.Repeat([]byte("x"), effect.MaxPart))),
		} {
			s.key = key
			s.reserved()
		}
	}},
}

// taskName names the task that a story's call becomes.
var taskName = effect.Task{Namespace: "payments", Upstream: "127.0.0.1:9000", Caller: "alice", ID: "task_1"}

// task returns the record of the task.
func (s *story) task() effect.Record {
	s.t.Helper()
	record, found, err := s.ledger.Task(s.t.Context(), taskName)
	if err != nil || !found {
		s.t.Fatalf("found: %v, %v", found, err)
	}
	return record
}

func (s *story) noTask(name effect.Task) {
	s.t.Helper()
	if record, found, err := s.ledger.Task(s.t.Context(), name); err != nil || found {
		s.t.Errorf("%+v: found %v, %v", name, record.Key, err)
	}
}

func runStories(t *testing.T, open Open) {
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) { story.tell(newStory(t, open)) })
	}
}
