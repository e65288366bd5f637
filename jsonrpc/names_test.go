package jsonrpc

import (
	"fmt"
	"strings"
	"testing"
)

// Names of objects that enclose each other are kept apart, whether they are few or many, and
// closing an object brings its parent back as it was.
func TestNameSetNesting(t *testing.T) {
	for _, outer := range []int{0, 1, 15, 16, 17, 31, 32, 33, 64, 200} {
		for _, inner := range []int{0, 1, 16, 17, 33, 65, 300} {
			var s nameSet
			name := func(i int) []byte { return fmt.Appendf(nil, "m%d", i) }
			fill := func(o openObject, n int) {
				for i := range n {
					if !s.add(o, name(i)) {
						t.Fatalf("%d in %d: %s is no duplicate", inner, outer, name(i))
					}
				}
				for i := range n {
					if s.add(o, name(i)) {
						t.Fatalf("%d in %d: %s is a duplicate", inner, outer, name(i))
					}
				}
			}
			parent := s.open()
			fill(parent, outer)
			child := s.open()
			fill(child, inner)
			s.close(child)
			for i := range outer {
				if s.add(parent, name(i)) {
					t.Fatalf("%d in %d: %s was forgotten", inner, outer, name(i))
				}
			}
			sibling := s.open()
			fill(sibling, inner)
			s.close(sibling)
			s.close(parent)
			if len(s.names)+len(s.slots)+len(s.arena) != 0 {
				t.Fatalf("%d in %d: %d names, %d slots, %d bytes are left", inner, outer, len(s.names), len(s.slots), len(s.arena))
			}
		}
	}
}

func TestNameSetMemory(t *testing.T) {
	var m Message
	p := new(parser)
	parse := func(format string, members int) {
		var b strings.Builder
		for i := range members {
			fmt.Fprintf(&b, format, i)
		}
		if err := p.parse(&m, []byte(`{"jsonrpc":"2.0","method":"x","params":{`+b.String()+`"x":0}}`)); err != nil {
			t.Fatal(err)
		}
		p.names.reset()
	}
	parse(`"m%d":0,`, 100)
	if cap(p.names.names) == 0 || cap(p.names.slots) == 0 {
		t.Error("memory of ordinary size is not kept")
	}
	for _, name := range p.names.names[:cap(p.names.names)] {
		if name != nil {
			t.Fatal("a name of a body that was read is kept alive")
		}
	}
	parse(`"\u006d%d":0,`, 10)
	if cap(p.names.arena) == 0 {
		t.Error("an arena of ordinary size is not kept")
	}
	parse(`"\u006d%d":0,`, 9000)
	if cap(p.names.names) != 0 || cap(p.names.slots) != 0 || cap(p.names.arena) != 0 {
		t.Errorf("kept: %d names, %d slots, %d bytes", cap(p.names.names), cap(p.names.slots), cap(p.names.arena))
	}
}

// A body that ends in the middle leaves objects open, the names of which must not be kept.
func TestNameSetForgetsAfterErrors(t *testing.T) {
	p := new(parser)
	var m Message
	if err := p.parse(&m, []byte(`{"a":{"b":{"c":`)); err == nil {
		t.Fatal("accepted")
	}
	p.names.reset()
	for _, name := range p.names.names[:cap(p.names.names)] {
		if name != nil {
			t.Fatal("a name of a body that was refused is kept alive")
		}
	}
}
