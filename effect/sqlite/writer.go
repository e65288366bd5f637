package sqlite

import (
	"fmt"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/caddymcp/gateway/effect"
)

// writer applies commands, many in one transaction. One goroutine uses it.
type writer struct {
	conn    *conn
	options Options
	batch   []*request // that is being applied
	pages   int        // in the write-ahead log
}

// wanted reports whether anybody still waits for the batch.
func (w *writer) wanted() bool {
	for _, r := range w.batch {
		if r.ctx.Err() == nil {
			return true
		}
	}
	return false
}

// answer applies a batch and answers each command.
func (w *writer) answer(batch []*request) {
	w.batch = batch
	w.apply(batch)
	for _, r := range batch {
		close(r.done)
	}
	w.batch = nil
}

// apply applies a batch.
func (w *writer) apply(batch []*request) {
	// Most often no other process writes. Then what was read can be written over
	// without the lock having been asked for before, which a batch of refused
	// duplicates never does.
	err := w.transact("BEGIN", batch)
	for isBusy(err) && w.conn.wait() {
		err = w.transact("BEGIN IMMEDIATE", batch)
	}
	if err != nil {
		for _, r := range batch {
			r.err = fmt.Errorf("writing to the ledger: %w", err)
		}
	}
}

// transact applies a batch in one transaction.
func (w *writer) transact(begin string, batch []*request) error {
	start := time.Now()
	if err := w.conn.exec(begin); err != nil {
		return err
	}
	defer w.conn.rollback()
	now, written := w.options.Now(), false
	for _, r := range batch {
		if err := w.step(r, now); err != nil {
			return err
		}
		written = written || r.change.Written
	}
	if !written {
		return nil
	}
	if err := w.conn.exec("COMMIT"); err != nil {
		return err
	}
	if w.options.OnBatch != nil {
		w.options.OnBatch(len(batch), time.Since(start))
	}
	return nil
}

// step applies one command.
func (w *writer) step(r *request, now time.Time) error {
	before, err := w.conn.load(r.command.Target())
	if err != nil {
		return err
	}
	r.change = effect.Step(before.Record, r.command, now)
	if !r.change.Written {
		return nil
	}
	return w.conn.save(before, &r.change)
}

// close leaves all there is in the file itself, if no other process uses it.
func (w *writer) close() error {
	_, _, err := w.conn.db.WALCheckpoint("main", sqlite3.CHECKPOINT_TRUNCATE)
	if isBusy(err) {
		err = nil
	}
	if closing := w.conn.close(); err == nil {
		err = closing
	}
	return err
}
