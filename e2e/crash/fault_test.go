//go:build linux

package crash

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/sqlite"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

func init() { caddy.RegisterModule(&faultyLedger{}) }

// faultyLedger is an SQLite ledger with faults.
type faultyLedger struct {
	Path string `json:"path"`
}

func (*faultyLedger) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mcp_gateway.ledgers.faulty", New: func() caddy.Module { return new(faultyLedger) }}
}

func (l *faultyLedger) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	d.AllArgs(&l.Path)
	return nil
}

func (l *faultyLedger) Place() string { return l.Path }
func (*faultyLedger) OneHost() bool   { return true }

func (l *faultyLedger) Open(ctx context.Context, onBatch func(int)) (effect.Ledger, error) {
	opened, err := sqlite.Open(ctx, l.Path, sqlite.Options{
		OnBatch: func(size int, _ time.Duration) { onBatch(size) }, VFS: injected.vfs, Now: injected.now,
	})
	if err != nil {
		return nil, err
	}
	injected.opened(1)
	return &faulty{opened}, nil
}

// faults are what is injected into the ledger of the running test.
type faults struct {
	vfs string

	mu      sync.Mutex
	changed *sync.Cond
	ahead   time.Duration              // by which the ledger's clock is
	fault   func(effect.Command) fault // nil for none
	met     []string                   // the commands that were applied or failed, by their types
	open    int                        // how many ledgers are
}

// fault is what happens to a command.
type fault struct {
	stalls chan<- struct{} // is told, if there is one, when the command begins to wait
	stall  chan struct{}   // it waits for this before it is done
	err    error           // it is answered with this
	done   bool            // and is done all the same
}

var injected faults

func (f *faults) opened(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open += n
}

func (f *faults) now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Add(f.ahead)
}

// later moves the ledger's clock on.
func (f *faults) later(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead += d
}

// inject has commands of the type of one meet a fault, from the next on, as
// many times as given.
func (f *faults) inject(like effect.Command, times int, what fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = func(c effect.Command) fault {
		if fmt.Sprintf("%T", c) != fmt.Sprintf("%T", like) || times == 0 {
			return fault{}
		}
		times--
		return what
	}
}

// heal ends the faults.
func (f *faults) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = nil
}

func (f *faults) meets(c effect.Command) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fault == nil {
		return fault{}
	}
	return f.fault(c)
}

func (f *faults) note(c effect.Command, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := strings.TrimPrefix(fmt.Sprintf("%T", c), "effect.")
	if err != nil {
		text += " failed"
	}
	f.met = append(f.met, text)
	f.changed.Broadcast()
}

// await waits until something was applied, or has failed.
func (f *faults) await(t *testing.T, what string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	defer time.AfterFunc(patience, f.changed.Broadcast).Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for !strings.Contains(strings.Join(f.met, ",")+",", what+",") {
		if time.Now().After(deadline) {
			t.Fatalf("no %s, but %v", what, f.met)
		}
		f.changed.Wait()
	}
}

type faulty struct{ effect.Ledger }

func (l *faulty) Apply(ctx context.Context, c effect.Command) (change effect.Change, err error) {
	f := injected.meets(c)
	if f.stalls != nil {
		f.stalls <- struct{}{}
	}
	if f.stall != nil {
		select {
		case <-f.stall:
		case <-ctx.Done():
			return change, ctx.Err()
		}
	}
	defer func() { injected.note(c, err) }()
	if f.err != nil && !f.done {
		return change, f.err
	}
	if change, err = l.Ledger.Apply(ctx, c); f.err != nil {
		return effect.Change{}, f.err
	}
	return change, err
}

func (l *faulty) Close() error {
	injected.opened(-1)
	return l.Ledger.Close()
}

var errFault = errors.New("the ledger is broken")

// faultySite is a site in this process whose ledger meets faults.
type faultySite struct {
	*incaddy.Site
	place *place
	up    *upstream
}

