package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/caddymcp/gateway/effect"
)

const (
	selectReceipt      = `SELECT previous, ` + receiptColumns + ` FROM receipts WHERE id = ? AND record = ?`
	selectLastReceipts = `SELECT namespace, key, at, receipts.attempt, event, receipts.answer, state_before, state_after, receipts.who, why,
	receipts.tool, receipts.fingerprint, receipts.observation, receipts.revision, receipts.upstream, bytes, arguments
	FROM receipts JOIN records ON records.id = record ORDER BY receipts.id DESC LIMIT ?`
	selectState = `SELECT ` + listedColumns + ` FROM records WHERE state = ? AND since < ? ORDER BY since, namespace, key LIMIT ?`
	selectTask  = `SELECT ` + listedColumns + ` FROM records WHERE task = ? AND task <> '' AND namespace = ? AND upstream = ? AND caller = ?
	AND state IN ('deferred', 'ambiguous') LIMIT 2`
	selectLeases = `SELECT namespace, key FROM records WHERE due <= ? AND state = 'executing' LIMIT ?`
	selectDue    = `SELECT namespace, key FROM records WHERE due <= ? AND state <> 'executing' ORDER BY due LIMIT ?`
	selectCensus = `SELECT state, count(*), min(since) FROM records GROUP BY state`
)

// read reads in one transaction, and so all as of one time.
func (l *Ledger) read(ctx context.Context, read func(*conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-l.closing:
		return errClosed
	default:
	}
	var c *conn
	select {
	case c = <-l.readers:
	case <-l.closing:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { l.readers <- c }()
	err := c.interruptible(ctx, read)
	c.rollback()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("reading the ledger: %w", err)
}

// interruptible reads until the context is done. What it begins, the caller is
// to end: then nothing interrupts that.
func (c *conn) interruptible(ctx context.Context, read func(*conn) error) error {
	c.waiting = func() bool { return ctx.Err() == nil }
	defer c.db.SetInterrupt(c.db.SetInterrupt(ctx))
	if err := c.prepare("BEGIN").exec(); err != nil {
		return err
	}
	return read(c)
}

// Load implements effect.Ledger.
func (l *Ledger) Load(ctx context.Context, key effect.Key) (record effect.Record, receipts []effect.Receipt, err error) {
	err = l.read(ctx, func(c *conn) error {
		r, err := c.load(key.Digest())
		if err != nil || r.id == 0 {
			return err
		}
		record = r.Record
		receipts, err = c.trail(r)
		return err
	})
	return record, receipts, err
}

// trail returns the receipts of a record, the oldest first.
func (c *conn) trail(r row) (receipts []effect.Receipt, err error) {
	for id := r.receipt; id != 0; {
		st := c.prepare(selectReceipt)
		st.int(id)
		st.int(r.id)
		id = st.readPrevious(id)
		if st.err == nil {
			receipt := st.readReceipt()
			receipt.Key = r.Key
			receipts = append(receipts, receipt)
		}
		if err := st.done(); err != nil {
			return nil, err
		}
	}
	slices.Reverse(receipts)
	return receipts, nil
}

// List implements effect.Ledger.
func (l *Ledger) List(ctx context.Context, f effect.Filter) (records []effect.Record, err error) {
	states := []effect.State{f.State}
	if f.State == effect.None {
		states = effect.States()[1:]
	}
	before := int64(math.MaxInt64)
	if !f.Before.IsZero() {
		before = f.Before.Add(time.Microsecond - 1).UnixMicro()
	}
	limit := max(f.Limit, 0)
	err = l.read(ctx, func(c *conn) error {
		for _, state := range states { // each in the order of the index
			st := c.prepare(selectState)
			st.text(state.String())
			st.int(before)
			st.int(int64(limit))
			for st.next() {
				records = append(records, st.readRecord().Record)
			}
			if err := st.done(); err != nil {
				return err
			}
		}
		return nil
	})
	slices.SortStableFunc(records, func(a, b effect.Record) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key.Namespace, b.Key.Namespace), cmp.Compare(a.Key.Text, b.Key.Text))
	})
	return records[:min(limit, len(records))], err
}

// Receipts implements effect.Ledger.
func (l *Ledger) Receipts(ctx context.Context, limit int) (receipts []effect.Receipt, err error) {
	err = l.read(ctx, func(c *conn) error {
		st := c.prepare(selectLastReceipts)
		st.int(int64(max(limit, 0)))
		for st.next() {
			key := effect.Key{Namespace: st.readText(), Text: st.readText()}
			receipt := st.readReceipt()
			receipt.Key = key
			receipts = append(receipts, receipt)
		}
		return st.done()
	})
	return receipts, err
}

// Task implements effect.Ledger.
func (l *Ledger) Task(ctx context.Context, t effect.Task) (record effect.Record, found bool, err error) {
	err = l.read(ctx, func(c *conn) error {
		st := c.prepare(selectTask)
		st.text(t.ID)
		st.text(t.Namespace)
		st.text(t.Upstream)
		st.text(t.Caller)
		var records []effect.Record
		for st.next() {
			records = append(records, st.readRecord().Record)
		}
		if len(records) == 1 { // of several nobody can say which it is
			record, found = records[0], true
		}
		return st.done()
	})
	return record, found, err
}

// Due implements effect.Ledger.
func (l *Ledger) Due(ctx context.Context, limit int) (keys []effect.Key, err error) {
	now := l.options.Now()
	err = l.read(ctx, func(c *conn) error {
		for _, query := range []string{selectLeases, selectDue} {
			st := c.prepare(query)
			st.time(now)
			st.int(int64(max(limit-len(keys), 0)))
			for st.next() {
				keys = append(keys, effect.Key{Namespace: st.readText(), Text: st.readText()})
			}
			if err := st.done(); err != nil {
				return err
			}
		}
		return nil
	})
	return keys, err
}

// Census implements effect.Ledger.
func (l *Ledger) Census(ctx context.Context) (census effect.Census, err error) {
	census.Records = make(map[effect.State]int64)
	err = l.read(ctx, func(c *conn) error {
		st := c.prepare(selectCensus)
		for st.next() {
			var state effect.State
			st.readName(&state)
			census.Records[state] = st.readInt()
			if since := st.readTime(); state == effect.Ambiguous {
				census.Oldest = since
			}
		}
		return st.done()
	})
	return census, err
}

// Secret implements effect.Ledger.
func (l *Ledger) Secret(ctx context.Context) (effect.Secret, error) {
	if err := ctx.Err(); err != nil {
		return effect.Secret{}, err
	}
	select {
	case <-l.closing:
		return effect.Secret{}, errClosed
	default:
		return l.secret, nil
	}
}
