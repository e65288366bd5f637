//go:build linux

package crash

import (
	"context"
	"testing"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/sqlite"
)

// What is under way when Caddy is told to stop ends, and is on record: also a
// call whose client is gone.
func TestStop(t *testing.T) {
	p := newPlace(t, "")
	up := serve(t, p)
	caddy := p.start(t)
	told := make(chan answer)
	go func() { told <- newCall("waited for", waits).to(caddy) }()
	<-up.arrived
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		newCall("left", waits).send(ctx, caddy.client, "http://caddy/mcp")
	}()
	<-up.arrived
	leave()
	<-left
	caddy.terminate(t)
	caddy.refuses(t)
	close(up.speak)
	if a := <-told; a.committed() == "" {
		t.Errorf("answered %s", &a)
	}
	caddy.exited(t)
	p.wantState(t, "waited for", effect.Committed)
	p.wantState(t, "left", effect.Committed)

	caddy = p.start(t)
	for _, payment := range []string{"waited for", "left"} {
		a := newCall(payment, answers).to(caddy)
		if executed := up.executions(payment); len(executed) != 1 || a.replayed() != executed[0] {
			t.Errorf("%s was executed by %v, and is answered %s", payment, executed, &a)
		}
	}
}

// wantState wants the refund of a payment to be on record with a state.
func (p *place) wantState(t testing.TB, payment string, s effect.State) {
	t.Helper()
	r, receipts, err := p.open(t, sqlite.Options{}).Load(t.Context(), keyOf(payment))
	if err != nil {
		t.Fatal(err)
	}
	if r.State != s {
		t.Errorf("%s is %s, want %s\n%+v", payment, r.State, s, receipts)
	}
}
