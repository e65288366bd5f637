package jsonrpc

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// Whatever a response looks like, the outcome can be added exactly if _meta or data is absent
// or the only one and an object, and nothing else changes.
func TestSpliceGenerated(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(1, 2))}
	for range 3000 {
		message, fits := g.response()
		a := pushed([]byte("1"), []byte(message))
		if a.Kind != Result && a.Kind != ErrorResponse {
			t.Fatalf("%s: %+v", message, a)
		}
		if a.Splice.OK() != fits {
			t.Fatalf("%s: a place for the outcome: %v, want %v", message, a.Splice.OK(), fits)
		}
		if fits {
			checkSplice(t, []byte(message), a)
		}
	}
}

func TestSpliceZeroValue(t *testing.T) {
	if (Splice{}).OK() {
		t.Error("a place where there is none")
	}
}

// generator makes responses of every shape.
type generator struct{ *rand.Rand }

// response returns a response, and whether the outcome can be added to it.
func (g generator) response() (message string, fits bool) {
	outer, inner, members := "result", "_meta", []string{}
	if g.IntN(2) == 0 {
		outer, inner, members = "error", "data", []string{g.member("code", "-32603")}
	}
	fits = true
	switch g.IntN(4) {
	case 0: // absent
	case 1: // no object
		fits = false
		members = append(members, g.member(inner, g.pick("null", "1", `"x"`, "true", "[]", `[{"a":1}]`)))
	default:
		list := g.others(3)
		if g.IntN(2) == 0 {
			list = append(list, g.member(OutcomeMember, g.value(2)))
		}
		members = append(members, g.member(inner, g.object(list)))
	}
	members = append(members, g.others(4)...)
	envelope := append(g.others(2), g.member("jsonrpc", `"2.0"`), g.member("id", "1"), g.member(outer, g.object(members)))
	return g.space() + g.object(envelope) + g.space(), fits
}

// others returns up to n members that mean nothing.
func (g generator) others(n int) (list []string) {
	for i := range g.IntN(n + 1) {
		list = append(list, g.member(fmt.Sprintf("other%d", i), g.value(3)))
	}
	return list
}

func (g generator) object(members []string) string {
	g.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return "{" + g.space() + strings.Join(members, ","+g.space()) + g.space() + "}"
}

func (g generator) member(name, value string) string {
	var b strings.Builder
	for _, c := range name {
		if g.IntN(12) == 0 {
			fmt.Fprintf(&b, `\u%04x`, c)
		} else {
			b.WriteRune(c)
		}
	}
	return `"` + b.String() + `"` + g.space() + ":" + g.space() + value
}

func (g generator) value(depth int) string {
	if depth == 0 {
		return g.pick("null", "true", "-1.5e3", "0", `""`, `"a\"},{\\"`, `"\ud83d\ude00"`)
	}
	switch g.IntN(4) {
	case 0:
		return "[" + g.value(depth-1) + g.space() + "," + g.value(depth-1) + "]"
	case 1:
		// Watched names mean nothing at a deeper level.
		return "{" + g.member(g.pick(OutcomeMember, "_meta", "data", "code", "id"), g.value(depth-1)) + "}"
	case 2:
		return g.pick("[]", "{}", "[ ]", "{ }")
	}
	return g.value(0)
}

func (g generator) pick(list ...string) string { return list[g.IntN(len(list))] }

func (g generator) space() string { return g.pick("", "", "", " ", "\n\t ", "\r\n") }
