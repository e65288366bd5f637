package gateway_test

import (
	"strings"
	"testing"

	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// Adapting warns where the directive takes a whole site, and only there: of the
// blocks around it it cannot know what they match.
func TestWarnsOfWholeSite(t *testing.T) {
	site := incaddy.Run(t, incaddy.Config{Site: "respond 204"})
	warned := 0
	for _, tt := range []struct {
		name, caddyfile string
		want            bool
	}{
		{"no matcher", "localhost {\nmcp_gateway\n}", true},
		{"no matcher, after others", "localhost {\nhandle /mcp {\nmcp_gateway\n}\nmcp_gateway\n}", true},
		{"a path", "localhost {\nmcp_gateway /mcp\n}", false},
		{"all, said aloud", "localhost {\nmcp_gateway *\n}", false},
		{"in handle", "localhost {\nhandle /mcp {\nmcp_gateway\n}\n}", false},
		{"in handle, beside a site's own", "localhost {\nmcp_gateway /a\nhandle /mcp {\nmcp_gateway\n}\n}", false},
		{"in route, in handle", "localhost {\nhandle /mcp {\nroute {\nmcp_gateway\n}\n}\n}", false},
		{"in a named route", "&(mcp) {\nmcp_gateway\n}\nlocalhost {\ninvoke /mcp mcp\n}", false},
	} {
		if _, err := incaddy.Adapt(tt.caddyfile); err != nil {
			t.Fatal(err)
		}
		if tt.want {
			warned++
		}
		if got := len(site.Log.Entries(func(e *incaddy.Entry) bool {
			return e.Level == "warn" && strings.Contains(e.Message, "takes every request of the site")
		})); got != warned {
			t.Errorf("%s: %d warnings so far, want %d", tt.name, got, warned)
			warned = got
		}
	}
}
