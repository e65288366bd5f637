package gateway

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/outcome"
)

// headerMismatch is the code of a server's refusal of mirrored headers.
const headerMismatch = -32020

// exchange is one tool call and its answer: it runs the handlers beneath under
// observation, decides what is known, and sees to it that the client hears no
// more than that.
type exchange struct {
	*call
	client context.Context // done when the client is gone, and nobody waits for the outcome any more
	ctx    callContext     // of the exchange
	repl   *caddy.Replacer
	trace  trace
	writer responseWriter
	start  time.Time

	// opaque: with enforce off, the request may be a tool call or not. It is
	// sent at most once, and its answer, which cannot be told by an id, is
	// passed on as it is.
	opaque bool

	reader *jsonrpc.ResponseReader
	answer jsonrpc.Answer // the final message, once one was read
	later  bool           // another event that carried data came before it

	failure error // what the handlers beneath returned
	aborted bool  // they panicked with http.ErrAbortHandler

	seen       outcome.Observation // what the outcome was decided by
	unrecorded bool                // that of a protected call, which is not in its ledger
	text       []byte              // the final message of a protected call, if it is held
	mark       [256]byte           // space for the member that tells it
}

func newExchange(c *call, w http.ResponseWriter) *exchange {
	x := &exchange{
		call:   c,
		client: c.request.Context(),
		opaque: !c.isToolCall(),
		start:  time.Now(),
	}
	x.repl = x.client.Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	x.reader = readers.Get().(*jsonrpc.ResponseReader)
	x.reader.Reset(c.message.ID)
	x.writer.init(x, w)
	return x
}

// readers keeps the buffers of response readers from one exchange to the next.
var readers = sync.Pool{New: func() any { return new(jsonrpc.ResponseReader) }}

// run is the exchange from its first byte to its last.
func (x *exchange) run(next caddyhttp.Handler) error {
	if x.reservation != nil {
		var stop func()
		x.client, stop = x.h.detach(x.client)
		defer stop()
		x.trace.late = x.reservation.late
	}
	x.ctx = callContext{x.client, x.call}
	ctx := x.trace.start(&x.ctx)
	defer x.trace.cancel(nil)
	defer readers.Put(x.reader)
	defer restoreProxyReport(x.repl, clearProxyReport(x.repl))

	x.failure = x.observe(next, x.upstreamRequest(ctx))
	x.writer.end()
	s := x.snapshot()
	x.conclude(&s)
	if s.inner() {
		// An inner handler refused before any proxy was reached: its response,
		// its error, or its wish to drop the connection, is carried out.
		switch {
		case s.headerWritten:
			return x.writer.deliver(outcome.Verdict{Answer: outcome.Upstream})
		case x.aborted:
			panic(http.ErrAbortHandler)
		}
		x.request.Body = http.NoBody // an error route must not send on what was not read
		return x.failure
	}
	return x.writer.deliver(x.verdict)
}

// upstreamRequest returns the request for the upstream: what was admitted, read
// through the trace, and without what would bring the answer in a form that
// cannot be read.
func (x *exchange) upstreamRequest(ctx context.Context) *http.Request {
	r := x.forward(ctx, &x.trace.body)
	r.Header["Accept-Encoding"] = []string{"identity"}
	return r
}

// observe calls the handlers beneath. reverse_proxy ends a response that broke
// off with the panic http.ErrAbortHandler, which is an observation. Any other
// panic goes on, after the outcome is recorded.
func (x *exchange) observe(next caddyhttp.Handler, r *http.Request) error {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		x.aborted = true
		if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares the panic's value too
			return
		}
		s := x.snapshot()
		x.conclude(&s)
		panic(p)
	}()
	return next.ServeHTTP(&x.writer, r)
}

// snapshot takes what is known at this moment.
func (x *exchange) snapshot() snapshot {
	s := snapshot{
		answered:      x.answered(),
		gone:          x.client.Err() != nil || x.writer.clientFailed && x.reservation == nil,
		headerWritten: x.writer.status != 0,
		refused:       x.writer.status >= 300,
		failed:        x.aborted || x.failure != nil,
		panicked:      x.aborted,
	}
	s.broken = s.failed && !x.writer.unwanted
	s.read(&x.trace, x.repl, x.failure)
	return s
}

