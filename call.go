package gateway

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/mcpheaders"
	"github.com/caddymcp/gateway/outcome"
)

// call is one request on its way through the handler: what was read of it and
// what became of it.
type call struct {
	h        *Handler
	request  *http.Request       // as it came
	response http.ResponseWriter // to the client

	body      []byte
	complete  bool // the body was read to its end
	message   jsonrpc.Message
	parsed    bool                // the body is a message
	unread    *mcpheaders.Refusal // why the body was not read to its end
	summary   mcpheaders.Summary  // what the message says of itself
	strict    bool                // the body alone could be read in no two ways
	name      string              // the tool, prompt, resource or task that it names
	revision  string              // its protocol revision, as it is shown
	rule      *toolRule           // what is configured for the tool
	known     knowledge           // what is known of its definition
	admission mcpheaders.Admission
	admitted  bool // every row of the admission table passed

	refusal string          // why it was refused, or would have been
	verdict outcome.Verdict // what is known of a tool call, once it has ended
	ended   bool

	reservation *reservation // of a protected call that was let through

	heldBytes int64
}

// callKey is the context key of the call that a request belongs to.
type callKey struct{}

// callContext is the context of a request on its way through the handler.
type callContext struct {
	context.Context // the client's
	call            *call
}

// Value returns the call for its key, and else what the client's context has.
func (ctx *callContext) Value(key any) any {
	if _, ok := key.(callKey); ok {
		return ctx.call
	}
	return ctx.Context.Value(key)
}

// outerCall is the call of an mcp_gateway further out that r has passed, nil if
// there was none.
func outerCall(r *http.Request) *call {
	outer, _ := r.Context().Value(callKey{}).(*call)
	return outer
}

// pass passes on a request that a handler further out has judged: the first one
// decides. What h alone would keep from being called or repeated it cannot let
// through unseen.
func (h *Handler) pass(outer *call, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if outer.h != h && (h.ledger != nil || h.restricts()) {
		return caddyhttp.Error(http.StatusInternalServerError,
			errors.New("an mcp_gateway with effects or denied tools stands inside another mcp_gateway, which has decided already: put their lines into one"))
	}
	return next.ServeHTTP(w, r)
}

// context returns the request's context with the call in it.
func (c *call) context() context.Context { return &callContext{c.request.Context(), c} }

// admit reads the request and judges it by the admission table. Methods other
// than POST carry no message: for them the ladder ends with the head.
func (c *call) admit() *mcpheaders.Refusal {
	r := c.request
	refusal := c.unclearPath()
	if refusal == nil {
		refusal = c.h.policy.Head(r.Method, r.Header)
	}
	if r.Method != http.MethodPost || refusal != nil && c.h.Enforce == on {
		return refusal
	}
	// With enforce off a request that its head would have refused goes on, and
	// may be a tool call like any other.
	later := c.admitMessage()
	if refusal == nil {
		refusal = later
	} else {
		c.admission.Distrust()
	}
	if c.admitted = refusal == nil; c.admitted {
		countParams(len(c.admission.Params), c.admission.UnverifiedParams)
	}
	return refusal
}

// admitMessage reads and judges what a POST carries.
func (c *call) admitMessage() (refusal *mcpheaders.Refusal) {
	r := c.request
	parseErr := c.read()
	if c.unread != nil {
		return c.unread
	}
	c.complete = true
	c.parsed = parseErr == nil
	c.summary = mcpheaders.Summarize(&c.message)
	c.name = c.summary.Name
	c.rule = c.h.tools.find(c.name)
	c.admission, refusal = c.h.policy.Message(&c.message, parseErr, r.Header, r.Trailer, c.bindings())
	c.strict = refusal == nil || refusal.Row > 10
	if refusal == nil {
		refusal = c.tooEarly()
	}
	return refusal
}

// read reads the body and parses it, unless an mcp matcher has done both.
func (c *call) read() (parseErr error) {
	r := c.request
	ahead, ok := r.Body.(*readAhead)
	if !ok || !ahead.whole() {
		c.body, c.unread = readBody(r, &arrival{
			limit:  c.h.MaxBody,
			hold:   c.hold,
			share:  bodyShare{budget: &c.h.arriving},
			grace:  c.h.grace,
			client: http.NewResponseController(c.response),
		})
		if c.unread != nil {
			return nil
		}
		return c.message.Parse(c.body)
	}
	if ahead.size > c.h.MaxBody {
		c.unread = mcpheaders.BodyTooLarge(c.h.MaxBody)
		return nil
	}
	if !c.hold(ahead.share.bytes.Load()) {
		c.unread = overloaded()
		return nil
	}
	found := ahead.take()
	c.body, c.message = found.body, found.message
	return found.parseErr
}

