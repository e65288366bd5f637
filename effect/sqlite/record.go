package sqlite

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caddymcp/gateway/effect"
)

// row is a record with its place.
type row struct {
	id int64 // 0 for none
	effect.Record
}

// The columns of a record, in the order in which they are written and read.
// What a record is selected by stands in front.
const (
	recordColumns = `state, since, due, attempt, token, tool, fingerprint, outline, caller, who, revision, upstream, observation,
	active, deadline, hold_digest, hold_round, hold_deadline, hold_uncommitted, task, settle_after, retain, answer_until, answer`
	listedColumns = `id, namespace, key, state, since, attempt, token, tool, fingerprint, outline, caller, who, revision, upstream, observation,
	active, deadline, hold_digest, hold_round, hold_deadline, hold_uncommitted, task, settle_after, retain, answer_until`

	selectRecord = `SELECT ` + listedColumns + `, answer FROM records WHERE digest = ?`
	insertRecord = `INSERT INTO records (` + recordColumns + `, digest, namespace, key)
	VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
	updateRecord = `UPDATE records SET (` + recordColumns + `) =
	(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)` + unchanged
	deleteRecord = `DELETE FROM records` + unchanged
	// Under the lock of the transaction it is always unchanged. A write that does
	// not hit shows that the lock is not what it should be.
	unchanged = ` WHERE id = ? AND attempt = ? AND token = ? AND state = ?`

	receiptColumns = `at, attempt, event, answer, state_before, state_after, who, why, tool, fingerprint, observation, revision, upstream, bytes, arguments`

	insertReceipt  = `INSERT INTO receipts (record, ` + receiptColumns + `) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`
	deleteReceipts = `DELETE FROM receipts WHERE record = ?`
)

// bindRecord binds the record's columns.
func (st *statement) bindRecord(r *effect.Record) {
	st.text(r.State.String())
	st.time(r.Since)
	st.time(r.Due())
	st.int(r.Attempt)
	st.blob(r.Token[:])
	st.text(r.Tool)
	st.blob(r.Fingerprint[:])
	st.outline(r.Outline)
	st.text(r.Caller)
	st.text(r.Who)
	st.text(r.Revision)
	st.text(r.Upstream)
	st.text(r.Observation)
	st.time(r.Active)
	st.time(r.Deadline)
	st.blob(r.Hold.Digest[:])
	st.int(int64(r.Hold.Round))
	st.time(r.Hold.Deadline)
	st.bool(r.Hold.Uncommitted)
	st.text(r.TaskID)
	st.duration(r.SettleAfter)
	st.duration(r.Retain)
	st.time(r.AnswerUntil)
	st.blob(r.Answer)
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
	st.readBytes(r.Hold.Digest[:])
	r.Hold.Round = int(st.readInt())
	r.Hold.Deadline = st.readTime()
	r.Hold.Uncommitted = st.readInt() != 0
	r.TaskID = st.readText()
	r.SettleAfter = st.readDuration()
	r.Retain = st.readDuration()
	r.AnswerUntil = st.readTime()
	return r
}

// outline binds an outline as JSON, or null for none.
func (st *statement) outline(o effect.Outline) {
	if o == nil {
		st.blob(nil)
		return
	}
	text, _ := json.Marshal(o) // it cannot fail
	st.text(string(text))
}

func (st *statement) readOutline(o *effect.Outline) {
	if raw := st.raw(); raw != nil {
		if err := json.Unmarshal(raw, o); err != nil && st.err == nil {
			st.err = fmt.Errorf("%w: %w", errUnreadable, err)
		}
	}
}

// load returns the record of a key.
func (c *conn) load(key effect.Key) (r row, err error) {
	st := c.prepare(selectRecord)
	digest := key.Digest()
	st.blob(digest[:])
	if st.next() {
		r = st.readRecord()
		r.Answer = st.readBlob()
	}
	return r, st.done()
}

var errChanged = errors.New("a record changed under the lock")

// save stores what a change says, in place of the record that was loaded.
func (c *conn) save(before row, change *effect.Change) error {
	after := &change.After
	id := before.id
	switch {
	case after.State == effect.None:
		return c.remove(before)
	case id == 0:
		st := c.prepare(insertRecord)
		st.bindRecord(after)
		digest := after.Key.Digest()
		st.blob(digest[:])
		st.text(after.Key.Namespace)
		st.text(after.Key.Text)
		if err := st.exec(); err != nil {
			return err
		}
		id = c.db.LastInsertRowID()
	default:
		st := c.prepare(updateRecord)
		st.bindRecord(after)
		if err := c.hit(st, before); err != nil {
			return err
		}
	}
	for i := range change.Receipts {
		if err := c.file(id, &change.Receipts[i]); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a record, and its receipts with it.
func (c *conn) remove(r row) error {
	if err := c.hit(c.prepare(deleteRecord), r); err != nil {
		return err
	}
	st := c.prepare(deleteReceipts)
	st.int(r.id)
	return st.exec()
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

// file stores a receipt.
func (c *conn) file(record int64, r *effect.Receipt) error {
	st := c.prepare(insertReceipt)
	st.int(record)
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