// answered reports whether a complete final message with the request's id was
// read: then it is what counts, whatever happened afterwards. What answers a
// request that cannot be read is a whole response.
func (x *exchange) answered() bool {
	if x.opaque {
		return x.writer.status != 0 && !x.aborted && x.failure == nil
	}
	return isFinal(&x.answer) && x.answer.ID == jsonrpc.IDOurs
}

func isFinal(a *jsonrpc.Answer) bool {
	return a.Kind == jsonrpc.Result || a.Kind == jsonrpc.ErrorResponse
}

// conclude decides what is known of the call and records it, once. Of a request
// that cannot be read nothing is known once it was answered, not even whether
// it was a call.
func (x *exchange) conclude(s *snapshot) {
	if x.ended || x.opaque && s.stage() == outcome.Answered && !s.stopped {
		return
	}
	x.ended = true
	x.describe(s)
	x.verdict = outcome.Decide(&x.seen)
	if x.reservation != nil {
		x.unrecorded = !x.reservation.record(x.outcome())
	}
	took := time.Since(x.start)
	countCall(x.verdict, took)
	if x.seen.Message == outcome.Error && x.seen.Code == headerMismatch {
		x.refusedHeaders()
	}
	x.log(took)
}

// describe puts what was seen into the terms of the outcome table.
func (x *exchange) describe(s *snapshot) {
	w, a := &x.writer, &x.answer
	x.seen = outcome.Observation{
		Stage:   s.stage(),
		Modern:  x.admission.Revision.Modern,
		Session: x.request.Header.Get("Mcp-Session-Id") != "",

		Status:    w.status,
		Challenge: w.challenge,
		Encoded:   w.encoded,
		Stream:    w.stream,

		Doubtful:      a.Doubtful || w.events && !w.stream,
		LaterEvent:    x.later,
		HasResultType: a.HasResultType,
		ResultType:    a.ResultType,
		IsError:       a.IsError,
		RequestState:  a.HasRequestState,
		TaskID:        a.HasTaskID,
		Code:          a.Code,

		// Only a request that was admitted is surely a call of that tool.
		NotExecutedOnError: x.rule.notExecutedOnError && x.admitted,
		CodeIsAmbiguous:    x.rule.isAmbiguous(a.Code),
		Untraceable:        x.reservation != nil && a.TaskID == "",
		Repeated:           s.stopped,
		Continues:          x.reservation != nil && x.reservation.later,
		Substituted:        s.substituted(w.responseHead),
	}
	switch a.Kind {
	case jsonrpc.Result:
		x.seen.Message = outcome.Result
	case jsonrpc.ErrorResponse:
		x.seen.Message = outcome.Error
	}
	switch a.ID {
	case jsonrpc.IDOurs:
		x.seen.ID = outcome.Ours
	case jsonrpc.IDAbsent, jsonrpc.IDNull:
		x.seen.ID = outcome.Absent
	}
}

// log writes what an operator must hear of: a call that may or may not have
// happened, one that could not be sent, and a second delivery.
func (x *exchange) log(took time.Duration) {
	if x.trace.stopped.Load() {
		repeatsStopped.Inc()
		x.h.logger.Error("stopped a second delivery of a tool call: "+
			"do not combine request_buffers with lb_retry_match, nor answer a tool call from a second upstream",
			zap.Object("mcp", x.call), zap.String("upstream", x.upstream()))
	}
	text := "ambiguous tool call"
	switch {
	case x.verdict.Outcome == outcome.Ambiguous:
	case x.verdict.Answer == outcome.NotSent:
		text = "tool call not sent"
	default:
		return
	}
	fields := []zap.Field{
		zap.Object("mcp", x.call),
		zap.Int("status", x.writer.status),
		zap.String("upstream", x.upstream()),
		zap.Duration("duration", took),
	}
	if x.failure != nil {
		fields = append(fields, zap.Error(x.failure))
	}
	if x.answer.Problem != "" {
		fields = append(fields, zap.String("problem", x.answer.Problem))
	}
	x.h.logger.Warn(text, fields...)
}

// upstream is the address that a reverse_proxy beneath selected, if one did.
func (x *exchange) upstream() string {
	address, _ := x.repl.GetString(proxyUpstream)
	return address
}
