package sqlite

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/caddymcp/gateway/effect"
)

// writer applies commands, many in one transaction. One goroutine uses it.
type writer struct {
	conn    *conn
	options Options
	file    *place     // that it is to be in
	batch   []*request // that is being applied
	pages   int        // in the write-ahead log
	kept    int        // of them, at the last checkpoint
}

// wanted reports whether anybody still waits for the batch.
func (w *writer) wanted() bool {
	return slices.ContainsFunc(w.batch, func(r *request) bool { return r.ctx.Err() == nil })
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
	begin := "BEGIN"
	for {
		bad, err := w.transact(begin, batch)
		switch {
		case err == nil:
			return
		case isBusy(err) && w.conn.wait():
			begin = "BEGIN IMMEDIATE"
		case bad != nil && errors.Is(err, errUnreadable):
			// It would fail alone, too: the others do not fail with it.
			bad.err = fmt.Errorf("writing to the ledger: %w", err)
		default:
			for _, r := range batch {
				if r.err == nil {
					r.err = fmt.Errorf("writing to the ledger: %w", err)
				}
			}
			return
		}
	}
}

// transact applies what has not failed of a batch in one transaction. If it
// ends at a command, that is returned with the error.
func (w *writer) transact(begin string, batch []*request) (*request, error) {
	start := time.Now()
	if err := w.conn.prepare(begin).exec(); err != nil {
		return nil, err
	}
	defer w.conn.rollback()
	w.conn.newest = 0
	now, written := w.options.Now(), false
	for _, r := range batch {
		if r.err == nil {
			r.err = r.ctx.Err() // nobody waits for it any more
		}
		if r.err != nil {
			continue
		}
		if err := w.step(r, now); err != nil {
			return r, err
		}
		written = written || r.change.Written
	}
	if !written {
		return nil, nil
	}
	if !w.file.isThere() {
		return nil, errRemoved
	}
	if err := w.conn.prepare("COMMIT").exec(); err != nil {
		return nil, err
	}
	if w.options.OnBatch != nil {
		w.options.OnBatch(len(batch), time.Since(start))
	}
	return nil, nil
}

// step applies one command.
func (w *writer) step(r *request, now time.Time) error {
	before, err := w.conn.load(r.digest)
	if err != nil {
		return err
	}
	r.change = effect.Step(before.Record, r.command, now)
	if !r.change.Written {
		return nil
	}
	return w.conn.save(before, &r.change)
}

// When a checkpoint is made, in pages of the write-ahead log: when nobody waits,
// and however many do.
const (
	checkpointIdle = 1000
	checkpointBusy = 4000
)

// checkpoint moves what is in the write-ahead log to the file once there is
// enough of it, so that the log begins anew. Nobody's answer waits for it.
func (w *writer) checkpoint(idle bool) {
	enough := checkpointBusy
	if idle {
		enough = checkpointIdle
	}
	if w.pages < w.kept+enough {
		return
	}
	// What still reads the pages as they were keeps the log from beginning anew:
	// then they are tried again with the next ones. So they are after an error:
	// of a disk that fails the next commit tells.
	_, _, _ = w.conn.db.WALCheckpoint("main", sqlite3.CHECKPOINT_PASSIVE)
	w.kept = w.pages
}

// logged is told after each commit how many pages are in the write-ahead log.
func (w *writer) logged(_ *sqlite3.Conn, _ string, pages int) error {
	if pages < w.pages {
		w.kept = 0
	}
	w.pages = pages
	return nil
}

// close leaves all there is in the file itself, if no other process uses it.
func (w *writer) close() error {
	_, _, err := w.conn.db.WALCheckpoint("main", sqlite3.CHECKPOINT_TRUNCATE)
	if isBusy(err) {
		err = nil
	}
	return errors.Join(err, w.conn.close())
}
