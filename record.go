package gateway

import (
	"bytes"
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/outcome"
)

// outcome is what is put on record of a protected call that has ended.
func (x *exchange) outcome() effect.Outcome {
	o := effect.Outcome{
		Outcome:     x.verdict.Outcome,
		Observation: x.verdict.Observation,
		Upstream:    x.upstream(),
		Bytes:       x.writer.came,
	}
	switch o.Outcome {
	case outcome.Committed:
		o.Answer, o.ReplayFor = x.h.stored(x.text, &x.answer), microseconds(x.h.Replay.For)
	case outcome.Held:
		o.RequestState, o.HoldFor = x.answer.RequestState, microseconds(x.h.ElicitationTimeout)
		o.Uncommitted = x.rule.uncommitted
	case outcome.Deferred:
		o.TaskID, o.TaskFor = x.answer.TaskID, microseconds(x.h.TaskTimeout)
	}
	return o
}

// contradict raises the alarm for a protected call that the upstream first said
// was not dispatched, and then gave a result of: its repeat may have been let
// through.
func (x *exchange) contradict() {
	if x.reservation == nil || x.verdict.Outcome != outcome.Failed {
		return
	}
	defer x.h.ledger.acquire()()
	ctx, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	_, err := x.h.ledger.Apply(ctx, effect.Outcome{
		Reservation: x.reservation.Reservation, Outcome: outcome.Committed, Observation: "result_after_refusal", Upstream: x.upstream(), Bytes: x.writer.came,
	})
	if err != nil {
		x.h.logger.Error("a tool call that was refused has a result, and the alarm for it could not be recorded", zap.Object("mcp", x.call), zap.Error(err))
	}
}

// maxEnvelope is how much of a message is kept beside its result, in bytes.
const maxEnvelope = 4 << 10

// keeps returns how many of the next n bytes of a message are kept, of which
// some are: as many as a result that may be given again can need.
func (x *exchange) keeps(kept, n int) int {
	if x.reservation == nil || x.h.Replay.Off {
		return 0
	}
	return int(min(int64(n), x.h.Replay.MaxSize+maxEnvelope-int64(kept)))
}

// stored is the result that is kept of a message to be given again, nil for none:
// it is too large, or the operator keeps none. The text may be only the
// beginning of the message.
func (h *Handler) stored(text []byte, a *jsonrpc.Answer) []byte {
	if h.Replay.Off || a.ResultEnd-a.ResultStart > h.Replay.MaxSize || a.ResultEnd == 0 || a.ResultEnd > int64(len(text)) {
		return nil
	}
	return bytes.Clone(text[a.ResultStart:a.ResultEnd])
}

// microseconds is a duration as a ledger keeps it.
func microseconds[D ~int64](d D) time.Duration { return time.Duration(d).Truncate(time.Microsecond) }
