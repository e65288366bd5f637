package sse

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
)

const noLimit = 1 << 20

// recorder is a Handler that writes down what it is given in the form of a reference.
type recorder struct {
	got      reference
	oversize []bool // of the events in got.segments
	overflow []byte // of the current event
}

func (r *recorder) Data(p []byte) {
	if len(p) == 0 {
		panic("empty piece of data")
	}
	r.got.data = append(r.got.data, p...)
}

func (r *recorder) Event(e *Event) {
	r.got.segments = append(r.got.segments, segment{
		raw:     append(r.overflow, e.Raw...),
		event:   true,
		typ:     string(e.Type),
		data:    r.got.data,
		hasData: e.HasData,
		id:      e.ID,
	})
	r.oversize = append(r.oversize, e.Oversize)
	r.got.data, r.overflow = nil, nil
}

func (r *recorder) Pass(p []byte) {
	if len(p) == 0 || len(r.overflow) > 0 {
		panic("nothing to pass, or inside an event")
	}
	segments := r.got.segments
	if n := len(segments); n > 0 && segments[n-1].event && p[0] == '\n' && bytes.HasSuffix(segments[n-1].raw, []byte("\r")) {
		last := &segments[n-1] // the event was dispatched on its CR
		last.raw = append(last.raw, '\n')
		p = p[1:]
	}
	if len(p) > 0 {
		r.got.pass(p)
	}
}

func (r *recorder) Overflow(p []byte) {
	if len(p) == 0 {
		panic("empty overflow")
	}
	r.overflow = append(r.overflow, p...)
}

// check compares what was recorded with what the standard makes of the same stream.
func (r *recorder) check(s *Splitter, want reference) error {
	decided := len(want.tail) - want.kept
	wantTorn := decided > s.Limit
	var over []byte
	if wantTorn {
		over, want.tail = want.tail[:decided], want.tail[decided:]
	}
	if !want.open && len(over) > 0 { // a comment
		want.segments = slices.Clone(want.segments)
		want.pass(over)
		over = nil
	}
	if err := r.checkSegments(s.Limit, want.segments); err != nil {
		return err
	}
	if !bytes.Equal(r.got.data, want.data) {
		return fmt.Errorf("the incomplete event has data %q, want %q", r.got.data, want.data)
	}
	if !bytes.Equal(r.overflow, over) {
		return fmt.Errorf("%q of the incomplete event was handed out, want %q", r.overflow, over)
	}
	if s.Torn() != wantTorn || !bytes.Equal(s.held, want.tail) || s.Held() < len(want.tail) {
		return fmt.Errorf("held %q, torn %v, want %q, %v", s.held, s.Torn(), want.tail, wantTorn)
	}
	if s.Torn() && len(s.held) > 0 {
		return fmt.Errorf("held %q of what was handed out", s.held)
	}
	return nil
}

func (r *recorder) checkSegments(limit int, want []segment) error {
	if len(r.got.segments) != len(want) {
		return fmt.Errorf("%d events and gaps, want %d", len(r.got.segments), len(want))
	}
	oversize := r.oversize
	for i, w := range want {
		g := r.got.segments[i]
		if !bytes.Equal(g.raw, w.raw) || g.event != w.event {
			return fmt.Errorf("segment %d is %q (event: %v), want %q (%v)", i, g.raw, g.event, w.raw, w.event)
		}
		if !w.event {
			continue
		}
		if wantType := w.typ[:min(len(w.typ), maxType)]; g.typ != wantType {
			return fmt.Errorf("event %q has type %q, want %q", w.raw, g.typ, wantType)
		}
		if !bytes.Equal(g.data, w.data) || g.hasData != w.hasData {
			return fmt.Errorf("event %q has data %q (%v), want %q (%v)", w.raw, g.data, g.hasData, w.data, w.hasData)
		}
		if g.id != w.id {
			return fmt.Errorf("event %q does %v to the last event id, want %v", w.raw, g.id, w.id)
		}
		if wantOversize := w.fields > limit; oversize[0] != wantOversize {
			return fmt.Errorf("event %q is oversize: %v, want %v", w.raw, oversize[0], wantOversize)
		}
		oversize = oversize[1:]
	}
	return nil
}

// run splits the stream cut at the given places and checks the result.
func run(stream []byte, limit int, want reference, cuts ...int) error {
	s := Splitter{Limit: limit}
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

// TestReference reads the cases as a client would, to know that what the Splitter is compared with is right.
func TestReference(t *testing.T) {
	for _, c := range testCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			want := c.Events
			for _, g := range clientEvents(c.stream()) {
				if len(want) == 0 {
					t.Fatalf("more events than wanted: %q", g.raw)
				}
				w := want[0]
				want = want[1:]
				if typ := cmp.Or(g.typ, "message"); typ != w.Type {
					t.Errorf("type %q, want %q", typ, w.Type)
				}
				if data := string([]rune(string(g.data))); data != w.Data {
					t.Errorf("data %q, want %q", data, w.Data)
				}
				if g.lastID != w.ID {
					t.Errorf("id %q, want %q", g.lastID, w.ID)
				}
			}
			if len(want) > 0 {
				t.Errorf("no event for %+v", want)
			}
			if tail := readReference(c.stream()).tail; c.Tail != nil && string(tail) != *c.Tail {
				t.Errorf("tail %q, want %q", tail, *c.Tail)
			}
		})
	}
}

