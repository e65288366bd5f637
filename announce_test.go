package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

func init() { caddy.RegisterModule(&listener{}) }

// listener is an event handler that hands events to the test.
type listener struct {
	Name string `json:"name"` // of the configuration it listens in
}

type heardEvent struct {
	listener, name, origin string
	data                   map[string]any
}

var heard = make(chan heardEvent)

func (*listener) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.listener", New: func() caddy.Module { return new(listener) }}
}

func (l *listener) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	d.AllArgs(&l.Name)
	return nil
}

func (l *listener) Handle(ctx context.Context, e caddy.Event) error {
	select {
	case heard <- heardEvent{l.Name, e.Name(), string(e.Origin().CaddyModule().ID), e.Data}:
	case <-ctx.Done(): // the test is over
		return nil
	}
	if l.Name == "panics" {
		panic("the handler is broken")
	}
	return nil
}

// listening is a spied configuration whose events a listener hears.
func listening(spy, listener string) incaddy.Config {
	cfg := spied(spy)
	cfg.Global += "\nevents {\non mcp_gateway.ambiguous listener " + listener +
		"\non mcp_gateway.resolved listener " + listener + "\non mcp_gateway.alarm listener " + listener + "\n}"
	return cfg
}

func awaitEvent(t *testing.T) heardEvent {
	t.Helper()
	select {
	case e := <-heard:
		return e
	case <-time.After(20 * time.Second):
		t.Fatal("no event came")
		return heardEvent{}
	}
}

// wants checks an event, by what differs from one to the other.
func (e heardEvent) wants(t *testing.T, name string, want map[string]any) {
	t.Helper()
	if e.name != name || e.origin != "mcp_gateway" {
		t.Fatalf("got %s of %s, want %s", e.name, e.origin, name)
	}
	if e.data["namespace"] != "" || e.data["key"] != `["1"]` || e.data["tool"] != "create_refund" {
		t.Errorf("of another effect: %v", e.data)
	}
	for name, value := range want {
		if e.data[name] != value {
			t.Errorf("%s: got %v %v, want %v", e.name, name, e.data[name], value)
		}
	}
	text, err := json.Marshal(e.data)
	if err != nil || strings.Contains(string(text), "4000000000000002") || strings.Contains(string(text), "secret") {
		t.Errorf("data %s, %v", text, err)
	}
}

