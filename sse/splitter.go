// Package sse cuts a server-sent event stream that is being relayed into its events.
//
// It reads the stream as the WHATWG HTML standard does (section 9.2.6, "Interpreting an event stream"), in whatever
// pieces it arrives, and hands on every byte: what a client would dispatch is known, what it receives is unchanged.
package sse

import "bytes"

// Splitter cuts a byte stream into pieces that can be relayed. The zero value with a Limit is ready for the first
// byte of a stream. A Splitter serves one stream and is not safe for concurrent use.
type Splitter struct {
	// Limit is how many bytes of an incomplete event, or of an incomplete comment outside of events, are held. With
	// 0 nothing is held: every event is oversize.
	Limit int

	// DropIDs has the id lines of all events left out of what is handed over, so that a client has nothing to resume
	// the stream from. What it dispatches is the same. It is to be set before the first byte, and stays.
	DropIDs bool
	ids     idDropper

	held  []byte // the head of what is incomplete: an event, a comment line or a byte order mark
	torn  bool   // the head of what is incomplete was handed out; nothing of it is held
	open  bool   // a field line has begun since the last blank line
	event Event  // what is known of the current event
	line  line   // what is known of the current line
	mark  int    // how many bytes of a byte order mark the stream began with; len(bom) once that is settled
	cr    bool   // the last piece ended with the CR of a line break: an LF that comes next belongs to it
}

// Handler receives the pieces of a stream in their order. Slices and events are valid only during the call.
//
// What Pass, Event.Raw and Overflow hand over, and what is still held, are together the stream, every byte
// once, but for what DropIDs leaves out. Data repeats bytes that are also in one of them.
type Handler interface {
	// Data takes the next piece of the current event's data as soon as it is there, with a line feed between two data
	// lines. Whether it is the data of a message shows only in the Event that follows.
	Data(p []byte)

	// Event takes a complete event: its field lines, the comments among them and the blank line that ends it.
	Event(e *Event)

	// Pass takes bytes that belong to no event: comments and blank lines outside of events, the byte order mark, and
	// an LF that arrives after the CR before it has already ended an event. They are whole lines, except for a
	// comment longer than Limit, which comes in pieces.
	Pass(p []byte)

	// Overflow takes bytes of an event longer than Limit as they come. Event is called at its end all the same.
	Overflow(p []byte)
}

// line is what is known of a line that may be incomplete.
type line struct {
	at    int // where it begins, counted from the first held byte
	field field
	name  [len("event")]byte // the head of its field name; a longer name is none that matters
	n     int                // how many bytes of name are set
	colon bool               // the colon is the last byte that was read: one space after it is not part of the value
	value bool               // the value is not empty
	nul   bool               // the value holds a NUL
}

type field uint8

const (
	unnamed field = iota // the name may go on
	comment
	data
	event
	id
	other
)

const (
	bom     = "\xEF\xBB\xBF"
	maxType = 64
	maxIdle = 64 << 10 // bytes of an empty buffer that is kept for the next event
)

var newline = []byte("\n")

// Split reads the next piece of the stream and hands over everything that it completes.
func (s *Splitter) Split(p []byte, on Handler) {
	if !s.DropIDs {
		s.split(p, on)
		return
	}
	var breaks breakFinder
	for i := 0; i < len(p); {
		var kept []byte
		kept, i = s.ids.next(p, i, &breaks)
		s.split(kept, on)
	}
}

func (s *Splitter) split(p []byte, on Handler) {
	if s.mark < len(bom) {
		p = s.byteOrderMark(p, on)
	}
	if len(p) == 0 {
		return
	}
	i, from := 0, 0 // p[:i] is read, p[:from] of it is handed out or held
	if s.cr && p[0] == '\n' {
		i = 1
		s.line.at++
	}
	s.cr = false

	var breaks breakFinder
	for i < len(p) {
		if end := breaks.find(p, i); end > i {
			if !s.open && s.line.blank() && p[i] != ':' {
				s.pass(p[from:i], on)
				from, s.open = i, true
			}
			s.text(p[i:end], on)
			i = end
		}
		if i == len(p) {
			break
		}
		end := i
		i += breakLen(p[i:])
		s.cr = i == len(p) && p[i-1] == '\r'
		s.endLine(on)
		if s.open && s.line.blank() {
			s.dispatch(p[from:i], end-from, on)
			from = i
		}
		s.line = line{at: len(s.held) + i - from}
	}
	s.suspend(p[from:], on)
	if len(s.held) == 0 && cap(s.held) > maxIdle {
		s.held = nil
	}
}

