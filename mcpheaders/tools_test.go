package mcpheaders

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

func TestLookalike(t *testing.T) {
	for _, test := range []struct{ look, tool, name string }{
		{"case", "echo", "ECHO"},
		{"compatibility form", "x", "\uff38"},
		{"marks in another order", "a\u0323\u0307", "a\u0307\u0323"},
		{"no precomposed capital", "\u1e96ello", "H\u0331ello"},
		{"no precomposed capital, caron", "\u01f0ob", "J\u030cob"},
		{"no precomposed capital, two marks", "\u0390", "\u0399\u0308\u0301"},
		{"full folding", "stra\u00dfe", "STRASSE"},
		{"iota subscript", "\u1f80", "\u1f00\u0399"},
		{"folding that needs decomposing again", "\u3392", "mhz"},
		{"as short as its lookalike is long", "a", "\U0001d400"},
	} {
		tools := NewToolNames([]string{"other", test.tool})
		if got, found := tools.lookalike([]byte(test.name)); !found || got != test.tool {
			t.Errorf("%s: %q looks like %q, %t, want %q", test.look, test.name, got, found, test.tool)
		}
		tools = NewToolNames([]string{"other", test.name})
		if got, found := tools.lookalike([]byte(test.tool)); !found || got != test.name {
			t.Errorf("%s: %q looks like %q, %t, want %q", test.look, test.tool, got, found, test.name)
		}
	}
}

func TestNoLookalike(t *testing.T) {
	tools := NewToolNames([]string{"echo", "Echo", "\u1e96ello"})
	for _, name := range []string{"echo", "Echo", "\u1e96ello", "ech", "echo_", "", "hello"} {
		if got, found := tools.lookalike([]byte(name)); found {
			t.Errorf("%q looks like %q", name, got)
		}
	}
	if got, found := tools.lookalike([]byte("ECHO")); !found || got != "echo" {
		t.Errorf("of two configured lookalikes of ECHO %q is named, %t, want the first", got, found)
	}
	var none ToolNames
	if got, found := none.lookalike([]byte("echo")); found {
		t.Errorf("among no names echo looks like %q", got)
	}
}

// TestLongNameCostsNothing pins that a name longer than any lookalike is not
// normalized, and that an exact one costs no copy.
func TestLongNameCostsNothing(t *testing.T) {
	tools := NewToolNames([]string{"create_refund"})
	for _, name := range []string{strings.Repeat("\ufdfa", 4<<20/3), "create_refund"} {
		bytes := []byte(name)
		if allocs := testing.AllocsPerRun(10, func() { tools.lookalike(bytes) }); allocs != 0 {
			t.Errorf("a name of %d bytes: %v allocations", len(name), allocs)
		}
	}
}

// TestFoldName shows for every character that all its spellings fold to one
// form, that this is a form of its own, and that nothing folds to less than a
// quarter of its length, which is what the bound on long names rests on.
func TestFoldName(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !unicode.IsPrint(r) {
			continue
		}
		text := string(r)
		folded := foldName(text)
		if len(text) > utf8.UTFMax*len(folded) {
			t.Errorf("%U: %d bytes fold to %d", r, len(text), len(folded))
		}
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			if got := foldName(string(other)); got != folded {
				t.Errorf("%U folds to %+q, %U to %+q", r, folded, other, got)
			}
		}
		for _, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
			if got := foldName(form.String(text)); got != folded {
				t.Errorf("%U folds to %+q, normalized to %+q", r, folded, got)
			}
		}
		if got := foldName(folded); got != folded {
			t.Errorf("%U folds to %+q, and that to %+q", r, folded, got)
		}
	}
}
