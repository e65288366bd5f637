package gateway

import (
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

func init() {
	caddy.RegisterModule(&lateFault{})
	httpcaddyfile.RegisterHandlerDirective("late_fault", func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return new(lateFault), nil
	})
	httpcaddyfile.RegisterDirectiveOrder("late_fault", httpcaddyfile.After, "respond")
}

// lateFault is a handler that cannot be provisioned. It notes whether anything
// of its configuration asks about effects already.
type lateFault struct{ caddyhttp.MiddlewareHandler }

var asksBeforeItStarts bool

func (*lateFault) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.late_fault", New: func() caddy.Module { return new(lateFault) }}
}

func (*lateFault) Provision(caddy.Context) error {
	stacks := make([]byte, 4<<20)
	asksBeforeItStarts = strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), ").reconcileAlways")
	return errors.New("no")
}

// A configuration that does not start asks nobody about effects: whom it names
// may be wrong, and what is answered would stay on record.
func TestReconcileOnlyOnceStarted(t *testing.T) {
	cfg := incaddy.Config{
		Global: "mcp_gateway {\nledger sqlite " + filepath.Join(t.TempDir(), "effects.db") + "\n}",
		Site:   "mcp_gateway {\ntool create_refund {\neffect {http.mcp.args.id}\nreconcile http://127.0.0.1:1/\n}\n}\nlate_fault",
	}
	if err := incaddy.Refused(t, cfg); !strings.Contains(err.Error(), "no") {
		t.Fatal(err)
	}
	if asksBeforeItStarts {
		t.Error("a configuration that is only provisioned asks about effects")
	}
}
