// Command caddy is Caddy with the mcp_gateway module: what xcaddy would build.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddymcp/gateway"
)

func main() {
	caddycmd.Main()
}
