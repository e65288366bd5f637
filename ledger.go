package gateway

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddymcp/gateway/effect"
)

// LedgerStore is what the modules in the namespace `mcp_gateway.ledgers` are:
// a place where effects can be on record.
type LedgerStore interface {
	caddy.Module

	// Place names the place to people, without secrets. Where two stores of a
	// module have the same place they are one.
	Place() string

	// OneHost reports whether only one host can use the place.
	OneHost() bool

	// Open opens the place, and creates it if it is not there. What it returns
	// tells onBatch how many commands shared a write. An error names the place.
	Open(ctx context.Context, onBatch func(size int)) (effect.Ledger, error)
}

// sweepEvery is a third of the lease of a call: what has run out is ambiguous
// for everybody, and counted, before another lease has passed.
const sweepEvery = 10 * time.Second

// sweepTime bounds one sweep of a store that stalls.
const sweepTime = 30 * time.Second

// closeTime bounds the wait for a ledger to close.
const closeTime = 10 * time.Second

var errLedgerReleased = errors.New("the ledger is not in use any more")

// ledgers holds the ledger of each place in use.
var ledgers = caddy.NewUsagePool()

// placeOf is the key of a ledger in the pool.
type placeOf struct {
	module caddy.ModuleID
	place  string
}

func keyOf(s LedgerStore) placeOf { return placeOf{s.CaddyModule().ID, s.Place()} }

// useLedger returns the ledger of a store, which the caller must release.
func useLedger(s LedgerStore) (*sharedLedger, error) {
	pooled, _, err := ledgers.LoadOrNew(keyOf(s), func() (caddy.Destructor, error) { return newSharedLedger(s), nil })
	if err != nil {
		return nil, err
	}
	return pooled.(*sharedLedger), nil
}

func releaseLedger(s LedgerStore) error {
	_, err := ledgers.Delete(keyOf(s))
	return err
}

// sharedLedger is the ledger of one place, which all configurations of this
// process share. It is open from the start of the first of them until neither
// a configuration nor a request uses it: a reload neither waits for the
// requests that are under way nor may it take the ledger from them.
type sharedLedger struct {
	store    LedgerStore
	patience time.Duration // closeTime, but for tests

	ready  chan struct{} // closed once the ledger is open, or will never be
	ledger *observedLedger
	err    error // why it will never be open

	mu     sync.Mutex
	users  int // the requests, and one for all configurations
	closed bool

	secret  atomic.Pointer[effect.Secret]
	stop    context.CancelFunc // ends the sweeping
	sweeper sync.WaitGroup
}

func newSharedLedger(s LedgerStore) *sharedLedger {
	return &sharedLedger{store: s, patience: closeTime, ready: make(chan struct{}), users: 1}
}

// open opens the store, unless it is open. Caddy starts and cleans up one
// configuration after the other: open and Destruct never run at once.
func (l *sharedLedger) open(ctx context.Context) error {
	if l.ledger != nil {
		return nil
	}
	ledger, err := l.store.Open(ctx, observeBatch)
	if err != nil {
		return err
	}
	openLedgers.opened()
	l.ledger = observe(ledger)
	close(l.ready)
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.sweeper.Go(func() { l.sweepAlways(ctx) })
	return nil
}

// Destruct is called once no configuration uses the ledger. A ledger that does
// not close, as where a disk stalls, is left to itself: until this returns Caddy
// can neither load another configuration nor stop. At its exit it is waited for.
func (l *sharedLedger) Destruct() error {
	if l.ledger == nil {
		l.err = errLedgerReleased
		close(l.ready)
	}
	released := make(chan struct{})
	go func() {
		defer close(released)
		l.release()
	}()
	select {
	case <-released:
	case <-time.After(l.patience):
		ledgerLogger().Error("the ledger does not close: look at its disk", zap.String("ledger", l.store.Place()))
	}
	return nil
}

