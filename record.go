package gateway

import (
	"bytes"
	"time"

	"github.com/caddymcp/gateway/effect"
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
		o.Answer, o.ReplayFor = x.stored(), microseconds(x.h.Replay.For)
	case outcome.Held:
		o.RequestState, o.HoldFor = x.answer.RequestState, microseconds(x.h.ElicitationTimeout)
		o.Uncommitted = x.rule.uncommitted
	case outcome.Deferred:
		o.TaskID, o.TaskFor = x.answer.TaskID, microseconds(x.h.TaskTimeout)
	}
	return o
}

// stored is the result that is kept to be given again, nil for none: it was too
// large, or the operator keeps none.
func (x *exchange) stored() []byte {
	start, end := x.answer.ResultStart, x.answer.ResultEnd
	if x.h.Replay.Off || end-start > x.h.Replay.MaxSize || end == start || end > int64(len(x.text)) {
		return nil
	}
	return bytes.Clone(x.text[start:end])
}

// microseconds is a duration as a ledger keeps it.
func microseconds[D ~int64](d D) time.Duration { return time.Duration(d).Truncate(time.Microsecond) }
