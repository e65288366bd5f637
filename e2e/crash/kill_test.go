//go:build linux

package crash

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/sqlite"
)

var kills = flag.Int("crash.kills", usualKills(), "how many times Caddy is killed")

// usualKills is as many as a person waits for, and five times that before a change
// lands.
func usualKills() int {
	if os.Getenv("CI") != "" {
		return 500
	}
	return 100
}

// Caddy is killed at any point of protected calls, under load, and started
// again, over and over. Whatever a client was told stays true.
func TestKill(t *testing.T) {
	// A flush to a disk widens one window, and without one there is more time for
	// the others.
	sieges := map[string]string{"disk": "", "memory": "/dev/shm"}
	for name, dir := range sieges {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSiege(t, dir)
			s.run(*kills / len(sieges))
			s.aftermath()
		})
	}
}

// siege is a Caddy that is killed, and its clients.
type siege struct {
	t     *testing.T
	place *place
	up    *upstream

	mu       sync.Mutex
	changed  *sync.Cond
	events   int
	caddy    *process
	over     bool
	payments []*payment
	active   []*payment
	flying   int            // calls under way
	lost     []call         // calls without an answer since Caddy was started
	told     map[string]int // what clients were told, for the log
	found    map[string]int // where calls were when Caddy was killed
}

// payment is what clients know of the refund of one.
type payment struct {
	id     string
	calls  int
	acked  string          // the serial of the execution that clients know to be on record
	unsent map[string]bool // calls of which clients know that they did not reach the upstream
	failed map[string]bool // calls of which clients know that they did nothing
}

// callsOfOne is how often clients call for one payment, and activePayments for
// how many they do at once.
const (
	clients        = 8
	callsOfOne     = 6
	activePayments = 8
)

func newSiege(t *testing.T, dir string) *siege {
	s := &siege{
		t: t, place: newPlace(t, dir),
		told: make(map[string]int), found: make(map[string]int),
	}
	s.changed = sync.NewCond(&s.mu)
	s.up = serve(t, s.place)
	s.up.happened = s.happened
	for range activePayments {
		s.active = append(s.active, s.newPayment())
	}
	return s
}

// newPayment is called with the lock held.
func (s *siege) newPayment() *payment {
	p := &payment{id: fmt.Sprint("txn_", len(s.payments)), unsent: make(map[string]bool), failed: make(map[string]bool)}
	s.payments = append(s.payments, p)
	return p
}

// happened counts something that happens, at which Caddy may be killed.
func (s *siege) happened() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events++
	s.changed.Broadcast()
}

// run kills Caddy n times.
func (s *siege) run(n int) {
	var calling sync.WaitGroup
	for range clients {
		calling.Go(s.client)
	}
	defer calling.Wait()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.over = true
		s.changed.Broadcast()
	}()
	for range n {
		caddy := s.place.start(s.t)
		s.attack(caddy)
		s.inspect()
		if s.t.Failed() {
			return
		}
	}
}

// attack kills a Caddy after some things have happened.
func (s *siege) attack(caddy *process) {
	stuck := time.AfterFunc(patience, func() {
		caddy.explain(s.t)
		s.happened()
	})
	defer stuck.Stop()
	s.mu.Lock()
	s.caddy = caddy
	s.changed.Broadcast()
	life := []int{30, 150}[rand.IntN(2)]
	for until := s.events + 1 + rand.IntN(life); s.events < until && !caddy.ending.Load(); {
		s.changed.Wait()
	}
	s.mu.Unlock()
	caddy.kill()
}

// client calls until the siege is over, and judges what it is told.
func (s *siege) client() {
	for {
		caddy, p, c, ok := s.next()
		if !ok {
			return
		}
		s.happened()
		a := c.to(caddy)
		s.judge(caddy, p, c, &a)
		s.happened()
	}
}

// next waits for a Caddy and chooses a call.
func (s *siege) next() (caddy *process, p *payment, c call, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.over && (s.caddy == nil || s.caddy.ending.Load()) {
		s.changed.Wait()
	}
	if s.over {
		return nil, nil, c, false
	}
	i := rand.IntN(len(s.active))
	p = s.active[i]
	if p.calls++; p.calls == callsOfOne {
		s.active[i] = s.newPayment()
	}
	scripts := []string{answers, answers, streams, streams, dawdles, dawdles, declines, declines, hangsUp, tears}
	c = newCall(p.id, scripts[rand.IntN(len(scripts))])
	c.refused = rand.IntN(6) == 0
	s.flying++
	return s.caddy, p, c, true
}

// judge compares what a client was told with what it knows.
func (s *siege) judge(caddy *process, p *payment, c call, a *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying--
	m, said := a.mark(), ""
	switch code := a.code(); {
	case a.err != nil:
		said = "nothing"
		s.lost = append(s.lost, c)
		if !caddy.ending.Load() {
			s.t.Errorf("no answer although Caddy is there: %v", a.err)
		}
	case a.committed() != "":
		said = "committed"
		if m.Replayed {
			said = "replayed"
		}
		if serial := a.committed(); p.acked == "" {
			p.acked = serial
		} else if p.acked != serial {
			s.t.Errorf("%s: execution %s is on record and %s was", p.id, serial, p.acked)
		}
	case code == codeNotSent && m.Outcome == "failed":
		said = "not sent"
		p.unsent[c.serial], p.failed[c.serial] = true, true
	case a.Result != nil && a.Result.IsError && m.Outcome == "failed":
		said = "declined"
		p.failed[c.serial] = true
	case code == codeUnknown && m.Outcome == "ambiguous" && (c.script == hangsUp || c.script == tears):
		said = "unknown"
	case code == effect.CodeInProgress || code == effect.CodeAmbiguous:
		said = a.Error.Data.State
		p.unsent[c.serial] = true
	default:
		s.t.Errorf("a call that %s was answered %s", c.script, a)
	}
	s.told[said]++
}

