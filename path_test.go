package gateway

import (
	"net/http/httptest"
	"testing"
)

// A path that a matcher and the server may read differently is refused, and no
// other: an endpoint may be named in any language.
func TestPlainPath(t *testing.T) {
	for _, tt := range []struct {
		target string
		want   bool
	}{
		{"/mcp", true}, {"/mcp?a=../b//c%2f", true}, {"/mcp/", true}, {"/", true}, {"http://a", true}, {"*", true},
		{"/v2/mcp", true}, {"/mcp.json", true}, {"/.well-known/x", true}, {"/...", true}, {"/..a", true}, {"/a..", true},
		{"/werkzeug/%C3%BCbung", true}, {"/my%20server/mcp", true}, {"/a%25b", true}, {"/a:b@c,d=e+f!$&'()*~", true}, {"/mcp;a=b", true},

		{"//mcp", false}, {"/a//mcp", false}, {"/mcp//", false},
		{"/./mcp", false}, {"/mcp/.", false}, {"/a/../mcp", false}, {"/mcp/..", false},
		{"/a/%2e%2e/mcp", false}, {"/a/.%2E/mcp", false}, {"/mcp%2e", false},
		{"/mcp/x/..%2f..%2f/.well-known/oauth-protected-resource/mcp", false}, {"/admin/users/..%2F..%2Fmcp", false}, {"/mcp%2f", false},
		{"/a/..\\mcp", false}, {"/a%5cmcp", false}, {"/a%5Cmcp", false},
		{"/a/..;/mcp", false}, {"/a/.;x=y/mcp", false}, {"/a/..%3b/mcp", false},
		{"/mcp%00", false}, {"/mcp%0a", false}, {"/mcp%1F", false}, {"/mcp%7f", false},
	} {
		c := &call{request: httptest.NewRequest("POST", tt.target, nil)}
		if got := c.unclearPath() == nil; got != tt.want {
			t.Errorf("%s: plain %v, want %v", tt.target, got, tt.want)
		}
	}
}
