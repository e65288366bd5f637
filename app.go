package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
)

func init() {
	caddy.RegisterModule(&App{})
}

// App is what all handlers `mcp_gateway` of a configuration share: the ledger
// in which the effects of their protected tools are on record. It needs no
// configuration as long as Caddy's own `storage` is the local file system.
//
// It emits these events, whose data name an effect (`namespace`, `key`, `tool`,
// `attempt`) and say what became of it (`state`, `since`, `observation`):
//
// Event | Description
// ------|------------
// `mcp_gateway.ambiguous` | Nobody knows whether an effect happened: its calls are refused until a person resolves it
// `mcp_gateway.resolved` | That is known now, or a committed effect was reopened; if by a person, `who` and `why` say so
// `mcp_gateway.alarm` | An attempt that was settled as failed, or given up, has happened after all: the effect may have happened twice
type App struct {
	// Where effects are on record. Default: `sqlite`, in the file
	// `mcp_gateway/effects.db` under Caddy's data directory. Where Caddy's
	// `storage` is not the local file system, several hosts are likely, and
	// effects need this set.
	LedgerRaw json.RawMessage `json:"ledger,omitempty" caddy:"namespace=mcp_gateway.ledgers inline_key=store"`

	ctx    caddy.Context
	logger *zap.Logger
	events *caddyevents.App
	chosen bool // the ledger is configured, and not the default
	local  bool // Caddy's storage is the local file system
	store  LedgerStore
	shared *sharedLedger
	uses   []ledgerUse
	tasks  []func() // that begin with the configuration
}

// ledgerUse is what one handler says of its tools.
type ledgerUse struct {
	namespace string
	protected []string // patterns of tools with an effect
	bare      []string // patterns of tools without one
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "mcp_gateway",
		New: func() caddy.Module { return new(App) },
	}
}

// Provision takes part in the ledger, and opens nothing: a configuration may be
// provisioned only to be validated.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx, a.logger = ctx, ctx.Logger()
	if err := registerMetrics(ctx.GetMetricsRegistry()); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	events, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("loading events: %w", err)
	}
	a.events = events.(*caddyevents.App)
	_, a.local = ctx.Storage().(*certmagic.FileStorage)
	a.chosen = len(a.LedgerRaw) > 0
	if !a.chosen {
		a.LedgerRaw = json.RawMessage(`{"store":"sqlite"}`)
	}
	module, err := ctx.LoadModule(a, "LedgerRaw")
	if err != nil {
		return fmt.Errorf("loading ledger: %w", err)
	}
	store, ok := module.(LedgerStore)
	if !ok {
		return fmt.Errorf("loading ledger: module %T holds no ledger", module)
	}
	a.store = store
	a.shared, err = useLedger(store)
	return err
}

// use says which tools a handler protects, and which it knows and does not
// protect. A handler with protected tools calls it when it is provisioned.
func (a *App) use(namespace string, protected, bare []string) error {
	if !a.chosen && !a.local {
		return fmt.Errorf("tools have effects and Caddy's storage is not the local file system: other hosts may serve them too, and each would have a ledger of its own; name the ledger in the global option mcp_gateway, as in: ledger sqlite %s", a.store.Place())
	}
	if slices.ContainsFunc(a.uses, func(u ledgerUse) bool { return u.namespace == namespace }) {
		if namespace == "" {
			return fmt.Errorf("two handlers protect tools and have no namespace, %s", oneOfTwo)
		}
		return fmt.Errorf("two handlers protect tools in namespace %q, %s", namespace, oneOfTwo)
	}
	a.uses = append(a.uses, ledgerUse{namespace, protected, bare})
	return nil
}

// whenStarted begins a task once the configuration is started and the ledger is
// open. One that is only provisioned must leave no trace in it.
func (a *App) whenStarted(task func()) { a.tasks = append(a.tasks, task) }

// oneOfTwo says what to do about two handlers in one namespace. They may be two by
// mistake: to give each its own is not always the answer.
const oneOfTwo = "and each would take the effects of the other for its own: give each a namespace of its own if they lead to different servers. If they lead to the same one, as those of a site on two ports do, that would let one call be made twice: serve it on one port"

// ledger is where the effects are on record. It can be used once the
// configuration is started.
func (a *App) ledger() *sharedLedger { return a.shared }

// Start opens the ledger, unless an earlier configuration has it open. Without
// a tool to protect and a line that asks for it there is nothing to open.
func (a *App) Start() error {
	if len(a.uses) == 0 && !a.chosen {
		return nil
	}
	if err := a.shared.open(context.Background()); err != nil {
		return err
	}
	noteGrace(a.ctx)
	running.add(a)
	a.report()
	for _, task := range a.tasks {
		go task()
	}
	return nil
}

// report says in the log what is protected, and where that is on record.
func (a *App) report() {
	protected, bare := make(map[string][]string), make(map[string][]string)
	for _, u := range a.uses {
		protected[u.namespace] = u.protected
		if len(u.bare) > 0 {
			bare[u.namespace] = u.bare
		}
	}
	a.logger.Info("effects are on record",
		zap.String("ledger", a.store.Place()), zap.String("for", hosts(a.store)), zap.Any("tools", protected))
	if len(bare) > 0 {
		a.logger.Info(unprotected, zap.Any("tools", bare))
	}
}

// unprotected is said of tools when Caddy starts, also by a handler that protects
// none.
const unprotected = "tools are configured without an effect: their calls are classified, and not kept from being repeated"

// hosts says who can use a store.
func hosts(s LedgerStore) string {
	if s.OneHost() {
		return "one host"
	}
	return "several hosts"
}

// Stop does nothing. The servers of the configuration may still be at work:
// they are stopped in any order, and Cleanup comes after all of them. It also
// comes where Stop does not, when something else keeps a configuration from
// being started.
func (a *App) Stop() error { return nil }

// Cleanup gives the ledger up. It stays open for other configurations, and for
// requests that are still under way.
func (a *App) Cleanup() error {
	running.remove(a)
	if a.shared == nil {
		return nil
	}
	return releaseLedger(a.store)
}

// runningApps are the apps of the configurations that are started, the newest
// last. While one replaces another there are two, and if it fails to start
// the older goes on.
type runningApps struct {
	mu   sync.Mutex
	apps []*App
}

var running runningApps

func (r *runningApps) add(a *App) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.apps = append(r.apps, a)
}

func (r *runningApps) remove(a *App) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.apps = slices.DeleteFunc(r.apps, func(other *App) bool { return other == a })
}

// newest returns the app of the configuration that was started last, nil if
// none is running.
func (r *runningApps) newest() *App {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.apps) == 0 {
		return nil
	}
	return r.apps[len(r.apps)-1]
}

// ledgerLogger returns the logger of the newest configuration: a ledger lives
// longer than the one that opened it.
func ledgerLogger() *zap.Logger {
	if a := running.newest(); a != nil {
		return a.logger
	}
	return caddy.Log().Named("mcp_gateway")
}

// Interface guards
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
