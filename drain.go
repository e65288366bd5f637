package gateway

import (
	"context"
	"fmt"
	"time"
)

// errDrained ends an exchange whose client is gone and whose outcome nobody
// learned in time. It wraps context.Canceled, upon which reverse_proxy gives up
// at once instead of trying again.
var errDrained = fmt.Errorf("the client is gone and the time to learn the outcome of its call is over: %w", context.Canceled)

// detach returns the context of a protected exchange, which goes on for some
// time when the client goes away: what became of the call is recorded, and the
// client that comes back is told. The caller must call stop.
func (h *Handler) detach(client context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(client))
	left := make(chan struct{}) // closed once what follows a client's leaving is over
	ended := make(chan struct{})
	watching := context.AfterFunc(client, func() {
		defer close(left)
		if !h.drained.enter() {
			cancel(errDrained)
			return
		}
		defer h.drained.leave()
		timer := time.NewTimer(time.Duration(h.Drain))
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(errDrained)
		case <-ended:
		}
	})
	return ctx, func() {
		close(ended)
		if !watching() {
			<-left
		}
		cancel(nil)
	}
}
