package sse

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// withoutIDs returns what is left of a stream when ids are dropped, as far as it is there, written down as plainly as
// it goes.
func withoutIDs(stream []byte) (kept []byte) {
	rest, marked := bytes.CutPrefix(stream, []byte(bom))
	if marked {
		kept = []byte(bom)
	}
	for _, l := range splitLines(rest) {
		switch {
		case !l.isID():
			kept = append(append(kept, l.text...), l.end...)
		case len(kept) == 0:
			kept = append(kept, l.end...)
		case bytes.HasSuffix(kept, []byte("\r")) && bytes.HasSuffix(l.end, []byte("\n")):
			kept = append(kept, '\n')
		}
	}
	return kept
}

// isID reports whether a line is an id field, or may become one.
func (l textLine) isID() bool {
	name, _, colon := bytes.Cut(l.text, []byte(":"))
	if len(l.end) == 0 && !colon {
		return len(name) > 0 && strings.HasPrefix("id", string(name))
	}
	return string(name) == "id"
}

// runDropping is run with ids dropped.
func runDropping(stream []byte, limit int, want reference, cuts ...int) error {
	s := Splitter{Limit: limit, DropIDs: true}
	var r recorder
	at := 0
	for _, cut := range append(cuts, len(stream)) {
		s.Split(stream[at:cut], &r)
		at = cut
	}
	if err := r.check(&s, want); err != nil {
		return fmt.Errorf("limit %d, cut at %v: %w", limit, cuts, err)
	}
	return nil
}

// checkSameEvents compares what a client makes of a stream with and without its ids.
func checkSameEvents(stream, kept []byte) error {
	want, got := clientEvents(stream), clientEvents(kept)
	if len(got) != len(want) {
		return fmt.Errorf("%q has %d events, want %d", kept, len(got), len(want))
	}
	for i, w := range want {
		if g := got[i]; g.typ != w.typ || !bytes.Equal(g.data, w.data) || g.id != KeepsID || g.lastID != "" {
			return fmt.Errorf("%q: event %d is %q %q with id %q, want %q %q", kept, i, g.typ, g.data, g.lastID, w.typ, w.data)
		}
	}
	if got, want := keptLines(kept), keptLines(stream); !slices.Equal(got, want) {
		return fmt.Errorf("%q has the lines %q, want %q", kept, got, want)
	}
	return nil
}

// keptLines returns the complete lines that are neither blank nor id fields.
func keptLines(stream []byte) (lines []string) {
	stream = bytes.TrimPrefix(stream, []byte(bom))
	for _, l := range splitLines(stream) {
		if len(l.end) > 0 && len(l.text) > 0 && !l.isID() {
			lines = append(lines, string(l.text))
		}
	}
	return lines
}

func TestDropIDs(t *testing.T) {
	for _, row := range []struct{ name, stream, want string }{
		{"first, last and between", "id: 1\ndata: a\nid: 2\ndata: b\nid: 3\n\n", "\ndata: a\ndata: b\n\n"},
		{"every spelling", ":c\nid\nid:\nid: \nid:1\nid: 1\nid: a\x00b\nid::\ndata:\n\n", ":c\ndata:\n\n"},
		{"other names", "idx: 1\ni: 1\nID: 1\n id: 1\nid : 1\ni\ndid: 1\nData: id: 1\n\n", "idx: 1\ni: 1\nID: 1\n id: 1\nid : 1\ni\ndid: 1\nData: id: 1\n\n"},
		{"a priming event", "retry: 5\n\nid: x\ndata:\n\n", "retry: 5\n\ndata:\n\n"},
		{"an event of nothing but ids", "data: 1\n\nid: x\nid: y\n\ndata: 2\n\n", "data: 1\n\n\ndata: 2\n\n"},
		{"the reconnection time stays", "retry: 5\nid: x\ndata\n\n", "retry: 5\ndata\n\n"},
		{"in data and comments", "data: id: 1\n:id: 1\ndata:\ndata:id\n\n", "data: id: 1\n:id: 1\ndata:\ndata:id\n\n"},
		{"CRLF", "data: 1\r\nid: 1\r\n\r\n", "data: 1\r\n\r\n"},
		{"CR", "data: 1\rid: 1\rid\r\r", "data: 1\r\r"},
		{"a CR does not meet an LF", "data: 1\rid: 1\n\ndata: 2\n\n", "data: 1\r\n\ndata: 2\n\n"},
		{"a CR does not meet an LF beyond a CRLF", "data: 1\rid: 1\r\n\ndata: 2\n\n", "data: 1\r\n\ndata: 2\n\n"},
		{"a CR does not meet an LF beyond two lines", "data: 1\rid: 1\rid: 2\nid: 3\n\n", "data: 1\r\n\n"},
		{"after a byte order mark", bom + "id: 1\ndata: 1\n\n", bom + "data: 1\n\n"},
		{"a line does not begin with a byte order mark", "id: 1\n" + bom + "data: 1\n\n", "\n" + bom + "data: 1\n\n"},
		{"nor after a CR", "id: 1\r" + bom + "data: 1\n\n", "\r" + bom + "data: 1\n\n"},
		{"nor after a CRLF", "id: 1\r\nid: 2\r\n" + bom + "data: 1\n\n", "\r\n" + bom + "data: 1\n\n"},
		{"half a byte order mark", "\xEF\xBBid: 1\nid: 2\n\n", "\xEF\xBBid: 1\n\n"},
		{"two byte order marks", bom + bom + "id: 1\n\n", bom + bom + "id: 1\n\n"},
		{"an end in a name", "data: 1\n\ni", "data: 1\n\n"},
		{"an end after the name", "data: 1\n\nid", "data: 1\n\n"},
		{"an end in an id", "data: 1\nid: 1", "data: 1\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := withoutIDs([]byte(row.stream)); string(got) != row.want {
				t.Fatalf("the reference is wrong: %q", got)
			}
			testDropping(t, []byte(row.stream))
		})
	}
	for _, c := range testCases(t) {
		t.Run(c.Name, func(t *testing.T) { testDropping(t, c.stream()) })
	}
}

