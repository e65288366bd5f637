package sse

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// wholeEvents returns the events of a stream, each with its Raw.
func wholeEvents(stream []byte) []Event {
	s := Splitter{Limit: noLimit}
	var c collector
	s.Split(stream, &c)
	return c
}

// collector is a Handler that keeps the events.
type collector []Event

func (c *collector) Data([]byte)     {}
func (c *collector) Pass([]byte)     {}
func (c *collector) Overflow([]byte) {}
func (c *collector) Event(e *Event) {
	kept := *e
	kept.Raw = bytes.Clone(e.Raw)
	kept.Type = bytes.Clone(e.Type)
	*c = append(*c, kept)
}

func TestMessage(t *testing.T) {
	for _, row := range []struct {
		stream string
		want   bool
	}{
		{"data: 1\n\n", true},
		{"data\n\n", true},
		{"event: message\ndata: 1\n\n", true},
		{"event: ping\nevent:\ndata: 1\n\n", true},
		{"event: ping\ndata: 1\n\n", false},
		{"event: Message\ndata: 1\n\n", false},
		{"event: messages\ndata: 1\n\n", false},
		{"event: message" + strings.Repeat("x", 2*maxType) + "\ndata: 1\n\n", false},
		{"event: message\n\n", false},
		{"id: 1\n\n", false},
	} {
		events := wholeEvents([]byte(row.stream))
		if len(events) != 1 || events[0].Message() != row.want {
			t.Errorf("%q: %+v, want one event, a message: %v", row.stream, events, row.want)
		}
	}
}

func TestEdit(t *testing.T) {
	const insert = "<new>"
	for _, row := range []struct {
		name       string
		raw        string
		start, end int64
		text       string
		want       string
	}{
		{"at the front", "data: {}\n\n", 0, 0, insert, "data: <new>{}\n\n"},
		{"inside", "event: message\ndata: {}\r\n\r\n", 1, 1, insert, "event: message\ndata: {<new>}\r\n\r\n"},
		{"at the end", "data:{}\r\r", 2, 2, insert, "data:{}<new>\r\r"},
		{"a part", "data: {old}\nid: 1\n\n", 1, 4, insert, "data: {<new>}\nid: 1\n\n"},
		{"nothing by nothing", "data:{}\nx\r\n\n", 1, 1, "", "data:{}\nx\r\n\n"},
		{"a part by nothing", "data: {old}\n\n", 1, 4, "", "data: {}\n\n"},
		{"in the second line", "data: {\ndata: }\n\n", 2, 2, insert, "data: {\ndata: <new>}\n\n"},
		{"before the join", "data: {\ndata: }\n\n", 1, 1, insert, "data: {<new>\ndata: }\n\n"},
		{"the join", "data: {\r\ndata:}\n\n", 1, 2, insert, "data: {<new>}\n\n"},
		{"over three lines, keeping what is between", ": c\ndata: {a\nid: 1\r\ndata: b\revent: message\ndata:c}\n: d\n\n", 1, 6, insert,
			": c\nid: 1\r\nevent: message\ndata: {<new>}\n: d\n\n"},
		{"over three lines to the next one", "data: {a\ndata: b\ndata: c\ndata: d\n\n", 2, 6, insert,
			"data: {a<new>\ndata: d\n\n"},
		{"the join, keeping two line breaks apart", "data:{\rdata:}\n\n", 1, 2, insert, "data:{<new>}\n\n"},
		{"the same with another line", "data:{\nid:1\rdata:}\n\n", 1, 2, insert, "id:1\rdata:{<new>}\n\n"},
		{"a name without colon", "data\ndata: {}\n\n", 0, 0, insert, "data: <new>\ndata: {}\n\n"},
		{"a name without colon, joined", "data\ndata:x\n\n", 0, 1, "", "data: x\n\n"},
		{"a name without colon, nothing", "data\ndata\n\n", 0, 1, "", "data\n\n"},
		{"a space of the text", "data:x\n\n", 0, 0, " ", "data:  x\n\n"},
		{"a space of what is left", "data:x y\n\n", 0, 1, "", "data:  y\n\n"},
		{"a space that is stripped already", "data: x y\n\n", 0, 1, "", "data:  y\n\n"},
		{"beyond the end", "data: {}\n\n", 1, 3, insert, "data: {}\n\n"},
		{"beyond the end altogether", "data: {}\n\n", 3, 3, insert, "data: {}\n\n"},
		{"before the start", "data: {}\n\n", -1, 0, insert, "data: {}\n\n"},
		{"end before start", "data: {}\n\n", 2, 1, insert, "data: {}\n\n"},
		{"no data", "id: 1\n\n", 0, 0, insert, "id: 1\n\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := Event{Raw: []byte(row.raw)}
			if got := e.Edit([]byte("before "), row.start, row.end, []byte(row.text)); string(got) != "before "+row.want {
				t.Errorf("got  %q\nwant %q", got, "before "+row.want)
			}
		})
	}
}

