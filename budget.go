package gateway

import (
	"net/http"
	"sync/atomic"

	"github.com/caddymcp/gateway/mcpheaders"
)

// budget bounds the sum of the bytes that a handler's requests hold at once.
type budget struct {
	limit int64
	used  atomic.Int64
}

// take reports whether n more bytes may be held, and counts them if so.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	heldBytes.Add(float64(n))
	return true
}

// give returns n bytes that were taken.
func (b *budget) give(n int64) {
	b.used.Add(-n)
	heldBytes.Sub(float64(n))
}

// bodyShare is what one body takes of a budget. The transport gives it back in
// its own goroutine, or the handler when it ends, whichever is first.
type bodyShare struct {
	budget *budget
	bytes  atomic.Int64
}

// take is the budget's, and adds to the share.
func (s *bodyShare) take(n int64) bool {
	if !s.budget.take(n) {
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