// acquire keeps the ledger open until the caller releases it, once. Each
// request that may use it does so, and what goes on after it.
func (l *sharedLedger) acquire() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users++
	return l.release
}

func (l *sharedLedger) release() {
	l.mu.Lock()
	l.users--
	last := l.users == 0 && !l.closed
	l.closed = l.closed || last
	l.mu.Unlock()
	if last && l.ledger != nil {
		l.close()
	}
}

func (l *sharedLedger) close() {
	defer openLedgers.closed()
	l.stop()
	l.sweeper.Wait()
	if err := l.ledger.Close(); err != nil {
		ledgerLogger().Error("closing the ledger", zap.String("ledger", l.store.Place()), zap.Error(err))
	}
}

// opened returns the ledger once it is open. Apps are started in any order: a
// server may have its first request before the ledger is there, and one of a
// configuration that is gone may come when it was closed.
func (l *sharedLedger) opened(ctx context.Context) (*observedLedger, error) {
	select {
	case <-l.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errLedgerReleased
	}
	return l.ledger, l.err
}

// sweepAlways sweeps and counts until it is stopped. To count takes the longer
// the more there is, half a second for a million records: it takes at most a
// hundredth of the time.
func (l *sharedLedger) sweepAlways(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	var nextCount time.Time
	for {
		l.sweep(ctx)
		if began := time.Now(); !began.Before(nextCount) {
			l.count(ctx)
			nextCount = began.Add(100 * time.Since(began))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// sweep does what time has made due. An error leaves that to the next sweep.
func (l *sharedLedger) sweep(ctx context.Context) {
	l.limited(ctx, "sweeping the ledger", l.ledger.sweep)
}

// count counts what is on record, for metrics.
func (l *sharedLedger) count(ctx context.Context) {
	l.limited(ctx, "counting what is in the ledger", l.ledger.count)
}

// limited does something within sweepTime, and logs its error.
func (l *sharedLedger) limited(ctx context.Context, what string, do func(context.Context) error) {
	limited, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	if err := do(limited); err != nil && ctx.Err() == nil {
		ledgerLogger().Error(what, zap.String("ledger", l.store.Place()), zap.Error(err))
	}
}

// Apply applies a command, as effect.Ledger says.
func (l *sharedLedger) Apply(ctx context.Context, c effect.Command) (effect.Change, error) {
	ledger, err := l.opened(ctx)
	if err != nil {
		return effect.Change{}, err
	}
	return ledger.Apply(ctx, c)
}

// Secret returns what callers are digested with.
func (l *sharedLedger) Secret(ctx context.Context) (effect.Secret, error) {
	if secret := l.secret.Load(); secret != nil {
		return *secret, nil
	}
	ledger, err := l.opened(ctx)
	if err != nil {
		return effect.Secret{}, err
	}
	secret, err := ledger.Secret(ctx)
	if err == nil {
		l.secret.Store(&secret)
	}
	return secret, err
}

// Task returns the record whose call became a task.
func (l *sharedLedger) Task(ctx context.Context, t effect.Task) (effect.Record, bool, error) {
	ledger, err := l.opened(ctx)
	if err != nil {
		return effect.Record{}, false, err
	}
	return ledger.Task(ctx, t)
}

// List returns the records that a filter selects, as the last sweep left them.
func (l *sharedLedger) List(ctx context.Context, f effect.Filter) ([]effect.Record, error) {
	ledger, err := l.opened(ctx)
	if err != nil {
		return nil, err
	}
	return ledger.List(ctx, f)
}

// Load returns the record of a key, as it was last written, and its receipts.
func (l *sharedLedger) Load(ctx context.Context, key effect.Key) (effect.Record, []effect.Receipt, error) {
	ledger, err := l.opened(ctx)
	if err != nil {
		return effect.Record{}, nil, err
	}
	return ledger.Load(ctx, key)
}

// Interface guards
var _ caddy.Destructor = (*sharedLedger)(nil)
