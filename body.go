package gateway

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddymcp/gateway/mcpheaders"
)

// firstRead is the size of a body's first buffer, in bytes. A Content-Length
// sets nothing more aside: it is a word that costs its sender nothing.
const firstRead = 4 << 10

// readBody reads the body of r to its end, up to the arrival's limit and as far
// as it lets more bytes be held (admission row 4). To the end and not just as
// far as Content-Length says: only then does Go notice a client that goes away.
//
// What was read is returned with a refusal too: it may go on all the same.
func readBody(r *http.Request, a *arrival) ([]byte, *mcpheaders.Refusal) {
	if r.ContentLength > a.limit {
		return nil, mcpheaders.BodyTooLarge(a.limit)
	}
	a.start()
	defer a.end()
	var body []byte
	for {
		if len(body) == cap(body) {
			size := nextSize(int64(len(body)), r.ContentLength, a.limit)
			if !a.take(size - int64(len(body))) {
				return body, overloaded()
			}
			body = append(make([]byte, 0, size), body...)
		}
		a.wait(len(body))
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > a.limit:
			return body, mcpheaders.BodyTooLarge(a.limit)
		case err == io.EOF:
			return body, nil
		case err != nil:
			return body, unreadBody(err, a.limit)
		case a.late():
			return body, mcpheaders.BodyStalled()
		}
	}
}

// nextSize is the size of the buffer that follows one that n bytes have filled:
// twice as much, so that what is set aside follows what has really come, but
// not more than the body may have or declares, and one byte for its end to be
// met in.
func nextSize(n, declared, limit int64) int64 {
	size := min(max(2*n, firstRead), limit+1)
	if declared >= n {
		size = min(size, declared+1)
	}
	return size
}

// unreadBody says why a body could not be read to its end. The sizes that
// net/http and Caddy's request_body set are limits like ours; a deadline that
// passed is the client's silence; anything else is a torn body.
func unreadBody(err error, limit int64) *mcpheaders.Refusal {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return mcpheaders.BodyTooLarge(tooLarge.Limit)
	}
	var handlerErr caddyhttp.HandlerError
	if errors.As(err, &handlerErr) && handlerErr.StatusCode == http.StatusRequestEntityTooLarge {
		return mcpheaders.BodyTooLarge(limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return mcpheaders.BodyStalled()
	}
	return mcpheaders.BodyBroken()
}

// bodyReader is the body of the forwarded request. It knows whether anything
// beneath has begun to read it, which is part of the proof that nothing was
// sent, and whether a second delivery asked for it. It offers no WriterTo and
// no second reading, and the request gets no GetBody: with one, Go's transport
// repeats a POST by itself.
type bodyReader struct {
	mu     sync.Mutex // of body: a transport may still read it when another one begins
	body   []byte     // what is left of what was read
	rest   io.Reader  // what follows it unread; nil if nothing does
	share  *bodyShare // goes back once the body is handed out; nil if it is needed for longer
	read   atomic.Bool
	ended  atomic.Bool // its end was met, or it was closed: one delivery has had it
	reread atomic.Bool // it was read after that
	trace  *trace      // is told of every Read, before a byte is handed out; nil outside of an exchange
}

func (b *bodyReader) Read(p []byte) (int, error) {
	first := !b.read.Swap(true)
	if b.ended.Load() {
		b.reread.Store(true)
	}
	if b.trace != nil {
		if first && b.trace.late != nil && b.trace.late() {
			// For transports that ask the trace for nothing. Later it would only
			// tear what is sent already.
			return 0, errLate
		}
		b.trace.bodyRead()
	}
	if n := b.next(p); n > 0 || len(p) == 0 {
		return n, nil
	}
	if b.rest != nil {
		n, err := b.rest.Read(p)
		if err != nil {
			b.ended.Store(true)
		}
		return n, err
	}
	b.ended.Store(true)
	return 0, io.EOF
}

// next takes the next of the bytes that were read before.
func (b *bodyReader) next(p []byte) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := copy(p, b.body)
	b.body = b.body[n:]
	if len(b.body) == 0 && b.share != nil {
		b.body = nil
		b.share.give()
	}
	return n
}

func (b *bodyReader) Close() error {
	b.ended.Store(true)
	return nil
}
