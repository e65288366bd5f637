package sqlite_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/sqlite"
)

func TestPowerCutsLoseNothing(t *testing.T) {
	const cuts = 300
	acked, lost := cutPower(t, "FULL", cuts)
	t.Logf("%d cuts: of %d that were acknowledged %d are lost", cuts, acked, len(lost))
	if len(lost) > 0 {
		t.Errorf("lost: %v", lost)
	}
}

// Without a flush before each answer there is something to lose, or the test
// before this one proves nothing.
func TestPowerCutsLoseWhatIsNotFlushed(t *testing.T) {
	const cuts = 60
	acked, lost := cutPower(t, "NORMAL", cuts)
	t.Logf("%d cuts: of %d that were acknowledged %d are lost", cuts, acked, len(lost))
	var executing, done int
	for _, a := range lost {
		if a.state == effect.Executing {
			executing++
		} else {
			done++
		}
	}
	if executing == 0 || done == 0 {
		t.Errorf("%d reservations and %d outcomes are lost", executing, done)
	}
}

// cutPower cuts the power of a disk so many times, at operations by chance, and
// returns how much was acknowledged and what of it was lost.
func cutPower(t *testing.T, synchronous string, cuts int) (count int, lost []acked) {
	d := newDisk(t, 1)
	var path string
	for cut := range cuts {
		if cut%10 == 0 { // a file does not grow for ever
			path = filepath.Join(t.TempDir(), "ledger.db")
		}
		o := sqlite.Options{VFS: d.name}
		o.Synchronous(synchronous)
		var w workload
		d.cutAfter(1 + d.rand.IntN(1<<(4+d.rand.IntN(9)))) // at the beginning, in a checkpoint, and between
		l, err := sqlite.Open(t.Context(), path, o)
		if err == nil {
			w.run(t.Context(), l, fmt.Sprint(cut), 1000)
			_ = l.Close() // without power
		}
		d.restart(t)
		if l, err = sqlite.Open(t.Context(), path, o); err != nil {
			t.Fatal(err)
		}
		count += len(w.acked)
		lost = append(lost, w.lost(t, l)...)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return count, lost
}
