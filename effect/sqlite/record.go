package sqlite

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"

	"github.com/ncruces/go-sqlite3"

	"github.com/caddymcp/gateway/effect"
)

// row is a record with its place.
type row struct {
	id      int64 // 0 for none
	receipt int64 // the id of the last one
	digest  [sha256.Size]byte
	effect.Record
}

// The columns of a record, in the order in which they are written and read.
// First those that are written with every change, and of them what a record is
// selected by; then those that are a call's, and most often stay as they are.
const (
	changingColumns = `state, since, due, upstream, observation, active, deadline, answer_until, answer, receipt`
	recordColumns   = changingColumns + `, attempt, token, tool, fingerprint, outline, caller, who, revision,
	hold_digest, hold_round, hold_deadline, hold_uncommitted, task, settle_after, retain`
	listedColumns = `id, namespace, key, state, since, attempt, token, tool, fingerprint, outline, caller, who, revision, upstream, observation,
	active, deadline, hold_digest, hold_round, hold_deadline, hold_uncommitted, task, settle_after, retain, answer_until`

	selectRecord = `SELECT ` + listedColumns + `, answer, receipt FROM records WHERE digest = ?`
	insertRecord = `INSERT INTO records (` + recordColumns + `, digest, namespace, key)
	VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
	updateRecord = `UPDATE records SET (` + recordColumns + `) =
	(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)` + unchanged
	updateChanging = `UPDATE records SET (` + changingColumns + `) = (?,?,?,?,?,?,?,?,?,?)` + unchanged
	deleteRecord   = `DELETE FROM records` + unchanged
	// Under the lock of the transaction it is always unchanged. A write that does
	// not hit shows that the lock is not what it should be.
	unchanged = ` WHERE id = ? AND attempt = ? AND token = ? AND state = ?`

	receiptColumns = `at, attempt, event, answer, state_before, state_after, who, why, tool, fingerprint, observation, revision, upstream, bytes, arguments`

	selectNewest  = `SELECT max(id) FROM receipts`
	insertReceipt = `INSERT INTO receipts (id, record, previous, ` + receiptColumns + `) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
	deleteReceipt = `DELETE FROM receipts WHERE id = ? AND record = ? RETURNING previous`
)

// bindChanging binds the columns that are written with every change.
func (st *statement) bindChanging(r *effect.Record, receipt int64) {
	st.text(r.State.String())
	st.time(r.Since)
	st.time(r.Due())
	st.text(r.Upstream)
	st.text(r.Observation)
	st.time(r.Active)
	st.time(r.Deadline)
	st.time(r.AnswerUntil)
	st.blob(r.Answer)
	st.int(receipt)
}

// bindRecord binds the record's columns.
func (st *statement) bindRecord(r *effect.Record, receipt int64) {
	st.bindChanging(r, receipt)
	st.int(r.Attempt)
	st.blob(r.Token[:])
	st.text(r.Tool)
	st.blob(r.Fingerprint[:])
	st.outline(r.Outline)
	st.text(r.Caller)
	st.text(r.Who)
	st.text(r.Revision)
	st.digest(&r.Hold.Digest)
	st.int(int64(r.Hold.Round))
	st.time(r.Hold.Deadline)
	st.bool(r.Hold.Uncommitted)
	st.text(r.TaskID)
	st.duration(r.SettleAfter)
	st.duration(r.Retain)
}

// keepsRest reports whether all but the changing columns are as they were.
func keepsRest(a, b *effect.Record) bool {
	return a.Attempt == b.Attempt && a.Token == b.Token && a.Tool == b.Tool && a.Fingerprint == b.Fingerprint &&
		(a.Outline == nil) == (b.Outline == nil) && maps.Equal(a.Outline, b.Outline) &&
		a.Caller == b.Caller && a.Who == b.Who && a.Revision == b.Revision && a.Hold == b.Hold && a.TaskID == b.TaskID &&
		a.SettleAfter == b.SettleAfter && a.Retain == b.Retain
}

// readRecord reads the listed columns.
func (st *statement) readRecord() (r row) {
	r.id = st.readInt()
	r.Key.Namespace = st.readText()
	r.Key.Text = st.readText()
	st.readName(&r.State)
	r.Since = st.readTime()
	r.Attempt = st.readInt()
	st.readBytes(r.Token[:])
	r.Tool = st.readText()
	st.readBytes(r.Fingerprint[:])
	st.readOutline(&r.Outline)
	r.Caller = st.readText()
	r.Who = st.readText()
	r.Revision = st.readText()
	r.Upstream = st.readText()
	r.Observation = st.readText()
	r.Active = st.readTime()
	r.Deadline = st.readTime()
	st.readDigest(&r.Hold.Digest)
	r.Hold.Round = int(st.readInt())
	r.Hold.Deadline = st.readTime()
	r.Hold.Uncommitted = st.readInt() != 0
	r.TaskID = st.readText()
	r.SettleAfter = st.readDuration()
	r.Retain = st.readDuration()
	r.AnswerUntil = st.readTime()
	return r
}

// digest binds the digest of what is held, or null for none.
func (st *statement) digest(d *effect.StateDigest) {
	if *d == (effect.StateDigest{}) {
		st.blob(nil)
		return
	}
	st.blob(d[:])
}

func (st *statement) readDigest(d *effect.StateDigest) {
	if st.s.ColumnType(st.column+1) == sqlite3.NULL {
		st.column++
		return
	}
	st.readBytes(d[:])
}

// outline binds an outline, or null for none.
func (st *statement) outline(o effect.Outline) {
	if o == nil {
		st.blob(nil)
		return
	}
	st.blob(appendOutline(make([]byte, 0, 256), o))
}

