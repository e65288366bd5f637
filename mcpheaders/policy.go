package mcpheaders

import (
	"errors"
	"slices"
	"sync"

	"github.com/caddymcp/gateway/jsonrpc"
)

// Policy is what an operator configured. The zero value allows no origin and no
// revision. It is only read, and so safe for concurrent use.
type Policy struct {
	// Origins are the allowed origins as ParseOrigin returns them.
	Origins []string

	// Revisions are the names of the accepted revisions. One that is not
	// Known is never accepted.
	Revisions []string

	// Numeric says how a header is held against an integer.
	Numeric NumericMatch

	// RawNames accepts Mcp-Name as raw UTF-8 where its bytes are the name's
	// (row 13).
	RawNames bool

	// Params says what becomes of an Mcp-Param header that no binding of the
	// tool explains (row 21).
	Params ParamMode

	// Tools are the exact tool names that the configuration mentions: a call
	// of one that merely looks like them is refused (row 10).
	Tools ToolNames
}

// Admission is what is known of a message. After a refusal it is the best
// reading there is, for an operator who does not enforce.
type Admission struct {
	// Revision is the message's revision. A refused message of an unknown one
	// is read as the newest, which is the strictest reading.
	Revision Revision

	// Forward holds, for each mirrored header that was sent, the one trimmed
	// value to forward in place of its copies (row 12). A header with several
	// different values is left out.
	Forward []HeaderValue

	// Params are the parameters whose headers were found to agree with the
	// body, in the order of the headers. A refused message has none.
	Params []Param

	// UnverifiedParams counts the other Mcp-Param headers that were sent.
	UnverifiedParams int
}

// Distrust takes back what was verified, for a request that is refused for
// another reason: its body may be read in another way than it was here.
func (a *Admission) Distrust() {
	a.UnverifiedParams += len(a.Params)
	a.Params = nil
}

// HeaderValue is one header with its canonical name, as net/http writes it.
type HeaderValue struct{ Name, Value string }

// Head judges rows 1 to 3, before the body is read. Method is the HTTP method;
// header has canonical names.
func (p *Policy) Head(method string, header map[string][]string) *Refusal {
	r := newRequest(request{policy: p, httpMethod: method, header: header})
	defer r.free()
	return climb(1, 3, r)
}

// Message judges rows 5 to 21. parseErr is what msg.Parse returned, header and
// trailer are the request's with canonical names, and bindings are those of the
// tool that msg calls, nil if it calls none or its definition is not known.
// Nothing is modified.
func (p *Policy) Message(msg *jsonrpc.Message, parseErr error, header, trailer map[string][]string, bindings *Bindings) (Admission, *Refusal) {
	r := newRequest(request{policy: p, msg: msg, parseErr: parseErr, header: header, trailer: trailer, bindings: bindings})
	defer r.free()
	r.read()
	refusal := climb(5, 21, r)
	if refusal != nil {
		r.verified = nil
	}
	return Admission{r.revision, r.forward(), r.verified, r.paramsSent - len(r.verified)}, refusal
}

// Body judges rows 5 to 10 alone, whatever the headers say. Of the tools no
// binding is known.
func (p *Policy) Body(msg *jsonrpc.Message, parseErr error) *Refusal {
	r := newRequest(request{policy: p, msg: msg, parseErr: parseErr, source: sourceOf(msg.Method)})
	defer r.free()
	return climb(5, 10, r)
}

// request is one request on its way up the ladder.
type request struct {
	policy     *Policy
	httpMethod string
	header     map[string][]string
	trailer    map[string][]string
	msg        *jsonrpc.Message
	parseErr   error
	bindings   *Bindings // nil if there is nothing to hold parameters against

	// What read finds in the above once, for several rungs.
	version  mirrored   // MCP-Protocol-Version
	method   mirrored   // Mcp-Method
	name     mirrored   // Mcp-Name
	params   []mirrored // Mcp-Param-*, in the order of their names
	revision Revision
	source   *nameSource // what Mcp-Name mirrors; nil if nothing

	paramsSent int              // how many Mcp-Param headers there are
	excess     string           // the reason why they were not read, empty if they were
	bound      []jsonrpc.Member // the values of the bindings, in their order
	variant    jsonrpc.Variant  // a member of the arguments that could be taken for one of them
	verified   []Param
}

// requests keeps the memory of requests that were judged. Nothing of it is in
// what a judgement returns.
var requests = sync.Pool{New: func() any { return new(request) }}

func newRequest(r request) *request {
	kept := requests.Get().(*request)
	r.params = kept.params[:0]
	*kept = r
	return kept
}

func (r *request) free() {
	params := r.params[:0]
	clear(params[:cap(params)])
	*r = request{params: params}
	requests.Put(r)
}

// read prepares what more than one rung looks at.
func (r *request) read() {
	r.collectMirrored()
	r.settleRevision()
	r.source = sourceOf(r.msg.Method)
	if r.msg.Method != "tools/call" || r.policy.Params == Off {
		r.bindings = nil
	}
}

// problem is what the strict pass over the body found, 0 if nothing.
func (r *request) problem() jsonrpc.Problem {
	if r.parseErr == nil {
		return 0
	}
	var err *jsonrpc.Error
	if errors.As(r.parseErr, &err) {
		return err.Problem
	}
	return jsonrpc.NotJSON
}

// isModernRequest reports whether the message must carry its own metadata.
// Notifications need none (specification, Sending Messages, note).
func (r *request) isModernRequest() bool {
	return r.revision.Modern && r.msg.Kind == jsonrpc.Request
}

// isResponse reports whether the body answers a request of the server.
func (r *request) isResponse() bool { return r.msg.Kind == jsonrpc.Response }

// accepts reports whether the operator accepts the revision of this name.
func (p *Policy) accepts(name string) bool { return slices.Contains(p.Revisions, name) }

// acceptsLegacy reports whether the operator accepts any legacy revision.
func (p *Policy) acceptsLegacy() bool {
	return slices.ContainsFunc(revisions, func(known Revision) bool { return !known.Modern && p.accepts(known.Name) })
}