func runFaulty(t *testing.T, vfs string) *faultySite {
	t.Helper()
	injected = faults{vfs: vfs}
	injected.changed = sync.NewCond(&injected.mu)
	p := newPlace(t, "")
	up := serve(t, p)
	site := incaddy.Run(t, incaddy.Config{
		Global: fmt.Sprintf("mcp_gateway {\nledger faulty %s\n}", p.ledger),
		Site:   "mcp_gateway {\ntool create_refund {\neffect refund {http.mcp.args.payment_id}\n}\n}\nreverse_proxy unix/" + p.upstream(),
	})
	return &faultySite{site, p, up}
}

func (s *faultySite) call(t *testing.T, c call) answer {
	return c.send(context.Background(), incaddy.Client(t, false), s.URL)
}

// wantState wants a state on record, as another process reads it.
func (s *faultySite) wantState(t *testing.T, want effect.State) {
	t.Helper()
	s.place.wantState(t, "txn", want)
}

func (s *faultySite) wantOneExecution(t *testing.T) {
	t.Helper()
	if executed := s.up.executions("txn"); len(executed) != 1 {
		t.Errorf("executed by %v, want one", executed)
	}
}

// wantNotReserved wants the refusal of a call that could not be put on record.
func (s *faultySite) wantNotReserved(t *testing.T, c call, a answer) {
	t.Helper()
	if a.status != http.StatusServiceUnavailable || a.code() != effect.CodeNotRecorded || a.header.Get("Retry-After") == "" {
		t.Errorf("answered %s with Retry-After %q", &a, a.header.Get("Retry-After"))
	}
	if s.up.has(c.serial) {
		t.Error("the call was forwarded")
	}
}

// wantPasses wants the next call to be let through, and the one after that to
// get its answer again.
func (s *faultySite) wantPasses(t *testing.T) {
	t.Helper()
	c := newCall("txn", answers)
	if a := s.call(t, c); a.committed() != c.serial {
		t.Errorf("the next call is answered %s", &a)
	}
	s.wantReplay(t, c.serial)
	s.wantOneExecution(t)
}

func (s *faultySite) wantReplay(t *testing.T, serial string) {
	t.Helper()
	if a := s.call(t, newCall("txn", answers)); a.replayed() != serial {
		t.Errorf("the same call is answered %s", &a)
	}
}

// A reservation that cannot be written is told as what it is, and leaves
// nothing behind that keeps the call from being made.
func TestReservationFault(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault fault
	}{
		{"it is not written", fault{err: errFault}},
		{"it is written, and said not to be", fault{err: errFault, done: true}},
		{"it takes too long", fault{stall: make(chan struct{})}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := runFaulty(t, "")
			injected.inject(effect.Call{}, 1, c.fault)
			lost := newCall("txn", answers)
			s.wantNotReserved(t, lost, s.call(t, lost))
			injected.await(t, "Withdrawal")
			s.wantState(t, effect.Failed)
			s.wantPasses(t)
		})
	}
	t.Run("its client goes away", func(t *testing.T) {
		s := runFaulty(t, "")
		stalls := make(chan struct{}, 1)
		injected.inject(effect.Call{}, 1, fault{stall: make(chan struct{}), stalls: stalls})
		ctx, leave := context.WithCancel(t.Context())
		lost, left := newCall("txn", answers), make(chan struct{})
		go func() {
			defer close(left)
			lost.send(ctx, incaddy.Client(t, false), s.URL)
		}()
		<-stalls
		leave()
		<-left
		injected.await(t, "Withdrawal")
		if s.up.has(lost.serial) {
			t.Error("the call was forwarded")
		}
		s.wantState(t, effect.Failed)
		s.wantPasses(t)
	})
	t.Run("and for longer than the lease", func(t *testing.T) {
		s := runFaulty(t, "")
		injected.inject(effect.Call{}, 2, fault{err: errFault, done: true})
		lost := newCall("txn", answers)
		s.wantNotReserved(t, lost, s.call(t, lost))
		injected.later(time.Minute)
		injected.await(t, "Withdrawal")
		s.wantState(t, effect.Failed)
		s.wantPasses(t)
	})
}

