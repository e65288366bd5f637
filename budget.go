package gateway

import (
	"net/http"
	"sync/atomic"

	"github.com/caddymcp/gateway/mcpheaders"
)

// budget bounds the sum of the bytes that requests hold at once.
type budget struct {
	limit   int64
	reserve int64 // of limit, for requests that hold no more than smallHold
	part    bool  // what is taken of it is counted in another budget too
	used    atomic.Int64
}

// smallHold is how much a request may hold, in bytes, to draw on the reserve:
// far more than most messages have. The large ones, which one client can send
// as many of as it likes, never keep these out.
const smallHold = 64 << 10

// setLimit sets the limit, and sets a quarter of it aside for the small, unless
// one request could then not hold as much as the largest.
func (b *budget) setLimit(limit, largest int64) {
	b.limit = limit
	b.reserve = max(min(limit/4, limit-largest), 0)
}

// take reports whether a request that holds held bytes already may hold n more,
// and counts them if so.
func (b *budget) take(n, held int64) bool {
	limit := b.limit
	if held+n > smallHold {
		limit -= b.reserve
	}
	if b.used.Add(n) > limit {
		b.used.Add(-n)
		return false
	}
	b.count(n)
	return true
}

// give returns n bytes that were taken.
func (b *budget) give(n int64) {
	b.used.Add(-n)
	b.count(-n)
}

func (b *budget) count(n int64) {
	if !b.part {
		heldBytes.Add(float64(n))
	}
}

// bodyShare is what one body takes of a budget. The transport gives it back in
// its own goroutine, or the handler when it ends, whichever is first.
type bodyShare struct {
	budget *budget
	bytes  atomic.Int64
}

// take is the budget's, and adds to the share.
func (s *bodyShare) take(n int64) bool {
	if !s.budget.take(n, s.bytes.Load()) {
		return false
	}
	s.bytes.Add(n)
	return true
}

// give returns the share to the budget.
func (s *bodyShare) give() { s.budget.give(s.bytes.Swap(0)) }

// codeOverloaded is the error of a request that was refused for the sum of
// what others hold. Nothing was forwarded.
const codeOverloaded = -41015

// overloaded refuses a request that does not fit into the budget. It is no row
// of the admission table: nothing is wrong with the request.
func overloaded() *mcpheaders.Refusal {
	return &mcpheaders.Refusal{
		Reason: "overloaded",
		Status: http.StatusServiceUnavailable,
		Code:   codeOverloaded,
		Text:   "the gateway holds as many bytes as max_held allows; nothing was forwarded, try again in a moment",
	}
}