func TestEditOversize(t *testing.T) {
	e := Event{Raw: []byte("data: {}\n\n"), Oversize: true}
	if got := e.Edit(nil, 1, 1, []byte("x")); string(got) != "data: {}\n\n" {
		t.Errorf("got %q", got)
	}
}

// TestEditRanges replaces every range of every event's data and reads the result as a client would.
func TestEditRanges(t *testing.T) {
	for _, c := range testCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			for _, s := range readReference(c.stream()).segments {
				if !s.hasData {
					continue
				}
				for start := range len(s.data) + 1 {
					for end := start; end <= len(s.data); end++ {
						for _, text := range []string{"", "new", " :"} {
							if err := checkEdit(s, start, end, text); err != nil {
								t.Fatalf("%q [%d,%d) by %q: %v", s.raw, start, end, text, err)
							}
						}
					}
				}
			}
		})
	}
}

// checkEdit edits the event that s describes.
func checkEdit(s segment, start, end int, text string) error {
	e := Event{Raw: s.raw}
	edited := e.Edit(nil, int64(start), int64(end), []byte(text))
	got := readReference(append([]byte("\n"), edited...)) // not at the head, where a byte order mark would count
	if len(got.segments) != 2 || len(got.tail) > 0 {
		return fmt.Errorf("%q is not one event", edited)
	}
	g := got.segments[1]
	if want := string(s.data[:start]) + text + string(s.data[end:]); string(g.data) != want {
		return fmt.Errorf("%q has data %q, want %q", edited, g.data, want)
	}
	if !slices.Equal(otherLines(edited), otherLines(s.raw)) {
		return fmt.Errorf("%q has other lines than before", edited)
	}
	if start == end && text == "" && !bytes.Equal(edited, s.raw) {
		return fmt.Errorf("%q is changed by nothing", edited)
	}
	return nil
}

func TestCut(t *testing.T) {
	for _, row := range []struct {
		name  string
		raw   string
		parts [][2]int64
		want  string
	}{
		{"nothing", "event: message\ndata: {}\r\n\r\n", nil, "event: message\ndata: {}\r\n\r\n"},
		{"a part", "data: {old}\nid: 1\n\n", [][2]int64{{1, 4}}, "data: {}\nid: 1\n\n"},
		{"two parts", "data: {a,b,c}\n\n", [][2]int64{{1, 3}, {4, 6}}, "data: {b}\n\n"},
		{"all of it", "data:{}\n\n", [][2]int64{{0, 2}}, "data:\n\n"},
		{"over lines, keeping what is between", "data: {a\nid: 1\r\ndata: b\r: c\ndata:c}\n\n", [][2]int64{{1, 6}}, "data: {\nid: 1\r\ndata: \r: c\ndata:}\n\n"},
		{"one in each line", "data: {a\ndata: b}\n\n", [][2]int64{{1, 2}, {3, 4}}, "data: {\ndata: }\n\n"},
		{"only the join", "data: {\ndata: }\n\n", [][2]int64{{1, 2}}, "data: {\ndata: }\n\n"},
		{"before a space", "data:a b\n\n", [][2]int64{{0, 1}}, "data:  b\n\n"},
		{"before a space, behind one", "data: a b\n\n", [][2]int64{{0, 1}}, "data:  b\n\n"},
		{"nothing at a join", "data:\ndata\n\n", [][2]int64{{0, 0}}, "data:\ndata\n\n"},
		{"beyond the end", "data: {}\n\n", [][2]int64{{2, 5}}, "data: {}\n\n"},
		{"no data", "id: 1\n\n", [][2]int64{{0, 1}}, "id: 1\n\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := Event{Raw: []byte(row.raw)}
			if got := e.Cut([]byte("before "), row.parts); string(got) != "before "+row.want {
				t.Errorf("got  %q\nwant %q", got, "before "+row.want)
			}
			e.Oversize = true
			if got := e.Cut(nil, row.parts); string(got) != row.raw {
				t.Errorf("got  %q of an oversize event", got)
			}
		})
	}
}

