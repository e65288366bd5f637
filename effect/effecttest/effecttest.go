// Package effecttest is what every ledger must pass: stories of one effect,
// read against the tables of the design, and random histories that are
// compared with a ledger in memory and with what really happened.
package effecttest

import (
	"sync"
	"testing"
	"time"

	"github.com/caddymcp/gateway/effect"
)

// Clock is the time of a ledger under test. It stands still until it is
// advanced.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that stands at a time with microseconds.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, 7, 28, 12, 0, 0, 123456000, time.UTC)}
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the time on.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Open returns a ledger without any records that takes its time from the
// clock. The suite closes it.
type Open func(t *testing.T, clock *Clock) effect.Ledger

// Run tests a kind of ledger.
func Run(t *testing.T, open Open) {
	t.Run("stories", func(t *testing.T) { runStories(t, open) })
	t.Run("reading", func(t *testing.T) { runReading(t, open) })
	t.Run("concurrency", func(t *testing.T) { runConcurrency(t, open) })
	t.Run("errors", func(t *testing.T) { runErrors(t, open) })
	t.Run("histories", func(t *testing.T) { runHistories(t, open) })
}
