package effect_test

import (
	"strings"
	"testing"
	"time"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/outcome"
)

// What a caller is told to do once the rounds are spent is what is to be done.
func TestRoundsSpentAdvice(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	call := effect.Call{Key: effect.NewKey("", "k"), Caller: "a", Tool: "t", Rounds: 0, Lease: time.Minute, Retain: time.Hour}
	call.Token[0] = 1
	r := effect.Step(effect.Record{}, call, now).After
	state, _ := effect.DigestState(jsonrpc.Member{Type: jsonrpc.String, Raw: []byte(`"s"`)})
	r = effect.Step(r, effect.Outcome{Reservation: r.Reservation(), Outcome: outcome.Held, RequestState: state, HoldFor: time.Minute, Uncommitted: true}, now).After
	call.Token[0] = 2
	told := effect.Step(r, call, now)
	if told.Answer != effect.RoundsSpent {
		t.Fatal(told.Answer)
	}
	over := effect.Step(r, call, now.Add(time.Hour))
	if over.Answer == effect.Forward && strings.Contains(told.Answer.Advice(), "a person must check") {
		t.Errorf("told %q, though the call is simply made then: %v, attempt %d", told.Answer.Advice(), over.Answer, over.After.Attempt)
	}
}

// Another call with the key is told what docs/effects.md says: held.
func TestRoundsSpentOfAConflict(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	call := effect.Call{Key: effect.NewKey("", "k"), Caller: "a", Tool: "t", Rounds: 0, Lease: time.Minute, Retain: time.Hour}
	call.Token[0] = 1
	r := effect.Step(effect.Record{}, call, now).After
	state, _ := effect.DigestState(jsonrpc.Member{Type: jsonrpc.String, Raw: []byte(`"s"`)})
	r = effect.Step(r, effect.Outcome{Reservation: r.Reservation(), Outcome: outcome.Held, RequestState: state, HoldFor: time.Minute}, now).After
	call.Token[0] = 2
	call.Fingerprint[0] = 1
	if got := effect.Step(r, call, now); got.Answer != effect.InputAwaited {
		t.Errorf("%v, %v", got.Event, got.Answer)
	}
}