func TestEvents(t *testing.T) {
	s := newSpy(t, "events")
	site := incaddy.Run(t, listening("events", "a"))
	shared := running.newest().ledger()
	apply := func(c effect.Command) effect.Change {
		t.Helper()
		change, err := shared.Apply(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return change
	}
	key := effect.NewKey("", "1")

	// An outcome says that it is unknown, and a person what it was.
	if got := get(t, site.URL+"/1?outcome=ambiguous"); got != "recorded ambiguous" {
		t.Fatal(got)
	}
	awaitEvent(t).wants(t, eventAmbiguous, map[string]any{
		"attempt": int64(1), "state": "ambiguous", "observation": "test", "since": s.clock.Now().Format(time.RFC3339Nano), "who": nil,
	})
	apply(effect.Resolution{Key: key, Attempt: 1, Committed: true, Who: "carol", Why: "looked at the books"})
	awaitEvent(t).wants(t, eventResolved, map[string]any{"attempt": int64(1), "state": "committed", "who": "carol", "why": "looked at the books"})
	apply(effect.Reopening{Key: key, Attempt: 1, Who: "dave", Why: "the bank sent it back"})
	awaitEvent(t).wants(t, eventResolved, map[string]any{"attempt": int64(1), "state": "failed", "who": "dave", "why": "the bank sent it back"})

	// Time says that it is unknown, first to a sweep, then to a call.
	reservation := apply(testCall(key)).After.Reservation()
	s.clock.Advance(time.Minute)
	shared.sweep(t.Context())
	awaitEvent(t).wants(t, eventAmbiguous, map[string]any{"attempt": int64(2), "observation": "executing_timeout"})
	apply(testOutcome(reservation, "failed"))
	awaitEvent(t).wants(t, eventResolved, map[string]any{"attempt": int64(2), "state": "failed", "observation": "test", "who": nil, "why": nil})
	late := apply(testCall(key)).After.Reservation()
	s.clock.Advance(time.Minute)
	apply(testCall(key))
	awaitEvent(t).wants(t, eventAmbiguous, map[string]any{"attempt": int64(3), "observation": "executing_timeout"})

	// An attempt that was judged as failed turns up.
	s.clock.Advance(time.Hour)
	apply(effect.Resolution{Key: key, Attempt: 3, Who: "carol", Why: "nothing there"})
	awaitEvent(t).wants(t, eventResolved, map[string]any{"attempt": int64(3), "state": "failed"})
	apply(testOutcome(late, "committed"))
	awaitEvent(t).wants(t, eventAlarm, map[string]any{"attempt": int64(3), "state": "failed", "observation": "test"})

	// So it does when nothing of it is on record any more.
	s.clock.Advance(1000 * time.Hour)
	apply(effect.Sweeping{Key: key})
	apply(testOutcome(late, "committed"))
	e := awaitEvent(t)
	if e.data["state"] != "none" || e.data["tool"] != "" {
		t.Errorf("got %v", e.data)
	}
	e.data["tool"] = "create_refund"
	e.wants(t, eventAlarm, map[string]any{"attempt": int64(3), "observation": "test"})

	for _, level := range []string{"error", "warn", "info"} {
		entry := site.Log.Await(t, level, func(e *incaddy.Entry) bool {
			return e.Level == level && e.Logger == "mcp_gateway" && strings.Contains(e.Line, `"key":"[\"1\"]"`)
		})
		if strings.Contains(entry.Line, "4000000000000002") {
			t.Errorf("an argument is logged: %s", entry.Line)
		}
	}
}

// A request of an old configuration tells the new one.
func TestEventAfterReload(t *testing.T) {
	newSpy(t, "events over reload")
	site := incaddy.Run(t, listening(`"events over reload"`, "old"))
	done := make(chan error)
	go func() {
		response, err := http.Get(site.URL + "/1?wait&outcome=ambiguous")
		if err == nil {
			_, err = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
		done <- err
	}()
	<-atWork
	incaddy.Run(t, listening(`"events over reload"`, "new"))
	<-atWork
	if err := <-done; err != nil {
		t.Error(err)
	}
	e := awaitEvent(t)
	e.wants(t, eventAmbiguous, nil)
	if e.listener != "new" {
		t.Errorf("the event was heard in the %s configuration", e.listener)
	}
}

// No call waits for an event handler, also if more events come than can wait
// for it; one that panics is not the end.
func TestEventHandlerThatIsInTheWay(t *testing.T) {
	newSpy(t, "in the way")
	site := incaddy.Run(t, listening(`"in the way"`, "panics"))
	shared := running.newest().ledger()
	const calls = maxAnnouncements + 10
	for i := range calls { // while nobody listens
		change, err := shared.Apply(t.Context(), testCallNumber(i))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := shared.Apply(t.Context(), testOutcome(change.After.Reservation(), "ambiguous")); err != nil {
			t.Fatal(err)
		}
	}
	site.Log.Await(t, "a lost event", func(e *incaddy.Entry) bool { return strings.Contains(e.Message, "an event is lost") })
	awaitEvent(t)
	site.Log.Await(t, "a panic", func(e *incaddy.Entry) bool { return strings.Contains(e.Line, "the handler is broken") })
	awaitEvent(t)
}

func TestStartUpLines(t *testing.T) {
	newSpy(t, "start")
	site := incaddy.Run(t, incaddy.Config{
		Global: "mcp_gateway {\nledger spy start\n}",
		Site: "handle /a/* {\nprotect {\nnamespace payments\ntools create_refund pay_*\nbare list_* delete_user\n}\n}\n" +
			"handle /b/* {\nprotect {\nnamespace mail\ntools send\n}\n}",
	})
	for _, want := range []string{
		`"msg":"effects are on record","ledger":"spy start","for":"several hosts","tools":{"mail":["send"],"payments":["create_refund","pay_*"]}`,
		`"msg":"tools are configured without an effect: their calls are classified, and not kept from being repeated","tools":{"payments":["list_*","delete_user"]}`,
	} {
		site.Log.Await(t, want, func(e *incaddy.Entry) bool { return strings.Contains(e.Line, want) })
	}
	site = incaddy.Run(t, incaddy.Config{Site: "mcp_gateway /mcp {\nnamespace books\ntool list_* {\nnot_executed_on_error\n}\n}"})
	site.Log.Await(t, "of a handler that protects none", func(e *incaddy.Entry) bool {
		return e.Message == unprotected && strings.Contains(e.Line, `"tools":{"books":["list_*"]}`)
	})
	site = incaddy.Run(t, incaddy.Config{Global: "mcp_gateway {\nledger sqlite " + t.TempDir() + "/e.db\n}", Site: protecting("")})
	site.Log.Await(t, "one host", func(e *incaddy.Entry) bool { return strings.Contains(e.Line, `"for":"one host"`) })
}
