package mcpheaders

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// ToolNames are the exact tool names that a configuration mentions, prepared
// once: looking a name up costs the same however many there are. The zero value
// holds none.
type ToolNames struct {
	exact   map[string]struct{}
	folded  map[string]string // to the first name of this folded form
	longest int               // folded form, in bytes
}

// NewToolNames prepares the given names.
func NewToolNames(names []string) ToolNames {
	t := ToolNames{exact: map[string]struct{}{}, folded: map[string]string{}}
	for _, name := range names {
		folded := foldName(name)
		t.exact[name] = struct{}{}
		if _, taken := t.folded[folded]; !taken {
			t.folded[folded] = name
		}
		t.longest = max(t.longest, len(folded))
	}
	return t
}

// lookalike finds the tool that name equals but for case or Unicode
// normalization. A server that folds names would run it past its configuration.
func (t *ToolNames) lookalike(name []byte) (tool string, found bool) {
	if t.tooLong(name) {
		return "", false
	}
	if _, exact := t.exact[string(name)]; exact {
		return "", false
	}
	tool, found = t.folded[foldName(string(name))]
	return tool, found
}

// Lookalike reports whether name equals one of the names but for case or Unicode
// normalization, and is none of them.
func (t *ToolNames) Lookalike(name string) bool {
	_, found := t.lookalike([]byte(name))
	return found
}

// tooLong reports whether name is longer than any lookalike. Every character
// has at most four bytes and folds to at least one. Without this bound a name
// as large as a body would be normalized, which costs hundreds of times as much
// as all the rest of admission.
func (t *ToolNames) tooLong(name []byte) bool {
	return len(name) > utf8.UTFMax*t.longest
}

// foldName returns what a name has in common with those that look like it: its
// form for the compatibility caseless match of Unicode (The Unicode Standard,
// section 3.13, D146). Decomposing first and last lets full case folding meet
// letter and mark apart: no precomposed capital of some letters exists.
func foldName(name string) string {
	if isASCII(name) {
		return lower(name)
	}
	decomposed := norm.NFKD.String(foldCase(norm.NFD.String(name)))
	return norm.NFKD.String(foldCase(decomposed))
}

// foldCase is full case folding. The folding of x/text leaves Cherokee letters
// in their case, which lower-casing makes up for; what is folded already it
// leaves alone.
func foldCase(text string) string {
	caser := cases.Fold() // not safe to be shared
	return strings.ToLower(caser.String(text))
}

func isASCII(name string) bool {
	for i := range len(name) {
		if name[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
