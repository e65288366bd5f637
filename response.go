package gateway

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddymcp/gateway/outcome"
)

// statusClientGone is what reverse_proxy writes when its request was
// cancelled, and what the access log shows for a client that went away.
const statusClientGone = 499

// responseWriter is what the handlers beneath write their response to. Once
// the final header is there it decides by the head alone what is done with the
// body: that is a sink's work.
//
// All its calls come from the handler's goroutine or under reverse_proxy's
// lock, except informational responses, which touch no state of it.
type responseWriter struct {
	caddyhttp.ResponseWriterWrapper
	x *exchange

	responseHead
	announced map[string]int // trailers, and how many values the head has of these names
	sink      sink

	// The sinks of most exchanges, here so that they cost no allocation.
	unanswered unanswered
	held       held

	cancelled    bool  // reverse_proxy said that the request was cancelled
	clientFailed bool  // the client cannot be written to
	unwanted     bool  // the rest of the body was not taken: that it broke off says nothing
	came         int64 // bytes of the body
}

// responseHead is what is known of a response by its final head.
type responseHead struct {
	status    int  // 0 until there is one
	challenge bool // with WWW-Authenticate
	encoded   bool // with a Content-Encoding
	events    bool // of the media type of event streams
	stream    bool // an event stream whose events are read
}

// sink takes the body of a response from beneath.
type sink interface {
	// write takes the next piece.
	write(p []byte) error
	// flush passes on what can be passed on.
	flush() error
	// end reads what is complete: nothing comes any more.
	end()
	// deliver gives the client the answer of the verdict.
	deliver(v outcome.Verdict) error
}

func (w *responseWriter) init(x *exchange, client http.ResponseWriter) {
	w.ResponseWriter = client
	w.x = x
	w.unanswered.x = x
	w.sink = &w.unanswered
}

// WriteHeader takes the response's head.
func (w *responseWriter) WriteHeader(status int) {
	switch {
	case status < 200 && status != http.StatusSwitchingProtocols:
		// Not final: it comes from the transport's goroutine and goes on.
		w.ResponseWriter.WriteHeader(status)
		return
	case w.status != 0:
		return
	case status == statusClientGone && w.x.cancelled():
		// Not a response: reverse_proxy's word for a request that was
		// cancelled, by the client or by the guard.
		w.cancelled = true
		return
	}
	w.responseHead = readHead(status, w.Header())
	redirects := status >= 300 && status < 400
	switch {
	case redirects && w.x.reservation != nil && !w.x.answeredInside():
		// A client that follows it sends the call again, perhaps past the gateway,
		// and nobody would hear what became of that.
		delete(w.Header(), "Location")
		w.announced = announcedTrailers(w.Header())
		w.sink = &unwanted{w: w, declared: declaredLength(w.Header())}
	case status < 200 || redirects, w.encoded, w.x.opaque:
		w.ResponseWriter.WriteHeader(status)
		w.sink = &untouched{w: w}
	case w.stream:
		w.sink = newEventSink(w)
	default:
		w.announced = announcedTrailers(w.Header())
		w.held.w = w
		w.sink = &w.held
	}
}

// answeredInside reports whether it is a handler inside that refused or redirects.
func (x *exchange) answeredInside() bool {
	s := x.snapshot()
	return s.inner()
}

// readHead reads a final head. Clients read the events of a 200 only: what
// comes as events under another status is held like anything that is no JSON.
func readHead(status int, header http.Header) responseHead {
	events := isEventStream(header)
	return responseHead{
		status:    status,
		challenge: header.Get("Www-Authenticate") != "",
		encoded:   isEncoded(header),
		events:    events,
		stream:    events && status == http.StatusOK,
	}
}

// Write takes a piece of the response's body.
func (w *responseWriter) Write(p []byte) (int, error) {
	if w.status == 0 && !w.cancelled {
		w.WriteHeader(http.StatusOK)
	}
	w.came += int64(len(p))
	if err := w.sink.write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// ReadFrom reads the body through Write: the one of the wrapped writer would
// go past it.
func (w *responseWriter) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{w}, r)
}

// FlushError flushes what the sink lets through. Without it a flush would
// reach the client's writer and commit a header that is still held.
func (w *responseWriter) FlushError() error { return w.sink.flush() }

func (w *responseWriter) end() { w.sink.end() }

func (w *responseWriter) deliver(v outcome.Verdict) error { return w.sink.deliver(v) }

// send writes to the client.
func (w *responseWriter) send(p []byte) error {
	if w.clientFailed && w.x.reservation != nil {
		return nil
	}
	_, err := w.ResponseWriter.Write(p)
	return w.note(err)
}

// push flushes what was written to the client.
func (w *responseWriter) push() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return w.note(err)
}

// note notes that the client cannot be written to. The upstream of a protected
// call is read on all the same, to learn what became of the call.
func (w *responseWriter) note(err error) error {
	if err == nil {
		return nil
	}
	w.clientFailed = true
	if w.x.reservation != nil {
		return nil
	}
	return err
}

// cancelled reports whether the exchange was cancelled: the client went away,
// the guard stopped a second delivery, or the connection came too late.
func (x *exchange) cancelled() bool {
	return x.client.Err() != nil || x.trace.stopped.Load() || x.trace.refused.Load()
}

// isEncoded reports whether a response comes in a coding although identity was
// asked for.
func isEncoded(header http.Header) bool {
	for _, coding := range header["Content-Encoding"] {
		if coding != "" && coding != "identity" {
			return true
		}
	}
	return false
}

func isEventStream(header http.Header) bool { return isEventStreamType(header.Get("Content-Type")) }

func isEventStreamType(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(mediaType), "text/event-stream")
}