// inspect looks at the ledger as Caddy left it: a copy, so that it is the next
// Caddy that has to recover it.
func (s *siege) inspect() {
	dir := filepath.Join(s.place.dir, "copy")
	if err := os.Mkdir(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{"effects.db", "effects.db-wal"} {
		if err := copyFile(filepath.Join(dir, name), filepath.Join(s.place.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			s.t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "effects.db")
	checkIntegrity(s.t, path)
	l, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer l.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.flying > 0 {
		s.changed.Wait()
	}
	for _, c := range s.lost {
		r, _, err := l.Load(context.Background(), keyOf(c.payment))
		if err != nil {
			s.t.Fatal(err)
		}
		s.found[s.where(c, &r)]++
	}
	s.lost = nil
	for _, p := range s.payments[max(0, len(s.payments)-4*activePayments):] {
		s.check(l, p)
	}
}

// where tells how far a call without an answer had come.
func (s *siege) where(c call, r *effect.Record) string {
	executed := slices.Contains(s.up.executions(c.payment), c.serial)
	switch {
	case executed && r.State == effect.Executing:
		return "executed, and not on record"
	case executed:
		return "on record, and not answered"
	case s.up.has(c.serial):
		return "at the upstream"
	case r.State == effect.Executing:
		return "reserved, or met a reservation"
	}
	return "elsewhere"
}

// check holds what is on record of a payment against what clients were told and
// against what happened.
func (s *siege) check(l effect.Ledger, p *payment) {
	r, receipts, err := l.Load(context.Background(), keyOf(p.id))
	if err != nil {
		s.t.Fatal(err)
	}
	proofs := 0
	for _, receipt := range receipts {
		if receipt.From != receipt.To && receipt.To == effect.Failed {
			proofs++
		}
	}
	executed := s.up.executions(p.id)
	problem := func(what string) {
		s.t.Errorf("%s %s: %s, attempt %d, executed by calls %v, acknowledged %q\n%+v", p.id, what, r.State, r.Attempt, executed, p.acked, receipts)
	}
	if len(executed) > 1+proofs {
		problem("was executed more often than it may be")
	}
	if len(executed) > 1 {
		problem("was executed again after a proof that is wrong")
	}
	if len(executed) > 0 && (r.State == effect.None || r.State == effect.Failed) {
		problem("was executed, and the record says otherwise")
	}
	if len(executed) == 0 && r.State == effect.Committed {
		problem("was not executed, and the record says otherwise")
	}
	if p.acked != "" && (r.State != effect.Committed || !slices.Contains(executed, p.acked)) {
		problem("was acknowledged")
	}
	for serial := range p.unsent {
		if s.up.has(serial) {
			problem("was sent by call " + serial + ", which was told otherwise")
		}
	}
	for serial := range p.failed {
		if slices.Contains(executed, serial) {
			problem("was executed by call " + serial + ", which was told otherwise")
		}
	}
}

// aftermath lets all leases run out and looks at every payment, and then calls
// for many again.
func (s *siege) aftermath() {
	s.t.Logf("told: %v", s.told)
	s.t.Logf("killed while calls were: %v", s.found)
	later := func() time.Time { return time.Now().Add(time.Hour) }
	l := s.place.open(s.t, sqlite.Options{Now: later})
	if _, err := effect.Sweep(context.Background(), l); err != nil {
		s.t.Fatal(err)
	}
	states := make(map[string]effect.State)
	for _, p := range s.payments {
		s.check(l, p)
		r, _, err := l.Load(context.Background(), keyOf(p.id))
		if err != nil {
			s.t.Fatal(err)
		}
		if states[p.id] = r.State; r.State == effect.Executing {
			s.t.Errorf("%s is still executing", p.id)
		}
	}
	checkIntegrity(s.t, s.place.ledger)

	caddy := s.place.start(s.t)
	rand.Shuffle(len(s.payments), func(i, j int) { s.payments[i], s.payments[j] = s.payments[j], s.payments[i] })
	replays := 0
	for _, p := range s.payments[:min(len(s.payments), 300)] {
		before := s.up.executions(p.id)
		c := newCall(p.id, answers)
		a := c.to(caddy)
		after := s.up.executions(p.id)
		switch states[p.id] {
		case effect.Committed:
			replays++
			if p.acked != "" && a.replayed() != p.acked || a.replayed() != before[0] || len(after) != 1 {
				s.t.Errorf("%s was executed by %v, and is answered %s", p.id, after, &a)
			}
		case effect.Ambiguous:
			if !a.refusedFor(effect.CodeAmbiguous, effect.Ambiguous) || len(after) != len(before) {
				s.t.Errorf("%s is ambiguous, and answered %s", p.id, &a)
			}
		default:
			if a.committed() != c.serial || len(after) != 1 {
				s.t.Errorf("%s failed, and is answered %s", p.id, &a)
			}
		}
	}
	s.t.Logf("%d payments, %d answers given again", len(s.payments), replays)
}

// checkIntegrity has SQLite look at everything in a database.
func checkIntegrity(t testing.TB, path string) {
	t.Helper()
	db, err := sqlite3.Open("file:" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	st, _, err := db.Prepare("PRAGMA integrity_check")
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for st.Step() {
		if text := st.ColumnText(0); text != "ok" {
			t.Errorf("the database is broken: %s", text)
		}
	}
	if err := st.Err(); err != nil {
		t.Error(err)
	}
}

func copyFile(to, from string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}
