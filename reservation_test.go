package gateway

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/caddymcp/gateway/effect"
)

// flaky is a ledger of one effect, which does what it is told to.
type flaky struct {
	ledger // which a reservation does not need for more than this

	mu       sync.Mutex
	before   func(effect.Command) error // what keeps a command from being done
	after    func(effect.Command) error // how one that was done is answered
	record   effect.Record
	receipts []effect.Receipt
	users    int
}

var errFlaky = errors.New("the ledger does not answer")

// never fails what was not done, and lost what was.
func (l *flaky) never(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.before, l.after = func(effect.Command) error { return err }, nil
}

func (l *flaky) lost(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.before, l.after = nil, func(effect.Command) error { return err }
}

func (l *flaky) Apply(ctx context.Context, c effect.Command) (effect.Change, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return effect.Change{}, err
	}
	if l.before != nil {
		if err := l.before(c); err != nil {
			return effect.Change{}, err
		}
	}
	change := effect.Step(l.record, c, time.Now())
	l.record = change.After
	l.receipts = append(l.receipts, change.Receipts...)
	if l.after != nil {
		if err := l.after(c); err != nil {
			return effect.Change{}, err
		}
	}
	return change, nil
}

func (l *flaky) acquire() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.users--
	}
}

// want wants the record to be in a state once time has counted, and the number
// of those who use the ledger.
func (l *flaky) want(t *testing.T, s effect.State, users int) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	r := effect.Step(l.record, effect.Sweeping{Key: l.record.Key}, time.Now()).After
	if r.State != s || l.users != users {
		t.Errorf("after %s: %s, used by %d, want %s, used by %d\n%+v", time.Since(start), r.State, l.users, s, users, l.receipts)
	}
}

// start is when a bubble of synctest begins.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// reserve reserves as the handler does.
func (l *flaky) reserve(t *testing.T) *reservation {
	t.Helper()
	begun := time.Now()
	release := l.acquire()
	change, err := l.Apply(t.Context(), testCall(effect.NewKey("", "1")))
	if err != nil || change.Answer != effect.Forward {
		t.Fatal(change.Answer, err)
	}
	r := &reservation{Reservation: change.After.Reservation(), ledger: l, release: release, log: zap.NewNop(), lease: lease}
	r.hold(begun)
	return r
}

// in runs a test in a time of its own, whose waits take none.
func in(t *testing.T, name string, test func(t *testing.T, l *flaky)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, new(flaky)) })
	})
}

// between keeps what a test does from falling on the very moment of a retry.
const between = retryTime / 2

func TestLease(t *testing.T) {
	in(t, "is renewed as long as the call lasts", func(t *testing.T, l *flaky) {
		r := l.reserve(t)
		time.Sleep(time.Hour)
		l.want(t, effect.Executing, 1)
		if r.late() {
			t.Error("late")
		}
		if !r.record(testOutcome(r.Reservation, "committed")) {
			t.Error("not recorded")
		}
		l.want(t, effect.Committed, 0)
	})
	in(t, "survives a ledger that fails for less", func(t *testing.T, l *flaky) {
		r := l.reserve(t)
		time.Sleep(5 * time.Second)
		l.never(errFlaky)
		time.Sleep(24*time.Second - between)
		if !r.late() {
			t.Error("not late")
		}
		l.never(nil)
		time.Sleep(time.Minute)
		l.want(t, effect.Executing, 1)
		if r.late() {
			t.Error("late")
		}
		r.end()
	})
	in(t, "survives answers that are lost", func(t *testing.T, l *flaky) {
		r := l.reserve(t)
		l.lost(errFlaky)
		time.Sleep(time.Hour)
		if !r.late() {
			t.Error("not late, although nobody said that it was renewed")
		}
		l.want(t, effect.Executing, 1)
		r.end()
	})
	in(t, "that has run out leaves a call that lives", func(t *testing.T, l *flaky) {
		r := l.reserve(t)
		l.never(errFlaky)
		time.Sleep(lease + time.Second)
		l.never(nil)
		time.Sleep(time.Hour)
		l.want(t, effect.Ambiguous, 1)
		if !r.late() {
			t.Error("not late")
		}
		verdict := effect.Resolution{Key: r.Key, Attempt: r.Attempt, Who: "carol", Why: "nothing there"}
		if change, err := l.Apply(t.Context(), verdict); err != nil || change.Answer != effect.TooEarly {
			t.Errorf("a call that is at the upstream is judged: %s, %v", change.Answer, err)
		}
		r.end()
		time.Sleep(time.Hour)
		if change, err := l.Apply(t.Context(), verdict); err != nil || change.Answer != effect.Settled {
			t.Errorf("got %s, %v", change.Answer, err)
		}
	})
	in(t, "that has run out is not extended", func(t *testing.T, l *flaky) {
		r := l.reserve(t)
		l.never(errFlaky)
		time.Sleep(lease + time.Second)
		l.never(nil)
		time.Sleep(time.Minute)
		l.want(t, effect.Ambiguous, 1)
		if !r.late() {
			t.Error("not late")
		}
		if !r.record(testOutcome(r.Reservation, "committed")) {
			t.Error("its own outcome was not recorded")
		}
		l.want(t, effect.Committed, 0)
	})
	in(t, "ends with the call", func(t *testing.T, l *flaky) {
		r := l.reserve(t)
		r.end()
		time.Sleep(lease)
		l.want(t, effect.Ambiguous, 1)
	})
}

