package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/caddymcp/gateway/effect"
)

// A disk that fails is an error to those whose commands it was, and nothing
// else: what is acknowledged is there after a loss of power, also what was
// repeated, and the ledger goes on when the disk does.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name  string
		on    op
		err   error
		times int // operations
	}{
		{"a write fails", writing, sqlite3.IOERR_WRITE, 1},
		{"a flush fails", syncing, sqlite3.IOERR_FSYNC, 1},
		{"flushes fail", syncing, sqlite3.IOERR_FSYNC, 4},
		{"the disk is full", writing, errFull, 1 << 30},
		{"the disk is full for a moment", writing, errFull, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDisk(t, 2)
			path := filepath.Join(t.TempDir(), "ledger.db")
			failed := 0
			for n := range 25 {
				l, w := d.openLedger(t, path), workload{}
				left := n // operations that succeed
				d.inject(func(o op, _ string) error {
					if o != c.on {
						return nil
					}
					if left--; left < 0 && left >= -c.times {
						return c.err
					}
					return nil
				})
				w.run(t.Context(), l, fmt.Sprint(n), 6)
				d.inject(nil)
				failed += len(w.failed)
				again := w.failed
				w.failed = nil
				for _, command := range again {
					w.apply(t.Context(), l, command)
				}
				w.run(t.Context(), l, fmt.Sprint(n, " afterwards"), 2)
				if len(w.failed) > 0 {
					t.Fatalf("fails although the disk does not: %v", w.failed)
				}
				d.cutAfter(1)
				_ = l.Close() // without power
				d.restart(t)
				l = d.openLedger(t, path)
				if lost := w.lost(t, l); len(lost) > 0 {
					t.Fatalf("lost after operation %d: %v", n, lost)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if failed == 0 {
				t.Error("no command failed")
			}
		})
	}
}

// A caller waits no longer than it wants to for a disk that stalls. What it
// asked for and was not begun is not done any more.
func TestStall(t *testing.T) {
	d := newDisk(t, 3)
	l := d.openLedger(t, filepath.Join(t.TempDir(), "ledger.db"))
	defer l.Close()

	gate, stalled := make(chan struct{}), make(chan struct{}, 100)
	d.inject(func(o op, _ string) error {
		if o == syncing {
			stalled <- struct{}{}
			<-gate
		}
		return nil
	})
	first := make(chan effect.Change)
	go func() {
		change, err := l.Apply(t.Context(), newCall("first"))
		if err != nil {
			t.Error(err)
		}
		first <- change
	}()
	<-stalled

	ctx, cancel := context.WithCancel(t.Context())
	second := make(chan error)
	go func() {
		_, err := l.Apply(ctx, newCall("second"))
		second <- err
	}()
	for l.Queued() == 0 {
		runtime.Gosched()
	}
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}

	close(gate)
	if change := <-first; change.Answer != effect.Forward {
		t.Errorf("got %s", change.Answer)
	}
	// One after the other: once this is answered, the second was passed over.
	if _, err := l.Apply(t.Context(), newCall("third")); err != nil {
		t.Fatal(err)
	}
	if record, _, err := l.Load(t.Context(), newCall("second").Key); err != nil || record.State != effect.None {
		t.Errorf("%s, %v", record.State, err)
	}
}

// A call costs two flushes of the log, and a refused duplicate nothing.
func TestFlushes(t *testing.T) {
	d := newDisk(t, 4)
	l := d.openLedger(t, filepath.Join(t.TempDir(), "ledger.db"))
	defer l.Close()
	var w workload
	w.call(t.Context(), l, "the first begins the log", 0)

	const calls = 20
	before := d.syncs.Load()
	for i := range calls {
		w.call(t.Context(), l, fmt.Sprint(i), 0)
	}
	if got := d.syncs.Load() - before; got != 2*calls {
		t.Errorf("%d flushes for %d calls", got, calls)
	}

	d.inject(func(o op, file string) error {
		t.Errorf("a %s of %s", o, file[strings.LastIndex(file, "."):])
		return nil
	})
	for range calls {
		if change, err := l.Apply(t.Context(), newCall("0")); err != nil || change.Answer != effect.Replay {
			t.Fatalf("%s, %v", change.Answer, err)
		}
	}
	d.inject(nil)
}
