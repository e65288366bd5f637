package effecttest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/outcome"
)

// many are five effects, one in a second: two committed, two ambiguous, one
// executing.
func many(t *testing.T, open Open) *story {
	s := newStory(t, open)
	for i, o := range []outcome.Outcome{outcome.Committed, outcome.Ambiguous, outcome.Committed, outcome.Ambiguous} {
		s.key = effect.NewKey("payments", fmt.Sprint(i))
		s.apply(func() effect.Outcome { c := committed(s.reserved()); c.Outcome = o; return c }())
		s.after(time.Second)
	}
	s.key = effect.NewKey("payments", "4")
	s.reserved()
	return s
}

func runReading(t *testing.T, open Open) {
	t.Run("secret", func(t *testing.T) {
		s, other := newStory(t, open), newStory(t, open)
		read := func(l effect.Ledger) effect.Secret {
			secret, err := l.Secret(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return secret
		}
		secret := read(s.ledger)
		if secret == (effect.Secret{}) || read(s.ledger) != secret {
			t.Error("a ledger has not one secret")
		}
		if read(other.ledger) == secret {
			t.Error("two ledgers have the same secret")
		}
	})
	t.Run("list", func(t *testing.T) {
		s := many(t, open)
		start := s.clock.Now().Add(-4 * time.Second)
		for _, c := range []struct {
			name   string
			filter effect.Filter
			want   []string
		}{
			{"all", effect.Filter{Limit: 9}, []string{"0", "1", "2", "3", "4"}},
			{"the first", effect.Filter{Limit: 2}, []string{"0", "1"}},
			{"ambiguous", effect.Filter{State: effect.Ambiguous, Limit: 9}, []string{"1", "3"}},
			{"ambiguous for some time", effect.Filter{State: effect.Ambiguous, Before: start.Add(2 * time.Second), Limit: 9}, []string{"1"}},
			{"before", effect.Filter{Before: start.Add(2 * time.Second), Limit: 9}, []string{"0", "1"}},
			{"none", effect.Filter{State: effect.Held, Limit: 9}, nil},
		} {
			records, err := s.ledger.List(t.Context(), c.filter)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range records {
				got = append(got, r.Key.Text[2:3])
				if r.Answer != nil {
					t.Errorf("%s: a list carries a result", c.name)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: got %v, want %v", c.name, got, c.want)
			}
		}
	})
	t.Run("census", func(t *testing.T) {
		s := many(t, open)
		census, err := s.ledger.Census(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(census.Records); got != "map[executing:1 committed:2 ambiguous:2]" {
			t.Errorf("got %s", got)
		}
		if want := s.clock.Now().Add(-3 * time.Second); !census.Oldest.Equal(want) {
			t.Errorf("the oldest is of %v, want %v", census.Oldest, want)
		}
	})
	t.Run("census of nothing", func(t *testing.T) {
		census, err := newStory(t, open).ledger.Census(t.Context())
		if err != nil || len(census.Records) != 0 || !census.Oldest.IsZero() {
			t.Errorf("got %+v, %v", census, err)
		}
	})
	t.Run("receipts", func(t *testing.T) {
		s := many(t, open)
		receipts, err := s.ledger.Receipts(t.Context(), 3)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range receipts {
			got = append(got, r.Key.Text+r.To.String())
		}
		if want := []string{`["4"]executing`, `["3"]ambiguous`, `["3"]executing`}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
	t.Run("due", func(t *testing.T) {
		s := many(t, open)
		for _, c := range []struct {
			advance time.Duration
			limit   int
			want    int
		}{{0, 9, 0}, {lease, 9, 1}, {replayFor, 9, 3}, {0, 2, 2}} {
			keys, err := s.after(c.advance).ledger.Due(t.Context(), c.limit)
			if err != nil || len(keys) != c.want {
				t.Errorf("%d are due, want %d: %v", len(keys), c.want, err)
			}
		}
		changes, err := effect.Sweep(t.Context(), s.ledger)
		if err != nil || len(changes) != 3 {
			t.Errorf("%d changes, want 3: %v", len(changes), err)
		}
		if keys, _ := s.ledger.Due(t.Context(), 9); len(keys) != 0 {
			t.Errorf("%v are due after a sweep", keys)
		}
	})
	t.Run("many are swept", func(t *testing.T) {
		s := newStory(t, open)
		const n = 600
		for i := range n {
			s.key = effect.NewKey("payments", fmt.Sprint(i))
			s.call()
		}
		changes, err := effect.Sweep(t.Context(), s.after(lease).ledger)
		if err != nil || len(changes) != n {
			t.Errorf("%d changes, want %d: %v", len(changes), n, err)
		}
	})
}

func runConcurrency(t *testing.T, open Open) {
	t.Run("one of many callers of one key is let through", func(t *testing.T) {
		s := newStory(t, open)
		var commands []effect.Command
		for range 64 {
			commands = append(commands, s.command())
		}
		if got := s.together(commands); got[effect.Forward] != 1 || got[effect.InProgress] != 63 {
			t.Errorf("got %v", got)
		}
	})
	t.Run("one of many continuations is let through", func(t *testing.T) {
		s := newStory(t, open)
		s.apply(held(s.reserved(), "one"))
		var commands []effect.Command
		for range 64 {
			commands = append(commands, s.command(continuing("one")))
		}
		if got := s.together(commands); got[effect.Forward] != 1 || got[effect.InProgress] != 63 {
			t.Errorf("got %v", got)
		}
	})
	t.Run("callers of other keys are let through", func(t *testing.T) {
		s := newStory(t, open)
		var commands []effect.Command
		for i := range 64 {
			s.key = effect.NewKey("payments", fmt.Sprint(i))
			commands = append(commands, s.command())
		}
		if got := s.together(commands); got[effect.Forward] != 64 {
			t.Errorf("got %v", got)
		}
	})
	t.Run("a failed key lets one through at a time", func(t *testing.T) {
		s := newStory(t, open)
		var at, most, forwarded atomic.Int64
		var callers sync.WaitGroup
		for range 8 {
			c := s.command()
			callers.Go(func() {
				for i := range 20 {
					c.Token[15], c.Token[14] = byte(i), 1
					change, err := s.ledger.Apply(t.Context(), c)
					if err != nil {
						t.Error(err)
						return
					}
					if change.Answer != effect.Forward {
						continue
					}
					if at.Add(1) > 1 {
						most.Add(1)
					}
					forwarded.Add(1)
					at.Add(-1)
					if _, err := s.ledger.Apply(t.Context(), result(change.After.Reservation(), outcome.Failed)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		record, _ := s.load()
		if most.Load() != 0 || record.Attempt != forwarded.Load() {
			t.Errorf("%d at a time; %d attempts, of which %d were forwarded", most.Load()+1, record.Attempt, forwarded.Load())
		}
	})
}

// together applies commands at the same time and counts the answers.
func (s *story) together(commands []effect.Command) map[effect.Answer]int {
	s.t.Helper()
	answers := make([]effect.Answer, len(commands))
	start := make(chan struct{})
	var callers sync.WaitGroup
	for i, c := range commands {
		callers.Go(func() {
			<-start
			change, err := s.ledger.Apply(s.t.Context(), c)
			if err != nil {
				s.t.Error(err)
			}
			answers[i] = change.Answer
		})
	}
	close(start)
	callers.Wait()
	count := make(map[effect.Answer]int)
	for _, a := range answers {
		count[a]++
	}
	return count
}

func runErrors(t *testing.T, open Open) {
	t.Run("a command whose context is done can be repeated", func(t *testing.T) {
		s := newStory(t, open)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c := s.command()
		if change, err := s.ledger.Apply(ctx, c); err == nil {
			t.Errorf("%s without an error", change.Answer)
		}
		s.apply(c).wants(effect.Forward, effect.Executing)
		if s.last.After.Attempt != 1 {
			t.Errorf("attempt %d, want 1", s.last.After.Attempt)
		}
	})
	t.Run("a ledger that is closed refuses", func(t *testing.T) {
		clock := NewClock()
		s := &story{t: t, ledger: open(t, clock), clock: clock, key: effect.NewKey("", "x")}
		if err := s.ledger.Close(); err != nil {
			t.Fatal(err)
		}
		if change, err := s.ledger.Apply(t.Context(), s.command()); err == nil {
			t.Errorf("%s without an error", change.Answer)
		}
		if _, _, err := s.ledger.Load(t.Context(), s.key); err == nil {
			t.Error("loaded without an error")
		}
		if _, err := effect.Sweep(t.Context(), s.ledger); err == nil {
			t.Error("swept without an error")
		}
		if _, err := s.ledger.Secret(t.Context()); err == nil {
			t.Error("its secret was read without an error")
		}
	})
}
