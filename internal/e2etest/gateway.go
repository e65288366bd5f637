// Package e2etest starts what the end-to-end tests share: Caddy with mcp_gateway in this process, and Node with the
// npm packages of a folder.
package e2etest

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddymcp/gateway"
)

// StartGateway runs Caddy in this process with a site in front of each MCP endpoint, and returns the URLs under
// which the endpoints are reached through the gateway, in the same order. It replaces what an earlier call started;
// caddy.Stop ends it. Caddy keeps its state in the folder storage, and the gateway its ledger. The options are lines of mcp_gateway's block.
func StartGateway(storage, options string, endpoints ...string) (urls []string, err error) {
	for range 10 {
		urls, err = startGateway(storage, options, endpoints)
		if err == nil || !strings.Contains(err.Error(), "address already in use") {
			break // else somebody took a port since it was free, as a connection does for its own end
		}
	}
	return urls, err
}

func startGateway(storage, options string, endpoints []string) ([]string, error) {
	var sites strings.Builder
	urls := make([]string, len(endpoints))
	for i, endpoint := range endpoints {
		upstream, err := url.Parse(endpoint)
		if err != nil {
			return nil, err
		}
		addr, err := FreeAddress()
		if err != nil {
			return nil, err
		}
		urls[i] = "http://" + addr + upstream.Path
		writeSite(&sites, addr, options, upstream)
	}
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt(fmt.Appendf(nil, `{
	admin off
	auto_https off
	persist_config off
	storage file_system %q
	log {
		level ERROR
	}
	mcp_gateway {
		ledger sqlite %q
	}
}
%s`, storage, filepath.Join(storage, "effects.db"), &sites), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return nil, fmt.Errorf("adapting the Caddyfile: %w", err)
	}
	return urls, caddy.Load(config, true)
}

// writeSite writes a site that answers for every Host, since the conformance suite sends a foreign one on purpose
// and wants to see it refused.
func writeSite(w *strings.Builder, addr, options string, upstream *url.URL) {
	_, port, _ := net.SplitHostPort(addr)
	fmt.Fprintf(w, `
http://:%[1]s {
	bind 127.0.0.1
	mcp_gateway %[2]s {
		origins http://127.0.0.1:%[1]s http://localhost:%[1]s
		%[4]s
	}
	reverse_proxy %[3]s {
		header_up Host {upstream_hostport}
	}
}
`, port, upstream.Path, upstream.Host, options)
}

// FreeAddress returns a loopback address that nobody listened on just now.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
