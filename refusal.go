package gateway

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/mcpheaders"
)

// allowedMethods is what a 405 names in its Allow header (admission row 2).
const allowedMethods = "POST, GET, DELETE, OPTIONS"

// refused records that the request was refused, or would have been if that were
// enforced.
func (c *call) refused(refusal *mcpheaders.Refusal, enforced bool) {
	c.refusal = refusal.Reason
	countRefusal(refusal.Reason, enforced)
	text, level := "refused", zapcore.InfoLevel
	if !enforced {
		text, level = "would be refused, but enforce is off", zapcore.WarnLevel
	}
	if entry := c.h.logger.Check(level, text); entry != nil {
		entry.Write(
			zap.String("refusal", refusal.Reason),
			zap.Int("row", refusal.Row),
			zap.String("detail", refusal.Text),
			zap.String("method", shorten(c.message.Method)),
			zap.String("remote_ip", clientIP(c.request)),
			zap.String("uri", shorten(c.request.URL.Path)),
		)
	}
}

// answerRefusal sends the client the JSON-RPC error of a refusal, with the id
// of its request as far as that could be read. A response's id is one of a
// request of the server: the client would take the refusal for the answer to a
// request of its own.
func (c *call) answerRefusal(w http.ResponseWriter, refusal *mcpheaders.Refusal) error {
	if refusal.Status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", allowedMethods)
	}
	if refusal.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	unread := !c.complete && c.request.ContentLength != 0 && c.request.ProtoMajor == 1
	if unread {
		// net/http reads what is left of a body before it sends the response,
		// and so would keep a client waiting that stalls, or that waits to be
		// told to go on. Not on a connection that closes.
		w.Header().Set("Connection", "close")
	}
	id := c.message.ID
	if c.message.Kind == jsonrpc.Response {
		id = nil
	}
	err := c.writeError(w, refusal.Status, jsonrpc.AppendError(nil, id, refusal.Code, refusal.Text, refusal.AppendData(nil)))
	if unread {
		c.discardBody(w)
	}
	return err
}

// What is discarded of the body of a refused request, at most.
const (
	discardTime  = 5 * time.Second
	discardBytes = 64 << 20
)

// discardBody reads on after a refusal over HTTP/1 was written. To close a
// connection on which bytes still arrive resets it, and the reset takes the
// refusal with it from a client that writes its whole body before it reads:
// the client would see a torn connection, and send the same again.
//
// A client that waits to be told to go on is not told so any more, and so does
// not send its body.
func (c *call) discardBody(w http.ResponseWriter) {
	waits := len(c.body) == 0 && c.request.Header.Get("Expect") != ""
	c.body = nil
	c.release()
	client := http.NewResponseController(w)
	if client.Flush() != nil || client.SetReadDeadline(time.Now().Add(discardTime)) != nil || waits {
		return
	}
	_, _ = io.CopyN(io.Discard, c.request.Body, discardBytes)
}

// writeError sends one JSON-RPC error as the whole response.
func (c *call) writeError(w http.ResponseWriter, status int, body []byte) error {
	header := w.Header()
	shareWithOrigin(header, c.request, &c.h.policy)
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	// An error here means that the client is gone: nothing is left to tell it.
	_, _ = w.Write(body)
	return nil
}

// shareWithOrigin lets the page that sent r read the answer that has this
// header, if its origin is allowed (Fetch standard, section 3.3.3). A page that
// may not read an answer takes it for a network failure, and sends the call
// again.
func shareWithOrigin(header http.Header, r *http.Request, policy *mcpheaders.Policy) {
	const allowed = "Access-Control-Allow-Origin"
	origin, ok := policy.AllowedOrigin(r.Header)
	if !ok || header[allowed] != nil {
		return
	}
	header[allowed] = []string{origin}
	header.Add("Vary", "Origin")
}
