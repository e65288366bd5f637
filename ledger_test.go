package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/effecttest"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
	"github.com/caddymcp/gateway/outcome"
)

func init() {
	caddy.RegisterModule(&spyLedger{})
	caddy.RegisterModule(&protector{})
	httpcaddyfile.RegisterHandlerDirective("protect", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		p := new(protector)
		h.Next()
		for nesting := h.Nesting(); h.NextBlock(nesting); {
			switch h.Val() {
			case "namespace":
				h.AllArgs(&p.Namespace)
			case "tools":
				p.Tools = h.RemainingArgs()
			case "bare":
				p.Bare = h.RemainingArgs()
			}
		}
		return p, nil
	})
	httpcaddyfile.RegisterDirectiveOrder("protect", httpcaddyfile.Before, "respond")
	caddy.RegisterModule(failingApp{})
	httpcaddyfile.RegisterGlobalOption("failing_app", func(*caddyfile.Dispenser, any) (any, error) {
		return httpcaddyfile.App{Name: "failing_app", Value: []byte("{}")}, nil
	})
}

// failingApp cannot be started.
type failingApp struct{}

func (failingApp) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "failing_app", New: func() caddy.Module { return new(failingApp) }}
}
func (failingApp) Start() error { return errors.New("no") }
func (failingApp) Stop() error  { return nil }

// spyLedger is a store in memory, of which a test sees how it is used.
type spyLedger struct {
	Name string `json:"name"`

	spy *spy
}

type spy struct {
	clock  *effecttest.Clock
	gate   chan struct{} // opening waits until it is closed
	stall  chan struct{} // closing waits until it is closed, if there is one
	refuse error         // with which it cannot be opened

	mu     sync.Mutex
	opened int
	closed chan struct{} // one value for each time that it was closed
	fail   error         // with which every command ends
	memory *effecttest.Memory
}

// spies are those of the running test.
var spies = struct {
	sync.Mutex
	byName map[string]*spy
}{byName: make(map[string]*spy)}

// newSpy makes a store that configurations of the test name.
func newSpy(t *testing.T, name string) *spy {
	t.Helper()
	s := &spy{clock: effecttest.NewClock(), gate: make(chan struct{}), closed: make(chan struct{}, 100)}
	s.memory = effecttest.NewMemory(s.clock)
	close(s.gate)
	spies.Lock()
	defer spies.Unlock()
	spies.byName[name] = s
	return s
}

func (s *spy) opens() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

func (s *spy) failing(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// awaitClosed waits until the store was closed once more.
func (s *spy) awaitClosed(t *testing.T) {
	t.Helper()
	select {
	case <-s.closed:
	case <-time.After(20 * time.Second):
		t.Fatal("the store was not closed")
	}
}

// stillOpen wants the store not to be closed.
func (s *spy) stillOpen(t *testing.T) {
	t.Helper()
	select {
	case <-s.closed:
		t.Fatal("the store was closed")
	default:
	}
}

func (*spyLedger) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mcp_gateway.ledgers.spy", New: func() caddy.Module { return new(spyLedger) }}
}

func (l *spyLedger) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	d.AllArgs(&l.Name)
	return nil
}

func (l *spyLedger) Provision(caddy.Context) error {
	spies.Lock()
	defer spies.Unlock()
	l.spy = spies.byName[l.Name]
	return nil
}

func (l *spyLedger) Place() string { return "spy " + l.Name }
func (*spyLedger) OneHost() bool   { return false }

func (l *spyLedger) Open(_ context.Context, onBatch func(int)) (effect.Ledger, error) {
	<-l.spy.gate
	l.spy.mu.Lock()
	defer l.spy.mu.Unlock()
	l.spy.opened++
	if l.spy.refuse != nil {
		return nil, l.spy.refuse
	}
	return &spiedLedger{Ledger: l.spy.memory, spy: l.spy, onBatch: onBatch}, nil
}

type spiedLedger struct {
	effect.Ledger
	spy     *spy
	onBatch func(int)
}

