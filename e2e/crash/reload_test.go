//go:build linux

package crash

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/goleak"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/sqlite"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// Under load the configuration is loaded again and again. No call is lost, all
// are in one ledger, and nothing is left behind.
func TestReload(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Run("under load", reload)
	// Servers that are shut down, and the lock of Caddy's storage, look only now and
	// then whether they are done.
	var left error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if left = goleak.Find(before); left == nil {
			return
		}
	}
	t.Errorf("left running: %v", left)
}

func reload(t *testing.T) {
	const reloads, clients = 50, 4
	p := newPlace(t, "")
	up := serve(t, p)
	socket := filepath.Join(p.dir, "caddy.sock")
	load := func(n int) {
		p.options = fmt.Sprintf("drain %ds", 60+n) // a configuration that is the same is not loaded
		js, err := incaddy.Adapt(p.caddyfile(socket))
		if err != nil {
			t.Fatal(err)
		}
		if err := caddy.Load(js, false); err != nil {
			t.Fatal(err)
		}
	}
	load(0)
	defer caddy.Stop()
	files := openFiles(t, p.ledger)
	if files == 0 {
		t.Fatal("the ledger has no open files")
	}

	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}
	client := &http.Client{Transport: transport}
	// A Caddy that loads a configuration drops connections that it has not read
	// from. Then a client makes the same call again, until it has its answer.
	var again atomic.Int64
	send := func(c call) (a answer) {
		for a = c.send(context.Background(), client, "http://caddy/mcp"); a.err != nil; a = c.send(context.Background(), client, "http://caddy/mcp") {
			again.Add(1)
			c = newCall(c.payment, c.script)
		}
		return a
	}

	type ack struct{ payment, serial string }
	var calling sync.WaitGroup
	var over atomic.Bool
	acked := make([][]ack, clients+1)
	call := func(i int, payment, script string) {
		a := send(newCall(payment, script))
		for a.refusedFor(effect.CodeInProgress, effect.Executing) {
			a = send(newCall(payment, script))
		}
		if a.committed() == "" {
			t.Errorf("%s is answered %s", payment, &a)
		}
		acked[i] = append(acked[i], ack{payment, a.committed()})
	}
	for i := range clients {
		calling.Go(func() {
			for n := 0; !over.Load(); n++ {
				call(i, fmt.Sprintf("txn_%d_%d", i, n), []string{answers, streams}[n%2])
			}
		})
	}
	// One call is under way from the first configuration to the last.
	calling.Go(func() { call(clients, "long", waits) })
	<-up.arrived
	for n := range reloads {
		load(1 + n)
		if a := send(newCall("long", answers)); !a.refusedFor(effect.CodeInProgress, effect.Executing) {
			t.Errorf("answered %s", &a)
		}
	}
	if now := openFiles(t, p.ledger); now != files {
		t.Errorf("%d files of the ledger are open, and were %d", now, files)
	}
	close(up.speak)
	over.Store(true)
	calling.Wait()
	l, err := sqlite.Open(t.Context(), p.ledger, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	made := 0
	for _, acks := range acked {
		made += len(acks)
		for i, c := range acks {
			r, receipts, err := l.Load(t.Context(), keyOf(c.payment))
			if err != nil || r.State != effect.Committed || r.Attempt != 1 || len(receipts) != 2 {
				t.Errorf("%s: %s, attempt %d, %v\n%+v", c.payment, r.State, r.Attempt, err, receipts)
			}
			if i%10 != 0 {
				continue
			}
			if a := send(newCall(c.payment, answers)); a.replayed() != c.serial {
				t.Errorf("%s is answered %s", c.payment, &a)
			}
			if executed := up.executions(c.payment); len(executed) != 1 {
				t.Errorf("%s was executed by %v", c.payment, executed)
			}
		}
	}
	t.Logf("%d calls, and %d again", made, again.Load())
	if err := caddy.Stop(); err != nil {
		t.Error(err)
	}
	l.Close()
	if left := openFiles(t, p.ledger); left != 0 {
		t.Errorf("%d files of the ledger are left open", left)
	}
}

// openFiles counts the descriptors of a database and of what belongs to it.
func openFiles(t *testing.T, path string) (n int) {
	t.Helper()
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if target, _ := os.Readlink(filepath.Join(dir, e.Name())); strings.HasPrefix(target, path) {
			n++
		}
	}
	return n
}