// isToolCall reports whether the request is a tool call that can be answered,
// whose outcome is to be known. With enforce off that includes a message that
// was not admitted, as far as its method and its one id could be read.
func (c *call) isToolCall() bool {
	return c.message.Method == toolsCall && c.message.ID != nil
}

// mayBeToolCall reports whether anything that reads the body less strictly
// might run a tool for it. Of what was admitted only a tool call may.
func (c *call) mayBeToolCall() bool {
	switch c.request.Method {
	case http.MethodGet, http.MethodHead, http.MethodDelete, http.MethodOptions:
		return false
	}
	return c.message.Method == toolsCall || !c.parsed
}

// toolsCall is the JSON-RPC method of a tool call.
const toolsCall = "tools/call"

// forward returns the request as it goes on under ctx: the very bytes that
// were checked, for each mirrored header the one value that was, and nothing
// of the framing that the client chose for them.
func (c *call) forward(ctx context.Context, body *bodyReader) *http.Request {
	r := c.request.WithContext(ctx)
	body.body = c.body
	r.Body = body
	r.GetBody = nil
	// The values are shared with the client's request, which the handlers
	// outside still read: they are replaced, never changed.
	r.Header = maps.Clone(c.request.Header)
	if !c.complete {
		// Only with enforce off: what was not read follows what was.
		body.rest = c.request.Body
		return r
	}
	r.ContentLength = int64(len(c.body))
	r.TransferEncoding = nil
	r.Trailer = nil
	r.Header.Del("Expect") // was met when the body was read
	if c.admitted {
		for _, header := range c.admission.Forward {
			if !isOnly(r.Header[header.Name], header.Value) {
				r.Header[header.Name] = []string{header.Value}
			}
		}
	}
	return r
}

// withoutBody returns a request that carries no message, as it goes on. A body
// has no meaning there, but a server that lets a header override the method
// would take it for a POST that nobody checked.
func (c *call) withoutBody() *http.Request {
	// Handlers beneath may rewrite headers, and whose request it was is asked
	// for as long as its answer lasts.
	r := c.request.WithContext(c.request.Context())
	r.Header = maps.Clone(c.request.Header)
	if r.ContentLength == 0 || c.h.Enforce == off {
		return r
	}
	r.Body = http.NoBody
	r.ContentLength = 0
	r.TransferEncoding = nil
	r.Trailer = nil
	r.Header.Del("Content-Length")
	return r
}

// relay passes on what is no tool call. Its answer may be a stream that lasts
// for hours, and the body is not kept for so long: once the transport has read
// it nothing holds it any more. Nobody reads it twice: reverse_proxy tries again
// with a body that is unread (a failed dial) or with a copy of its own
// (request_buffers).
func (c *call) relay(w http.ResponseWriter, next caddyhttp.Handler) error {
	body := new(bodyReader)
	r := c.forward(c.context(), body)
	arguments, task := keptMember(c.message.Params.Arguments), keptMember(c.message.Params.TaskID)
	kept := int64(len(arguments.Raw) + len(task.Raw))
	body.share = &bodyShare{budget: &c.h.held}
	body.share.bytes.Store(c.heldBytes - kept)
	c.heldBytes = kept
	defer body.share.give()
	c.message = jsonrpc.Message{Kind: c.message.Kind, ID: bytes.Clone(c.message.ID), Method: c.message.Method}
	c.message.Params.Arguments, c.message.Params.TaskID = arguments, task
	c.body = nil
	return c.relayBeside(w, r, next)
}

// maxKept is the size up to which a member of what is no tool call is kept for as
// long as its answer lasts, in bytes.
const maxKept = 16 << 10

// keptMember returns a member apart from the body it stands in, or none if it is
// too large to be kept: the arguments, for those who ask for {http.mcp.args.*},
// and the task whose answer is read.
func keptMember(m jsonrpc.Member) jsonrpc.Member {
	if len(m.Raw) > maxKept {
		return jsonrpc.Member{}
	}
	return jsonrpc.Member{Type: m.Type, Raw: bytes.Clone(m.Raw)}
}

// unhold returns n bytes that the call does not hold any more.
func (c *call) unhold(n int64) {
	c.h.held.give(n)
	c.heldBytes -= n
}

func isOnly(values []string, value string) bool { return len(values) == 1 && values[0] == value }

// hold counts n more bytes as held by the call, if the handler's budget allows.
func (c *call) hold(n int64) bool {
	if !c.h.held.take(n, c.heldBytes) {
		return false
	}
	c.heldBytes += n
	return true
}

// release returns what the call held to the budget.
func (c *call) release() {
	c.h.held.give(c.heldBytes)
	c.heldBytes = 0
}
