package gateway

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/mcpheaders"
	"github.com/caddymcp/gateway/outcome"
)

// Every site on the page can be loaded as it stands there.
func TestDocumentedSites(t *testing.T) {
	text, err := os.ReadFile("docs/mcp_gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	const fence = "```"
	found := 0
	for _, block := range strings.Split(string(text), fence+"caddyfile\n")[1:] {
		block, _, _ = strings.Cut(block, fence)
		if strings.HasPrefix(block, "mcp.example.com {") {
			found++
			adapt(t, []byte(block))
		}
	}
	if found == 0 {
		t.Error("found none")
	}
}

// The page on the directive names every option, refusal and observation.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("docs/mcp_gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	words := append(mcpheaders.Reasons(), outcome.Names()...)
	words = append(words, overloaded().Reason, reasonTooEarly, reasonPath, reasonDenied)
	for _, options := range []any{Handler{}, Tool{}, Matcher{}} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(options)) {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "tools" && name != "params" {
				words = append(words, name)
			}
		}
	}
	words = append(words, definitionFaults()...)
	words = append(words, "param")
	for _, word := range words {
		if !strings.Contains(string(text), "`"+word+"`") {
			t.Errorf("docs/mcp_gateway.md does not name `%s`", word)
		}
	}
}

// The page on effects names every reason for which a protected call is refused.
func TestEffectsDocumentation(t *testing.T) {
	text, err := os.ReadFile("docs/effects.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range effectReasons() {
		if !strings.Contains(string(text), "`"+word+"`") {
			t.Errorf("docs/effects.md does not name `%s`", word)
		}
	}
}
