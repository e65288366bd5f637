package effecttest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/outcome"
)

// runHistories compares random histories in the ledger with the same in
// memory, and with what really happened at the upstream.
func runHistories(t *testing.T, open Open) {
	rapid.Check(t, func(rt *rapid.T) {
		clock := NewClock()
		h := &history{
			Fatalf: rt.Fatalf, ctx: &story{t: t, ledger: open(t, clock), clock: clock}, model: NewMemory(clock),
			upstream: make(map[effect.Key]*truth),
		}
		defer func() {
			if err := h.ctx.ledger.Close(); err != nil {
				rt.Errorf("closing: %v", err)
			}
		}()
		rt.Repeat(map[string]func(*rapid.T){
			"call":     h.call,
			"again":    h.again,
			"outcome":  h.outcome,
			"withdraw": h.withdraw,
			"renew":    h.renew,
			"task":     h.task,
			"resolve":  h.resolve,
			"reopen":   h.reopen,
			"time":     h.time,
			"sweep":    h.sweep,
			"":         h.compare,
		})
	})
}

// history is one ledger beside the model, and the truth beside both.
type history struct {
	Fatalf func(string, ...any)
	ctx    *story // the ledger under test
	model  *Memory

	legs     []leg                 // that were let through
	upstream map[effect.Key]*truth // by key
}

// leg is a call that was let through: what the gateway holds of it.
type leg struct {
	command     effect.Call
	reservation effect.Reservation
	forwarded   bool // the upstream saw it
	truth       *truth
	attempt     *attempt
}

// attempt is what an attempt really did. Whether it acts is decided when it is
// forwarded, which is the worst that can happen.
type attempt struct {
	acted bool
	legs  int
}

// truth is what really happened for one key since its record began.
type truth struct {
	attempts []*attempt
	current  *attempt
}

func (t *truth) acted() (n int) {
	for _, a := range t.attempts {
		if a.acted {
			n++
		}
	}
	return n
}

// draw picks one of some values.
func draw[T any](rt *rapid.T, label string, values ...T) T {
	return values[rapid.IntRange(0, len(values)-1).Draw(rt, label)]
}

func (h *history) key(rt *rapid.T) effect.Key {
	return draw(rt, "key", effect.NewKey("", "a"), effect.NewKey("payments", "a"), effect.NewKey("payments", "a", "\"é😀"))
}

// apply applies a command to the ledger and to the model, and wants the same.
func (h *history) apply(c effect.Command) effect.Change {
	got, err := h.ctx.ledger.Apply(h.ctx.t.Context(), c)
	if err != nil {
		h.Fatalf("applying: %v", err)
	}
	want, _ := h.model.Apply(h.ctx.t.Context(), c)
	h.same(got, want)
	if got.After.State == effect.None && got.Answer == effect.Retired {
		delete(h.upstream, c.Target())
		h.legs = slices.DeleteFunc(h.legs, func(l leg) bool { return l.reservation.Key == c.Target() })
	}
	return got
}

// same compares two values by their JSON, in which an empty list is not told
// from none where it makes no difference.
func (h *history) same(got, want any) {
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if string(a) != string(b) {
		h.Fatalf("\n got %s\nwant %s", a, b)
	}
}

// call makes a call. If it is let through, it is forwarded or not.
func (h *history) call(rt *rapid.T) {
	h.ctx.key = h.key(rt)
	var variations []variation
	for _, v := range []variation{otherArguments, stranger} {
		if draw(rt, "varies", false, false, false, true) {
			variations = append(variations, v)
		}
	}
	if draw(rt, "continues", true, false) {
		variations = append(variations, continuing(draw(rt, "state", "one", "two")))
	}
	c := h.ctx.command(variations...)
	c.Rounds = 2
	change := h.apply(c)
	if change.Answer != effect.Forward {
		return
	}
	h.forward(rt, c, change)
}

// forward is what happens after a reservation.
func (h *history) forward(rt *rapid.T, c effect.Call, change effect.Change) {
	t := h.upstream[c.Key]
	if t == nil {
		t = new(truth)
		h.upstream[c.Key] = t
	}
	if change.Event != effect.Continuation {
		if n := t.acted(); n > 0 && len(t.attempts) > 0 {
			h.Fatalf("attempt %d is let through although %d acted", change.After.Attempt, n)
		}
		t.current = new(attempt)
		t.attempts = append(t.attempts, t.current)
		if int64(len(t.attempts)) != change.After.Attempt {
			h.Fatalf("attempt %d is the %d.", change.After.Attempt, len(t.attempts))
		}
	}
	t.current.legs++
	l := leg{command: c, reservation: change.After.Reservation(), truth: t, attempt: t.current}
	if l.forwarded = draw(rt, "forwarded", true, true, true, false); l.forwarded {
		l.attempt.acted = l.attempt.acted || draw(rt, "acts", true, false)
	}
	h.legs = append(h.legs, l)
}

// leg picks one that was let through, however long ago.
func (h *history) leg(rt *rapid.T) leg {
	if len(h.legs) == 0 {
		rt.Skip("no call was let through")
	}
	return h.legs[rapid.IntRange(max(0, len(h.legs)-4), len(h.legs)-1).Draw(rt, "leg")]
}

// again repeats a reserve whose answer was lost. After a later attempt that
// failed it is as good as a new one.
func (h *history) again(rt *rapid.T) {
	l := h.leg(rt)
	change := h.apply(l.command)
	if change.Answer == effect.Forward && change.Event != effect.CallAgain {
		h.forward(rt, l.command, change)
	}
}

// outcome records what was seen of a leg: never a lie, but perhaps late, and
// perhaps twice.
func (h *history) outcome(rt *rapid.T) {
	l := h.leg(rt)
	if !l.forwarded {
		rt.Skip("nothing was forwarded")
	}
	h.apply(h.seen(rt, l.reservation, l.attempt))
}

