package gateway

import (
	"context"
	"time"

	"github.com/caddymcp/gateway/effect"
)

// observedLedger is a ledger that tells metrics what happens in it.
type observedLedger struct {
	effect.Ledger
}

func observe(l effect.Ledger) *observedLedger { return &observedLedger{Ledger: l} }

// Apply implements effect.Ledger.
func (l *observedLedger) Apply(ctx context.Context, c effect.Command) (effect.Change, error) {
	began := time.Now()
	change, err := l.Ledger.Apply(ctx, c)
	if err == nil && change.Written {
		ledgerWrites.Observe(time.Since(began).Seconds())
	}
	return change, err
}

// sweep does what time has made due.
func (l *observedLedger) sweep(ctx context.Context) error {
	_, err := effect.Sweep(ctx, l)
	return err
}
