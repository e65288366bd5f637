package effecttest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"

	"github.com/caddymcp/gateway/effect"
)

// Memory is a ledger that forgets everything with its process: the model that
// the others are compared with.
type Memory struct {
	clock  *Clock
	secret effect.Secret

	mu       sync.Mutex
	closed   bool
	records  map[effect.Key]effect.Record
	receipts []effect.Receipt
}

// NewMemory returns an empty ledger.
func NewMemory(clock *Clock) *Memory {
	m := &Memory{clock: clock, records: make(map[effect.Key]effect.Record)}
	_, _ = rand.Read(m.secret[:]) // it never fails
	return m
}

var errClosed = errors.New("the ledger is closed")

// begin locks the ledger if it can be used.
func (m *Memory) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return errClosed
	}
	return nil
}

// Apply implements effect.Ledger.
func (m *Memory) Apply(ctx context.Context, c effect.Command) (effect.Change, error) {
	if err := m.begin(ctx); err != nil {
		return effect.Change{}, err
	}
	defer m.mu.Unlock()
	key := c.Target()
	change := effect.Step(m.records[key], c, m.clock.Now())
	if !change.Written {
		return change, nil
	}
	m.receipts = append(m.receipts, change.Receipts...)
	if change.After.State != effect.None {
		m.records[key] = change.After
		return change, nil
	}
	delete(m.records, key)
	m.receipts = slices.DeleteFunc(m.receipts, func(r effect.Receipt) bool { return r.Key == key })
	return change, nil
}

// Load implements effect.Ledger.
func (m *Memory) Load(ctx context.Context, key effect.Key) (effect.Record, []effect.Receipt, error) {
	if err := m.begin(ctx); err != nil {
		return effect.Record{}, nil, err
	}
	defer m.mu.Unlock()
	var receipts []effect.Receipt
	for _, r := range m.receipts {
		if r.Key == key {
			receipts = append(receipts, r)
		}
	}
	return m.records[key], receipts, nil
}

// List implements effect.Ledger.
func (m *Memory) List(ctx context.Context, f effect.Filter) ([]effect.Record, error) {
	return m.find(ctx, f.Limit, func(r *effect.Record) bool {
		return (f.State == effect.None || r.State == f.State) && (f.Before.IsZero() || r.Since.Before(f.Before))
	})
}

// find returns the records that are wanted, in the order of List.
func (m *Memory) find(ctx context.Context, limit int, wanted func(*effect.Record) bool) ([]effect.Record, error) {
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var found []effect.Record
	for _, r := range m.records {
		if wanted(&r) {
			r.Answer = nil
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b effect.Record) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key.Namespace, b.Key.Namespace), cmp.Compare(a.Key.Text, b.Key.Text))
	})
	return found[:min(limit, len(found))], nil
}

// Receipts implements effect.Ledger.
func (m *Memory) Receipts(ctx context.Context, limit int) ([]effect.Receipt, error) {
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	receipts := slices.Clone(m.receipts)
	slices.Reverse(receipts)
	return receipts[:min(limit, len(receipts))], nil
}

// Task implements effect.Ledger.
func (m *Memory) Task(ctx context.Context, t effect.Task) (effect.Record, bool, error) {
	found, err := m.find(ctx, 2, func(r *effect.Record) bool {
		return t.ID != "" && t == effect.Task{Namespace: r.Key.Namespace, Upstream: r.Upstream, Caller: r.Caller, ID: r.TaskID} &&
			(r.State == effect.Deferred || r.State == effect.Ambiguous)
	})
	if len(found) != 1 {
		return effect.Record{}, false, err
	}
	return found[0], true, nil
}

// Due implements effect.Ledger.
func (m *Memory) Due(ctx context.Context, limit int) ([]effect.Key, error) {
	now := m.clock.Now()
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	var keys []effect.Key
	for key, r := range m.records {
		if due := r.Due(); !due.IsZero() && !due.After(now) && len(keys) < limit {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// Census implements effect.Ledger.
func (m *Memory) Census(ctx context.Context) (effect.Census, error) {
	if err := m.begin(ctx); err != nil {
		return effect.Census{}, err
	}
	defer m.mu.Unlock()
	census := effect.Census{Records: make(map[effect.State]int64)}
	for _, r := range m.records {
		census.Records[r.State]++
		if r.State == effect.Ambiguous && (census.Oldest.IsZero() || r.Since.Before(census.Oldest)) {
			census.Oldest = r.Since
		}
	}
	return census, nil
}

// Secret implements effect.Ledger.
func (m *Memory) Secret(ctx context.Context) (effect.Secret, error) {
	if err := m.begin(ctx); err != nil {
		return effect.Secret{}, err
	}
	defer m.mu.Unlock()
	return m.secret, nil
}

// Close implements effect.Ledger.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}
