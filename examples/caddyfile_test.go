package examples

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddymcp/gateway"
)

// TestCaddyfiles checks that Caddy can load the examples, and that they are formatted as caddy fmt would. It starts
// nothing, so no certificate is asked for.
func TestCaddyfiles(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	for _, name := range []string{"Caddyfile", "local.Caddyfile"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			adapted, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt(text, map[string]any{"filename": name})
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range warnings {
				t.Errorf("%s:%d: %s", w.File, w.Line, w.Message)
			}
			var config caddy.Config
			if err := json.Unmarshal(adapted, &config); err != nil {
				t.Fatal(err)
			}
			if err := caddy.Validate(&config); err != nil {
				t.Fatal(err)
			}
		})
	}
}
