package gateway

import (
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/mcpheaders"
)

// matchersHeld bounds what all mcp matchers hold together. A matcher is not told
// how many others there are, so there is one budget in the process.
var (
	matchersHeld     = budget{limit: defaultMaxHeld, reserve: defaultMaxHeld / 4}
	matchersArriving = budget{limit: defaultMaxHeld / 2, reserve: defaultMaxHeld / 8, part: true} // of bodies that are not complete
)

// readAhead is the body of a request that an mcp matcher has read. It stands in
// the request in the place of the one it came from, and whoever reads it gets
// the same bytes and the same end. Further matchers, and the handler, take from
// it what the first one found. If something between them puts another body in
// its place, they read that one.
type readAhead struct {
	rest     io.ReadCloser // where it came from
	size     int64         // of what was read of it
	complete bool          // that is all of it

	// What is known of a complete one.
	strict  bool // it could be read in no two ways
	summary mcpheaders.Summary

	mu    sync.Mutex // a transport reads in a goroutine of its own
	left  []byte     // what was read and is not handed out yet
	found *foundMessage
	share bodyShare
}

// foundMessage is a whole body and the message in it.
type foundMessage struct {
	body     []byte
	message  jsonrpc.Message
	parseErr error
}

// readAheadOf reads the body of r up to limit and puts what it has read in its
// place, if that is not done yet. A body that cannot be read to its end is
// refused; what was read of it is still there for an error route.
func readAheadOf(r *http.Request, limit int64) (*readAhead, *mcpheaders.Refusal) {
	if ahead, ok := r.Body.(*readAhead); ok && ahead.complete {
		if ahead.size > limit {
			return nil, mcpheaders.BodyTooLarge(limit)
		}
		return ahead, nil
	}
	ahead := &readAhead{rest: r.Body, share: bodyShare{budget: &matchersHeld}}
	// Only once all is taken: the client may be gone before.
	defer func() { context.AfterFunc(r.Context(), ahead.share.give) }()
	body, refusal := readBody(r, &arrival{
		limit: limit,
		hold:  ahead.share.take,
		share: bodyShare{budget: &matchersArriving},
		grace: bodyGrace,
	})
	r.Body = ahead
	ahead.left, ahead.size = body, int64(len(body))
	if refusal != nil {
		return nil, refusal
	}
	ahead.complete = true
	ahead.found = &foundMessage{body: body}
	ahead.read()
	return ahead, nil
}

// read parses the body. The handler's policy says more of a message, but
// nothing that two readers could disagree on.
func (b *readAhead) read() {
	f := b.found
	f.parseErr = f.message.Parse(f.body)
	b.strict = new(mcpheaders.Policy).Body(&f.message, f.parseErr) == nil
	b.summary = mcpheaders.Summarize(&f.message)
}

// take hands all of the body over with the message in it, and leaves an empty
// one. It returns nil if the body is not complete, or was begun to be read.
func (b *readAhead) take() *foundMessage {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.found
	if found != nil {
		b.drop()
	}
	return found
}

// whole reports whether take would hand the body over.
func (b *readAhead) whole() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.found != nil
}

// drop lets go of what was read: a request may last for hours after that.
func (b *readAhead) drop() {
	b.left, b.found = nil, nil
	b.share.give()
}

func (b *readAhead) Read(p []byte) (int, error) {
	if n, ok := b.handOut(p); ok {
		return n, nil
	}
	return b.rest.Read(p) // the end of the body, or what was not read ahead
}

// handOut copies some of what was read ahead. It reports false if nothing is
// left of it.
func (b *readAhead) handOut(p []byte) (int, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.found = nil
	if len(b.left) == 0 {
		return 0, false
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	if len(b.left) == 0 {
		b.drop()
	}
	return n, true
}

// Close lets go of what is left, as the body that it came from does.
func (b *readAhead) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop()
	return b.rest.Close()
}
