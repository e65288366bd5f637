package gateway

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/mcpheaders"
	"github.com/caddymcp/gateway/outcome"
)

// pages are the pages of the documentation, and those that lead to it.
func pages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := make(map[string]string)
	for _, name := range append(names, "README.md", "CONTRIBUTING.md", "bench/README.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	return texts
}

// blocks returns the fenced blocks of a language.
func blocks(page, language string) []string {
	const fence = "```"
	found := strings.Split(page, fence+language+"\n")[1:]
	for i := range found {
		found[i], _, _ = strings.Cut(found[i], fence)
	}
	return found
}

// Every Caddyfile on the pages can be loaded as it stands there: those that
// are whole, and the lines of a directive in a site.
func TestDocumentedSites(t *testing.T) {
	found := make(map[string]int)
	for name, text := range pages(t) {
		for _, block := range blocks(text, "caddyfile") {
			switch {
			case strings.Contains(block, "<"): // a grammar
				continue
			case strings.HasPrefix(strings.TrimSpace(block), directive):
				block = string(caddyfile.Format([]byte("mcp.example.com {\nhandle /mcp {\n" + block + "\n}\n}")))
			}
			found[name]++
			t.Run(fmt.Sprintf("%s %d", name, found[name]), func(t *testing.T) { adapt(t, []byte(block)) })
		}
	}
	for _, name := range []string{"README.md", "docs/effects.md", "docs/mcp_gateway.md"} {
		if found[name] == 0 {
			t.Errorf("found none in %s", name)
		}
	}
}

// All JSON on the pages is JSON.
func TestDocumentedJSON(t *testing.T) {
	found := 0
	for name, text := range pages(t) {
		for _, block := range blocks(text, "json") {
			found++
			if !json.Valid([]byte(block)) {
				t.Errorf("%s has what is no JSON:\n%s", name, block)
			}
		}
	}
	if found == 0 {
		t.Error("found none")
	}
}

// Links within the documentation lead somewhere.
func TestDocumentedLinks(t *testing.T) {
	texts := pages(t)
	link := regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	for name, text := range texts {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			target, anchor := name, strings.TrimPrefix(found[2], "#")
			if found[1] != "" {
				target = path.Join(path.Dir(name), found[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if anchor != "" && !slices.Contains(anchors(texts[target]), anchor) {
				t.Errorf("%s: %s has no heading for #%s", name, target, anchor)
			}
		}
	}
}

// anchors are the fragments by which the headings of a page are linked.
func anchors(page string) []string {
	var found []string
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		heading := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		found = append(found, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return r
			}
			return -1
		}, heading))
	}
	return found
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

// The page on effects names every state, and has a row for every reason for
// which a protected call is refused, with its code.
func TestEffectsDocumentation(t *testing.T) {
	text := pages(t)["docs/effects.md"]
	for _, s := range effect.States()[1:] { // there is no record in state none
		if !strings.Contains(text, "\n| `"+s.String()+"` |") {
			t.Errorf("docs/effects.md has no row for state %s", s)
		}
	}
	for _, reason := range effectReasons() {
		if !strings.Contains(text, "`"+reason+"`") {
			t.Errorf("docs/effects.md does not name `%s`", reason)
		}
	}
	for _, a := range effect.Answers() {
		row := regexp.MustCompile(fmt.Sprintf("(?m)^\\| %d \\|.*`%s`", a.Code(), a))
		if a.Code() != 0 && !row.MatchString(text) {
			t.Errorf("docs/effects.md has no row for %d with `%s`", a.Code(), a)
		}
	}
}
