package effect_test

import (
	"strings"
	"testing"
	"time"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/outcome"
)

// spent is a record that is held and may not be continued, and the call that meets
// it.
func spent(now time.Time, uncommitted bool) (effect.Record, effect.Call) {
	call := effect.Call{Key: effect.NewKey("", "k"), Caller: "a", Tool: "t", Rounds: 0, Lease: time.Minute, Retain: time.Hour}
	call.Token[0] = 1
	r := effect.Step(effect.Record{}, call, now).After
	state, _ := effect.DigestState(jsonrpc.Member{Type: jsonrpc.String, Raw: []byte(`"s"`)})
	r = effect.Step(r, effect.Outcome{Reservation: r.Reservation(), Outcome: outcome.Held, RequestState: state, HoldFor: time.Minute, Uncommitted: uncommitted}, now).After
	call.Token[0] = 2
	return r, call
}

// What a caller is told to do once the rounds are spent is what is to be done.
func TestRoundsSpentAdvice(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	r, call := spent(now, true)
	told := effect.Step(r, call, now)
	if told.Answer != effect.RoundsSpent {
		t.Fatal(told.Answer)
	}
	over := effect.Step(r, call, now.Add(time.Hour))
	if over.Answer == effect.Forward && strings.Contains(told.Answer.Advice(), "a person must check") {
		t.Errorf("told %q, though the call is simply made then: %v, attempt %d", told.Answer.Advice(), over.Answer, over.After.Attempt)
	}
}

// Another call with the key, and another caller, are told what docs/effects.md
// says: held.
func TestRoundsSpentOfOthers(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for name, differ := range map[string]func(*effect.Call){
		"another call":   func(c *effect.Call) { c.Fingerprint[0] = 1 },
		"another caller": func(c *effect.Call) { c.Caller = "b" },
	} {
		r, call := spent(now, false)
		differ(&call)
		if got := effect.Step(r, call, now); got.Answer != effect.InputAwaited {
			t.Errorf("%s: %v, %v", name, got.Event, got.Answer)
		}
	}
}
