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
	census    atomic.Pointer[effect.Census] // of the last sweep, nil before the first
	down      atomic.Bool                   // the last thing that was asked of the ledger failed
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
	return change, nil
}

// noteHealth takes note of what became of a command or a sweep. Whoever no
// longer waits for the answer says nothing about the ledger.
func (l *observedLedger) noteHealth(ctx context.Context, err error) {
	if !errors.Is(ctx.Err(), context.Canceled) {
		l.down.Store(err != nil)
	}
}

// sweep does what time has made due, and counts what there is.
func (l *observedLedger) sweep(ctx context.Context) error {
	err := l.sweepAndCount(ctx)
	l.noteHealth(ctx, err)
	return err
}

func (l *observedLedger) sweepAndCount(ctx context.Context) error {
	if _, err := effect.Sweep(ctx, l); err != nil {
		return err
	}
	census, err := l.Census(ctx)
	if err != nil {
		return err
	}
	l.census.Store(&census)
	return nil
}

// Close implements effect.Ledger.
func (l *observedLedger) Close() error {
	defer l.announcer.stop()
	return l.Ledger.Close()
}
