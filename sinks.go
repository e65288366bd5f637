package gateway

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/outcome"
)

// unanswered is the sink of an exchange without a response: the gateway
// answers itself.
type unanswered struct{ x *exchange }

func (s *unanswered) write([]byte) error { return nil }
func (s *unanswered) flush() error       { return nil }
func (s *unanswered) end()               {}

func (s *unanswered) deliver(v outcome.Verdict) error { return s.x.writer.replace(v) }

// held keeps a response back until it is classified. While it is held, its
// head is not sent either, so that a broken response can be replaced.
type held struct {
	w    *responseWriter
	body []byte
}

func (s *held) write(p []byte) error {
	x := s.w.x
	x.reader.Write(p)
	if !x.reader.Broken() && s.fits(len(p)) {
		s.body = append(s.body, p...)
		return nil
	}
	return s.handOver(p)
}

// fits makes room for n more bytes within response_buffer and the budget.
func (s *held) fits(n int) bool {
	size, x := len(s.body)+n, s.w.x
	if int64(size) > x.h.ResponseBuffer {
		return false
	}
	grow := size - cap(s.body)
	if grow <= 0 {
		return true
	}
	grow = max(grow, cap(s.body), s.declared())
	if !x.hold(int64(grow)) {
		return false
	}
	s.body = slices.Grow(s.body, cap(s.body)+grow-len(s.body))
	return true
}

// declared is the length that the response declares beyond what is held, if it
// can be held whole.
func (s *held) declared() int {
	n := declaredLength(s.w.Header())
	if n > s.w.x.h.ResponseBuffer {
		return 0
	}
	return int(n) - cap(s.body)
}

