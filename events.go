package gateway

import (
	"net/http"

	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/outcome"
	"github.com/caddymcp/gateway/sse"
)

// eventSink relays an event stream, event by event and flushed at once. It
// keeps back only the event that is not complete, so that nothing is ever
// appended to a torn line, and the final message until its outcome is recorded.
type eventSink struct {
	w        *responseWriter
	splitter sse.Splitter
	counted  int64 // held bytes that the budget knows of

	hasData bool   // the current event's data are not empty
	data    []byte // of a protected call, as far as its result may be kept
	hasID   bool   // the client has a last event id to resume the stream from
	out     []byte
	err     error
}

func newEventSink(w *responseWriter) *eventSink {
	w.Header().Del("Content-Length") // the stream may grow
	dropContentDigests(w.Header())
	w.ResponseWriter.WriteHeader(w.status)
	s := &eventSink{w: w}
	s.splitter.Limit = int(w.x.h.ResponseBuffer)
	// With an id a client could go on with the stream on another request, and
	// nobody would see what became of the call.
	s.splitter.DropIDs = w.x.reservation != nil
	s.err = w.push()
	return s
}

func (s *eventSink) write(p []byte) error {
	if s.err != nil {
		return s.err
	}
	s.out = s.out[:0]
	s.splitter.Split(p, s)
	s.count()
	s.release()
	if cap(s.out) > maxIdle {
		s.out = nil
		s.count()
	}
	return s.err
}

// maxIdle is how many bytes of memory a stream keeps from one event to the
// next.
const maxIdle = 64 << 10

// release sends what was let through, at once.
func (s *eventSink) release() {
	if len(s.out) == 0 || s.err != nil {
		return
	}
	if s.err = s.w.send(s.out); s.err == nil {
		s.err = s.w.push()
	}
}

// count keeps the budget informed of the memory that the stream uses. Past the
// budget nothing more is held: incomplete events are relayed as they come.
func (s *eventSink) count() {
	more := int64(s.splitter.Held()+cap(s.out)+cap(s.data)) - s.counted
	if more > 0 && !s.w.x.hold(more) {
		s.splitter.Limit = 0
		return
	}
	if more < 0 {
		s.w.x.unhold(-more)
	}
	s.counted += more
}

func (s *eventSink) flush() error { return s.err }

func (s *eventSink) end() {}

// Data reads the message of an event while it comes.
func (s *eventSink) Data(p []byte) {
	s.w.x.reader.Write(p)
	if len(p) > 0 && string(p) != "\n" {
		s.hasData = true
	}
	if s.splitter.Limit > 0 { // or the budget is used up
		s.data = append(s.data, p[:s.w.x.keeps(len(s.data), len(p))]...)
	}
}

// Pass lets comments and blank lines through.
func (s *eventSink) Pass(p []byte) { s.out = append(s.out, p...) }

// Overflow lets an event through that is too large to be held.
func (s *eventSink) Overflow(p []byte) { s.out = append(s.out, p...) }

// Event takes a complete event.
func (s *eventSink) Event(e *sse.Event) {
	x := s.w.x
	answer := x.reader.Close()
	x.reader.Reset(x.message.ID)
	if e.ID != sse.KeepsID {
		s.hasID = e.ID == sse.SetsID
	}
	hasData, data := s.hasData, s.data
	s.hasData, s.data = false, s.data[:0]
	if e.Message() && answer.Kind == jsonrpc.Other && answer.Method == toolsChanged {
		x.toolsChanged()
	}

	if x.ended && e.Message() && answer.Kind == jsonrpc.Result && answer.ID == jsonrpc.IDOurs {
		x.contradict()
	}
	if x.ended || !e.Message() || !isFinal(&answer) || answer.ID != jsonrpc.IDOurs {
		x.later = x.later || hasData
		s.out = append(s.out, e.Raw...)
		return
	}
	x.answer, x.text = answer, data
	known := x.snapshot()
	x.conclude(&known)
	if e.Oversize || !answer.Splice.OK() {
		s.out = append(s.out, e.Raw...)
		return
	}
	start, end, text := x.outcomeText(answer.Splice)
	s.out = e.Edit(s.out, start, end, text)
}

// deliver ends the stream. What is left of an incomplete event is dropped.
func (s *eventSink) deliver(v outcome.Verdict) error {
	switch {
	case v.Answer == outcome.Upstream:
		return nil // the final message is sent
	case v.Answer == outcome.Nothing:
		return s.abort()
	case s.resumable():
		return nil
	}
	if s.splitter.Torn() {
		// Half of the event went out: only a broken stream says so.
		panic(http.ErrAbortHandler)
	}
	x := s.w.x
	s.out = sse.AppendEvent(s.out[:0], jsonrpc.AppendError(nil, x.message.ID, codeUnknown, textUnknown, x.outcomeData()))
	s.release()
	return nil
}

// resumable reports whether the client can come back for the rest of the
// stream: on legacy revisions a server may close it and be polled.
func (s *eventSink) resumable() bool {
	return s.hasID && !s.w.x.admission.Revision.Modern
}

func (s *eventSink) abort() error {
	if s.w.x.aborted {
		panic(http.ErrAbortHandler)
	}
	return nil
}