// TestCutParts reads every event's data, and cuts every two parts out of them.
func TestCutParts(t *testing.T) {
	for _, c := range testCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			for _, s := range readReference(c.stream()).segments {
				n := int64(len(s.data))
				if n > 30 {
					n = 30 // or it takes long
				}
				for a := range n {
					for b := a + 1; b <= n; b++ {
						for from := b + 1; from < n; from++ {
							if err := checkCut(s, [][2]int64{{a, b}, {from, n}}); err != nil {
								t.Fatal(err)
							}
						}
						if err := checkCut(s, [][2]int64{{a, b}}); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		})
	}
}

// checkCut reads the data of the event that s describes, and cuts the parts out of them.
func checkCut(s segment, parts [][2]int64) error {
	if !s.hasData {
		return nil
	}
	e := Event{Raw: s.raw}
	if got := e.Data(); !bytes.Equal(got, s.data) {
		return fmt.Errorf("%q has data %q, want %q", s.raw, got, s.data)
	}
	var want []byte
	for i, c := range s.data {
		in := slices.ContainsFunc(parts, func(p [2]int64) bool { return int64(i) >= p[0] && int64(i) < p[1] })
		if !in || c == '\n' {
			want = append(want, c)
		}
	}
	cut := e.Cut(nil, parts)
	got := readReference(append([]byte("\n"), cut...)) // not at the head, where a byte order mark would count
	if len(got.segments) != 2 || len(got.tail) > 0 {
		return fmt.Errorf("%q is not one event", cut)
	}
	if g := got.segments[1]; !bytes.Equal(g.data, want) {
		return fmt.Errorf("of %q without %v is left %q with data %q, want %q", s.raw, parts, cut, g.data, want)
	}
	if !slices.Equal(otherLines(cut), otherLines(s.raw)) {
		return fmt.Errorf("%q has other lines than before", cut)
	}
	return nil
}

// otherLines returns the lines that are not data.
func otherLines(raw []byte) (lines []string) {
	for _, l := range splitLines(raw) {
		if string(l.text) != "data" && !bytes.HasPrefix(l.text, []byte("data:")) {
			lines = append(lines, string(l.text)+string(l.end))
		}
	}
	return lines
}

func FuzzEdit(f *testing.F) {
	for _, c := range testCases(f) {
		f.Add(c.stream(), uint16(1), uint16(3), "new")
	}
	f.Fuzz(func(t *testing.T, stream []byte, a, b uint16, text string) {
		if strings.ContainsAny(text, "\r\n") {
			t.SkipNow()
		}
		for _, s := range readReference(stream).segments {
			if !s.hasData {
				continue
			}
			start, end := int(a)%(len(s.data)+1), int(b)%(len(s.data)+1)
			if err := checkEdit(s, min(start, end), max(start, end), text); err != nil {
				t.Fatalf("%q [%d,%d) by %q: %v", s.raw, start, end, text, err)
			}
		}
	})
}

func FuzzCut(f *testing.F) {
	for _, c := range testCases(f) {
		f.Add(c.stream(), uint16(0), uint16(1), uint16(3), uint16(9))
	}
	f.Fuzz(func(t *testing.T, stream []byte, a, b, from, to uint16) {
		parts := [][2]int64{{int64(a), int64(a) + int64(b)}}
		parts = append(parts, [2]int64{parts[0][1] + 1 + int64(from), parts[0][1] + 1 + int64(from) + int64(to)})
		for _, s := range readReference(stream).segments {
			if err := checkCut(s, parts); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestAppendEvent(t *testing.T) {
	stream := AppendEvent([]byte(": c\n"), []byte(`{"id":1}`))
	if want := ": c\nevent: message\ndata: {\"id\":1}\n\n"; string(stream) != want {
		t.Fatalf("got %q, want %q", stream, want)
	}
	if events := wholeEvents(stream); len(events) != 1 || !events[0].Message() {
		t.Errorf("read back as %+v", events)
	}
}

func BenchmarkEdit(b *testing.B) {
	for _, row := range []struct{ name, unit string }{
		{"one line", "x"}, {"CR lines", "\rdata:1"},
	} {
		b.Run(row.name, func(b *testing.B) {
			const size = 1 << 20
			e := Event{Raw: AppendEvent(nil, bytes.Repeat([]byte(row.unit), size/len(row.unit)))}
			dst := make([]byte, 0, 2*size)
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				dst = e.Edit(dst[:0], 1, 1, []byte("new"))
			}
		})
	}
}
