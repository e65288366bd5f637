package gateway

import (
	"net/http"
	"strings"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/mcpheaders"
)

// restricts reports whether any tools are denied.
func (h *Handler) restricts() bool { return len(h.Deny)+len(h.AllowOnly) > 0 }

// denies reports whether the tool of this name is denied.
func (h *Handler) denies(name string) bool {
	return matchesAny(h.Deny, name) || len(h.AllowOnly) > 0 && !matchesAny(h.AllowOnly, name)
}

// mayDeny reports whether a server that folds names, or ends them at a NUL
// character, may take this one for that of a tool that is denied.
func (h *Handler) mayDeny(name string) bool {
	before, _, _ := strings.Cut(name, "\x00")
	return h.denies(name) || h.denies(before) || h.denied.Lookalike(before)
}

// isDenied reports whether the message calls a tool that is denied. With enforce
// off a message goes on that was not admitted: then it is enough that a server
// might read such a call in it.
func (c *call) isDenied() bool {
	switch {
	case !c.h.restricts():
		return false
	case c.admitted:
		return c.message.Method == toolsCall && c.h.denies(c.name)
	}
	return jsonrpc.MayCall(c.body, c.h.mayDeny)
}

// reasonDenied is the reason of a call of a tool that is denied.
const reasonDenied = "denied"

// denied refuses a call of a tool that is denied. It is no row of the admission
// table: nothing is wrong with the request, and enforce off, which tries
// admission out, does not lift what the operator said of a tool.
func denied() *mcpheaders.Refusal {
	return &mcpheaders.Refusal{
		Reason: reasonDenied,
		Status: http.StatusOK,
		Code:   effect.CodeDenied,
		Text: "this tool is not allowed here, and nothing was forwarded; do not call it again, nor another tool for the same effect: " +
			"only the operator of this server can allow it",
	}
}
