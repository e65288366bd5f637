package mcpheaders

import (
	"strings"

	"github.com/caddymcp/gateway/jsonrpc"
)

// The mirrored headers, as net/http writes their names. Param stands for every
// header that begins with it.
const (
	versionHeader = "Mcp-Protocol-Version"
	methodHeader  = "Mcp-Method"
	nameHeader    = "Mcp-Name"
	paramPrefix   = "Mcp-Param-"
)

// mirrored is one mirrored header of a request.
type mirrored struct {
	name    string // canonical
	value   string // of the first copy, trimmed
	sent    bool   // there is at least one copy, if only an empty one
	differs bool   // another copy has another value
}

// add counts one more copy.
func (m *mirrored) add(copied string) {
	value := trim(copied)
	switch {
	case !m.sent:
		m.value, m.sent = value, true
	case m.value != value:
		m.differs = true
	}
}

// collectVersion reads the version header. Claude Code sends it as two equal
// copies on one line, so that header alone is taken apart at commas: a name or
// an argument may contain one.
func collectVersion(header map[string][]string) mirrored {
	version := mirrored{name: versionHeader}
	for _, line := range header[versionHeader] {
		for copied := range strings.SplitSeq(line, ",") {
			version.add(copied)
		}
	}
	return version
}

// collectMirrored reads the mirrored headers.
func (r *request) collectMirrored() {
	r.version = collectVersion(r.header)
	r.method.name, r.name.name = methodHeader, nameHeader
	for _, line := range r.header[methodHeader] {
		r.method.add(line)
	}
	for _, line := range r.header[nameHeader] {
		r.name.add(line)
	}
	r.collectParams()
}

// each yields the mirrored headers that were sent, in a fixed order.
func (r *request) each(yield func(*mirrored) bool) {
	for _, header := range [...]*mirrored{&r.version, &r.method, &r.name} {
		if header.sent && !yield(header) {
			return
		}
	}
	for i := range r.params {
		if r.params[i].sent && !yield(&r.params[i]) {
			return
		}
	}
}

// forward lists what to forward.
func (r *request) forward() []HeaderValue {
	values := make([]HeaderValue, 0, 3+len(r.params))
	for header := range r.each {
		if !header.differs {
			values = append(values, HeaderValue{header.name, header.value})
		}
	}
	return values
}

// settleRevision decides by which revision the message is read: what the header
// says, without one what _meta says if that is modern, else 2025-03-26. The
// rungs of rows 14 to 16 refuse where this is a guess.
func (r *request) settleRevision() {
	name := r.version.value
	if !r.version.sent {
		name = headerless
		if !r.metaIsLegacy() {
			name, _ = r.msg.Params.ProtocolVersion.Text()
		}
	}
	revision, known := Known(name)
	if !known {
		revision = revisions[len(revisions)-1]
	}
	r.revision = revision
}

// metaIsLegacy reports whether _meta names no revision or a known legacy one.
func (r *request) metaIsLegacy() bool {
	if !r.metaNamesRevision() {
		return true
	}
	for _, known := range revisions {
		if isText(r.msg.Params.ProtocolVersion, known.Name) {
			return !known.Modern
		}
	}
	return false
}

// metaNamesRevision reports whether _meta carries a version. Anything but a
// string is none.
func (r *request) metaNamesRevision() bool {
	return r.msg.Params.ProtocolVersion.Type == jsonrpc.String
}

// hopByHop is row 11. A proxy behind the gateway removes what Connection
// nominates, and may take a trailer for a header: both change, after the check,
// what was checked or what the outcome is read by.
func (r *request) hopByHop() *Refusal {
	for _, line := range r.header["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			if token = trim(token); isEndToEnd(token) {
				return refuse("connection_header", "Connection nominates "+echo(token)+", which would be removed on the way to the server; leave it out of Connection")
			}
		}
	}
	for name := range r.trailer {
		if isEndToEnd(name) {
			return refuse("trailer", "the trailer "+echo(name)+" belongs among the headers, where it is checked; send it there")
		}
	}
	return nil
}