// testDropping cuts a stream at every two places, and gives it every limit.
func testDropping(t *testing.T, stream []byte) {
	t.Helper()
	kept := withoutIDs(stream)
	if err := checkSameEvents(stream, kept); err != nil {
		t.Fatal(err)
	}
	want := readReference(kept)
	for a := range len(stream) + 1 {
		for b := a; b <= len(stream); b++ {
			if err := runDropping(stream, noLimit, want, a, b); err != nil {
				t.Fatal(err)
			}
		}
		if err := runDropping(stream, a, want); err != nil {
			t.Fatal(err)
		}
	}
	// Nothing that is complete waits for a later byte.
	for _, limit := range []int{0, 1, 7, noLimit} {
		s := Splitter{Limit: limit, DropIDs: true}
		var r recorder
		for i := range stream {
			s.Split(stream[i:i+1], &r)
			if err := r.check(&s, readReference(withoutIDs(stream[:i+1]))); err != nil {
				t.Fatalf("limit %d, after %q: %v", limit, stream[:i+1], err)
			}
		}
	}
}

// An id costs no memory, however long it is.
func TestDropIDsMemory(t *testing.T) {
	s := Splitter{Limit: noLimit, DropIDs: true}
	var d discard
	s.Split([]byte("data: 1\nid: "), &d)
	for range 1000 {
		s.Split(bytes.Repeat([]byte("x"), 1000), &d)
	}
	if s.Held() > 100 || d.bytes > 0 {
		t.Errorf("%d bytes are held, %d handed out", s.Held(), d.bytes)
	}
}

func TestDropIDsAllocs(t *testing.T) {
	stream := bytes.Repeat([]byte("id: 5\r\nevent: message\r\nid: 5\ndata: {\ndata: \"a\": 1}\n\nid: 1\n\n"), 300)
	s := Splitter{Limit: 1 << 16, DropIDs: true}
	var d discard
	size := 0
	allocs := testing.AllocsPerRun(200, func() {
		size = size%200 + 1
		for piece := range slices.Chunk(stream, size) {
			s.Split(piece, &d)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations for %d bytes", allocs, len(stream))
	}
}

// FuzzDropIDs cuts any stream in any way.
func FuzzDropIDs(f *testing.F) {
	for i, c := range testCases(f) {
		f.Add(c.stream(), []byte{byte(i)%5 + 1}, uint16(i))
	}
	f.Add([]byte("id:1\r"+bom+"id: 2\rdata: 1\rid: 3\n\n"), []byte{2, 1}, uint16(9))
	f.Fuzz(func(t *testing.T, stream, sizes []byte, limit uint16) {
		kept := withoutIDs(stream)
		if err := checkSameEvents(stream, kept); err != nil {
			t.Fatal(err)
		}
		if err := runDropping(stream, int(limit), readReference(kept), cutsOf(stream, sizes)...); err != nil {
			t.Fatal(err)
		}
	})
}
