package clients

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caddymcp/gateway/internal/e2etest"
)

// A client is not shown what is denied, hears why it may not call it, and goes on with what it may.
func TestGoDenied(t *testing.T) {
	for _, n := range negotiations {
		for _, options := range []string{"deny fail gr*", "allow_only echo count wait"} {
			t.Run(n.name+", "+options, func(t *testing.T) {
				s := newServer(t, n.got == modern)
				urls, err := e2etest.StartGateway(t.TempDir(), options, s.endpoint)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { caddy.Stop() })
				c := newGoClient(t, urls[0], n)
				c.take(t, "connect")

				list, err := c.session.ListTools(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				for _, tool := range list.Tools {
					names = append(names, tool.Name)
				}
				slices.Sort(names)
				if want := []string{"count", "echo", "wait"}; !slices.Equal(names, want) {
					t.Errorf("the tools are %v, want %v", names, want)
				}
				for _, tool := range []string{"fail", "greet"} {
					_, err := c.session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{}})
					var rpc *jsonrpc.Error
					if !errors.As(err, &rpc) || rpc.Code != -41001 || !strings.Contains(rpc.Message, "not allowed here") {
						t.Errorf("a call of %s: %v, want code -41001", tool, err)
					}
				}
				c.take(t, "call")
				if calls := s.arrivals(http.MethodPost, "tools/call"); len(calls) != 1 {
					t.Errorf("%d calls reached the server, want that of echo", len(calls))
				}
			})
		}
	}
}
