package gateway

import (
	"context"
	"errors"

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
	broken        bool // the layer beneath panicked or failed after that
	failed        bool // an error or a panic came back
	panicked      bool // it was a panic
	stopped       bool // a second delivery was stopped

	getConn, gotConn                      int32
	wroteHeaders, wroteRequest, firstByte int32
	dials                                 int32 // connections made, less those whose handshake failed
	unsure                                bool  // a connection's hooks prove nothing about its bytes
	bodyRead                              bool

	dialError bool // the error is a reverseproxy.DialError
	deadline  bool // the error is a deadline of a context
	proxied   bool // a reverse_proxy ran
	selected  bool // it selected an upstream
	retried   bool // it made more than one attempt
	responded bool // an upstream answered it
}

// stage classifies a snapshot, in the order of the design.
func (s *snapshot) stage() outcome.Stage {
	switch {
	case s.answered:
		return outcome.Answered
	case s.gone:
		return outcome.ClientGone
	case s.headerWritten && !s.broken:
		return outcome.Answered
	case s.headerWritten:
		return outcome.Cut
	case s.failed && s.nothingWritten():
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
	case s.stopped, s.responded, s.wroteHeaders > 0, s.wroteRequest > 0, s.firstByte > 0:
		return false
	case s.gotConn > 0:
		// A connection was had and not written to. On HTTP/1 an error comes
		// back only after the writer is done, which always fires a hook; on
		// HTTP/2 likewise, except when a context ends the wait early.
		// A panic does not wait for the writer either.
		return !s.unsure && !s.deadline && !s.panicked
	case s.getConn > 0 && s.dials > 0:
		// A connection was made that the trace was not handed: by a transport
		// that is silent, beside one that is not.
		return false
	case s.getConn > 0:
		// The transport reports to the trace, and never had a connection.
		return true
	case s.dialError:
		// The transport may ignore traces, but this attempt could not dial,
		// and it was the only one.
		return !s.retried && !s.bodyRead
	default:
		return s.neverLeft()
	}
}

// neverLeft reports whether nothing that could send the request was reached: a
// proxy without an available upstream, or an inner handler that refused.
func (s *snapshot) neverLeft() bool {
	return s.getConn == 0 && s.gotConn == 0 && !s.dialError && !s.selected && !s.bodyRead
}

// read takes the parts of a snapshot that the trace and the proxy know.
func (s *snapshot) read(t *trace, repl *caddy.Replacer, err error) {
	s.stopped = t.stopped.Load()
	s.getConn, s.gotConn = t.getConn.Load(), t.gotConn.Load()
	s.wroteHeaders, s.wroteRequest, s.firstByte = t.wroteHeaders.Load(), t.wroteRequest.Load(), t.firstByte.Load()
	s.dials = t.dials.Load()
	s.unsure = t.unsure.Load()
	s.bodyRead = t.body.read.Load()

	if err != nil {
		_, s.dialError = errors.AsType[reverseproxy.DialError](err)
		s.deadline = errors.Is(err, context.DeadlineExceeded)
	}

	retries, proxied := repl.Get(proxyRetries)
	s.proxied = proxied
	s.retried = proxied && retries != 0
	_, s.selected = repl.Get(proxyUpstream)
	_, s.responded = repl.Get(proxyLatency)
}

// The placeholders by which reverse_proxy tells what it did.
const (
	proxyRetries  = "http.reverse_proxy.retries"
	proxyUpstream = "http.reverse_proxy.upstream.address"
	proxyLatency  = "http.reverse_proxy.upstream.latency" // set by an answer
)

// clearProxyPlaceholders clears what a reverse_proxy further out (forward_auth)
// left in the placeholders that the snapshot reads, and returns it.
func clearProxyPlaceholders(repl *caddy.Replacer) (before map[string]any) {
	for _, key := range [...]string{proxyRetries, proxyUpstream, proxyLatency} {
		if value, ok := repl.Get(key); ok {
			if before == nil {
				before = make(map[string]any)
			}
			before[key] = value
			repl.Delete(key)
		}
	}
	return before
}

// restoreProxyPlaceholders puts back what was cleared, where no proxy beneath
// has set its own.
func restoreProxyPlaceholders(repl *caddy.Replacer, before map[string]any) {
	for key, value := range before {
		if _, ok := repl.Get(key); !ok {
			repl.Set(key, value)
		}
	}
}
