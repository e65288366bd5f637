package effect

import (
	"crypto/sha256"
	"crypto/subtle"
	"time"

	"github.com/caddymcp/gateway/jsonrpc"
)

// Token is random, new for each call that may reserve. It lets a gateway know
// its own reservation again, and nobody else claim it.
type Token [16]byte

// Reservation is the right to execute an effect, as far as the record still
// has it: attempt and token are compared with every write.
type Reservation struct {
	Key     Key
	Attempt int64
	Token   Token
}

// Record is what a ledger knows of one effect. It is the whole of it: a store
// keeps every field, times to the microsecond.
type Record struct {
	Key     Key
	State   State
	Attempt int64 // counts the executions that were allowed, continuations not among them
	Token   Token // of the last call that was let through

	// The last call that was let through. The caller is a principal or a keyed
	// digest of what authenticates it, equal for one caller alone.
	Tool        string
	Fingerprint Fingerprint
	Outline     Outline
	Caller      string
	Who         string // the principal, if one is configured
	Revision    string
	Upstream    string // empty until an outcome names it
	Observation string // of the last outcome, or the event that led to the state

	Since    time.Time // when the state began
	Active   time.Time // the attempt's last sign of life
	Deadline time.Time // when an executing, held or deferred record becomes ambiguous; else zero

	Hold   Hold   // what is held, or what the call continues; zero if neither
	TaskID string // of a record that is deferred, or was until its time had passed

	Answer      []byte    // the stored result member, nil if none is kept
	AnswerUntil time.Time // when it is dropped

	SettleAfter time.Duration // from Active until it can be resolved as failed
	Retain      time.Duration // from Since until a committed or failed record is deleted
}

// Hold is a call that waits for input.
type Hold struct {
	Digest      StateDigest // of its requestState
	Round       int         // how many times the attempt has asked, 0 for no hold
	Deadline    time.Time
	Uncommitted bool // the operator says that a tool that asks for input has not acted
}

// StateDigest is the SHA-256 of a requestState. The ledger keeps no
// requestState: it may be all that a server wants to see to go on.
type StateDigest [sha256.Size]byte

// DigestState returns the digest of a requestState, a string by its
// characters. It reports false if there is none.
func DigestState(m jsonrpc.Member) (StateDigest, bool) {
	if text, ok := m.Text(); ok {
		return sha256.Sum256([]byte(text)), true
	}
	if m.Type == jsonrpc.Absent {
		return StateDigest{}, false
	}
	// Nothing is held under what is no string: nobody can find a text whose digest is the
	// complement of another's.
	digest := sha256.Sum256(m.Raw)
	for i := range digest {
		digest[i] = ^digest[i]
	}
	return digest, true
}

func (d StateDigest) equal(other StateDigest) bool {
	return subtle.ConstantTimeCompare(d[:], other[:]) == 1
}

// Reservation returns the one that the record has, of which its state may say
// that it is used up.
func (r Record) Reservation() Reservation { return Reservation{r.Key, r.Attempt, r.Token} }

// SettleAt returns from when on the record can be resolved as failed.
func (r Record) SettleAt() time.Time { return r.Active.Add(r.SettleAfter) }

// runsOut reports whether the lease, or the time for an input or a task, is over.
// A lease that begins more than its length in the future is over too: the clock
// was set back, and nobody renews it.
func (r Record) runsOut(now time.Time) bool {
	if r.Deadline.IsZero() {
		return false
	}
	return !now.Before(r.Deadline) || r.State == Executing && r.Active.Sub(now) > r.Deadline.Sub(r.Active)
}

// retained returns until when a committed or failed record is kept.
func (r Record) retained() time.Time { return r.Since.Add(r.Retain) }

// Due returns when a sweep has something to do for the record, zero for never:
// ambiguous records never go by themselves.
func (r Record) Due() time.Time {
	due := r.Deadline
	if r.State == Committed || r.State == Failed {
		due = r.retained()
	}
	if r.Answer != nil && (due.IsZero() || r.AnswerUntil.Before(due)) {
		due = r.AnswerUntil
	}
	return due
}

// Receipt is the evidence of one transition of a record, or of an outcome that
// came too late to make one. Receipts are never rewritten; they go with their
// record.
type Receipt struct {
	Key     Key
	At      time.Time
	Attempt int64
	Event   Event
	Answer  Answer // Stale and Alarm mark what changed nothing
	From    State
	To      State

	Who         string // the principal of a call, the person or the reconciler of a resolution
	Why         string // of a resolution
	Tool        string
	Fingerprint Fingerprint
	Observation string
	Revision    string
	Upstream    string
	Bytes       int64  // of the request, or of the response
	Arguments   []byte // of a call, only where the operator keeps them
}
