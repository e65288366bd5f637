package gateway

import (
	"net/http"

	"github.com/caddymcp/gateway/mcpheaders"
)

// tooEarly refuses a tool call that came in TLS early data, which whoever
// recorded it can send again (RFC 8470, section 3). Caddy accepts early data
// over HTTP/3. A client repeats upon this status by itself, once the handshake
// is complete. It is no row of the admission table: nothing is wrong with the
// request but its time.
func (c *call) tooEarly() *mcpheaders.Refusal {
	r := c.request
	if !c.isToolCall() {
		return nil
	}
	// A hop that says anything of early data is taken to say that it is some.
	if (r.TLS == nil || r.TLS.HandshakeComplete) && len(r.Header["Early-Data"]) == 0 {
		return nil
	}
	return &mcpheaders.Refusal{
		Reason: reasonTooEarly,
		Status: http.StatusTooEarly,
		Code:   codeTooEarly,
		Text:   "a tool call in TLS early data could be replayed by others; nothing was forwarded, send it again after the handshake",
	}
}

// The reason and the error code of a tool call in early data.
const (
	reasonTooEarly = "too_early"
	codeTooEarly   = -41016
)