// Held returns how many bytes of memory are in use for the end of the stream that was not handed out: the head of an
// event, of a comment or of a byte order mark that is not complete. Up to 64 KiB stay in use when there is none.
func (s *Splitter) Held() int {
	return cap(s.held)
}

// Torn reports whether the head of an event or comment that is not complete was handed out. Then nothing of it is held,
// and whatever is written next would continue its line.
func (s *Splitter) Torn() bool {
	return s.torn
}

// byteOrderMark passes the mark at the head of the stream and returns what follows it.
func (s *Splitter) byteOrderMark(p []byte, on Handler) []byte {
	for ; s.mark < len(bom); s.mark++ {
		if len(p) == 0 {
			return nil
		}
		if p[0] != bom[s.mark] {
			s.open = s.mark > 0
			s.text(s.held, on)
			s.mark = len(bom)
			return p
		}
		s.held = append(s.held, p[0])
		p = p[1:]
	}
	s.pass(nil, on)
	return p
}

// text reads a piece of the current line.
func (s *Splitter) text(p []byte, on Handler) {
	l := &s.line
	for l.field == unnamed && len(p) > 0 {
		switch c := p[0]; {
		case c == ':':
			l.colon = true
			s.named(on)
		case l.n == len(l.name):
			l.field = other
		default:
			l.name[l.n] = c
			l.n++
		}
		p = p[1:]
	}
	if len(p) == 0 {
		return
	}
	if l.colon && p[0] == ' ' {
		p = p[1:]
	}
	l.colon = false
	switch l.field {
	case data:
		if len(p) > 0 {
			on.Data(p)
		}
	case event:
		room := maxType - len(s.event.Type)
		s.event.Type = append(s.event.Type, p[:min(len(p), room)]...)
	case id:
		l.value = l.value || len(p) > 0
		l.nul = l.nul || bytes.IndexByte(p, 0) >= 0
	}
}

// named is called when the name of the current line's field is complete.
func (s *Splitter) named(on Handler) {
	switch string(s.line.name[:s.line.n]) {
	case "":
		s.line.field = comment
	case "data":
		s.line.field = data
		if s.event.HasData {
			on.Data(newline)
		}
		s.event.HasData = true
	case "event":
		s.line.field = event
		s.event.Type = s.event.Type[:0]
	case "id":
		s.line.field = id
	default:
		s.line.field = other
	}
}

// endLine is called at the current line's break. A line without a colon is a field with an empty value.
func (s *Splitter) endLine(on Handler) {
	if s.line.field == unnamed && !s.line.blank() {
		s.named(on)
	}
	if s.line.field == id && !s.line.nul {
		s.event.ID = ResetsID
		if s.line.value {
			s.event.ID = SetsID
		}
	}
}

// dispatch ends the current event with block, its last bytes, of which the first n stand before the blank line.
func (s *Splitter) dispatch(block []byte, n int, on Handler) {
	e := &s.event
	e.Oversize = s.torn || len(s.held)+n > s.Limit
	switch {
	case len(s.held) == 0:
		e.Raw = block
	case e.Oversize:
		on.Overflow(s.held)
		e.Raw = block
	default:
		s.held = append(s.held, block...)
		e.Raw = s.held
	}
	on.Event(e)
	s.event = Event{Type: e.Type[:0]}
	s.held, s.torn, s.open = s.held[:0], false, false
}

// suspend keeps or hands out p, all that is pending when a piece ends.
func (s *Splitter) suspend(p []byte, on Handler) {
	if whole := s.line.at - len(s.held); !s.open && whole > 0 {
		s.pass(p[:whole], on)
		p = p[whole:]
	}
	s.hold(p, on)
}

// pass hands out whole lines that stand outside of events: what is held, and p.
func (s *Splitter) pass(p []byte, on Handler) {
	if len(s.held) > 0 {
		on.Pass(s.held)
	}
	if len(p) > 0 {
		on.Pass(p)
	}
	s.held, s.torn, s.line.at = s.held[:0], false, 0
}

// hold adds p to what is held, or hands both out if that exceeds the limit.
func (s *Splitter) hold(p []byte, on Handler) {
	if !s.torn && len(s.held)+len(p) <= s.Limit {
		s.held = append(s.held, p...)
		return
	}
	s.torn = true
	s.spill(s.held, on)
	s.spill(p, on)
	s.held, s.line.at = s.held[:0], 0
}

// spill hands out bytes of an incomplete event or comment.
func (s *Splitter) spill(p []byte, on Handler) {
	switch {
	case len(p) == 0:
	case s.open:
		on.Overflow(p)
	default:
		on.Pass(p)
	}
}

// blank reports whether nothing of the line was read.
func (l *line) blank() bool {
	return l.field == unnamed && l.n == 0
}
