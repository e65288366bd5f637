package gateway

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddymcp/gateway/outcome"
)

// snapshot is what is known of an exchange at one moment. What it means is
// decided by stage alone, which is pure.
type snapshot struct {
	answered      bool // a final message with our id was read
	gone          bool // the client went away
	headerWritten bool // a final response header came from beneath
	refused       bool // with an error status, or sent elsewhere
	broken        bool // the layer beneath panicked or failed after that
	failed        bool // an error or a panic came back
	panicked      bool // it was a panic
	stopped       bool // a second delivery was stopped

	getConn, gotConn                      int32
	wroteHeaders, wroteRequest, firstByte int32
	dials                                 int32 // connections made, less those whose handshake failed
	unsure                                bool  // a connection's hooks prove nothing about its bytes
	bodyRead                              bool
	bodyReread                            bool  // more than one delivery asked for it
	silent                                int32 // connections that nobody asked the trace for
	unused                                int32 // connections that were closed before a byte was written

	dialError bool // the error is a reverseproxy.DialError
	deadline  bool // the error is a deadline of a context

	proxy proxyReport
}

// stage classifies a snapshot, in the order of the design.
func (s *snapshot) stage() outcome.Stage {
	switch {
	case s.answered:
		return outcome.Answered
	case s.gone:
		return outcome.ClientGone
	case s.inner():
		return outcome.NeverConnected
	case s.headerWritten && !s.broken:
		return outcome.Answered
	case s.headerWritten:
		return outcome.Cut
	case (s.failed || s.unused > 0) && s.nothingWritten():
		return outcome.NeverConnected
	default:
		return outcome.Sent
	}
}

// nothingWritten reports whether there is positive proof that no byte of the
// request was written. The absence of hooks alone is none: a transport that
// ignores traces delivers in silence.
func (s *snapshot) nothingWritten() bool {
	switch {
	case s.unused > 0 && s.unused == s.gotConn && s.silent == 0 && s.firstByte == 0 && !s.stopped && !s.proxy.responded:
		// Whatever the transport believes it wrote, every connection that it
		// was handed was closed already.
		return true
	case s.stopped, s.proxy.responded, s.wroteHeaders > 0, s.wroteRequest > 0, s.firstByte > 0:
		return false
	case s.silent > 0:
		return false
	case s.gotConn > 0:
		// A connection was had and not written to. On HTTP/1 an error comes
		// back only after the writer is done, which always fires a hook; on
		// HTTP/2 likewise, except when a context ends the wait early.
		// A panic does not wait for the writer either.
		return !s.unsure && !s.deadline && !s.panicked
	case s.getConn > 0 && s.dials > 0:
		// A connection was made that the trace was not handed: perhaps by a
		// transport that is silent, beside one that is not.
		return false
	case s.getConn > 0:
		// The transport reports to the trace, and never had a connection.
		return true
	case s.dialError:
		// The transport may ignore traces, but this attempt could not dial,
		// and it was the only one.
		return !s.proxy.retried && !s.bodyRead
	default:
		return s.neverLeft()
	}
}

// neverLeft reports whether nothing that could send the request was reached: a
// proxy without an available upstream, or an inner handler that refused.
func (s *snapshot) neverLeft() bool {
	return s.getConn == 0 && s.gotConn == 0 && s.silent == 0 && !s.dialError && !s.proxy.selected && !s.bodyRead
}

// substituted reports whether a response with this head may be the word of
// somebody else than who got the body: of a handle_response route or intercept,
// of a second upstream that got what was left of the request, or of an inner
// handler that answers for a proxy that failed. Nobody can run a call of which
// nothing was read and for which no proxy ran.
func (s *snapshot) substituted(head responseHead) bool {
	p := &s.proxy
	switch {
	case head.status == 0, !s.bodyRead && s.gotConn == 0 && s.silent == 0 && !p.selected:
		return false
	case p.intercepted, !p.responded, p.status != head.status:
		return true
	case head.status == http.StatusForbidden && head.challenge && !p.challenge:
		return true
	case s.reread(), p.retried && s.gotConn != 1:
		return true
	case head.stream:
		// The final message of a stream is judged before its end.
		return !p.events
	}
	// A response may lack its end when all of it was read.
	return !p.delivered && !s.panicked
}

// reread reports whether more than one delivery asked for the body. While a
// connection is still written to it need not have met its end yet: then that a
// silent one was made beside it must do.
func (s *snapshot) reread() bool {
	return s.bodyReread || s.getConn > 0 && s.silent > 0 && s.wroteRequest < s.gotConn
}

// inner reports whether a handler beneath refused, by an error or a response, or
// sent the client elsewhere, as to a login, before anything that could send the
// request was reached.
func (s *snapshot) inner() bool {
	if s.headerWritten && (s.broken || !s.refused) || !s.headerWritten && !s.failed {
		return false
	}
	return s.neverLeft() && !s.proxy.ran
}

// read takes the parts of a snapshot that the trace and the proxy know.
func (s *snapshot) read(t *trace, repl *caddy.Replacer, err error) {
	s.stopped = t.stopped.Load()
	s.getConn, s.gotConn = t.getConn.Load(), t.gotConn.Load()
	s.wroteHeaders, s.wroteRequest, s.firstByte = t.wroteHeaders.Load(), t.wroteRequest.Load(), t.firstByte.Load()
	s.dials = t.dials.Load()
	s.unsure, s.silent = t.unsure.Load(), t.silent.Load()
	s.unused = t.unused.Load()
	s.bodyRead, s.bodyReread = t.body.read.Load(), t.body.reread.Load()

	if err != nil {
		_, s.dialError = errors.AsType[reverseproxy.DialError](err)
		s.deadline = errors.Is(err, context.DeadlineExceeded)
	}

	s.proxy = readProxyReport(repl)
}