func (l *spiedLedger) Apply(ctx context.Context, c effect.Command) (effect.Change, error) {
	l.spy.mu.Lock()
	err := l.spy.fail
	l.spy.mu.Unlock()
	if err != nil {
		return effect.Change{}, err
	}
	l.onBatch(1)
	return l.Ledger.Apply(ctx, c)
}

// Close leaves the records for whoever opens the store again.
func (l *spiedLedger) Close() error {
	if l.spy.stall != nil {
		<-l.spy.stall
	}
	l.spy.closed <- struct{}{}
	return nil
}

// protector protects tools as the handler does, in short: a request reserves
// the effect that its path names, and records the outcome that its query says.
type protector struct {
	Namespace string   `json:"namespace"`
	Tools     []string `json:"tools"`
	Bare      []string `json:"bare"`

	ledger *sharedLedger
}

func (*protector) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.protect", New: func() caddy.Module { return new(protector) }}
}

func (p *protector) Provision(ctx caddy.Context) error {
	app, err := ctx.App("mcp_gateway")
	if err != nil {
		return err
	}
	p.ledger = app.(*App).ledger()
	return app.(*App).use(p.Namespace, p.Tools, p.Bare)
}

// atWork is met twice by a request whose query says so: when its effect is
// reserved, and before its outcome is recorded.
var atWork = make(chan struct{})

func (p *protector) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	defer p.ledger.acquire()()
	call := testCall(effect.NewKey(p.Namespace, strings.TrimPrefix(r.URL.Path, "/")))
	change, err := p.ledger.Apply(r.Context(), call)
	if err != nil {
		return err
	}
	if r.URL.Query().Has("wait") {
		atWork <- struct{}{}
		atWork <- struct{}{}
	}
	if word := r.URL.Query().Get("outcome"); word != "" && change.Answer == effect.Forward {
		change, err = p.ledger.Apply(r.Context(), testOutcome(change.After.Reservation(), word))
		if err != nil {
			return err
		}
	}
	fmt.Fprint(w, change.Answer, " ", change.After.State)
	return nil
}

var tokens struct {
	sync.Mutex
	last byte
}

func testCall(key effect.Key) effect.Call {
	tokens.Lock()
	defer tokens.Unlock()
	tokens.last++
	return effect.Call{
		Key: key, Token: effect.Token{tokens.last}, Tool: "create_refund", Caller: "alice", Who: "alice", Revision: "2026-07-28",
		Lease: 30 * time.Second, SettleAfter: 150 * time.Second, Retain: 720 * time.Hour,
		Arguments: []byte(`{"card":"4000000000000002"}`),
	}
}

func testOutcome(r effect.Reservation, word string) effect.Outcome {
	o := effect.Outcome{Reservation: r, Observation: "test", Upstream: "127.0.0.1:9000", Bytes: 456}
	switch word {
	case "committed":
		o.Outcome, o.Answer, o.ReplayFor = outcome.Committed, []byte(`{"content":["secret"]}`), time.Hour
	case "failed":
		o.Outcome = outcome.Failed
	case "ambiguous":
		o.Outcome = outcome.Ambiguous
	}
	return o
}