// isEndToEnd reports whether the header of this name, in any case, must reach
// the server as it reached the gateway.
func isEndToEnd(name string) bool {
	switch name = lower(name); name {
	case "mcp-protocol-version", "mcp-method", "mcp-name", "origin", "content-type", "content-encoding":
		return true // the ladder looks at them
	case "mcp-session-id", "last-event-id":
		return true // without them a 404 does not say that the session is gone
	case "accept-encoding":
		return true // without it the server may compress an answer past reading
	case "authorization", "cookie":
		return true // without them the server acts for another caller
	case "early-data":
		return true // without it the server does not know that this may be a replay
	}
	return strings.HasPrefix(name, "mcp-param-")
}

// oneValue is row 12. Of two copies some read the first and some the last.
func (r *request) oneValue() *Refusal {
	for header := range r.each {
		if header.differs {
			return refuse("header_repeated", echo(header.name)+" was sent with several different values; send it once")
		}
	}
	return nil
}

// plainBytes is row 13.
func (r *request) plainBytes() *Refusal {
	for header := range r.each {
		if isPlain(header.value) {
			continue
		}
		if !r.policy.RawNames || header != &r.name || !isRaw(header.value) {
			return refuse("header_bytes", echo(header.name)+" has bytes that no header may carry; encode it as "+sentinelPrefix+"..."+sentinelSuffix)
		}
		if r.source == nil || !isText(r.source.value(&r.msg.Params), header.value) {
			return refuse("raw_name_mismatch", "Mcp-Name is raw UTF-8 and not, byte for byte, what the body names; send the body's value, or encode it")
		}
	}
	return nil
}

// isRaw reports whether a value is plain but for bytes above 0x7F, which raw
// names may have: a control character they may not.
func isRaw(value string) bool {
	for i := range len(value) {
		if b := value[i]; b < 0x80 && !isPlainByte(b) {
			return false
		}
	}
	return true
}

// versionsAgree is row 14, in every revision: a mismatch outranks an
// unsupported version. An empty header is one that was sent.
func (r *request) versionsAgree() *Refusal {
	if !r.version.sent || !r.metaNamesRevision() || isText(r.msg.Params.ProtocolVersion, r.version.value) {
		return nil
	}
	return refuse("version_mismatch", "MCP-Protocol-Version says "+echo(r.version.value)+" and _meta another revision; send the same in both")
}

// versionSent is row 15. The absence of a header never makes a modern message
// a legacy one.
func (r *request) versionSent() *Refusal {
	if r.version.sent {
		return nil
	}
	if !r.metaIsLegacy() {
		return refuse("version_missing_modern", "_meta names a revision and MCP-Protocol-Version does not; send the header with the same value")
	}
	if !r.policy.accepts(headerless) && !r.negotiates() {
		return refuse("version_missing", "MCP-Protocol-Version is missing, which would mean "+headerless+", and that is not accepted here; send one of "+strings.Join(r.policy.Revisions, ", "))
	}
	return nil
}

// negotiates reports whether the message is an initialize request where a legacy
// revision is accepted. It agrees on a revision in its body, and only what
// follows it carries the header (specification 2025-11-25, Protocol Version
// Header). Until then it is read as any message without one.
func (r *request) negotiates() bool {
	return r.msg.Method == "initialize" && r.msg.Kind == jsonrpc.Request && r.policy.acceptsLegacy()
}

// revisionAccepted is row 16. What an absent header means was decided in row 15,
// but for a legacy revision that _meta names all the same: a server may go by
// it. An empty header names no revision.
func (r *request) revisionAccepted() *Refusal {
	requested := r.version.value
	if !r.version.sent {
		if !r.metaNamesRevision() {
			return nil
		}
		requested, _ = r.msg.Params.ProtocolVersion.Text()
	}
	if _, known := Known(requested); known && r.policy.accepts(requested) {
		return nil
	}
	refusal := refuse("revision_unsupported", "the revision "+echo(requested)+" is not accepted here; use one of "+strings.Join(r.policy.Revisions, ", "))
	refusal.Supported, refusal.Requested = r.policy.Revisions, clip(requested)
	return refusal
}

