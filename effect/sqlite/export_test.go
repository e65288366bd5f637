package sqlite

import (
	"context"
	"errors"

	"github.com/caddymcp/gateway/effect"
)

// Synchronous chooses another level than FULL, to lose with.
func (o *Options) Synchronous(level string) { o.synchronous = level }

// Batch chooses how many commands share a transaction.
func (o *Options) Batch(n int) { o.maxBatch = n }

// Queued returns how many commands wait.
func (l *Ledger) Queued() int { return len(l.queue) }

// Outlines as they are stored.
var (
	AppendOutline = appendOutline
	ParseOutline  = parseOutline
)

// Store stores a change in a file that nobody else writes to, whatever led to it.
func Store(ctx context.Context, path string, change effect.Change) error {
	name, err := prepare(path, "")
	if err != nil {
		return err
	}
	c, err := connect(ctx, name, "FULL")
	if err != nil {
		return err
	}
	before, err := c.load(change.Before.Key.Digest())
	if err == nil {
		err = c.save(before, &change)
	}
	return errors.Join(err, c.close())
}

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
