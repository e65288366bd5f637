//go:build linux

package crash

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

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

// So do the calls of an earlier configuration.
func TestStopAfterReload(t *testing.T) {
	p := newPlace(t, "")
	admin := filepath.Join(p.dir, "admin.sock")
	p.admin = "unix/" + admin
	up := serve(t, p)
	caddy := p.start(t)
	told := make(chan answer)
	go func() { told <- newCall("earlier", waits).to(caddy) }()
	<-up.arrived
	p.options = "drain 59s"
	client := newClient(admin, false)
	defer client.CloseIdleConnections()
	response, err := client.Post("http://127.0.0.1/load", "text/caddyfile", strings.NewReader(p.caddyfile(caddy.socket)))
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(response, err)
	}
	response.Body.Close()
	caddy.terminate(t)
	caddy.refuses(t)
	close(up.speak)
	if a := <-told; a.committed() == "" {
		t.Errorf("answered %s", &a)
	}
	caddy.exited(t)
	p.wantState(t, "earlier", effect.Committed)
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

// Over HTTP/2 nobody but the ledger waits for a call whose client is gone.
func TestStopWithoutConnection(t *testing.T) {
	p := newPlace(t, "")
	up := serve(t, p)
	caddy := p.start(t)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	client := newClient(caddy.socket, true)
	go func() {
		defer close(left)
		newCall("left", waits).send(ctx, client, "http://caddy/mcp")
	}()
	<-up.arrived
	leave()
	<-left
	client.CloseIdleConnections()
	caddy.terminate(t)
	caddy.await(t, caddy.lingers)
	close(up.speak)
	caddy.exited(t)
	p.wantState(t, "left", effect.Committed)
}

// An outcome that could not be recorded in time is recorded before Caddy ends.
func TestStopWhileTheLedgerIsBusy(t *testing.T) {
	p := newPlace(t, "")
	up := serve(t, p)
	caddy := p.start(t)
	told := make(chan answer)
	go func() { told <- newCall("unrecorded", waits).to(caddy) }()
	<-up.arrived
	free := p.occupy(t)
	close(up.speak)
	a := <-told
	if m := a.mark(); m.Outcome != "committed" || m.Recorded == nil || *m.Recorded {
		t.Errorf("answered %s", &a)
	}
	caddy.terminate(t)
	caddy.await(t, caddy.lingers)
	free()
	caddy.exited(t)
	p.wantState(t, "unrecorded", effect.Committed)
}

// occupy keeps everybody else from writing to the ledger until free is called.
func (p *place) occupy(t testing.TB) (free func()) {
	t.Helper()
	db, err := sqlite3.Open("file:" + p.ledger)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.BusyTimeout(patience); err != nil {
		t.Fatal(err)
	}
	if err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	return func() { db.Close() }
}

// Caddy waits for no longer than grace_period. What is not on record then is
// ambiguous.
func TestStopWithinGrace(t *testing.T) {
	p := newPlace(t, "")
	p.global = "grace_period 10ms"
	up := serve(t, p)
	caddy := p.start(t)
	told := make(chan answer)
	go func() { told <- newCall("too long", waits).to(caddy) }()
	<-up.arrived
	caddy.terminate(t)
	caddy.exited(t)
	if a := <-told; a.err == nil {
		t.Errorf("answered %s", &a)
	}
	later := p.open(t, sqlite.Options{Now: func() time.Time { return time.Now().Add(time.Minute) }})
	if _, err := effect.Sweep(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	p.wantState(t, "too long", effect.Ambiguous)
}
