package gateway

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/caddymcp/gateway/mcpheaders"
)

// reasonPath is the reason of a request whose path is not plain.
const reasonPath = "path"

// unclearPath refuses a request whose path others may take for another one.
// Caddy's matchers compare the decoded and cleaned path, and reverse_proxy
// forwards it as it came: /admin/..%2fmcp is /mcp to the one and may be /admin
// to the server. It is no row of the admission table, which is of MCP: no
// client writes its endpoint like this.
func (c *call) unclearPath() *mcpheaders.Refusal {
	if isPlainPath(c.request.URL.EscapedPath()) {
		return nil
	}
	return &mcpheaders.Refusal{
		Reason: reasonPath,
		Status: http.StatusBadRequest,
		Code:   codeInvalidRequest,
		Text:   "the path has empty or dot segments, or an encoded slash, backslash, dot or control character, and may name several resources; send the endpoint's plain path",
	}
}

// codeInvalidRequest is JSON-RPC's code of a request that is not one.
const codeInvalidRequest = -32600

// isPlainPath reports whether every server takes an escaped path for the same
// resource: it has no empty segment but a last one, no dot segment, not even
// one with parameters (RFC 3986, section 3.3), and encodes no slash, backslash,
// dot or control character.
func isPlainPath(escaped string) bool {
	if strings.Contains(escaped, "//") {
		return false
	}
	for segment := range strings.SplitSeq(escaped, "/") {
		if !isPlainSegment(segment) {
			return false
		}
	}
	return true
}

func isPlainSegment(escaped string) bool {
	for _, after := range strings.Split(escaped, "%")[1:] {
		if isFoldedByte(after[:min(len(after), 2)]) {
			return false
		}
	}
	name, _, _ := strings.Cut(strings.ReplaceAll(strings.ToLower(escaped), "%3b", ";"), ";")
	return name != "." && name != ".."
}

// isFoldedByte reports whether servers differ in what the byte of these
// hexadecimal digits is in a path.
func isFoldedByte(digits string) bool {
	decoded, err := url.PathUnescape("%" + digits)
	return err != nil || decoded[0] < 0x20 || strings.ContainsAny(decoded, "/\\.\x7f")
}
