package sqlite_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/sqlite"
	"github.com/caddymcp/gateway/outcome"
)

// newCall returns a call of a key, with a token of its own.
func newCall(key string) effect.Call {
	c := effect.Call{
		Key: effect.NewKey("payments", "refund", key), Tool: "create_refund", Fingerprint: sha256.Sum256([]byte(key)),
		Outline: effect.Outline{"payment_id": 1, "amount": 2}, Caller: "alice", Who: "alice", Revision: "2026-07-28", Bytes: 200,
		Rounds: 8, Lease: 30 * time.Second, SettleAfter: 150 * time.Second, Retain: 30 * 24 * time.Hour,
	}
	_, _ = rand.Read(c.Token[:])
	return c
}

// newOutcome returns an outcome of a reservation.
func newOutcome(r effect.Reservation, o outcome.Outcome) effect.Outcome {
	result := effect.Outcome{Reservation: r, Outcome: o, Observation: "complete", Upstream: "127.0.0.1:9000", Bytes: 400}
	if o == outcome.Committed {
		result.Answer, result.ReplayFor = answer, 24*time.Hour
	}
	return result
}

var answer = []byte(`{"content":[{"type":"text","text":"refunded 12.50 EUR to the card that was charged, reference RF-2291-AA"}],"isError":false}`)

// acked is what a ledger has acknowledged of a key: that an attempt of it came
// to a state.
type acked struct {
	key     effect.Key
	attempt int64
	state   effect.State
}

// workload is callers that protect calls and remember what was acknowledged.
type workload struct {
	mu     sync.Mutex
	acked  []acked
	failed []effect.Command // that were not answered
}

// run has eight callers make calls until the ledger does not answer any more,
// or they have made so many. Of ten keys one is also another caller's.
func (w *workload) run(ctx context.Context, l effect.Ledger, name string, calls int) {
	var group sync.WaitGroup
	for caller := range 8 {
		group.Go(func() {
			for i := range calls {
				key := fmt.Sprint(name, "-", caller, "-", i)
				if i%10 == 0 {
					key = fmt.Sprint(name, "-shared-", i)
				}
				if !w.call(ctx, l, key, i) {
					return
				}
			}
		})
	}
	group.Wait()
}

// call makes one call with its outcome, and reports whether the ledger answered.
func (w *workload) call(ctx context.Context, l effect.Ledger, key string, i int) bool {
	change, ok := w.apply(ctx, l, newCall(key))
	if !ok || change.Answer != effect.Forward {
		return ok
	}
	_, ok = w.apply(ctx, l, newOutcome(change.After.Reservation(), []outcome.Outcome{outcome.Committed, outcome.Failed, outcome.Ambiguous}[i%3]))
	return ok
}

func (w *workload) apply(ctx context.Context, l effect.Ledger, c effect.Command) (effect.Change, bool) {
	change, err := l.Apply(ctx, c)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.failed = append(w.failed, c)
		return change, false
	}
	w.acked = append(w.acked, acked{c.Target(), change.After.Attempt, change.After.State})
	return change, true
}

// lost returns what was acknowledged and is not on record, and fails if what
// is on record cannot be.
func (w *workload) lost(t *testing.T, l *sqlite.Ledger) (lost []acked) {
	t.Helper()
	if err := l.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	trails := make(map[effect.Key][]effect.Receipt)
	for _, a := range w.acked {
		receipts, ok := trails[a.key]
		if !ok {
			var err error
			if _, receipts, err = l.Load(t.Context(), a.key); err != nil {
				t.Fatal(err)
			}
			possible(t, receipts)
			trails[a.key] = receipts
		}
		if !slices.ContainsFunc(receipts, func(r effect.Receipt) bool { return r.Attempt == a.attempt && r.To == a.state }) {
			lost = append(lost, a)
		}
	}
	return lost
}

// possible holds receipts against the invariant.
func possible(t *testing.T, receipts []effect.Receipt) {
	t.Helper()
	executions, proofs, state := 0, 0, effect.None
	for _, r := range receipts {
		if r.From != state {
			t.Fatalf("a receipt leads from %s where it was %s: %+v", r.From, state, receipts)
		}
		if state = r.To; r.From == r.To {
			continue
		}
		switch r.To {
		case effect.Executing:
			executions++
		case effect.Failed:
			proofs++
		}
		if executions > 1+proofs {
			t.Fatalf("%d executions with %d proofs: %+v", executions, proofs, receipts)
		}
	}
}

func (a acked) String() string {
	return a.key.Text + " " + strconv.FormatInt(a.attempt, 10) + " " + a.state.String()
}