// metaVersion is row 17 (specification, Protocol Version Header). A version that
// is no string would be read as none here, and as the modern revision by a
// server that only looks whether there is one.
func (r *request) metaVersion() *Refusal {
	sent := r.msg.Params.ProtocolVersion.Type != jsonrpc.Absent
	switch {
	case !sent && r.isModernRequest():
		return refuse("meta_version_missing", `params._meta["`+metaVersionName+`"] is missing; send the revision there too`)
	case sent && !r.metaNamesRevision() && !r.isResponse():
		return refuse("meta_version_type", `params._meta["`+metaVersionName+`"] is not a string; send the revision as one`)
	}
	return nil
}

// notResponse is row 18 (specification, Sending Messages, item 4).
func (r *request) notResponse() *Refusal {
	if r.revision.Modern && r.isResponse() {
		return refuse("response_modern", "the body is a JSON-RPC response, which no client sends in "+r.revision.Name+"; send inputResponses with the request instead")
	}
	return nil
}

// methodAgrees is row 19. The method is never encoded, so a sentinel is just
// another value.
func (r *request) methodAgrees() *Refusal {
	switch {
	case r.isModernRequest() && r.method.value == "":
		return refuse("method_missing", "Mcp-Method is missing or empty; send the body's method in it")
	case !r.method.sent:
		return nil
	case r.isResponse():
		return refuse("method_of_response", "Mcp-Method was sent and the body is a response, which has no method; leave the header out")
	case r.method.value != r.msg.Method:
		return refuse("method_mismatch", "Mcp-Method says "+echo(r.method.value)+" and the body has another method; send the body's method in it")
	}
	return nil
}

// nameSource says which member of a method's params Mcp-Name mirrors.
type nameSource struct {
	method   string // a trailing slash stands for every method below it
	member   string
	required bool // on modern requests; elsewhere the header may be absent
}

// nameSources is row 20 as a table (specification, Standard Request Headers;
// tasks as SEP-2663 has them).
var nameSources = []nameSource{
	{"tools/call", "name", true},
	{"prompts/get", "name", true},
	{"resources/read", "uri", true},
	{"resources/subscribe", "uri", false},
	{"resources/unsubscribe", "uri", false},
	{"tasks/", "taskId", false},
}

// sourceOf returns the method's line of the table, or nil.
func sourceOf(method string) *nameSource {
	for i := range nameSources {
		source := &nameSources[i]
		if method == source.method || strings.HasSuffix(source.method, "/") && strings.HasPrefix(method, source.method) {
			return source
		}
	}
	return nil
}

// value returns the member itself.
func (s *nameSource) value(params *jsonrpc.Params) jsonrpc.Member {
	switch s.member {
	case "name":
		return params.Name
	case "uri":
		return params.URI
	default:
		return params.TaskID
	}
}

// nameAgrees is row 20.
func (r *request) nameAgrees() *Refusal {
	if !r.name.sent {
		if r.source != nil && r.source.required && r.isModernRequest() {
			return refuse("name_missing", "Mcp-Name is missing; "+r.source.advice(&r.msg.Params))
		}
		return nil
	}
	text, ok := decode(r.name.value)
	if !ok {
		return refuse("name_sentinel", "Mcp-Name "+echo(r.name.value)+" is not base64 of UTF-8 in its one canonical spelling; encode it again")
	}
	if r.source == nil {
		return nil
	}
	value := r.source.value(&r.msg.Params)
	if value.Type != jsonrpc.String {
		return refuse("name_without_source", "Mcp-Name was sent and params."+r.source.member+", which it mirrors, is not a string; leave the header out")
	}
	if !agree(value, text, r.policy.Numeric) {
		return refuse("name_mismatch", "Mcp-Name says "+echo(text)+" and params."+r.source.member+" does not; send the body's value in it")
	}
	return nil
}

// advice names the header that would agree, unless that is long.
func (s *nameSource) advice(params *jsonrpc.Params) string {
	if text, ok := s.value(params).Text(); ok && len(encode(text)) <= echoLimit {
		return "send Mcp-Name: " + encode(text)
	}
	return "send params." + s.member + " in it"
}