// seen is an outcome that can be observed, given the truth.
func (h *history) seen(rt *rapid.T, r effect.Reservation, a *attempt) effect.Outcome {
	possible := []effect.Outcome{result(r, outcome.Ambiguous), held(r, "one"), held(r, "two"), deferred(r)}
	if a.acted {
		possible = append(possible, committed(r), result(r, outcome.Committed))
	} else {
		possible = append(possible, result(r, outcome.Failed), uncommitted(held(r, "one")))
	}
	if a.legs > 1 {
		possible = append(possible, result(r, outcome.Failed)) // which is no proof for the legs before
	}
	return draw(rt, "outcome", possible...)
}

// withdraw gives back a reservation, which is true only of what was not
// forwarded.
func (h *history) withdraw(rt *rapid.T) {
	l := h.leg(rt)
	if l.forwarded {
		rt.Skip("it was forwarded")
	}
	h.apply(effect.Withdrawal{Reservation: l.reservation})
}

func (h *history) renew(rt *rapid.T) {
	h.apply(effect.Renewal{Reservation: h.leg(rt).reservation, Lease: draw(rt, "lease", lease, time.Second)})
}

// task finds the task of a key and records what became of it.
func (h *history) task(rt *rapid.T) {
	name := effect.Task{Namespace: draw(rt, "namespace", "", "payments"), Upstream: taskName.Upstream, Caller: draw(rt, "caller", "alice", "mallory"), ID: taskName.ID}
	want, modelFound, _ := h.model.Task(h.ctx.t.Context(), name)
	got, found, err := h.ctx.ledger.Task(h.ctx.t.Context(), name)
	if err != nil || found != modelFound {
		h.Fatalf("found %v, %v", found, err)
	}
	h.same(got, want)
	if !found {
		return
	}
	a := h.upstream[got.Key].current
	o := result(got.Reservation(), outcome.Ambiguous)
	if draw(rt, "known", true, false) {
		if o.Outcome = outcome.Failed; a.acted {
			o.Outcome = outcome.Committed
		}
	}
	h.apply(o)
}

// resolve judges an attempt truly, if it judges it as failed.
func (h *history) resolve(rt *rapid.T) {
	key := h.key(rt)
	record, _, _ := h.model.Load(h.ctx.t.Context(), key)
	happened := true
	if t := h.upstream[key]; t != nil && !t.current.acted {
		happened = draw(rt, "judged committed", true, false)
	}
	h.apply(effect.Resolution{Key: key, Attempt: record.Attempt - draw[int64](rt, "older by", 0, 0, 0, 1), Committed: happened, Who: "carol", Why: "saw it"})
}

// reopen takes back what did not happen.
func (h *history) reopen(rt *rapid.T) {
	key := h.key(rt)
	record, _, _ := h.model.Load(h.ctx.t.Context(), key)
	attempt := record.Attempt
	if t := h.upstream[key]; t != nil && t.current.acted {
		attempt++
	}
	h.apply(effect.Reopening{Key: key, Attempt: attempt, Who: "carol", Why: "saw it"})
}

func (h *history) time(rt *rapid.T) {
	h.ctx.clock.Advance(draw(rt, "advance", time.Microsecond, time.Second, lease, holdFor, taskFor, replayFor, retain))
}

func (h *history) sweep(*rapid.T) {
	keys, err := h.ctx.ledger.Due(h.ctx.t.Context(), 100)
	if err != nil {
		h.Fatalf("due: %v", err)
	}
	want, _ := h.model.Due(h.ctx.t.Context(), 100)
	sortKeys(keys)
	sortKeys(want)
	h.same(append([]effect.Key{}, keys...), append([]effect.Key{}, want...))
	for _, key := range keys {
		h.apply(effect.Sweeping{Key: key})
	}
}

func sortKeys(keys []effect.Key) {
	slices.SortFunc(keys, func(a, b effect.Key) int {
		return slices.Compare([]string{a.Namespace, a.Text}, []string{b.Namespace, b.Text})
	})
}

// compare reads everything in both ledgers, and counts the proofs.
func (h *history) compare(*rapid.T) {
	ctx := h.ctx.t.Context()
	all := effect.Filter{Limit: 100}
	got, err := h.ctx.ledger.List(ctx, all)
	want, _ := h.model.List(ctx, all)
	h.same(fmt.Sprint(err), "<nil>")
	h.same(byKey(got), byKey(want))
	gotCensus, _ := h.ctx.ledger.Census(ctx)
	wantCensus, _ := h.model.Census(ctx)
	h.same(gotCensus, wantCensus)
	for _, record := range want {
		got, receipts, _ := h.ctx.ledger.Load(ctx, record.Key)
		want, wantReceipts, _ := h.model.Load(ctx, record.Key)
		h.same(got, want)
		h.same(receipts, wantReceipts)
		h.proofs(receipts)
	}
}

// byKey sorts records whose states began at the same time.
func byKey(records []effect.Record) map[string]effect.Record {
	sorted := make(map[string]effect.Record)
	for _, r := range records {
		sorted[r.Key.String()] = r
	}
	return sorted
}

// proofs holds the receipts of one record against the invariant: executions <=
// 1 + proofs.
func (h *history) proofs(receipts []effect.Receipt) {
	executions, proofs := 0, 0
	for _, r := range receipts {
		if r.To == effect.Executing && r.From != effect.Held && r.From != r.To {
			executions++
		}
		if r.To == effect.Failed && r.From != r.To {
			proofs++
		}
		if executions > 1+proofs {
			h.Fatalf("%d executions with %d proofs: %+v", executions, proofs, receipts)
		}
	}
}
