package gateway

import (
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// What Caddy keeps of headers with both characters it must be told in full.
func TestKeeps(t *testing.T) {
	for _, tt := range []struct {
		entry, header string
		want          bool
	}{
		{"mcp-param-tenant_*", "Mcp-Param-Tenant_id", true},
		{"mcp-param-tenant_*", "Mcp-Param-Tenant_id.x", false},
		{"mcp-param-tenant_id.x", "Mcp-Param-Tenant_id.x", true},
		{"mcp-param-tenant_id", "Mcp-Param-Tenant_ids", false},
	} {
		server := &caddyhttp.Server{ExpectedUnderscoreHeaders: []string{tt.entry}}
		if got := keeps(server, tt.header); got != tt.want {
			t.Errorf("%s keeps %s: %t", tt.entry, tt.header, got)
		}
	}
}

// What Caddy removes since another spelling is listed.
func TestShadowed(t *testing.T) {
	for _, tt := range []struct {
		underscore, dot, header string
		want                    bool
	}{
		{"mcp-param-tenant_*", "x.y", "Mcp-Param-Tenant-Id", true},
		{"mcp-param-tenant_id", "x.y", "Mcp-Param-Tenant-Id", true},
		{"mcp-param-tenant_id", "x.y", "Mcp-Param-Tenant-Ids", false},
		{"x_y", "mcp-param-tenant.id", "Mcp-Param-Tenant-Id", true},
		{"x_y", "mcp-param-tenant.id", "Mcp-Param-Tenant", false},
		{"x_y", "mcp-param.a_b", "Mcp-Param-A-B", false},
	} {
		server := &caddyhttp.Server{ExpectedUnderscoreHeaders: []string{tt.underscore}, ExpectedDotHeaders: []string{tt.dot}}
		if got := isShadowed(server, tt.header); got != tt.want {
			t.Errorf("%s and %s shadow %s: %t", tt.underscore, tt.dot, tt.header, got)
		}
	}
}
