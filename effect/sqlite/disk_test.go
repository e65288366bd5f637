package sqlite_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/util/vfsutil"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/caddymcp/gateway/effect/sqlite"
)

// disk is a file system of SQLite's over the real one. It knows which sectors
// were not flushed, so that it can forget them; it can fail, stall and be full;
// and it counts.
type disk struct {
	name  string
	syncs atomic.Int64
	bytes atomic.Int64 // written

	mu    sync.Mutex
	rand  *rand.Rand
	files map[string]*unsynced
	ops   int
	cutAt int                    // the operation at which the power fails, 0 for never
	fault func(op, string) error // asked before each write and flush, may be nil
}

type op string

const (
	writing op = "write"
	syncing op = "sync"
)

// sector is what a disk writes at once.
const sector = 512

// unsynced is what a file would lose: of each sector that was written since it
// was last flushed what it was before.
type unsynced struct {
	size    int64            // when it was last flushed
	before  map[int64][]byte // by the number of the sector
	lost    map[int64][]byte // whose flush failed: nothing flushes them any more, unless they are written again
	created bool             // and never flushed
}

func newDisk(t testing.TB, seed uint64) *disk {
	d := &disk{name: strings.ReplaceAll(t.Name(), "/", "-"), rand: rand.New(rand.NewPCG(seed, 0)), files: make(map[string]*unsynced)}
	vfs.Register(d.name, d)
	t.Cleanup(func() { vfs.Unregister(d.name) })
	return d
}

// off reports whether the power has failed. It is called with the lock held.
func (d *disk) off() bool { return d.cutAt > 0 && d.ops >= d.cutAt }

// begin is called with the lock held before an operation that changes a file.
func (d *disk) begin(o op, name string) error {
	d.ops++
	if d.off() {
		return sqlite3.IOERR
	}
	if d.fault != nil {
		return d.fault(o, name)
	}
	return nil
}

// cutAfter has the power fail some operations from now on.
func (d *disk) cutAfter(ops int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops, d.cutAt = 0, ops
}

// inject has each operation ask for its fault, and wait for the answer.
func (d *disk) inject(fault func(o op, file string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

// restart is the return of the power: of what was not flushed each sector is
// there or not, by chance.
func (d *disk) restart(t testing.TB) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cutAt = 0
	for name, u := range d.files {
		if err := d.forget(name, u); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(name + "-shm")
	}
	d.files = make(map[string]*unsynced)
}

func (d *disk) forget(name string, u *unsynced) error {
	if u.created && d.chance() {
		return os.Remove(name)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	size, _ := f.Seek(0, io.SeekEnd)
	kept := u.size
	for n, before := range u.before {
		if d.chance() {
			if end := min((n+1)*sector, size); end > kept {
				kept = end
			}
			continue
		}
		u.lost[n] = before
	}
	for n, before := range u.lost {
		if _, err := f.WriteAt(append(before, make([]byte, sector-len(before))...), n*sector); err != nil {
			return err
		}
	}
	return f.Truncate(kept)
}

func (d *disk) chance() bool { return d.rand.IntN(2) == 0 }

func (d *disk) Open(name string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	return d.wrap(name)(vfsutil.WrapOpen(vfs.Find(""), name, flags))
}

func (d *disk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off() {
		return nil, 0, sqlite3.CANTOPEN
	}
	if name == nil {
		return vfsutil.WrapOpenFilename(vfs.Find(""), nil, flags)
	}
	_, err := os.Stat(name.String())
	file, flags, openErr := d.wrap(name.String())(vfsutil.WrapOpenFilename(vfs.Find(""), name, flags))
	if openErr == nil && d.files[name.String()] == nil {
		size, _ := file.Size()
		d.files[name.String()] = &unsynced{size: size, before: make(map[int64][]byte), lost: make(map[int64][]byte), created: err != nil}
	}
	return file, flags, openErr
}

func (d *disk) wrap(name string) func(vfs.File, vfs.OpenFlag, error) (vfs.File, vfs.OpenFlag, error) {
	return func(f vfs.File, flags vfs.OpenFlag, err error) (vfs.File, vfs.OpenFlag, error) {
		if err != nil {
			return nil, flags, err
		}
		return &file{f, d, name}, flags, nil
	}
}

func (d *disk) Delete(name string, _ bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(writing, name); err != nil {
		return err
	}
	delete(d.files, name)
	return vfs.Find("").Delete(name, false)
}

func (d *disk) Access(name string, flags vfs.AccessFlag) (bool, error) {
	return vfs.Find("").Access(name, flags)
}

func (d *disk) FullPathname(name string) (string, error) { return vfs.Find("").FullPathname(name) }

// file is an open file of a disk.
type file struct {
	vfs.File
	disk *disk
	name string
}

func (f *file) SharedMemory() vfs.SharedMemory { return vfsutil.WrapSharedMemory(f.File) }

// save keeps what the sectors of a range are, unless it is known already what
// they were.
func (f *file) save(from, to int64) {
	u := f.disk.files[f.name]
	for n := from / sector; n*sector < to; n++ {
		if lost, ok := u.lost[n]; ok {
			u.before[n] = lost
			delete(u.lost, n)
		}
		if _, ok := u.before[n]; ok {
			continue
		}
		before := make([]byte, sector)
		got, _ := f.File.ReadAt(before, n*sector)
		u.before[n] = bytes.Clone(before[:got])
	}
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.disk.begin(writing, f.name); err != nil {
		return 0, err
	}
	f.disk.bytes.Add(int64(len(p)))
	f.save(off, off+int64(len(p)))
	return f.File.WriteAt(p, off)
}

func (f *file) Truncate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.disk.begin(writing, f.name); err != nil {
		return err
	}
	if old, _ := f.Size(); old > size {
		f.save(size, old)
	}
	return f.File.Truncate(size)
}

// Sync flushes nothing: the real disk is not to be waited for.
func (f *file) Sync(vfs.SyncFlag) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	u := f.disk.files[f.name]
	if err := f.disk.begin(syncing, f.name); err != nil {
		// What a flush that fails has written is anybody's guess, and it is not
		// written by another one.
		if !f.disk.off() {
			for n, before := range u.before {
				if f.disk.chance() {
					u.lost[n] = before
				}
			}
			clear(u.before)
			u.size, _ = f.Size()
		}
		return err
	}
	f.disk.syncs.Add(1)
	clear(u.before)
	u.size, _ = f.Size()
	u.created = false
	return nil
}

// errFull is what a full disk says.
var errFull = vfs.SystemError(syscall.ENOSPC, sqlite3.FULL)

// openLedger opens a ledger on the disk.
func (d *disk) openLedger(t testing.TB, path string) *sqlite.Ledger {
	t.Helper()
	l, err := sqlite.Open(t.Context(), path, sqlite.Options{VFS: d.name})
	if err != nil {
		t.Fatal(err)
	}
	return l
}
