package sse

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
)

// testCase is one case of testdata/sse.json.
type testCase struct {
	Name   string  `json:"name"`
	Source string  `json:"source"`
	Text   *string `json:"stream"`
	Binary []byte  `json:"stream_base64"`
	Events []struct {
		Type string `json:"type"`
		Data string `json:"data"`
		ID   string `json:"id"`
	} `json:"events"`
	Tail *string `json:"tail"`
}

func (c *testCase) stream() []byte {
	if c.Text != nil {
		return []byte(*c.Text)
	}
	return c.Binary
}

func testCases(t testing.TB) []testCase {
	t.Helper()
	text, err := os.ReadFile("../testdata/sse.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []testCase `json:"cases"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return file.Cases
}

// reference is what the standard's algorithm makes of a whole stream, written down as plainly as it goes. The Splitter
// is compared with it.
type reference struct {
	segments []segment // all that is complete, in order; neighbours that belong to no event are one segment
	tail     []byte    // the incomplete event, comment or byte order mark at the end
	data     []byte    // the data of the incomplete event as far as it is there
	open     bool      // the tail is an event
	kept     int       // how many bytes at the end of tail are held whatever the limit: what they are is not known
}

// segment is an event, or bytes that belong to none.
type segment struct {
	raw     []byte
	event   bool
	fields  int // how many bytes of raw stand before the blank line
	typ     string
	data    []byte
	hasData bool
	id      ID
	lastID  string
}

func (s *segment) addData(value []byte) {
	if s.hasData {
		s.data = append(s.data, '\n')
	}
	s.data = append(s.data, value...)
	s.hasData = true
}

func readReference(stream []byte) reference {
	var (
		r      reference
		cur    segment
		lastID string
	)
	stream, marked := bytes.CutPrefix(stream, []byte(bom))
	if marked {
		r.pass([]byte(bom))
	} else if len(stream) > 0 && len(stream) < len(bom) && bytes.HasPrefix([]byte(bom), stream) {
		return reference{tail: stream, kept: len(stream)}
	}
	for _, l := range splitLines(stream) {
		complete := len(l.end) > 0
		name, value, colon := bytes.Cut(l.text, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))

		if len(l.text) == 0 && cur.event { // the blank line that ends an event
			cur.lastID = lastID
			cur.fields = len(cur.raw)
			cur.raw = append(cur.raw, l.end...)
			r.segments = append(r.segments, cur)
			cur = segment{}
			continue
		}
		if len(l.text) > 0 && len(name) > 0 {
			cur.event = true
		}
		if !cur.event && complete {
			r.pass(append(l.text, l.end...))
			continue
		}
		known := complete || colon // else the name may go on
		if known && string(name) == "data" {
			cur.addData(value)
		}
		if known && string(name) == "event" {
			cur.typ = string(value)
		}
		if complete && string(name) == "id" && !bytes.Contains(value, []byte{0}) {
			cur.id, lastID = SetsID, string(value)
			if lastID == "" {
				cur.id = ResetsID
			}
		}
		cur.raw = append(append(cur.raw, l.text...), l.end...)
	}
	r.tail, r.data, r.open = cur.raw, cur.data, cur.event
	return r
}

func (r *reference) pass(p []byte) {
	if n := len(r.segments); n == 0 || r.segments[n-1].event {
		r.segments = append(r.segments, segment{})
	}
	last := &r.segments[len(r.segments)-1]
	last.raw = append(last.raw, p...)
}

type textLine struct{ text, end []byte }

// splitLines cuts a stream at its line breaks. Only the last line can be without one, and it is never empty.
func splitLines(stream []byte) (lines []textLine) {
	var cur textLine
	for i, c := range stream {
		switch {
		case c != '\r' && c != '\n':
			cur.text = append(cur.text, c)
			continue
		case c == '\r' && i+1 < len(stream) && stream[i+1] == '\n':
			cur.end = append(cur.end, c)
			continue
		}
		cur.end = append(cur.end, c)
		lines = append(lines, cur)
		cur = textLine{}
	}
	if len(cur.text) > 0 {
		lines = append(lines, cur)
	}
	return lines
}
