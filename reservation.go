package gateway

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddymcp/gateway/effect"
)

// The times of a reservation.
const (
	lease       = 30 * time.Second // until it is ambiguous, unless it is renewed
	reserveTime = 5 * time.Second  // within which it must be on record
	recordTime  = 5 * time.Second  // for which the client waits until the outcome is on record
	retryTime   = time.Second      // after a ledger failed to answer
)

// ledger is what a reservation needs of the ledger of effects.
type ledger interface {
	Apply(ctx context.Context, c effect.Command) (effect.Change, error)

	// Secret returns what callers are digested with.
	Secret(ctx context.Context) (effect.Secret, error)

	// List and Task return records.
	List(ctx context.Context, f effect.Filter) ([]effect.Record, error)
	Task(ctx context.Context, t effect.Task) (effect.Record, bool, error)

	// acquire keeps the ledger open, whatever becomes of the configuration,
	// until release is called.
	acquire() (release func())
}

// reservation is the right to make one protected call, from the moment that it
// is on record until what became of the call is.
//
// Its lease is renewed while the call is under way. It is measured here too,
// from before the ledger was asked, so that it ends here first; but nothing
// hangs on that: a lease that has run out makes the record ambiguous, and
// the call's own outcome still settles it.
type reservation struct {
	effect.Reservation
	later bool // it continues a call that was held

	ledger  ledger
	release func()
	log     *zap.Logger
	lease   time.Duration

	mu    sync.Mutex
	begun time.Time   // when the lease began, at the latest
	timer *time.Timer // renews it; nil once the call has ended
}

// hold begins to renew a reservation that was made since begun.
func (r *reservation) hold(begun time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = begun
	r.timer = time.AfterFunc(r.lease/3, r.renew)
}

func (r *reservation) renew() {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), r.lease/3)
	defer cancel()
	change, err := r.ledger.Apply(ctx, effect.Renewal{Reservation: r.Reservation, Lease: r.lease})

	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.timer == nil: // the call has ended
	case err != nil:
		r.timer.Reset(min(retryTime, r.lease/3))
	case change.Answer == effect.Renewed:
		r.begun = begun
		r.timer.Reset(r.lease/3 - time.Since(begun))
	case change.Answer == effect.Alive:
		// The lease is over, and the upstream may still be at work: nobody is to
		// settle it as failed meanwhile.
		r.timer.Reset(r.lease/3 - time.Since(begun))
	}
}

// late reports whether so much of the lease has passed that nothing of the call
// may be sent any more. What was sent late could still be at work when the
// record is settled.
func (r *reservation) late() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	// The monotonic clock stands still while a machine sleeps, and the other one
	// can be set: whatever says more counts.
	elapsed := max(time.Since(r.begun), time.Now().Round(0).Sub(r.begun.Round(0)))
	return elapsed > r.lease/2
}

// end ends the renewal, and returns when the lease runs out.
func (r *reservation) end() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	return r.begun.Add(r.lease)
}

// record puts what became of the call on record, and reports whether it is. It
// keeps the client waiting for some time only; after that it goes on by itself
// until the lease runs out, when the record is ambiguous.
func (r *reservation) record(o effect.Outcome) bool {
	expires := r.end()
	o.Reservation = r.Reservation
	ctx, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	change, err := r.ledger.Apply(ctx, o)
	if err == nil {
		r.release()
		return change.Answer == effect.Recorded
	}
	r.log.Error("the outcome of a tool call could not be recorded in time; trying on until its lease runs out",
		zap.String("outcome", o.Outcome.String()), zap.Int64("attempt", r.Attempt), zap.Error(err))
	go r.persist(o, expires)
	return false
}

// persist repeats a command until the ledger has answered it or time is over.
func (r *reservation) persist(c effect.Command, until time.Time) {
	defer r.release()
	_, _ = persist(r.ledger, c, until)
}

// persist applies a command, again and again until the ledger answers, has ended
// or the time is over.
func persist(l ledger, c effect.Command, until time.Time) (effect.Change, error) {
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	for {
		change, err := l.Apply(ctx, c)
		if err == nil || errors.Is(err, errLedgerReleased) {
			return change, err
		}
		select {
		case <-ctx.Done():
			return change, err
		case <-time.After(retryTime):
		}
	}
}

// giveUpTime is for how long it is tried to withdraw what may have been
// reserved, and givenUp how many calls try so at once. Past both the lease runs
// out, which claims nothing.
const giveUpTime = time.Hour

var givenUp = crowd{limit: 1000}

// giveUp withdraws what may have been reserved by a call that was answered with
// an error, and of which nothing was forwarded: whether it was is not known.
// The call is repeated, which reserves nothing twice, and tells.
func giveUp(l ledger, release func(), c effect.Call) {
	defer release()
	if !givenUp.enter() {
		return
	}
	defer givenUp.leave()
	c.Arguments = nil // of a call that was not made; they are part of a body, which nobody holds any more
	until := time.Now().Add(giveUpTime)
	change, err := persist(l, c, until)
	if err != nil || change.After.Token != c.Token {
		return
	}
	// It may be ambiguous by now: that nothing was forwarded settles that, too.
	_, _ = persist(l, effect.Withdrawal{Reservation: change.After.Reservation()}, until)
}

// crowd bounds how many are at one thing at once.
type crowd struct {
	limit int
	n     atomic.Int64
}

// enter reports whether there is room for one more, who must leave.
func (c *crowd) enter() bool {
	if c.n.Add(1) <= int64(c.limit) {
		return true
	}
	c.n.Add(-1)
	return false
}

func (c *crowd) leave() { c.n.Add(-1) }
