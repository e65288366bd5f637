// Package gateway is the Caddy module mcp_gateway. Ahead of reverse_proxy it
// gives an MCP server's operator three guarantees: the mirrored headers of every
// request agree with its body, nobody is told that a tool call did not happen
// unless that is proven, and what may have happened is not made again, for the
// tools that are protected.
package gateway

import (
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddymcp/gateway/mcpheaders"
)

func init() {
	caddy.RegisterModule(&Handler{})
}

// Handler guards an MCP endpoint (Model Context Protocol, Streamable HTTP). It
// stands ahead of a `reverse_proxy` and does three things.
//
// **Admission.** Every POST is parsed strictly and its mirrored headers
// (`MCP-Protocol-Version`, `Mcp-Method`, `Mcp-Name`, `Mcp-Param-*`) are compared
// with the body. A request that lies, or that two parsers could read differently, is
// answered with a JSON-RPC error and never forwarded. The headers are checked;
// the body is believed.
//
// **Outcome.** Every `tools/call` is observed and classified: `committed`,
// `failed`, `held`, `deferred` or `ambiguous`. A call is `failed` only on proof
// or on the word of the protocol. A call whose answer was lost is answered with
// the JSON-RPC error -41010 under HTTP 200, so that nothing on the way repeats
// it by itself. A call that was never sent is answered with -41011 under HTTP
// 502: repeating it is safe. The outcome is added to the answer as
// `result._meta["io.github.caddymcp/outcome"]` or in `error.data`.
//
// **Effects.** A call of a tool that has an `effect` is reserved on disk before
// anything of it is sent, and its outcome is on record before it is answered. No
// call with the same key is made again while it may have happened: one that
// happened is answered with the stored result, or refused with -41004, and one of
// which nobody knows with -41005, until it is resolved.
//
// One call is sent at most once: where the configuration beneath would deliver
// a request a second time (`request_buffers` with `lb_retry_match`), that
// attempt is stopped and the call is `ambiguous`.
//
// The handler sets these placeholders, for handlers inside it and for logs:
//
// Placeholder | Description
// ------------|-------------
// `{http.mcp.method}` | The JSON-RPC method of the request
// `{http.mcp.name}` | The tool, prompt, resource or task that the request names, from its body
// `{http.mcp.revision}` | The protocol revision of the request
// `{http.mcp.id}` | The JSON-RPC id as it stands in the request
// `{http.mcp.args.PATH}` | A string, integer or boolean in the arguments, by name or dotted path
// `{http.mcp.param.NAME}` | The value of a header `Mcp-Param-NAME` that was found to agree with the arguments
// `{http.mcp.outcome}` | What is known about a tool call, once it has ended
// `{http.mcp.observation}` | The row of the outcome table that decided
// `{http.mcp.refusal}` | Why the request was refused
//
// Without a message, as in a GET, they are empty. The same values, but for
// arguments and parameters, are in the access log, in the object `mcp`.
type Handler struct {
	// Whether requests that fail admission are refused: `on` or `off`. With
	// `off` what would have been refused is logged and counted, and goes on
	// to the upstream; what may be a tool call is still observed and sent at
	// most once. Default: `on`.
	Enforce string `json:"enforce,omitempty"`

	// The size up to which a request body is read, in bytes; a larger one is
	// refused with HTTP 413. Default: 4194304 (4 MiB).
	MaxBody int64 `json:"max_body,omitempty"`

	// The origins whose scripts may send requests, as `scheme://host[:port]`.
	// A request with any other `Origin` header is refused with HTTP 403; one
	// without the header passes. Global placeholders such as `{env.ORIGIN}`
	// are replaced. Default: none.
	Origins []string `json:"origins,omitempty"`

	// The protocol revisions that are accepted. A request of another one is
	// refused with JSON-RPC error -32022. Default: 2025-03-26, 2025-06-18,
	// 2025-11-25 and 2026-07-28.
	Revisions []string `json:"revisions,omitempty"`

	// How a header that mirrors a number is compared with the body:
	// `canonical` wants the one canonical rendering of an integer, `lenient`
	// compares values, so that 42.0 agrees with 42. Default: `canonical`.
	NumericMatch string `json:"numeric_match,omitempty"`

	// Whether `Mcp-Name` may carry a name as raw UTF-8: `refuse` or `allow`.
	// The protocol wants the base64 form, but clients exist that send raw
	// bytes; with `allow` those are accepted where they equal the name.
	// Default: `refuse`.
	RawNames string `json:"raw_names,omitempty"`

	// The size up to which a response of a tool call, or one event of its
	// stream, is held until it is classified, in bytes. A larger one is
	// relayed while it is read: it is classified all the same, but not marked
	// with its outcome. Default: 1048576 (1 MiB).
	ResponseBuffer int64 `json:"response_buffer,omitempty"`

	// The sum of the request and response bytes that may be held at once by
	// this handler. Past it new requests are refused with HTTP 503 and
	// responses are relayed instead of held. Bodies that are not complete take
	// at most half of it, and requests of more than 64 KiB leave a quarter to
	// the others. At least max_body and response_buffer together.
	// Default: 268435456 (256 MiB).
	MaxHeld int64 `json:"max_held,omitempty"`

	// What becomes of the headers `Mcp-Param-*`, which mirror arguments that a
	// tool's definition names. A tool is known once a `tools/list` with it was
	// relayed, or by its `param` lines; then its headers must agree with the
	// arguments. With `learn` the headers of a tool that is not known pass, and
	// count as unverified; with `require` they are refused; with `off` none is
	// checked. `learn` protects honest clients from what stands between; only
	// `param` lines or `require` hold against a client that lies.
	// Default: `learn`.
	ParamHeaders string `json:"param_headers,omitempty"`

	// The name of what this handler stands in front of. Handlers that serve the
	// same host and path with different upstreams need different ones, or one
	// would believe the tools of the other. Default: empty.
	Namespace string `json:"namespace,omitempty"`

	// Headers that tell callers apart, in addition to `Authorization`, `Cookie`
	// and the client certificate. What one caller is shown of tools says nothing
	// of another's, unless the server says that its list is public.
	Caller []string `json:"caller,omitempty"`

	// How much memory what was learned of tools may take, in bytes, a quarter of
	// it for the texts of lists. Past it the least used is forgotten. Handlers with the same size share it, and a
	// reload keeps it. Default: 33554432 (32 MiB).
	MaxLearned int64 `json:"max_learned,omitempty"`

	// Error codes that are ambiguous for every tool, although the protocol
	// defines them as sent before a request is dispatched: -32700, -32600,
	// -32601, -32602, -32020, -32021, -32022. For servers that send them after
	// a handler ran.
	AmbiguousCodes []int64 `json:"ambiguous_codes,omitempty"`

	Protection

	// What is known about single tools. A name matches by equality first, then
	// by the longest pattern.
	Tools []Tool `json:"tools,omitempty"`

	// Tools that may not be called: a name, or the beginning of names followed
	// by `*`. A call of one is refused with JSON-RPC error -41001 under HTTP
	// 200, also with `enforce` off, and lists of tools are relayed without
	// them. Names are compared byte for byte. Default: none.
	Deny []string `json:"deny,omitempty"`

	// The only tools that may be called, in the same form: every other one is
	// denied. What `deny` names is denied all the same. Default: all.
	AllowOnly []string `json:"allow_only,omitempty"`

	logger *zap.Logger
	policy mcpheaders.Policy
	tools  toolTable
	denied mcpheaders.ToolNames // the names in Deny
	held   budget

	arriving budget        // the part of held that bodies which are not complete may take
	listing  budget        // the part of held that lists which are read beside their relay may take
	grace    time.Duration // bodyGrace, but for tests

	catalogue *catalogue

	ledger  ledger // of a handler with protected tools
	asking  reconciling
	lease   time.Duration // lease, but for tests
	joined  crowd         // calls that wait for another one
	drained crowd         // exchanges whose clients are gone
}

