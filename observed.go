package gateway

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/caddymcp/gateway/effect"
)

// observedLedger is a ledger that tells metrics, log and events what happens in
// it.
type observedLedger struct {
	effect.Ledger
	announcer *announcer
	census    atomic.Pointer[effect.Census]   // nil before the first
	oldest    atomic.Pointer[[]effect.Record] // the oldest ambiguous record, if there is one; nil before the first sweep
	down      atomic.Bool                     // the last thing that was asked of the ledger failed
}

func observe(l effect.Ledger) *observedLedger {
	return &observedLedger{Ledger: l, announcer: newAnnouncer()}
}

// Apply implements effect.Ledger.
func (l *observedLedger) Apply(ctx context.Context, c effect.Command) (effect.Change, error) {
	began := time.Now()
	change, err := l.Ledger.Apply(ctx, c)
	l.noteHealth(ctx, err)
	if err != nil {
		return change, err
	}
	if change.Written {
		ledgerWrites.Observe(time.Since(began).Seconds())
	}
	l.announcer.announce(change.Receipts)
	if o, ok := c.(effect.Outcome); ok && change.Answer == effect.Alarm && change.Receipts == nil {
		// Its record is gone, and so is the place of a receipt: what is said of it
		// is all that is known.
		l.announcer.announce([]effect.Receipt{{
			Key: o.Key, At: time.Now().UTC(), Attempt: o.Attempt, Answer: effect.Alarm, Observation: o.Observation,
		}})
	}
	return change, nil
}

// noteHealth takes note of what became of a command or a sweep. Whoever no
// longer waits for the answer says nothing about the ledger.
func (l *observedLedger) noteHealth(ctx context.Context, err error) {
	if !errors.Is(ctx.Err(), context.Canceled) {
		l.down.Store(err != nil)
	}
}

// sweep does what time has made due, and notes since when the oldest ambiguous
// effect waits.
func (l *observedLedger) sweep(ctx context.Context) error {
	_, err := effect.Sweep(ctx, l)
	if err == nil {
		var oldest []effect.Record
		if oldest, err = l.List(ctx, effect.Filter{State: effect.Ambiguous, Limit: 1}); err == nil {
			l.oldest.Store(&oldest)
		}
	}
	l.noteHealth(ctx, err)
	return err
}

// count counts what is on record.
func (l *observedLedger) count(ctx context.Context) error {
	census, err := l.Census(ctx)
	if err != nil {
		l.noteHealth(ctx, err)
		return err
	}
	l.census.Store(&census) // that it can be read does not say that a sweep before it could write
	return nil
}

// Close implements effect.Ledger.
func (l *observedLedger) Close() error {
	defer l.announcer.stop()
	return l.Ledger.Close()
}
