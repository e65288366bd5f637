package sqlite_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/caddymcp/gateway/effect"
)

// late is a context that is cancelled once it has been asked so many times.
type late struct {
	context.Context
	asks int
}

func (c *late) Err() error {
	if c.asks--; c.asks < 0 {
		return context.Canceled
	}
	return nil
}

// A reading that is cancelled, wherever it is, says so: it does not say that
// there is nothing, or less than there is.
func TestReadingIsCancelled(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "ledger.db"))
	defer shut(t, l)
	var w workload
	if !w.call(t.Context(), l, "x", 0) {
		t.Fatal(w.failed)
	}
	for name, read := range map[string]func(ctx context.Context) (all bool, err error){
		"load": func(ctx context.Context) (bool, error) {
			record, receipts, err := l.Load(ctx, newCall("x").Key)
			return record.State == effect.Committed && len(receipts) == 2, err
		},
		"list": func(ctx context.Context) (bool, error) {
			records, err := l.List(ctx, effect.Filter{Limit: 2})
			return len(records) == 1, err
		},
		"receipts": func(ctx context.Context) (bool, error) {
			receipts, err := l.Receipts(ctx, 9)
			return len(receipts) == 2, err
		},
		"census": func(ctx context.Context) (bool, error) {
			census, err := l.Census(ctx)
			return census.Records[effect.Committed] == 1, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for asks := range 50 {
				if all, err := read(&late{t.Context(), asks}); err == nil && !all {
					t.Fatalf("cancelled after it asked %d times, it says less than there is", asks)
				}
				if all, err := read(t.Context()); err != nil || !all { // it leaves nothing behind
					t.Fatalf("afterwards: %t, %v", all, err)
				}
			}
			if all, err := read(&late{t.Context(), 50}); err != nil || !all {
				t.Errorf("it asks more often: %v", err)
			}
		})
	}
}