// TestSplit cuts every stream at every place, and at every two places.
func TestSplit(t *testing.T) {
	for _, c := range testCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			stream := c.stream()
			want := readReference(stream)
			for a := range len(stream) + 1 {
				for b := a; b <= len(stream); b++ {
					if err := run(stream, noLimit, want, a, b); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// clientEvents returns the events that a client dispatches.
func clientEvents(stream []byte) []segment {
	return slices.DeleteFunc(readReference(stream).segments, func(s segment) bool { return !s.hasData })
}

// TestSplitAtOnce sends every stream byte by byte and asks after each byte for all that it completes: nothing waits
// for a later byte, not even for the LF after a CR.
func TestSplitAtOnce(t *testing.T) {
	for _, c := range testCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			stream := c.stream()
			for _, limit := range []int{0, 1, 7, noLimit} {
				s := Splitter{Limit: limit}
				var r recorder
				for i := range stream {
					s.Split(stream[i:i+1], &r)
					if err := r.check(&s, readReference(stream[:i+1])); err != nil {
						t.Fatalf("limit %d, after %q: %v", limit, stream[:i+1], err)
					}
				}
			}
		})
	}
}

// TestSplitLimit reads every stream with every limit that matters to it: which events are oversize does not depend on
// the cuts.
func TestSplitLimit(t *testing.T) {
	for _, c := range testCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			stream := c.stream()
			want := readReference(stream)
			for limit := range len(stream) + 1 {
				for cut := range len(stream) + 1 {
					if err := run(stream, limit, want, cut); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// TestSplitOversize pins how a handler sees an event that is longer than the limit.
func TestSplitOversize(t *testing.T) {
	s := Splitter{Limit: 10}
	var log handlerLog
	for _, piece := range []string{"data: 1", "23", "45", "6\n", "\n: a long com", "ment", "\n:b\n", "data: 7\n\n"} {
		s.Split([]byte(piece), &log)
	}
	want := []string{
		`data "1"`, `data "23"`, `data "45"`, `overflow "data: 123"`, `overflow "45"`,
		`data "6"`, `overflow "6\n"`, `event "\n" oversize`,
		`pass ": a long com"`, `pass "ment"`, `pass "\n:b\n"`,
		`data "7"`, `event "data: 7\n\n"`,
	}
	if !slices.Equal(log, want) {
		t.Errorf("got  %q\nwant %q", []string(log), want)
	}
}

// TestSplitPieces pins that whole lines outside of events are handed out together, and an event that is complete in
// one piece without a copy.
func TestSplitPieces(t *testing.T) {
	s := Splitter{Limit: noLimit}
	var log handlerLog
	piece := []byte(": a\n\n: b\n\ndata: 1\ndata: 2\n\n: c\r\n\r\n: d")
	s.Split(piece, &log)
	want := []string{
		`pass ": a\n\n: b\n\n"`, `data "1"`, `data "\n"`, `data "2"`, `event "data: 1\ndata: 2\n\n"`, `pass ": c\r\n\r\n"`,
	}
	if !slices.Equal(log, want) {
		t.Errorf("got  %q\nwant %q", []string(log), want)
	}
	if string(s.held) != ": d" || s.Torn() {
		t.Errorf("held %q, torn %v", s.held, s.Torn())
	}
}

type handlerLog []string

func (l *handlerLog) Data(p []byte)     { *l = append(*l, fmt.Sprintf("data %q", p)) }
func (l *handlerLog) Pass(p []byte)     { *l = append(*l, fmt.Sprintf("pass %q", p)) }
func (l *handlerLog) Overflow(p []byte) { *l = append(*l, fmt.Sprintf("overflow %q", p)) }
func (l *handlerLog) Event(e *Event) {
	if e.Oversize {
		*l = append(*l, fmt.Sprintf("event %q oversize", e.Raw))
		return
	}
	*l = append(*l, fmt.Sprintf("event %q", e.Raw))
}

// discard is a Handler that only counts.
type discard struct{ events, bytes int }

func (d *discard) Data([]byte)       {}
func (d *discard) Pass(p []byte)     { d.bytes += len(p) }
func (d *discard) Overflow(p []byte) { d.bytes += len(p) }
func (d *discard) Event(e *Event)    { d.events++; d.bytes += len(e.Raw) }

// TestSplitMemory sends lines and events that never end: no more than the limit is kept of them.
func TestSplitMemory(t *testing.T) {
	const limit = 4096
	piece := bytes.Repeat([]byte("x"), 1000)
	for _, head := range []string{"data: ", "event: ", "id: ", "retry: ", ": ", "x", "\n", "data: 1\n: "} {
		s := Splitter{Limit: limit}
		var d discard
		s.Split([]byte(head), &d)
		for range 10_000 {
			s.Split(piece, &d)
			if len(s.held) > limit || cap(s.held) > 2*limit || cap(s.event.Type) > 2*maxType {
				t.Fatalf("after %q: %d bytes held, %d allocated, type %d", head,
					len(s.held), cap(s.held), cap(s.event.Type))
			}
		}
		if d.bytes < 9_000_000 {
			t.Errorf("after %q: %d bytes handed out", head, d.bytes)
		}
	}
}

// TestSplitAllocs cuts a long stream into pieces of every size up to 200 bytes: nothing is allocated once the buffers
// have grown.
func TestSplitAllocs(t *testing.T) {
	stream := bytes.Repeat([]byte(": ping\n\nevent: message\r\nid: 5\ndata: {\ndata: \"a\": 1}\n\nevent: other\ndata: 1\n\n"), 300)
	s := Splitter{Limit: 1 << 16}
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

// FuzzSplit cuts any stream in any way.
func FuzzSplit(f *testing.F) {
	for i, c := range testCases(f) {
		f.Add(c.stream(), []byte{byte(i)%5 + 1}, uint16(i))
	}
	f.Fuzz(func(t *testing.T, stream, sizes []byte, limit uint16) {
		if err := run(stream, int(limit), readReference(stream), cutsOf(stream, sizes)...); err != nil {
			t.Fatal(err)
		}
	})
}

// cutsOf returns where a stream is cut into pieces of the given sizes, over and over.
func cutsOf(stream, sizes []byte) (cuts []int) {
	at := 0
	for i := 0; len(sizes) > 0; i++ {
		at += max(1, int(sizes[i%len(sizes)]))
		if at >= len(stream) {
			break
		}
		cuts = append(cuts, at)
	}
	return cuts
}

// BenchmarkSplit splits 2 MiB streams that are read 16 KiB at a time. The copy beside it is what a relay costs that
// does not look.
func BenchmarkSplit(b *testing.B) {
	const total, read = 2 << 20, 16 << 10
	benchmark := func(name string, stream []byte, split func(piece []byte)) {
		b.Run(name, func(b *testing.B) {
			pieces := slices.Collect(slices.Chunk(stream, read))
			b.SetBytes(int64(len(stream)))
			b.ReportAllocs()
			for b.Loop() {
				for _, piece := range pieces {
					split(piece)
				}
			}
		})
	}
	to := make([]byte, read)
	benchmark("copy", make([]byte, total), func(piece []byte) { copy(to, piece) })

	for _, size := range []int{300, 4 << 10, 64 << 10, 1 << 20} {
		one := AppendEvent(nil, bytes.Repeat([]byte("x"), size-len(AppendEvent(nil, nil))))
		stream := bytes.Repeat(one, total/size)
		s := Splitter{Limit: 1 << 20}
		var d discard
		benchmark(fmt.Sprintf("events of %d bytes", size), stream, func(piece []byte) { s.Split(piece, &d) })
	}
	for _, size := range []int{300, 4 << 10, 1 << 20} {
		one := append([]byte("id: 12345\n"), AppendEvent(nil, bytes.Repeat([]byte("x"), size-len(AppendEvent(nil, nil))))...)
		stream := bytes.Repeat(one, total/size)
		s := Splitter{Limit: 1 << 20, DropIDs: true}
		var d discard
		benchmark(fmt.Sprintf("events of %d bytes, ids dropped", size), stream, func(piece []byte) { s.Split(piece, &d) })
	}
	for _, line := range []string{"id\r", "i\n", "idx\r\n"} {
		stream := bytes.Repeat([]byte(line), total/len(line))
		s := Splitter{Limit: 1 << 20, DropIDs: true}
		var d discard
		benchmark(fmt.Sprintf("lines %q, ids dropped", line), stream, func(piece []byte) { s.Split(piece, &d) })
	}
	for _, line := range []string{"\n", "\r", ":\r", "d\n", "data\r", "data\n\n"} {
		stream := bytes.Repeat([]byte(line), total/len(line))
		s := Splitter{Limit: 1 << 20}
		var d discard
		benchmark(fmt.Sprintf("lines %q", line), stream, func(piece []byte) { s.Split(piece, &d) })
	}
}

// The memory of a large event is given back when it is handed out, that of
// small ones is used again.
func TestHeldMemory(t *testing.T) {
	for _, tt := range []struct {
		name      string
		size, max int
	}{
		{"small", 1000, maxIdle},
		{"large", 1 << 20, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Splitter{Limit: 4 << 20}
			var out recorder
			s.Split([]byte("data: "+strings.Repeat("x", tt.size)), &out)
			if s.Held() < tt.size {
				t.Errorf("%d bytes are in use for %d that are held", s.Held(), tt.size)
			}
			s.Split([]byte("\n\n"), &out)
			if s.Held() > tt.max {
				t.Errorf("%d bytes stay in use", s.Held())
			}
			if tt.max > 0 && s.Held() == 0 {
				t.Error("the buffer of a small event was given up")
			}
		})
	}
}
