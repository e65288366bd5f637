package sqlite

import (
	"context"
	"errors"
)

// Synchronous chooses another level than FULL, to lose with.
func (o *Options) Synchronous(level string) { o.synchronous = level }

// Batch chooses how many commands share a transaction.
func (o *Options) Batch(n int) { o.maxBatch = n }

// Queued returns how many commands wait.
func (l *Ledger) Queued() int { return len(l.queue) }

// Check has SQLite look at everything.
func (l *Ledger) Check(ctx context.Context) error {
	return l.read(ctx, func(c *conn) error {
		st := c.prepare("PRAGMA integrity_check")
		var problems []error
		for st.next() {
			if text := st.readText(); text != "ok" {
				problems = append(problems, errors.New(text))
			}
		}
		return errors.Join(append(problems, st.done())...)
	})
}
