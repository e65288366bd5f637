package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/ncruces/go-sqlite3"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/effecttest"
	"github.com/caddymcp/gateway/effect/sqlite"
	"github.com/caddymcp/gateway/outcome"
)

// Whatever callers do at once, there is an order in which the table does the
// same.
func TestLinearizability(t *testing.T) {
	clock := effecttest.NewClock()
	now := clock.Now()
	model := porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			keys := make(map[effect.Key][]porcupine.Operation)
			for _, op := range history {
				key := op.Input.(effect.Command).Target()
				keys[key] = append(keys[key], op)
			}
			var parts [][]porcupine.Operation
			for _, part := range keys {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() any { return effect.Record{} },
		Step: func(state, input, output any) (bool, any) {
			want := effect.Step(state.(effect.Record), input.(effect.Command), now)
			return reflect.DeepEqual(want, output), want.After
		},
		Equal: reflect.DeepEqual,
	}
	for round := range 5 {
		l, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), sqlite.Options{Now: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var history []porcupine.Operation
		var callers sync.WaitGroup
		start := time.Now()
		for caller := range 8 {
			callers.Go(func() {
				var last effect.Reservation
				apply := func(c effect.Command) effect.Change {
					call := time.Since(start)
					change, err := l.Apply(t.Context(), c)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					history = append(history, porcupine.Operation{ClientId: caller, Input: c, Call: int64(call), Output: change, Return: int64(time.Since(start))})
					return change
				}
				for i := range 60 {
					c := newCall(fmt.Sprint((i + caller) % 4))
					if change := apply(c); change.Answer == effect.Forward {
						last = change.After.Reservation()
					}
					if last.Attempt == 0 {
						continue
					}
					switch i % 5 {
					case 0:
						apply(effect.Withdrawal{Reservation: last})
					case 1:
						apply(effect.Renewal{Reservation: last, Lease: time.Minute})
					case 4:
						apply(newOutcome(last, outcome.Ambiguous))
					default:
						apply(newOutcome(last, outcome.Failed))
					}
				}
			})
		}
		callers.Wait()
		shut(t, l)
		if !porcupine.CheckOperations(model, history) {
			t.Fatalf("round %d: there is no such order", round)
		}
	}
}

// One command that cannot be applied is an error to its caller alone.
func TestOthersDoNotFailWithOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := open(t, path)
	for i := range 4 {
		if _, err := l.Apply(t.Context(), newCall(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	shut(t, l)
	execute(t, path, `UPDATE records SET state = 'nowhere' WHERE key LIKE '%0%'; UPDATE records SET outline = x'7b' WHERE key LIKE '%1%';
		UPDATE records SET token = x'00' WHERE key LIKE '%2%'`)

	l = open(t, path)
	defer shut(t, l)
	unlock := lock(t, path)
	var callers sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		callers.Go(func() { _, errs[i] = l.Apply(t.Context(), newCall(fmt.Sprint(i))) })
	}
	unlock()
	callers.Wait()
	for i, err := range errs {
		if unreadable := i < 3; unreadable != (err != nil) || unreadable && !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// lock has another connection write until what it returns is called.
func lock(t *testing.T, path string) (unlock func()) {
	t.Helper()
	db, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := db.Exec("COMMIT"); err != nil {
			t.Error(err)
		}
		db.Close()
	}
}

// While another process writes, a caller waits as long as it wants to; what is
// only read does not wait.
func TestAnotherProcessWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := open(t, path)
	defer shut(t, l)
	if _, err := l.Apply(t.Context(), newCall("old")); err != nil {
		t.Fatal(err)
	}
	unlock := lock(t, path)
	if change, err := l.Apply(t.Context(), newCall("old")); err != nil || change.Answer != effect.InProgress {
		t.Errorf("%s, %v", change.Answer, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	answered := make(chan error)
	go func() {
		_, err := l.Apply(ctx, newCall("new"))
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("answered with %v", err)
	default:
	}
	cancel(nil)
	if err := <-answered; err == nil {
		t.Error("answered without an error")
	}
	unlock()
	if change, err := l.Apply(t.Context(), newCall("new")); err != nil || change.Answer != effect.Forward {
		t.Errorf("%s, %v", change.Answer, err)
	}
}

// The write-ahead log begins anew when there is enough in it. Who reads for long
// keeps it from that, and when they are done it is cut.
func TestLogDoesNotGrow(t *testing.T) {
	d := newDisk(t, 6)
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := d.openLedger(t, path)
	defer shut(t, l)
	round := 0
	sizeAfter := func(calls int) int64 {
		var w workload
		w.run(t.Context(), l, fmt.Sprint(round), calls/8)
		round++
		info, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	const most = 24 << 20 // 4000 pages of 4 KiB, and what is written until they are moved
	if got := sizeAfter(4000); got > most {
		t.Errorf("the log has %d bytes", got)
	}

	reader, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := reader.Exec("BEGIN; SELECT count(*) FROM records"); err != nil {
		t.Fatal(err)
	}
	const limit = 64 << 20
	for sizeAfter(1000) < limit+most {
	}
	if err := reader.Exec("COMMIT"); err != nil {
		t.Fatal(err)
	}
	if got := sizeAfter(4000); got > limit {
		t.Errorf("the log still has %d bytes", got)
	}
}

// Each commit is told to whoever counts.
func TestOnBatch(t *testing.T) {
	var sizes []int
	l, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), sqlite.Options{OnBatch: func(size int, took time.Duration) {
		if sizes = append(sizes, size); took <= 0 {
			t.Errorf("it took %v", took)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second is refused
		if _, err := l.Apply(t.Context(), newCall("x")); err != nil {
			t.Fatal(err)
		}
	}
	shut(t, l)
	if !reflect.DeepEqual(sizes, []int{1}) {
		t.Errorf("commits of %v", sizes)
	}
}

// A file that is not where it was is nobody else's record any more: whoever opens
// the path now begins anew. Nothing is let through, until it is back.
func TestFileThatWasRemoved(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("what is open cannot be removed there")
	}
	for name, takeAway := range map[string]func(path string) error{
		"removed": func(path string) error { return os.Rename(path, path+".away") },
		"replaced": func(path string) error {
			return errors.Join(os.Rename(path, path+".away"), os.WriteFile(path, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger.db")
			l := open(t, path)
			defer shut(t, l)
			if _, err := l.Apply(t.Context(), newCall("x")); err != nil {
				t.Fatal(err)
			}
			if err := takeAway(path); err != nil {
				t.Fatal(err)
			}
			if change, err := l.Apply(t.Context(), newCall("y")); err == nil || !strings.Contains(err.Error(), "the file was removed or replaced: bring it back") {
				t.Errorf("%s, %v", change.Answer, err)
			}
			if err := os.Rename(path+".away", path); err != nil {
				t.Fatal(err)
			}
			if change, err := l.Apply(t.Context(), newCall("y")); err != nil || change.Answer != effect.Forward {
				t.Errorf("%s, %v", change.Answer, err)
			}
		})
	}
}
