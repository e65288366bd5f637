//go:build unix

package exchange

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// twoGateways is a configuration of two gateways that protect tools, in two
// sites or in one.
func twoGateways(t *testing.T, inOneSite bool, first, second, rest string) (cfg incaddy.Config, port string) {
	t.Helper()
	gateway := func(options string) string {
		return "mcp_gateway /mcp {\n" + options + "\n" + refundTool + "}\n" + rest
	}
	cfg.Global = fmt.Sprintf("mcp_gateway {\nledger sqlite %q\n}", filepath.Join(t.TempDir(), "effects.db"))
	if inOneSite {
		cfg.Site = "@second header X-Second *\nhandle @second {\n" + gateway(second) + "\n}\nhandle {\n" + gateway(first) + "\n}"
		return cfg, ""
	}
	port = freePort(t)
	cfg.Site = gateway(first)
	cfg.Also = "http://:" + port + " {\nbind 127.0.0.1\n" + gateway(second) + "\n}"
	return cfg, port
}

// Two gateways that would take one another's effects for their own do not start.
func TestEffectsOfTwoGatewaysThatAreOne(t *testing.T) {
	for _, c := range []struct{ name, namespace, says string }{
		{"one namespace", "namespace payments", `namespace "payments"`},
		{"no namespace", "", "have no namespace"},
	} {
		for _, inOneSite := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, in one site: %v", c.name, inOneSite), func(t *testing.T) {
				cfg, _ := twoGateways(t, inOneSite, c.namespace, c.namespace, "respond 200")
				if err := incaddy.Refused(t, cfg); !strings.Contains(err.Error(), c.says) {
					t.Errorf("the error is %v, want it to say %s", err, c.says)
				}
			})
		}
	}
}

// In two namespaces one key is two effects.
func TestEffectsOfTwoNamespaces(t *testing.T) {
	for _, inOneSite := range []bool{false, true} {
		t.Run(fmt.Sprintf("in one site: %v", inOneSite), func(t *testing.T) {
			up := brokenup.TCP(t, brokenup.Answer(ok))
			cfg, port := twoGateways(t, inOneSite, "", "namespace payments", proxy(up.Addr()))
			first := incaddy.Run(t, cfg)
			second, other := first, with(refund(), "X-Second: 1")
			if !inOneSite {
				addr := "127.0.0.1:" + port
				second = &incaddy.Site{Addr: addr, URL: "http://" + addr, Log: first.Log}
			}
			committed.checkMarked(t, call(t, first, refund()).body, strings.ReplaceAll(complete, "$id", "1"))
			committed.checkMarked(t, call(t, second, other).body, strings.ReplaceAll(complete, "$id", "1"))
			call(t, first, refund()).replays(t, "1")
			call(t, second, other).replays(t, "1")
			if n := deliveries(up); n != 2 {
				t.Errorf("%d deliveries, want one for each namespace", n)
			}
		})
	}
}

// A ledger outlives the configuration, and so does what a namespace has in it:
// another one does not see it, the same one does.
func TestEffectsOfARenamedNamespace(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(ok))
	p := protect(t, refundTool, proxy(up.Addr()))
	call(t, p.Site, refund())
	p.Stop(t)
	p.Site = runProtected(t, p.path, refundTool+"namespace payments", proxy(up.Addr()))
	call(t, p.Site, refund())
	p.Stop(t)
	p.Site = runProtected(t, p.path, refundTool, proxy(up.Addr()))
	call(t, p.Site, refund()).replays(t, "1")
	p.wantState(t, effect.Committed, 1)
	if n := deliveries(up); n != 2 {
		t.Errorf("%d deliveries, want one for each namespace", n)
	}
}