func (st *statement) readOutline(o *effect.Outline) {
	b := st.raw()
	if b == nil && st.s.ColumnType(st.column) == sqlite3.NULL {
		return
	}
	parsed, ok := parseOutline(b)
	if !ok && st.err == nil {
		st.err = fmt.Errorf("%w: the outline is cut", errUnreadable)
	}
	*o = parsed
}

// appendOutline appends of each argument the length of its name, the name, and
// the two bytes that tell its value.
func appendOutline(b []byte, o effect.Outline) []byte {
	for name, value := range o {
		b = binary.AppendUvarint(b, uint64(len(name)))
		b = append(b, name...)
		b = binary.BigEndian.AppendUint16(b, value)
	}
	return b
}

// parseOutline reports false for what appendOutline has not appended.
func parseOutline(b []byte) (effect.Outline, bool) {
	o := make(effect.Outline)
	for len(b) > 0 {
		length, n := binary.Uvarint(b)
		if n <= 0 || length > uint64(len(b)) || len(b)-n-int(length) < 2 {
			return nil, false
		}
		name, rest := b[n:n+int(length)], b[n+int(length):]
		o[string(name)] = binary.BigEndian.Uint16(rest)
		b = rest[2:]
	}
	return o, true
}

// load returns the record of a key with a digest.
func (c *conn) load(digest [sha256.Size]byte) (r row, err error) {
	st := c.prepare(selectRecord)
	st.blob(digest[:])
	if st.next() {
		r = st.readRecord()
		r.Answer = st.readBlob()
		r.receipt = st.readInt()
	}
	r.digest = digest
	return r, st.done()
}

var errChanged = errors.New("a record changed under the lock")

// save stores what a change says, in place of the record that was loaded.
func (c *conn) save(before row, change *effect.Change) error {
	after := &change.After
	if after.State == effect.None {
		return c.remove(before)
	}
	last := before.receipt
	if n := int64(len(change.Receipts)); n > 0 {
		if err := c.findNewest(); err != nil {
			return err
		}
		last = c.newest + n
	}
	id := before.id
	switch {
	case id == 0:
		st := c.prepare(insertRecord)
		st.bindRecord(after, last)
		st.blob(before.digest[:])
		st.text(after.Key.Namespace)
		st.text(after.Key.Text)
		if err := st.exec(); err != nil {
			return err
		}
		id = c.db.LastInsertRowID()
	case keepsRest(&before.Record, after):
		st := c.prepare(updateChanging)
		st.bindChanging(after, last)
		if err := c.hit(st, before); err != nil {
			return err
		}
	default:
		st := c.prepare(updateRecord)
		st.bindRecord(after, last)
		if err := c.hit(st, before); err != nil {
			return err
		}
	}
	previous := before.receipt
	for i := range change.Receipts {
		if err := c.file(id, previous, &change.Receipts[i]); err != nil {
			return err
		}
		previous = c.newest
	}
	return nil
}

// findNewest finds out the id of the newest receipt, once in a transaction. The
// next ids follow it. An id is given again only when its receipt was deleted,
// with the record and all that led to it.
func (c *conn) findNewest() (err error) {
	if c.newest == 0 {
		c.newest, err = c.number(selectNewest)
	}
	return err
}

// remove deletes a record, and its receipts with it.
func (c *conn) remove(r row) error {
	if err := c.hit(c.prepare(deleteRecord), r); err != nil {
		return err
	}
	for id := r.receipt; id != 0; {
		st := c.prepare(deleteReceipt)
		st.int(id)
		st.int(r.id)
		id = st.readPrevious(id)
		if err := st.done(); err != nil {
			return err
		}
	}
	return nil
}

// hit executes a write that is to change one record.
func (c *conn) hit(st *statement, r row) error {
	st.int(r.id)
	st.int(r.Attempt)
	st.blob(r.Token[:])
	st.text(r.State.String())
	if err := st.exec(); err != nil {
		return err
	}
	if c.db.Changes() != 1 {
		return errChanged
	}
	return nil
}

// file stores a receipt, which is the newest then.
func (c *conn) file(record, previous int64, r *effect.Receipt) error {
	c.newest++
	st := c.prepare(insertReceipt)
	st.int(c.newest)
	st.int(record)
	st.int(previous)
	st.time(r.At)
	st.int(r.Attempt)
	st.text(r.Event.String())
	st.text(r.Answer.String())
	st.text(r.From.String())
	st.text(r.To.String())
	st.text(r.Who)
	st.text(r.Why)
	st.text(r.Tool)
	st.blob(r.Fingerprint[:])
	st.text(r.Observation)
	st.text(r.Revision)
	st.text(r.Upstream)
	st.int(r.Bytes)
	st.blob(r.Arguments)
	return st.exec()
}

// readPrevious goes to the receipt with an id, and reads the id of the one
// before it.
func (st *statement) readPrevious(id int64) (previous int64) {
	found := st.next()
	if found {
		previous = st.readInt()
	}
	switch {
	case st.err != nil:
	case !found:
		st.err = fmt.Errorf("%w: a receipt is missing", errUnreadable)
	case previous >= id:
		st.err = fmt.Errorf("%w: a receipt follows itself", errUnreadable)
	}
	return previous
}

// readReceipt reads the receipt's columns.
func (st *statement) readReceipt() (r effect.Receipt) {
	r.At = st.readTime()
	r.Attempt = st.readInt()
	st.readName(&r.Event)
	st.readName(&r.Answer)
	st.readName(&r.From)
	st.readName(&r.To)
	r.Who = st.readText()
	r.Why = st.readText()
	r.Tool = st.readText()
	st.readBytes(r.Fingerprint[:])
	r.Observation = st.readText()
	r.Revision = st.readText()
	r.Upstream = st.readText()
	r.Bytes = st.readInt()
	r.Arguments = st.readBlob()
	return r
}