func TestOutcomeOnRecord(t *testing.T) {
	in(t, "when the ledger is back", func(t *testing.T, l *flaky) {
		r := l.reserve(t)
		l.never(errFlaky)
		if r.record(testOutcome(r.Reservation, "committed")) {
			t.Error("said to be recorded")
		}
		time.Sleep(lease - 2*time.Second - between)
		l.want(t, effect.Executing, 1)
		l.never(nil)
		time.Sleep(retryTime)
		l.want(t, effect.Committed, 0)
	})
	in(t, "before its answer is lost", func(t *testing.T, l *flaky) {
		r := l.reserve(t)
		l.lost(errFlaky)
		if r.record(testOutcome(r.Reservation, "committed")) {
			t.Error("said to be recorded")
		}
		l.want(t, effect.Committed, 1)
		l.lost(nil)
		time.Sleep(retryTime)
		l.want(t, effect.Committed, 0)
		if len(l.receipts) != 2 {
			t.Errorf("receipts: %+v", l.receipts)
		}
	})
	in(t, "never", func(t *testing.T, l *flaky) {
		r := l.reserve(t)
		l.never(errFlaky)
		r.record(testOutcome(r.Reservation, "committed"))
		time.Sleep(lease + between)
		l.never(nil)
		time.Sleep(lease)
		l.want(t, effect.Ambiguous, 0)
	})
	in(t, "not over a later attempt", func(t *testing.T, l *flaky) {
		r := l.reserve(t)
		if !r.record(testOutcome(r.Reservation, "failed")) {
			t.Error("not recorded")
		}
		l.reserve(t).end()
		if r.record(testOutcome(r.Reservation, "ambiguous")) {
			t.Error("said to be recorded")
		}
		l.want(t, effect.Executing, 0)
	})
}

// What may have been reserved by a call that was told otherwise is given back,
// and what another call holds is not.
func TestGiveUp(t *testing.T) {
	giveUp := func(l *flaky, c effect.Call) { go giveUp(l, l.acquire(), c) }
	in(t, "what was not reserved", func(t *testing.T, l *flaky) {
		giveUp(l, testCall(effect.NewKey("", "1")))
		l.want(t, effect.Failed, 0)
		if a := l.receipts[0].Arguments; a != nil {
			t.Errorf("the arguments %s were kept, and the whole body with them", a)
		}
	})
	for _, c := range []struct {
		name  string
		after time.Duration
	}{
		{"what was reserved", lease / 2},
		{"what was reserved, when the lease has run out", time.Minute},
	} {
		in(t, c.name, func(t *testing.T, l *flaky) {
			call := testCall(effect.NewKey("", "1"))
			l.lost(errFlaky)
			if _, err := l.Apply(t.Context(), call); err == nil {
				t.Fatal("reserved")
			}
			l.never(errFlaky)
			giveUp(l, call)
			time.Sleep(c.after)
			l.never(nil)
			time.Sleep(retryTime)
			l.want(t, effect.Failed, 0)
		})
	}
	in(t, "by one of its own, while another one is under way", func(t *testing.T, l *flaky) {
		other := l.reserve(t)
		giveUp(l, testCall(effect.NewKey("", "1")))
		l.want(t, effect.Executing, 1)
		other.end()
	})
	in(t, "not for ever", func(t *testing.T, l *flaky) {
		l.never(errFlaky)
		giveUp(l, testCall(effect.NewKey("", "1")))
		time.Sleep(giveUpTime)
		l.want(t, effect.None, 0)
	})
	in(t, "not of more calls than there is room for", func(t *testing.T, l *flaky) {
		l.never(errFlaky)
		for range givenUp.limit {
			giveUp(l, testCall(effect.NewKey("", "1")))
		}
		l.want(t, effect.None, givenUp.limit)
		giveUp(l, testCall(effect.NewKey("", "1")))
		l.want(t, effect.None, givenUp.limit)
		l.never(nil)
		time.Sleep(retryTime)
		l.want(t, effect.Failed, 0)
	})
}
