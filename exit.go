package gateway

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

func init() {
	caddy.OnExit(func(context.Context) { awaitLedgers() })
}

// exitTime is for how long a Caddy that is told to stop waits for what is to be
// recorded, where no grace_period is configured.
const exitTime = time.Minute

// grace is the grace_period of the newest configuration, 0 for none.
var grace atomic.Int64

// noteGrace notes the time that an operator grants to what is under way.
func noteGrace(ctx caddy.Context) {
	app, err := ctx.AppIfConfigured("http")
	if err != nil {
		return
	}
	grace.Store(int64(app.(*caddyhttp.App).GracePeriod))
}

// openLedgers counts the ledgers that are open.
var openLedgers openCount

type openCount struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when the last was closed
}

func (c *openCount) opened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n++; c.n == 1 {
		c.none = make(chan struct{})
	}
}

func (c *openCount) closed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 {
		close(c.none)
	}
}

// await returns how many are open, and what is closed when none is any more.
func (c *openCount) await() (n int, none <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n, c.none
}

// awaitLedgers waits until nobody uses a ledger any more. Caddy itself waits for
// connections alone: not for what goes on after a response, nor over HTTP/2 for a
// call whose client is gone.
func awaitLedgers() {
	open, closed := openLedgers.await()
	if open == 0 {
		return
	}
	limit := time.Duration(grace.Load())
	if limit == 0 {
		limit = exitTime
	}
	log := ledgerLogger()
	log.Info("waiting until the outcomes of all tool calls are on record", zap.Duration("at_most", limit))
	select {
	case <-closed:
	case <-time.After(limit):
		log.Warn("not everything is on record: outcomes of tool calls that are not will be ambiguous")
	}
}