// The values of the options that are words.
const (
	on        = "on"
	off       = "off"
	canonical = "canonical"
	lenient   = "lenient"
	refuse    = "refuse"
	allow     = "allow"
	learn     = "learn"
	require   = "require"
)

// The defaults, in bytes.
const (
	defaultMaxBody        = 4 << 20
	defaultResponseBuffer = 1 << 20
	defaultMaxHeld        = 256 << 20
	defaultMaxLearned     = 32 << 20
)

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.mcp_gateway",
		New: func() caddy.Module { return new(Handler) },
	}
}

// Provision sets up h.
func (h *Handler) Provision(ctx caddy.Context) error {
	h.logger = ctx.Logger()
	h.setDefaults()
	if err := h.Validate(); err != nil {
		return err
	}
	if err := registerMetrics(ctx.GetMetricsRegistry()); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}

	h.policy = mcpheaders.Policy{
		RawNames: h.RawNames == allow,
		Tools:    mcpheaders.NewToolNames(append(exactTools(h.Tools), exactNames(h.Deny)...)),
		Params:   map[string]mcpheaders.ParamMode{learn: mcpheaders.Learn, require: mcpheaders.Require, off: mcpheaders.Off}[h.ParamHeaders],
	}
	if h.NumericMatch == lenient {
		h.policy.Numeric = mcpheaders.Lenient
	}
	for _, o := range h.Origins {
		origin, err := parseOrigin(o)
		if err != nil {
			return err
		}
		h.policy.Origins = append(h.policy.Origins, origin)
	}
	h.policy.Revisions = h.Revisions
	h.held.setLimit(h.MaxHeld, h.MaxBody+h.ResponseBuffer)
	h.arriving.setLimit(max(h.MaxHeld/2, h.MaxBody+1), h.MaxBody+1)
	h.arriving.part = true
	h.listing = budget{limit: h.MaxHeld / 4, part: true}
	h.grace = bodyGrace
	h.lease = lease
	h.joined.limit, h.drained.limit = h.MaxJoined, h.MaxDrained
	h.tools = newToolTable(h.Tools, h.AmbiguousCodes)
	h.denied = mcpheaders.NewToolNames(exactNames(h.Deny))
	for i, name := range h.Caller {
		h.Caller[i] = http.CanonicalHeaderKey(name)
	}
	var err error
	if h.catalogue, err = useCatalogue(h.MaxLearned); err != nil {
		return fmt.Errorf("making room for what is learned of tools: %w", err)
	}
	if err := h.provisionEffects(ctx); err != nil {
		return err
	}

	if h.Enforce == off {
		h.logger.Warn("enforce is off: requests that fail admission are forwarded, not refused")
	}
	return nil
}