// declaredLength is the Content-Length of a response, or -1.
func declaredLength(header http.Header) int64 {
	n, err := strconv.ParseInt(header.Get("Content-Length"), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// handOver changes to another sink: the response is no JSON, or larger than
// what can be held. Its piece p was read already.
func (s *held) handOver(p []byte) error {
	w, body := s.w, s.body
	s.body = nil
	passes := w.x.passesUnread()
	switch {
	case w.x.reader.Broken() && passes:
		// By its status the upstream's answer, like a 401.
		w.sink = &untouched{w: w, read: true}
		return w.begin(append(body, p...))
	case w.x.reader.Broken(), !passes && !w.relaysLarge():
		// It will be replaced, whatever else comes of it.
		w.sink = &unwanted{w: w, size: int64(len(body)), declared: declaredLength(w.Header())}
		return w.sink.write(p)
	}
	relay := &relayed{w: w}
	relay.keep(body)
	w.sink = relay
	if err := w.begin(body); err != nil {
		return err
	}
	relay.keep(p)
	return relay.pass(p)
}

// relaysLarge reports whether the response is relayed although it is too large
// to be held. Its head must not go out before it is known what it says if a
// client or load balancer may repeat a request upon it: a success always, of a
// refusal only one that begins as a JSON-RPC message.
func (w *responseWriter) relaysLarge() bool {
	switch w.status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return w.status < 300 || w.status < 500 && w.x.reader.Envelope()
}

// passesUnread reports whether the response is the client's by its head alone.
func (x *exchange) passesUnread() bool {
	if x.answeredInside() {
		return true
	}
	x.describe(&snapshot{headerWritten: true})
	return outcome.Decide(&x.seen).Answer == outcome.Upstream
}

func (s *held) flush() error { return nil }

func (s *held) end() {
	s.w.x.answer = s.w.x.reader.Close()
	if s.w.x.reservation != nil {
		s.w.x.text = s.body
	}
}

func (s *held) deliver(v outcome.Verdict) error {
	if v.Answer != outcome.Upstream {
		return s.w.replace(v)
	}
	header := s.w.Header()
	before, member, after := s.body, []byte(nil), []byte(nil)
	if splice := s.w.x.answer.Splice; splice.OK() {
		start, end, text := s.w.x.outcomeText(splice)
		before, member, after = s.body[:start], text, s.body[end:]
		dropContentDigests(header)
	}
	trailers := takeTrailers(header, s.w.announced)
	if trailers == nil {
		header["Content-Length"] = []string{strconv.Itoa(len(before) + len(member) + len(after))}
	} else {
		header.Del("Content-Length") // trailers need chunks
	}
	s.w.ResponseWriter.WriteHeader(s.w.status)
	for _, piece := range [...][]byte{before, member, after} {
		if s.w.send(piece) != nil {
			return nil // the client is gone, which is noted
		}
	}
	if trailers != nil {
		err := s.w.push() // or a short body would get a length
		maps.Copy(header, trailers)
		return err
	}
	return nil
}

// unwanted takes what will be replaced. It reads on for as long as a response
// may be held if that declares where it ends, which leaves the upstream's
// connection usable. Else it wants no more: a body that goes on and on would
// keep the client waiting.
type unwanted struct {
	w        *responseWriter
	size     int64
	declared int64 // -1 if it is not
}

var errUnwanted = errors.New("the response is no readable answer to a tool call")

func (s *unwanted) write(p []byte) error {
	s.size += int64(len(p))
	if s.size > s.declared || s.size > s.w.x.h.ResponseBuffer {
		s.w.unwanted = true
		return errUnwanted
	}
	return nil
}

func (s *unwanted) flush() error                    { return nil }
func (s *unwanted) end()                            {}
func (s *unwanted) deliver(v outcome.Verdict) error { return s.w.replace(v) }

// relayed passes on a response that is too large to be held, while it is read.
// Its last piece is kept back until the outcome is recorded, so that a client
// never holds an answer whole that nobody has classified.
type relayed struct {
	w    *responseWriter
	last []byte
	tail int64  // how much of it is white space that came after it
	text []byte // of a protected call, as far as its result may be kept
	full bool   // nothing more of it can be held
}

func (s *relayed) write(p []byte) error {
	s.w.x.reader.Write(p)
	s.keep(p)
	return s.pass(p)
}

// keep keeps the next piece of the message, if its result may be given again.
func (s *relayed) keep(p []byte) {
	x := s.w.x
	p = p[:x.keeps(len(s.text), len(p))]
	if s.full || len(p) == 0 {
		return
	}
	if s.full = !x.hold(int64(len(p))); !s.full {
		s.text = append(s.text, p...)
	}
}

// pass lets a piece through that was read.
func (s *relayed) pass(p []byte) error {
	if s.w.x.reader.Broken() {
		return nil // it will be cut
	}
	if blank := s.tail + int64(len(p)); isBlank(p) && blank <= s.w.x.h.ResponseBuffer {
		s.last = append(s.last, p...) // the message may have ended with what is kept back
		s.tail = blank
		return nil
	}
	if err := s.w.send(s.last); err != nil {
		return err // over HTTP/2 it may still be read by the connection
	}
	s.last, s.tail = append(s.last[:0], p...), 0
	return nil
}

func isBlank(p []byte) bool { return len(bytes.TrimLeft(p, " \t\r\n")) == 0 }

func (s *relayed) flush() error { return s.w.push() }

func (s *relayed) end() { s.w.x.answer, s.w.x.text = s.w.x.reader.Close(), s.text }

func (s *relayed) deliver(v outcome.Verdict) error {
	if v.Answer != outcome.Upstream || s.w.x.reader.Broken() {
		// What was passed on must not look complete.
		panic(http.ErrAbortHandler)
	}
	_ = s.w.send(s.last)
	return nil
}

// untouched passes on a response that nothing is made of: a redirect, one in a
// coding that nobody asked for, or a refusal that is no JSON.
type untouched struct {
	w    *responseWriter
	read bool // the reader has its beginning
}

func (s *untouched) write(p []byte) error { return s.w.send(p) }
func (s *untouched) flush() error         { return s.w.push() }

func (s *untouched) end() {
	if s.read {
		s.w.x.answer = s.w.x.reader.Close()
	}
}

func (s *untouched) deliver(outcome.Verdict) error {
	if s.w.x.aborted {
		panic(http.ErrAbortHandler)
	}
	return s.w.x.failure
}

// begin sends the head of a response that is passed on while it comes, and its
// first piece.
func (w *responseWriter) begin(first []byte) error {
	w.ResponseWriter.WriteHeader(w.status)
	return w.send(first)
}

// replace answers in place of the upstream, whose header was not sent yet.
func (w *responseWriter) replace(v outcome.Verdict) error {
	if v.Answer == outcome.Nothing {
		if w.x.aborted {
			panic(http.ErrAbortHandler)
		}
		w.ResponseWriter.WriteHeader(statusClientGone) // for the access log
		return nil
	}
	header := w.Header()
	takeTrailers(header, w.announced)
	delete(header, "Trailer")
	dropContent(header)
	status, code, text := http.StatusOK, codeUnknown, textUnknown
	if v.Answer == outcome.NotSent {
		status, code, text = http.StatusBadGateway, codeNotSent, textNotSent
	}
	return w.x.writeError(w.ResponseWriter, status, jsonrpc.AppendError(nil, w.x.message.ID, code, text, w.x.outcomeData()))
}
