package effect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
)

// sharedWrites is a ledger in which a write waits for as many others as there
// are keys due, as if they shared it.
type sharedWrites struct {
	Ledger
	due     []Key
	broken  Key
	arrived sync.WaitGroup
}

var errBroken = errors.New("broken")

func (l *sharedWrites) Due(context.Context, int) ([]Key, error) { return l.due, nil }

func (l *sharedWrites) Apply(_ context.Context, c Command) (Change, error) {
	l.arrived.Done()
	l.arrived.Wait()
	switch c.Target() {
	case l.broken:
		return Change{}, errBroken
	case NewKey("", "0"): // another process was first
		return Change{}, nil
	}
	return Change{Before: Record{Key: c.Target()}, Written: true}, nil
}

// A sweep applies at once what shares a write, and returns what changed also
// where something failed: it is not told again.
func TestSweepSharesWrites(t *testing.T) {
	l := &sharedWrites{broken: NewKey("", "3")}
	for i := range 5 {
		l.due = append(l.due, NewKey("", fmt.Sprint(i)))
	}
	l.arrived.Add(len(l.due))
	changes, err := Sweep(t.Context(), l)
	if !errors.Is(err, errBroken) {
		t.Errorf("got error %v", err)
	}
	var swept []string
	for _, c := range changes {
		swept = append(swept, c.Before.Key.Text)
	}
	if got := fmt.Sprint(swept); got != `[["1"] ["2"] ["4"]]` {
		t.Errorf("got %s", got)
	}
}
