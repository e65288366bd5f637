package sqlite_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/sqlite"
	"github.com/caddymcp/gateway/outcome"
)

// What this program does when it is started as another process of a ledger. It
// begins when its standard input ends.
const (
	processEnv = "SQLITE_TEST_PROCESS"
	nameEnv    = "SQLITE_TEST_NAME"
	pathEnv    = "SQLITE_TEST_PATH"
)

var processes = map[string]func(l *sqlite.Ledger, name string){
	"one key": oneKey,
	"share":   share,
	"acks":    acks,
}

func TestMain(m *testing.M) {
	process, ok := processes[os.Getenv(processEnv)]
	if !ok {
		os.Exit(m.Run())
	}
	l, err := sqlite.Open(context.Background(), os.Getenv(pathEnv), sqlite.Options{})
	if err != nil {
		panic(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	process(l, os.Getenv(nameEnv))
	if err := l.Close(); err != nil {
		panic(err)
	}
}

// process is another process of a ledger.
type process struct {
	*exec.Cmd
	begin io.Closer
	out   *bufio.Scanner
}

func start(t *testing.T, what, name, path string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), processEnv+"="+what, nameEnv+"="+name, pathEnv+"="+path)
	cmd.Stderr = os.Stderr
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &process{cmd, in, bufio.NewScanner(out)}
}

// together starts eight processes, has them begin at once, and returns what
// each says.
func together[T any](t *testing.T, what, path string) []T {
	said := make([]T, 8)
	var started []*process
	for i := range said {
		started = append(started, start(t, what, fmt.Sprint(i), path))
	}
	for _, p := range started {
		p.begin.Close()
	}
	for i, p := range started {
		p.out.Scan()
		if err := json.Unmarshal(p.out.Bytes(), &said[i]); err != nil {
			t.Errorf("process %d says %q: %v", i, p.out.Text(), err)
		}
		if err := p.Wait(); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
	}
	return said
}

func say(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

// Eight processes with eight callers each make one call of one key.
func TestOneOfManyProcessesIsLetThrough(t *testing.T) {
	count := make(map[string]int)
	for _, answers := range together[map[string]int](t, "one key", filepath.Join(t.TempDir(), "ledger.db")) {
		for answer, n := range answers {
			count[answer] += n
		}
	}
	if len(count) != 2 || count["forward"] != 1 || count["in_progress"] != 63 {
		t.Errorf("got %v", count)
	}
}

func oneKey(l *sqlite.Ledger, _ string) {
	answers := make([]string, 8)
	var callers sync.WaitGroup
	for i := range answers {
		callers.Go(func() {
			change, err := l.Apply(context.Background(), newCall("one"))
			if answers[i] = change.Answer.String(); err != nil {
				answers[i] = err.Error()
			}
		})
	}
	callers.Wait()
	count := make(map[string]int)
	for _, a := range answers {
		count[a]++
	}
	say(count)
}

// shared is what one of several processes says: how often it was let through,
// by key, and how long its calls took.
type shared struct {
	Forwarded map[string]int
	Calls     int
	Took      time.Duration
	Longest   time.Duration
	Error     string
}

// Eight processes share one of ten keys with the others. Each comes to its
// turn, and nobody hears that the file is locked.
func TestProcessesShareALedger(t *testing.T) {
	forwarded := make(map[string]int)
	for i, s := range together[shared](t, "share", filepath.Join(t.TempDir(), "ledger.db")) {
		if s.Error != "" {
			t.Errorf("process %d: %s", i, s.Error)
		}
		t.Logf("process %d: %d calls in %v, the longest in %v", i, s.Calls, s.Took, s.Longest)
		for key, n := range s.Forwarded {
			forwarded[key] += n
		}
	}
	for key, n := range forwarded {
		if n != 1 {
			t.Errorf("%s was forwarded %d times", key, n)
		}
	}
	if want := 8*8*18 + 2; len(forwarded) != want {
		t.Errorf("%d keys, want %d", len(forwarded), want)
	}
}

func share(l *sqlite.Ledger, name string) {
	s := shared{Forwarded: make(map[string]int)}
	var mu sync.Mutex
	var callers sync.WaitGroup
	begin := time.Now()
	for caller := range 8 {
		callers.Go(func() {
			for i := range 20 {
				key := fmt.Sprint(name, "-", caller, "-", i)
				if i%10 == 0 {
					key = fmt.Sprint("shared-", i)
				}
				start := time.Now()
				change, err := l.Apply(context.Background(), newCall(key))
				if err == nil && change.Answer == effect.Forward {
					_, err = l.Apply(context.Background(), newOutcome(change.After.Reservation(), outcome.Committed))
				}
				mu.Lock()
				if err != nil {
					s.Error = err.Error()
				}
				if change.Answer == effect.Forward {
					s.Forwarded[key]++
				}
				s.Calls++
				s.Longest = max(s.Longest, time.Since(start))
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	s.Took = time.Since(begin)
	say(s)
}

const kills = 60

// What a process has acknowledged is there after it was killed at any time.
func TestKillsLoseNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	chance := rand.New(rand.NewPCG(5, 0))
	var count, left int
	for kill := range kills {
		p := start(t, "acks", fmt.Sprint(kill), path)
		p.begin.Close()
		var w workload
		read := func() bool {
			var a said
			if !p.out.Scan() || json.Unmarshal(p.out.Bytes(), &a) != nil {
				return false // it was killed in the middle of a line
			}
			w.acked = append(w.acked, acked{effect.Key{Namespace: a.Namespace, Text: a.Text}, a.Attempt, a.State})
			return true
		}
		for range chance.IntN(250) {
			read()
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for read() { // what it had said already
		}
		_ = p.Wait() // which tells that it was killed

		l, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if lost := w.lost(t, l); len(lost) > 0 {
			t.Errorf("lost: %v", lost)
		}
		census, err := l.Census(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		count, left = count+len(w.acked), int(census.Records[effect.Executing])
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d kills, %d acknowledged, %d left executing", kills, count, left)
}

// said is what a process says that was acknowledged.
type said struct {
	Namespace, Text string
	Attempt         int64
	State           effect.State
}

func acks(l *sqlite.Ledger, name string) {
	var mu sync.Mutex
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for i := 0; ; i++ {
				change, err := l.Apply(context.Background(), newCall(fmt.Sprint(name, "-", caller, "-", i)))
				if err == nil {
					mu.Lock()
					say(said{change.After.Key.Namespace, change.After.Key.Text, change.After.Attempt, change.After.State})
					mu.Unlock()
					change, err = l.Apply(context.Background(), newOutcome(change.After.Reservation(), []outcome.Outcome{outcome.Committed, outcome.Failed, outcome.Ambiguous}[i%3]))
				}
				if err != nil {
					panic(err)
				}
				mu.Lock()
				say(said{change.After.Key.Namespace, change.After.Key.Text, change.After.Attempt, change.After.State})
				mu.Unlock()
			}
		})
	}
	callers.Wait()
}
