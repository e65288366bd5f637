package gateway

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

func testCallNumber(n int) effect.Call {
	call := testCall(effect.NewKey("", "many", time.Duration(n).String()))
	call.Token[1], call.Token[2] = byte(n), byte(n>>8)
	return call
}

// withAdmin adds an admin endpoint on a free port to a configuration, and
// returns its address.
func withAdmin(t *testing.T, cfg *incaddy.Config) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	cfg.Global += "\nadmin " + ln.Addr().String()
	return ln.Addr().String()
}

// sample returns the value of a series in a page of metrics.
func sample(t *testing.T, page, series string) string {
	t.Helper()
	for line := range strings.Lines(page) {
		if value, ok := strings.CutPrefix(line, "caddy_mcp_gateway_"+series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func TestEffectMetrics(t *testing.T) {
	s := newSpy(t, "metrics")
	s.clock.Advance(time.Since(s.clock.Now()) - time.Hour)
	cfg := spied("metrics")
	admin := withAdmin(t, &cfg)
	site := incaddy.Run(t, cfg)
	shared := running.newest().ledger()
	sweep := func() {
		shared.sweep(t.Context())
		shared.count(t.Context())
	}
	wants := func(series, want string) {
		t.Helper()
		if got := sample(t, get(t, "http://"+admin+"/metrics"), series); got != want {
			t.Errorf("%s is %q, want %q", series, got, want)
		}
	}
	sweep()
	wants("ledger_up", "1")
	wants(`effects{state="ambiguous"}`, "0")
	wants("oldest_ambiguous_seconds", "0")

	writes := sample(t, get(t, "http://"+admin+"/metrics"), "ledger_write_seconds_count")
	for _, path := range []string{"/1?outcome=committed", "/2?outcome=ambiguous", "/3?outcome=ambiguous", "/4?outcome=failed", "/5"} {
		get(t, site.URL+path)
	}
	if again := sample(t, get(t, "http://"+admin+"/metrics"), "ledger_write_seconds_count"); again == writes {
		t.Errorf("no writes were observed: %s", again)
	}
	writes = sample(t, get(t, "http://"+admin+"/metrics"), "ledger_write_seconds_count")
	get(t, site.URL+"/1") // a replay writes nothing
	wants("ledger_write_seconds_count", writes)

	sweep()
	wants(`effects{state="committed"}`, "1")
	wants(`effects{state="ambiguous"}`, "2")
	wants(`effects{state="executing"}`, "1")
	wants(`effects{state="held"}`, "0")
	s.clock.Advance(time.Minute)
	sweep()
	wants(`effects{state="executing"}`, "0")
	wants(`effects{state="ambiguous"}`, "3")
	if age := sample(t, get(t, "http://"+admin+"/metrics"), "oldest_ambiguous_seconds"); !strings.HasPrefix(age, "36") {
		t.Errorf("the oldest is of %s seconds, want an hour", age)
	}
	if batches := sample(t, get(t, "http://"+admin+"/metrics"), "ledger_batch_size_count"); batches == "" || batches == "0" {
		t.Errorf("%q batches were observed", batches)
	}

	// What fails shows, to calls and to sweeps, until something succeeds.
	s.failing(errors.New("the disk is full"))
	if _, err := shared.Apply(t.Context(), testCallNumber(1)); err == nil {
		t.Error("no error")
	}
	wants("ledger_up", "0")
	s.failing(nil)
	get(t, site.URL+"/6")
	wants("ledger_up", "1")
	s.clock.Advance(time.Minute)
	s.failing(errors.New("the disk is full"))
	sweep()
	wants("ledger_up", "0")
	wants(`effects{state="ambiguous"}`, "3") // what was last known
	site.Log.Await(t, "a sweep that failed", func(e *incaddy.Entry) bool {
		return e.Message == "sweeping the ledger" && strings.Contains(e.Line, "the disk is full")
	})
	s.failing(nil)
	sweep()
	wants("ledger_up", "1")

	replays := sample(t, get(t, "http://"+admin+"/metrics"), "effect_replays_total")
	countReplay()
	if sample(t, get(t, "http://"+admin+"/metrics"), "effect_replays_total") == replays {
		t.Error("no replay was counted")
	}
	for _, reason := range effectReasons() {
		if sample(t, get(t, "http://"+admin+"/metrics"), fmt.Sprintf("effect_refusals_total{refusal=%q}", reason)) == "" {
			t.Errorf("%s does not begin at zero", reason)
		}
	}
	countEffectRefusal("in_a_test")
	if refusals := sample(t, get(t, "http://"+admin+"/metrics"), `effect_refusals_total{refusal="in_a_test"}`); refusals == "" || refusals == "0" {
		t.Error("no refusal was counted")
	}

	site.Stop(t)
	if page := get(t, "http://"+admin+"/metrics"); sample(t, page, "ledger_up") != "" {
		t.Error("a ledger shows that nobody uses")
	}
}