// An outcome that cannot be written keeps nothing from the client.
func TestOutcomeFault(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault fault
		then  effect.State // once the client has its answer
	}{
		{"it is not written", fault{err: errFault}, effect.Executing},
		{"it is written, and said not to be", fault{err: errFault, done: true}, effect.Committed},
		{"it takes too long", fault{stall: make(chan struct{})}, effect.Executing},
	} {
		for _, script := range []string{answers, streams} {
			if c.fault.stall != nil && script == streams {
				continue // it takes its time
			}
			t.Run(c.name+", script "+script, func(t *testing.T) {
				s := runFaulty(t, "")
				injected.inject(effect.Outcome{}, -1, c.fault)
				first := newCall("txn", script)
				s.wantUnrecorded(t, first)
				s.wantState(t, c.then)
				injected.heal()
				if c.fault.stall != nil {
					close(c.fault.stall)
				}
				injected.await(t, "Outcome")
				s.wantState(t, effect.Committed)
				s.wantReplay(t, first.serial)
				s.wantOneExecution(t)
			})
		}
	}
	t.Run("until the lease has run out", func(t *testing.T) {
		s := runFaulty(t, "")
		injected.inject(effect.Outcome{}, -1, fault{err: errFault})
		first := newCall("txn", answers)
		s.wantUnrecorded(t, first)
		if a := s.call(t, newCall("txn", answers)); !a.refusedFor(effect.CodeInProgress, effect.Executing) {
			t.Errorf("answered %s", &a)
		}
		injected.later(time.Minute)
		if a := s.call(t, newCall("txn", answers)); !a.refusedFor(effect.CodeAmbiguous, effect.Ambiguous) {
			t.Errorf("answered %s", &a)
		}
		injected.heal()
		injected.await(t, "Outcome") // late, and better than nothing
		s.wantReplay(t, first.serial)
		s.wantOneExecution(t)
	})
}

// wantUnrecorded wants the upstream's own answer, and the word that it is not
// on record.
func (s *faultySite) wantUnrecorded(t *testing.T, c call) {
	t.Helper()
	a := s.call(t, c)
	m := a.mark()
	if a.Result == nil || a.Result.StructuredContent.Serial != c.serial || m.Outcome != "committed" || m.Recorded == nil || *m.Recorded {
		t.Errorf("answered %s", &a)
	}
}

// A disk that is full is no different.
func TestFullDisk(t *testing.T) {
	d := &fullDisk{VFS: vfs.Find("")}
	name := filepath.Base(t.Name())
	vfs.Register(name, d)
	defer vfs.Unregister(name)

	t.Run("before the call", func(t *testing.T) {
		s := runFaulty(t, name)
		d.fill(true)
		lost := newCall("txn", answers)
		s.wantNotReserved(t, lost, s.call(t, lost))
		injected.await(t, "Call failed")
		d.fill(false)
		injected.await(t, "Withdrawal")
		s.wantPasses(t)
	})
	t.Run("during the call", func(t *testing.T) {
		s := runFaulty(t, name)
		first := newCall("txn", waits)
		told := make(chan answer)
		go func() { told <- s.call(t, first) }()
		<-s.up.arrived
		d.fill(true)
		close(s.up.speak)
		a := <-told
		if m := a.mark(); m.Outcome != "committed" || m.Recorded == nil || *m.Recorded {
			t.Errorf("answered %s", &a)
		}
		d.fill(false)
		injected.await(t, "Outcome")
		s.wantReplay(t, first.serial)
		s.wantOneExecution(t)
	})
}

// fullDisk is a file system of SQLite's that can be full.
type fullDisk struct {
	vfs.VFS

	mu   sync.Mutex
	full bool
}

func (d *fullDisk) fill(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

func (d *fullDisk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	f, flags, err := vfsutil.WrapOpenFilename(d.VFS, name, flags)
	if err != nil {
		return nil, flags, err
	}
	return &fileOnFullDisk{f, d}, flags, nil
}

type fileOnFullDisk struct {
	vfs.File
	disk *fullDisk
}

func (f *fileOnFullDisk) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }

func (f *fileOnFullDisk) WriteAt(p []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.full {
		return 0, vfs.SystemError(syscall.ENOSPC, sqlite3.FULL)
	}
	return f.File.WriteAt(p, off)
}
