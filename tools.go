package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/mcpheaders"
)

// Tool is what an operator knows about the tools that a pattern matches.
type Tool struct {
	// The name of a tool, or the beginning of names followed by `*`.
	Pattern string `json:"pattern"`

	// Whether a result with `isError` means that the tool did not run. Without
	// it such a call is `ambiguous`, since most servers also report errors
	// that way which happened halfway.
	NotExecutedOnError bool `json:"not_executed_on_error,omitempty"`

	// Error codes that are ambiguous for this tool, in addition to the
	// handler's.
	AmbiguousCodes []int64 `json:"ambiguous_codes,omitempty"`

	// What a call of the tool changes in the world, as the parts of a key: each a
	// literal or one placeholder, as in `refund {http.mcp.args.payment_id}`. Of
	// calls with one key no second one is made as long as the first may have
	// happened. A call for which a part has no value, a string or an integer,
	// is refused with JSON-RPC error -41013. Default: calls are not protected.
	Effect []string `json:"effect,omitempty"`

	// Whether the tool has not acted yet when it asks for input. Then a call of
	// which the input never came is failed, and not ambiguous.
	InputRequiredIsUncommitted bool `json:"input_required_is_uncommitted,omitempty"`

	// Who is asked whether an effect has happened of which the outcome is
	// unknown. Default: a person must find out.
	Reconcile *Reconcile `json:"reconcile,omitempty"`

	// The parameters that are mirrored into headers, in place of what a
	// `tools/list` says of the tool. A call that carries such an argument must
	// carry its header.
	Params []Param `json:"params,omitempty"`
}

// Param is a parameter of a tool that is mirrored into a header.
type Param struct {
	// What follows `Mcp-Param-` in the header's name.
	Name string `json:"name"`

	// The argument, by name or dotted path.
	Path string `json:"path"`
}

func (t *Tool) prefix() (string, bool) { return strings.CutSuffix(t.Pattern, "*") }

// checkTools wants each pattern once and a star only at a pattern's end.
func checkTools(tools []Tool) error {
	seen := make(map[string]bool)
	for _, t := range tools {
		if err := checkPattern("tool", t.Pattern); err != nil {
			return err
		}
		if seen[t.Pattern] {
			return fmt.Errorf("tool %q is configured twice: put its lines into one block", t.Pattern)
		}
		seen[t.Pattern] = true
		for _, c := range t.AmbiguousCodes {
			if err := checkAmbiguousCode(c); err != nil {
				return fmt.Errorf("tool %q: %w", t.Pattern, err)
			}
		}
		if _, err := t.bindings(); err != nil {
			return err
		}
		if _, err := t.template(); err != nil {
			return err
		}
		if err := t.checkReconcile(); err != nil {
			return err
		}
	}
	return nil
}

// bindings are those that the param lines declare, nil if there are none.
func (t *Tool) bindings() (*mcpheaders.Bindings, error) {
	if len(t.Params) == 0 {
		return nil, nil
	}
	declarations := make([]mcpheaders.Declaration, len(t.Params))
	for i, p := range t.Params {
		declarations[i] = mcpheaders.Declaration(p)
	}
	bindings, err := mcpheaders.NewBindings(declarations)
	if err != nil {
		return nil, fmt.Errorf("tool %q: param: %w", t.Pattern, err)
	}
	return bindings, nil
}

// checkPattern checks a pattern for the names of one kind, like tools. It
// refuses what looks like a placeholder: such a pattern would never match.
func checkPattern(kind, pattern string) error {
	if pattern == "" {
		return fmt.Errorf("a %s needs a name or a pattern", kind)
	}
	if strings.ContainsRune(pattern, '{') {
		return fmt.Errorf("%s pattern %q: placeholders are not replaced here", kind, pattern)
	}
	if i := strings.IndexByte(pattern, '*'); i >= 0 && i != len(pattern)-1 {
		return fmt.Errorf("%s pattern %q: a star may stand only at the end", kind, pattern)
	}
	return nil
}

// exactTools returns the patterns that are whole names.
func exactTools(tools []Tool) []string {
	var names []string
	for _, t := range tools {
		if _, isPrefix := t.prefix(); !isPrefix {
			names = append(names, t.Pattern)
		}
	}
	return names
}

// exactNames returns the patterns that are whole names.
func exactNames(patterns []string) []string {
	return slices.DeleteFunc(slices.Clone(patterns), func(pattern string) bool { return strings.HasSuffix(pattern, "*") })
}

// toolRule is what applies to one tool: its block and the handler's lines.
type toolRule struct {
	notExecutedOnError bool
	ambiguousCodes     []int64
	bindings           *mcpheaders.Bindings // declared; nil if none are

	effect      *effect.Template // nil if calls are not protected
	uncommitted bool             // the tool has not acted when it asks for input
	reconciler  *reconciler      // nil if nobody can be asked
}

func (t *toolRule) isAmbiguous(code int64) bool { return slices.Contains(t.ambiguousCodes, code) }

// toolTable finds a tool's rule: by the exact name, then by the longest prefix.
type toolTable struct {
	exact    map[string]*toolRule
	prefixes []prefixRule // longest first
	fallback *toolRule
}

type prefixRule struct {
	prefix string
	rule   *toolRule
}

func newToolTable(tools []Tool, ambiguousCodes []int64) toolTable {
	t := toolTable{
		exact:    make(map[string]*toolRule),
		fallback: &toolRule{ambiguousCodes: ambiguousCodes},
	}
	for _, tool := range tools {
		bindings, _ := tool.bindings() // was checked, as the template was
		template, _ := tool.template()
		rule := &toolRule{
			notExecutedOnError: tool.NotExecutedOnError,
			ambiguousCodes:     slices.Concat(ambiguousCodes, tool.AmbiguousCodes),
			bindings:           bindings,
			effect:             template,
			uncommitted:        tool.InputRequiredIsUncommitted,
		}
		if prefix, ok := tool.prefix(); ok {
			t.prefixes = append(t.prefixes, prefixRule{prefix, rule})
		} else {
			t.exact[tool.Pattern] = rule
		}
	}
	slices.SortFunc(t.prefixes, func(a, b prefixRule) int { return len(b.prefix) - len(a.prefix) })
	return t
}

// byPattern returns the rule of a tool's own pattern.
func (t *toolTable) byPattern(pattern string) *toolRule {
	prefix, isPrefix := strings.CutSuffix(pattern, "*")
	if !isPrefix {
		return t.exact[pattern]
	}
	i := slices.IndexFunc(t.prefixes, func(p prefixRule) bool { return p.prefix == prefix })
	return t.prefixes[i].rule
}

func (t *toolTable) find(name string) *toolRule {
	if rule, ok := t.exact[name]; ok {
		return rule
	}
	for _, p := range t.prefixes {
		if strings.HasPrefix(name, p.prefix) {
			return p.rule
		}
	}
	return t.fallback
}