// Cleanup releases what h shares with other configurations. Requests that are
// still under way go on with it.
func (h *Handler) Cleanup() error {
	if h.catalogue == nil {
		return nil
	}
	h.catalogue.readWaiting() // what is wrong with them goes to the log of this configuration
	return releaseCatalogue(h.MaxLearned)
}

func (h *Handler) setDefaults() {
	setDefault(&h.Enforce, on)
	setDefault(&h.MaxBody, defaultMaxBody)
	setDefault(&h.NumericMatch, canonical)
	setDefault(&h.RawNames, refuse)
	setDefault(&h.ResponseBuffer, defaultResponseBuffer)
	setDefault(&h.MaxHeld, defaultMaxHeld)
	setDefault(&h.ParamHeaders, learn)
	setDefault(&h.MaxLearned, defaultMaxLearned)
	h.Protection.setDefaults()
	if len(h.Revisions) == 0 {
		for _, r := range mcpheaders.Revisions() {
			h.Revisions = append(h.Revisions, r.Name)
		}
	}
}

func setDefault[T comparable](option *T, value T) {
	var unset T
	if *option == unset {
		*option = value
	}
}

// ServeHTTP is the path of one request: it is admitted or refused; a tool call
// is exchanged with the upstream under observation, anything else goes on as
// it came.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if outer := outerCall(r); outer != nil {
		return h.pass(outer, w, r, next)
	}
	// What goes on after a switch of protocols would pass unseen; MCP has none.
	r.Header.Del("Upgrade")
	r.Header.Del("Http2-Settings")
	c := &call{h: h, request: r, response: w, rule: h.tools.fallback}
	defer c.release()
	refusal := c.admit()
	if refusal == nil && r.Method != http.MethodPost {
		c.setPlaceholders()
		return c.relayBeside(w, c.withoutBody(), next)
	}
	c.publish()
	if refusal != nil {
		c.refused(refusal, h.Enforce == on)
		if h.Enforce == on {
			return c.answerRefusal(w, refusal)
		}
	}
	if c.isDenied() {
		refusal = denied()
		c.refused(refusal, true)
		return c.answerRefusal(w, refusal)
	}
	if !c.mayBeToolCall() {
		return c.relay(w, next)
	}
	if c.rule.effect != nil {
		if done, err := c.reserve(w); done {
			return err
		}
	}
	return newExchange(c, w).run(next)
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
