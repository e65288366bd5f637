package sse

import "bytes"

// Event is one event of a stream.
type Event struct {
	// Raw is the event byte for byte, with the blank line that ends it. Of an oversize event it is only what was not
	// handed out before: at least the last byte, without which no client dispatches the event.
	Raw []byte

	// Type is the event field's value, up to 64 bytes of it. Empty means message.
	Type []byte

	// HasData says that there is a data field. A client dispatches nothing without one.
	HasData bool

	// ID is what the event does to the last event id, from which a client can resume the stream. It counts in an event
	// without data too. Where ids are dropped there is none.
	ID ID

	// Oversize says that the lines before the blank line are longer than the Splitter's Limit.
	Oversize bool
}

// ID is what an event does to a client's last event id. Of several id fields in one event the last decides; one with a
// NUL is ignored.
type ID uint8

// The effects of an event's id fields.
const (
	KeepsID  ID = iota // there is none
	SetsID             // it has a value
	ResetsID           // it is empty: there is no last event id any more
)

// Message reports whether clients dispatch the event as a message.
func (e *Event) Message() bool {
	return e.HasData && (len(e.Type) == 0 || string(e.Type) == "message")
}

// Edit appends Raw to dst with the bytes [start,end) of the event's data replaced by text, which holds no line break.
// The data are the values of the data lines joined by one LF each. Where the range spans several of them they become
// one line; what stands between them moves in front of it, as after it a CR could meet an LF and two line breaks become
// one. An oversize event, or one whose data has no such range, is appended unchanged.
func (e *Event) Edit(dst []byte, start, end int64, text []byte) []byte {
	if e.Oversize || start < 0 || end < start {
		return append(dst, e.Raw...)
	}
	c := cursor{raw: e.Raw}
	from, ok := c.seek(start)
	first := c
	to, ok2 := c.seek(end)
	last := c
	if !ok || !ok2 {
		return append(dst, e.Raw...)
	}
	dst = append(dst, e.Raw[:first.begin]...)
	for l := first; l.next < last.next && l.advance(); {
		if !l.isData() {
			dst = append(dst, e.Raw[l.begin:l.next]...)
		}
	}
	dst = append(dst, e.Raw[first.begin:from]...)
	if from == first.value {
		dst = append(dst, first.separator(text, e.Raw[to:last.end])...)
	}
	dst = append(dst, text...)
	return append(dst, e.Raw[to:]...)
}

// Data returns the event's data: the values of the data lines joined by one LF each. Those of one line are part of Raw.
// Of an oversize event they are not known.
func (e *Event) Data() []byte {
	var data []byte
	first := true
	c := cursor{raw: e.Raw}
	for c.advance() {
		if !c.isData() {
			continue
		}
		value := e.Raw[c.value:c.end:c.end]
		if !first {
			value = append(append(data, newline...), value...)
		}
		data, first = value, false
	}
	return data
}

// Cut appends Raw to dst without some parts of the event's data, each from its first byte to the one after its last, in
// their order and with something between them. Line breaks stay. An oversize event is appended unchanged.
func (e *Event) Cut(dst []byte, parts [][2]int64) []byte {
	if e.Oversize {
		return append(dst, e.Raw...)
	}
	at := 0 // how much of Raw is read
	c := cursor{raw: e.Raw}
	for len(parts) > 0 && c.advance() {
		if !c.isData() {
			continue
		}
		lineEnd := c.offset + int64(c.end-c.value)
		for len(parts) > 0 && parts[0][0] < lineEnd {
			start := max(parts[0][0], c.offset)
			end := max(start, min(parts[0][1], lineEnd))
			from, to := c.value+int(start-c.offset), c.value+int(end-c.offset)
			dst = append(dst, e.Raw[at:from]...)
			if from == c.value {
				dst = append(dst, c.separator(nil, e.Raw[to:c.end])...)
			}
			at = to
			if parts[0][1] > lineEnd {
				break // it goes on in the next line
			}
			parts = parts[1:]
		}
	}
	return append(dst, e.Raw[at:]...)
}

// cursor stands at one line of a complete event.
type cursor struct {
	raw    []byte
	breaks breakFinder
	begin  int   // where the line begins
	value  int   // where its value begins if it is a data line, else 0
	end    int   // where its line break begins
	next   int   // where the next line begins
	offset int64 // where in the data the value begins
}

// seek moves on to the data line that holds the given offset of the data, and returns where in raw the offset is.
func (c *cursor) seek(offset int64) (at int, ok bool) {
	for !c.isData() || offset > c.offset+int64(c.end-c.value) {
		if !c.advance() {
			return 0, false
		}
	}
	return c.value + int(offset-c.offset), true
}

// advance moves to the next line.
func (c *cursor) advance() bool {
	if c.next == len(c.raw) {
		return false
	}
	if c.isData() {
		c.offset += int64(c.end-c.value) + int64(len(newline))
	}
	c.begin = c.next
	c.end = c.breaks.find(c.raw, c.begin)
	c.next = c.end + breakLen(c.raw[c.end:])
	c.value = 0
	text := c.raw[c.begin:c.end]
	switch {
	case bytes.HasPrefix(text, []byte("data: ")):
		c.value = c.begin + len("data: ")
	case bytes.HasPrefix(text, []byte("data:")):
		c.value = c.begin + len("data:")
	case string(text) == "data":
		c.value = c.end
	}
	return true
}

func (c *cursor) isData() bool {
	return c.value > 0
}

// separator returns what must be added before a new value, text and rest, of the line: the colon if it has none, and a
// space for clients to strip if the value itself begins with one.
func (c *cursor) separator(text, rest []byte) string {
	if len(text) == 0 {
		text = rest
	}
	switch last := c.raw[c.value-1]; {
	case len(text) == 0, last == ' ':
		return ""
	case last != ':':
		return ": "
	case text[0] == ' ':
		return " "
	}
	return ""
}

// AppendEvent appends a message event with the given data, which holds no line break.
func AppendEvent(dst, data []byte) []byte {
	dst = append(dst, "event: message\ndata: "...)
	dst = append(dst, data...)
	return append(dst, "\n\n"...)
}
