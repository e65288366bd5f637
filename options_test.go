package gateway

import (
	"context"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddymcp/gateway/mcpheaders"
)

func provision(t *testing.T, h *Handler) error {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	t.Cleanup(cancel)
	return h.Provision(ctx)
}

// What the Caddyfile refuses, JSON refuses too.
func TestProvisionErrors(t *testing.T) {
	tests := []struct {
		name string
		h    *Handler
		want string
	}{
		{"enforce", &Handler{Enforce: "maybe"}, `enforce is "maybe"`},
		{"numeric_match", &Handler{NumericMatch: "loose"}, `numeric_match is "loose"`},
		{"raw_names", &Handler{RawNames: "maybe"}, `raw_names is "maybe"`},
		{"max_body", &Handler{MaxBody: -5}, "max_body is -5: it must be a positive number of bytes"},
		{"response_buffer", &Handler{ResponseBuffer: -1}, "response_buffer is -1"},
		{"max_held", &Handler{MaxHeld: -1}, "max_held is -1"},
		{"largest max_body", &Handler{MaxBody: math.MaxInt64}, "max_body is 9223372036854775807: it must be a positive number of bytes, and not more than 1TiB"},
		{"largest sizes", &Handler{MaxBody: 1 << 40, ResponseBuffer: 1 << 40, MaxHeld: 1 << 40}, "it must be at least max_body and response_buffer together, 2199023255552"},
		{"max_held below one call", &Handler{MaxBody: 100, ResponseBuffer: 10, MaxHeld: 109}, "max_held is 109: it must be at least max_body and response_buffer together, 110, or one large call could never pass"},
		{"default max_held below max_body", &Handler{MaxBody: 300 << 20}, "max_held is 268435456: it must be at least"},
		{"origins", &Handler{Origins: []string{"ftp:"}}, `parsing origin "ftp:"`},
		{"unknown placeholder in origins", &Handler{Origins: []string{"{nosuch}"}}, `replacing placeholders of origin "{nosuch}"`},
		{"empty placeholder in origins", &Handler{Origins: []string{"{env.NO_SUCH_ORIGIN}"}}, `origins: replacing placeholders of origin "{env.NO_SUCH_ORIGIN}"`},
		{"revisions", &Handler{Revisions: []string{"2024-11-05"}}, `revision "2024-11-05" is not known`},
		{"ambiguous_codes", &Handler{AmbiguousCodes: []int64{-32603}}, "-32603 is ambiguous already"},
		{"tool without a pattern", &Handler{Tools: []Tool{{}}}, "a tool needs a name or a pattern"},
		{"tool pattern", &Handler{Tools: []Tool{{Pattern: "a*b"}}}, "a star may stand only at the end"},
		{"placeholder in a tool pattern", &Handler{Tools: []Tool{{Pattern: "{env.TOOL}"}}}, `tool pattern "{env.TOOL}": placeholders are not replaced here`},
		{"denied tool", &Handler{Deny: []string{"a", "b*c"}}, `denied tool pattern "b*c": a star may stand only at the end`},
		{"denied tool without a name", &Handler{Deny: []string{""}}, "a denied tool needs a name or a pattern"},
		{"allowed tool", &Handler{AllowOnly: []string{"a", "{env.TOOL}"}}, `allowed tool pattern "{env.TOOL}": placeholders are not replaced here`},
		{"principal", &Handler{Protection: Protection{Principal: "}ann{"}}, "every caller would be the same"},
		{"tool twice", &Handler{Tools: []Tool{{Pattern: "a"}, {Pattern: "a"}}}, `tool "a" is configured twice`},
		{"placeholder in a namespace", &Handler{Namespace: "{env.NS}"}, `namespace "{env.NS}": placeholders are not replaced here`},
		{"tool's codes", &Handler{Tools: []Tool{{Pattern: "a", AmbiguousCodes: []int64{5}}}}, `tool "a": ambiguous_codes: an error with code 5`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := provision(t, tt.h)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error that contains %q", err, tt.want)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	t.Setenv("ORIGIN", "HTTPS://App.example:443")
	h := Handler{Origins: []string{"{env.ORIGIN}"}}
	if err := provision(t, &h); err != nil {
		t.Fatal(err)
	}
	if h.Enforce != on || h.MaxBody != 4<<20 || h.ResponseBuffer != 1<<20 || h.MaxHeld != 256<<20 {
		t.Errorf("got enforce %s, max_body %d, response_buffer %d, max_held %d", h.Enforce, h.MaxBody, h.ResponseBuffer, h.MaxHeld)
	}
	if got := len(h.policy.Revisions); got != len(mcpheaders.Revisions()) {
		t.Errorf("%d revisions are accepted, want all that are known", got)
	}
	if h.policy.Numeric != mcpheaders.Canonical || h.policy.RawNames {
		t.Errorf("got %+v", h.policy)
	}
	if len(h.policy.Origins) != 1 || h.policy.Origins[0] != "https://app.example" {
		t.Errorf("origins are %q", h.policy.Origins)
	}
}

func TestOptionsReachThePolicy(t *testing.T) {
	h := Handler{NumericMatch: lenient, RawNames: allow, Revisions: []string{"2026-07-28"}, Tools: []Tool{{Pattern: "a"}, {Pattern: "b*"}}}
	if err := provision(t, &h); err != nil {
		t.Fatal(err)
	}
	if h.policy.Numeric != mcpheaders.Lenient || !h.policy.RawNames || len(h.policy.Revisions) != 1 {
		t.Errorf("got %+v", h.policy)
	}
	if !reflect.DeepEqual(h.policy.Tools, mcpheaders.NewToolNames([]string{"a"})) {
		t.Errorf("the exact tools are %v, want only a", h.policy.Tools)
	}
}

// Two handlers of one configuration, and the same handler after a reload,
// register the same collectors.
func TestMetricsAreRegisteredOnce(t *testing.T) {
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	for range 2 {
		if err := new(Handler).Provision(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := provision(t, new(Handler)); err != nil {
		t.Fatal(err)
	}
}
