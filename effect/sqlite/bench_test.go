//go:build linux

package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/sqlite"
	"github.com/caddymcp/gateway/outcome"
)

// kinds are ways to make calls durable, with two writes each: grouped as the
// ledger does it; one transaction for each write, one after the other and
// naively, each caller with a connection of its own; and in a file of entries
// alone, which is as fast as it can be.
var kinds = []struct {
	name string
	open func(b *testing.B, flushes *atomic.Int64) func(call int)
}{
	{"grouped", func(b *testing.B, flushes *atomic.Int64) func(int) { return openLedger(b, sqlite.Options{}, flushes) }},
	{"one-by-one", func(b *testing.B, flushes *atomic.Int64) func(int) {
		var o sqlite.Options
		o.Batch(1)
		return openLedger(b, o, flushes)
	}},
	{"journal", openJournal},
	{"naive", openNaive},
}

// BenchmarkLedger measures each kind. All depends on the file system of TMPDIR:
// one in memory flushes for nothing.
func BenchmarkLedger(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		for _, kind := range kinds {
			b.Run(fmt.Sprintf("%s/callers=%d", kind.name, callers), func(b *testing.B) {
				var flushes atomic.Int64
				call := kind.open(b, &flushes)
				run(call, callers, -2*callers, 0) // the log is begun, and the statements are prepared
				before := cpu()
				flushes.Store(0)
				b.ResetTimer()
				run(call, callers, 0, b.N)
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
				b.ReportMetric(float64(flushes.Load())/float64(b.N), "flushes/call")
				b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "cpu-µs/call")
			})
		}
	}
}

// BenchmarkCompared has the kinds take turns, since a disk is not as fast at
// any time, and says how many times faster the ledger is than one transaction
// for each write, in either way, and how many times slower than a journal.
func BenchmarkCompared(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			var flushes atomic.Int64
			var calls []func(int)
			for _, kind := range kinds {
				calls = append(calls, kind.open(b, &flushes))
			}
			took := make([]time.Duration, len(kinds))
			rounds := []int{16 * callers, 2 * callers, 64 * callers, 2 * callers}
			for round := range b.N {
				for i, call := range calls {
					start := time.Now()
					run(call, callers, round*rounds[i], (round+1)*rounds[i])
					took[i] += time.Since(start) / time.Duration(rounds[i])
				}
			}
			b.ReportMetric(float64(took[1])/float64(took[0]), "x-one-by-one")
			b.ReportMetric(float64(took[0])/float64(took[2]), "x-journal")
			b.ReportMetric(float64(took[3])/float64(took[0]), "x-naive")
		})
	}
}

// run has callers make the calls between two numbers.
func run(call func(int), callers, from, to int) {
	var next atomic.Int64
	next.Store(int64(from))
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(to); i = next.Add(1) - 1 {
				call(int(i))
			}
		})
	}
	group.Wait()
}

// BenchmarkFlush flushes 4 KiB that are overwritten.
func BenchmarkFlush(b *testing.B) {
	f := scratch(b)
	page := make([]byte, 4096)
	for i := range b.N {
		writeAndFlush(b, f, page, int64(i%1024)*4096)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "flushes/s")
}

// cpu is what the process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func openLedger(b *testing.B, o sqlite.Options, flushes *atomic.Int64) func(int) {
	o.OnBatch = func(int, time.Duration) { flushes.Add(1) }
	l := openThere(b, filepath.Join(b.TempDir(), "ledger.db"), o)
	return func(i int) { record(b, l, i) }
}

// openNaive returns calls that each take a connection that nobody else has at
// the moment, and write as if they were alone.
func openNaive(b *testing.B, flushes *atomic.Int64) func(int) {
	o := sqlite.Options{OnBatch: func(int, time.Duration) { flushes.Add(1) }}
	o.Batch(1)
	path := filepath.Join(b.TempDir(), "ledger.db")
	free := make(chan *sqlite.Ledger, 64)
	for range cap(free) {
		free <- openThere(b, path, o)
	}
	return func(i int) {
		l := <-free
		defer func() { free <- l }()
		record(b, l, i)
	}
}

func openThere(b *testing.B, path string, o sqlite.Options) *sqlite.Ledger {
	l, err := sqlite.Open(b.Context(), path, o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { shut(b, l) })
	return l
}

// record makes one call.
func record(b *testing.B, l *sqlite.Ledger, i int) {
	change, err := l.Apply(b.Context(), newCall(fmt.Sprint(i)))
	if err == nil {
		_, err = l.Apply(b.Context(), newOutcome(change.After.Reservation(), outcome.Committed))
	}
	if err != nil || change.Answer != effect.Forward {
		b.Errorf("%s, %v", change.Answer, err)
	}
}

// openJournal returns calls that append two entries to a file, each flushed
// with those that wait with it.
func openJournal(b *testing.B, flushes *atomic.Int64) func(int) {
	type entry struct {
		text []byte
		done chan struct{}
	}
	f := scratch(b)
	entries := make(chan entry, 1024)
	go func() {
		var at int64
		for e := range entries {
			batch, text := []entry{e}, e.text
			runtime.Gosched()
			for len(entries) > 0 {
				e := <-entries
				batch, text = append(batch, e), append(text, e.text...)
			}
			writeAndFlush(b, f, text, at%(4<<20))
			at += int64(len(text))
			flushes.Add(1)
			for _, e := range batch {
				close(e.done)
			}
		}
	}()
	b.Cleanup(func() { close(entries) })
	return func(i int) {
		c := newCall(fmt.Sprint(i))
		for range 2 {
			e := entry{fmt.Appendf(nil, "%v %s\n", c, answer), make(chan struct{})}
			entries <- e
			<-e.done
		}
	}
}

// scratch returns a file that is there already, so that only what is in it is
// to be flushed.
func scratch(b *testing.B) *os.File {
	f, err := os.Create(filepath.Join(b.TempDir(), "scratch"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	writeAndFlush(b, f, make([]byte, 8<<20), 0)
	b.ResetTimer()
	return f
}

func writeAndFlush(b *testing.B, f *os.File, p []byte, off int64) {
	if _, err := f.WriteAt(p, off); err != nil {
		b.Error(err)
	}
	if err := syscall.Fdatasync(int(f.Fd())); err != nil {
		b.Error(err)
	}
}