// spied is a configuration that protects tools with a spied ledger.
func spied(name string) incaddy.Config {
	return incaddy.Config{
		Global: "mcp_gateway {\nledger spy " + name + "\n}",
		Site:   "protect {\ntools create_refund\n}",
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	response, err := incaddy.Client(t, false).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// A ledger is opened by the first configuration that starts, kept by those
// that follow, and closed after the last.
func TestLedgerOverReloads(t *testing.T) {
	s := newSpy(t, "reloaded")
	first := incaddy.Run(t, spied("reloaded"))
	if got := get(t, first.URL+"/1?outcome=committed"); got != "recorded committed" {
		t.Fatal(got)
	}
	shared := running.newest().ledger()
	second := incaddy.Run(t, spied("reloaded"))
	if running.newest().ledger() != shared {
		t.Error("a reload changed the ledger")
	}
	if got := get(t, second.URL+"/1"); got != "replay committed" {
		t.Error(got)
	}
	s.stillOpen(t)
	second.Stop(t)
	s.awaitClosed(t)
	if s.opens() != 1 {
		t.Errorf("the store was opened %d times", s.opens())
	}
	if running.newest() != nil {
		t.Error("an app is left running")
	}
}

// A configuration that moves the ledger leaves the old place to the requests
// that are under way, and so does the end of all configurations.
func TestLedgerOutlivesItsConfiguration(t *testing.T) {
	old, next := newSpy(t, "old"), newSpy(t, "next")
	cfg := spied("old")
	site := incaddy.Run(t, cfg)
	answers := make(chan string)
	go func() {
		response, err := http.Get(site.URL + "/1?wait&outcome=committed")
		if err != nil {
			answers <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		answers <- string(body)
	}()
	<-atWork
	incaddy.Run(t, spied("next"))
	if next.opens() != 1 {
		t.Error("the next place is not open")
	}
	old.stillOpen(t)
	<-atWork
	if got := <-answers; got != "recorded committed" {
		t.Error(got)
	}
	old.awaitClosed(t)
	next.stillOpen(t)
}

// A ledger that does not close, as on a disk that has gone, keeps Caddy neither
// from another configuration nor from its end.
func TestLedgerThatDoesNotClose(t *testing.T) {
	s := newSpy(t, "stalled")
	s.stall = make(chan struct{})
	store := &spyLedger{Name: "stalled", spy: s}
	shared, err := useLedger(store)
	if err != nil {
		t.Fatal(err)
	}
	shared.patience = time.Millisecond
	if err := shared.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := releaseLedger(store); err != nil {
		t.Error(err)
	}
	s.stillOpen(t)
	if n, _ := openLedgers.await(); n != 1 {
		t.Errorf("%d ledgers are open, want the one that an exit waits for", n)
	}
	close(s.stall)
	s.awaitClosed(t)
}

// What comes after the ledger is closed gets an error and changes nothing.
func TestLedgerAfterItsEnd(t *testing.T) {
	s := newSpy(t, "ended")
	site := incaddy.Run(t, spied("ended"))
	shared := running.newest().ledger()
	site.Stop(t)
	s.awaitClosed(t)
	shared.acquire()()
	s.stillOpen(t) // it is not closed twice
	if _, err := shared.Apply(t.Context(), testCall(effect.NewKey("", "1"))); !errors.Is(err, errLedgerReleased) {
		t.Errorf("got %v", err)
	}
	giveUp(shared, shared.acquire(), testCall(effect.NewKey("", "1"))) // and nobody tries on
}

// A server may have a request before the ledger is open, which waits for it.
func TestLedgerAwaited(t *testing.T) {
	s := newSpy(t, "awaited")
	s.gate = make(chan struct{})
	store := &spyLedger{Name: "awaited"}
	if err := store.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	shared, err := useLedger(store)
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := shared.Apply(gone, testCall(effect.NewKey("", "1"))); !errors.Is(err, context.Canceled) {
		t.Errorf("whoever is gone waits: %v", err)
	}
	answers := make(chan effect.Answer)
	for range 3 {
		go func() {
			change, err := shared.Apply(context.Background(), testCall(effect.NewKey("", "1")))
			if err != nil {
				t.Error(err)
			}
			answers <- change.Answer
		}()
	}
	close(s.gate)
	if err := shared.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	forwarded := 0
	for range 3 {
		if <-answers == effect.Forward {
			forwarded++
		}
	}
	if forwarded != 1 {
		t.Errorf("%d calls were let through, want 1", forwarded)
	}
	first, err := shared.Secret(t.Context())
	again, err2 := shared.Secret(t.Context())
	if err != nil || err2 != nil || first == (effect.Secret{}) || first != again {
		t.Errorf("secrets: %x %v, %x %v", first, err, again, err2)
	}
	if err := releaseLedger(store); err != nil {
		t.Error(err)
	}
	s.awaitClosed(t)
}

// Whoever waits for a ledger that will not be opened is told so.
func TestLedgerNeverOpened(t *testing.T) {
	s := newSpy(t, "never")
	store := &spyLedger{Name: "never", spy: s}
	shared, err := useLedger(store)
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error)
	go func() {
		release := shared.acquire()
		defer release()
		_, err := shared.Apply(context.Background(), testCall(effect.NewKey("", "1")))
		errs <- err
	}()
	if err := releaseLedger(store); err != nil {
		t.Error(err)
	}
	if err := <-errs; !errors.Is(err, errLedgerReleased) {
		t.Errorf("got %v", err)
	}
	if s.opens() != 0 {
		t.Error("the store was opened")
	}
}

// Validation and configurations that fail do not touch the store, and leave
// the one that runs as it was.
func TestLedgerUntouched(t *testing.T) {
	running1 := newSpy(t, "running")
	site := incaddy.Run(t, spied("running"))
	other := newSpy(t, "other")

	cfg := spied("other")
	cfg.Also = "http://127.0.0.1:0 {\nprotect {\ntools a\n}\n}" // the namespace is taken
	incaddy.Refused(t, cfg)
	if other.opens() != 0 {
		t.Error("a configuration that is refused opened the store")
	}

	js, err := incaddy.Adapt("{\nadmin off\nmcp_gateway {\nledger spy other\n}\n}\nhttp://127.0.0.1:0 {\nprotect {\ntools a\n}\n}")
	if err != nil {
		t.Fatal(err)
	}
	var config caddy.Config
	if err := caddy.StrictUnmarshalJSON(js, &config); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&config); err != nil {
		t.Fatal(err)
	}
	if other.opens() != 0 {
		t.Error("validation opened the store")
	}

	other.refuse = errors.New("the disk is on fire")
	if err := incaddy.Refused(t, spied("other")); !strings.Contains(err.Error(), "start: the disk is on fire") {
		t.Errorf("got %v", err)
	}
	cfg = spied("running")
	cfg.Global += "\nfailing_app"
	for range 8 { // apps are started in any order
		incaddy.Refused(t, cfg)
	}
	running1.stillOpen(t)
	if got := get(t, site.URL+"/1"); got != "forward executing" {
		t.Error(got)
	}
	if a := running.newest(); a == nil || a.ledger().store.Place() != "spy running" {
		t.Error("the configuration that runs is not the newest any more")
	}
}

// Reloads take the ledger from no request, and leave nothing behind.
func TestLedgerUnderReloads(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	ln.Close()
	cfg := incaddy.Config{
		Global: "mcp_gateway {\nledger sqlite " + t.TempDir() + "/effects.db\n}",
		Site:   "protect {\ntools create_refund\n}",
		Port:   port,
	}
	site := incaddy.Run(t, cfg)
	shared := running.newest().ledger()
	client := incaddy.Client(t, false)
	reloaded := make(chan struct{})
	var clients sync.WaitGroup
	var answered atomic.Int64
	for c := range 4 {
		clients.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-reloaded:
					return
				default:
				}
				response, err := client.Get(fmt.Sprintf("%s/%d-%d?outcome=committed", site.URL, c, i))
				if err != nil {
					continue // a socket that is replaced drops connections that nobody has accepted
				}
				if body, err := io.ReadAll(response.Body); err != nil || string(body) != "recorded committed" {
					t.Errorf("got %s, %v", body, err)
				}
				response.Body.Close()
				answered.Add(1)
			}
		})
	}
	for range 50 {
		incaddy.Run(t, cfg)
	}
	close(reloaded)
	clients.Wait()
	if answered.Load() == 0 {
		t.Error("no request was answered")
	}
	if running.newest().ledger() != shared {
		t.Error("the ledger is another one")
	}
	if apps := len(running.apps); apps != 1 {
		t.Errorf("%d apps are running", apps)
	}
	site.Stop(t)
	select {
	case <-shared.ledger.announcer.done:
	case <-time.After(20 * time.Second):
		t.Error("the ledger is not closed")
	}
}
