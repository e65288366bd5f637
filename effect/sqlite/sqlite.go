// Package sqlite is the ledger of effects in an SQLite database: for one host,
// and for any number of processes on it. The file must not be on a network
// file system: what its locks and its flushes promise there is nobody's.
//
// Concurrent commands share their flushes: one goroutine takes all that wait,
// applies them in one transaction, and answers once its commit has returned.
// With synchronous=FULL that is when the write-ahead log was flushed to the
// disk.
package sqlite

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/caddymcp/gateway/effect"
)

// Options are what can be chosen of a ledger.
type Options struct {
	// Now is the time of the ledger, nil for time.Now.
	Now func() time.Time

	// VFS names a registered file system of SQLite's to use, empty for the
	// operating system's.
	VFS string

	// OnBatch is told of each commit how many commands it made durable and how
	// long that took. It is called by the goroutine that writes.
	OnBatch func(size int, took time.Duration)

	synchronous string // the level other than FULL that a test is to fail with
	maxBatch    int    // other than maxBatch, to compare with
}

// What a ledger holds at once.
const (
	maxQueue = 1024 // commands that wait; more wait to be let in
	maxBatch = 256  // commands in one transaction
	maxReads = 2    // connections that read
)

var errClosed = errors.New("the ledger is closed")

// Ledger implements effect.Ledger.
type Ledger struct {
	options Options
	secret  effect.Secret
	writer  *writer
	readers chan *conn // those that nobody uses
	reading int        // how many there are

	queue    chan *request
	closing  chan struct{} // closed when nothing more is let in
	finished chan struct{} // closed when the writer has done what was let in
	once     sync.Once
	err      error // of closing
}

// request is a command that waits for its answer.
type request struct {
	ctx     context.Context
	command effect.Command
	digest  [sha256.Size]byte // of its key
	change  effect.Change
	err     error
	done    chan struct{} // closed when change and err are set
}

// Open opens the ledger in a file, which it makes if there is none, with its
// folder. The context is for the opening alone, which waits as long for another
// process that has locked the file.
func Open(ctx context.Context, path string, o Options) (*Ledger, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.synchronous = cmp.Or(o.synchronous, "FULL")
	o.maxBatch = cmp.Or(o.maxBatch, maxBatch)
	l := &Ledger{
		options: o,
		readers: make(chan *conn, maxReads),
		queue:   make(chan *request, maxQueue),
		closing: make(chan struct{}), finished: make(chan struct{}),
	}
	if err := l.open(ctx, path); err != nil {
		switch {
		case errors.Is(err, sqlite3.NOTADB):
			err = errNotSQLite
		case isBusy(err):
			err = errLocked
		}
		_ = l.closeConns()
		return nil, fmt.Errorf("opening the ledger %s: %w", path, err)
	}
	go l.write()
	return l, nil
}

func (l *Ledger) open(ctx context.Context, path string) error {
	name, err := prepare(path, l.options.VFS)
	if err != nil {
		return err
	}
	file := new(place)
	if l.options.VFS == "" {
		if file, err = placeOf(path); err != nil {
			return err
		}
	}
	c, err := connect(ctx, name, l.options.synchronous)
	if err != nil {
		return err
	}
	l.writer = &writer{conn: c, options: l.options, file: file}
	if err := c.migrate(); err != nil {
		return err
	}
	if err := c.logAhead(); err != nil {
		return err
	}
	if l.secret, err = c.readSecret(); err != nil {
		return err
	}
	// What a process that was killed has left in the log may be in memory alone.
	// It is on the disk before anything is built on it; where another process is
	// at work, it has seen to that.
	if _, _, err := c.db.WALCheckpoint("main", sqlite3.CHECKPOINT_PASSIVE); err != nil && !isBusy(err) {
		return err
	}
	c.waiting = l.writer.wanted
	c.db.WALHook(l.writer.logged)
	for range maxReads {
		c, err := connect(ctx, name, l.options.synchronous)
		if err != nil {
			return err
		}
		l.readers <- c
		l.reading++
	}
	return nil
}

// Apply implements effect.Ledger. A command whose context is done while it
// waits is not begun any more; one that has begun goes on, whatever its caller
// is told.
func (l *Ledger) Apply(ctx context.Context, c effect.Command) (effect.Change, error) {
	if err := ctx.Err(); err != nil {
		return effect.Change{}, err
	}
	r := &request{ctx: ctx, command: c, digest: c.Target().Digest(), done: make(chan struct{})}
	select {
	case <-l.closing:
		return effect.Change{}, errClosed
	default:
	}
	select {
	case l.queue <- r:
	case <-l.closing:
		return effect.Change{}, errClosed
	case <-ctx.Done():
		return effect.Change{}, ctx.Err()
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return effect.Change{}, ctx.Err()
	case <-l.finished: // it slipped in behind the last batch, or was in it
		select {
		case <-r.done:
		default:
			return effect.Change{}, errClosed
		}
	}
	return r.change, r.err
}

// write applies what is queued, batch by batch.
func (l *Ledger) write() {
	defer close(l.finished)
	var batch []*request
	for {
		batch = batch[:0]
		select {
		case r := <-l.queue:
			batch = append(batch, r)
		case <-l.closing:
			select {
			case r := <-l.queue:
				batch = append(batch, r)
			default:
				return
			}
		}
		// Those who were answered last are let run, so that what they ask for next
		// is in the batch and does not wait for another flush.
		runtime.Gosched()
		for len(batch) < l.options.maxBatch {
			select {
			case r := <-l.queue:
				batch = append(batch, r)
				continue
			default:
			}
			break
		}
		l.writer.answer(batch)
		l.writer.checkpoint(len(l.queue) == 0)
	}
}

// Close implements effect.Ledger.
func (l *Ledger) Close() error {
	l.once.Do(func() {
		close(l.closing)
		<-l.finished
		l.err = l.closeConns()
	})
	return l.err
}

// closeConns closes the connections, the writer's last, which leaves nothing in
// the write-ahead log.
func (l *Ledger) closeConns() error {
	var errs []error
	for range l.reading {
		errs = append(errs, (<-l.readers).close())
	}
	if l.writer != nil {
		errs = append(errs, l.writer.close())
	}
	return errors.Join(errs...)
}
