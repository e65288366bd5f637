package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// conn is a connection that keeps its statements. One goroutine at a time uses
// it.
type conn struct {
	db     *sqlite3.Conn
	stmts  map[string]*statement
	newest int64 // the id of the newest receipt in this transaction, 0 if it was not asked for

	// waiting reports whether it is still worth waiting for another process.
	waiting func() bool
}

// connect opens a connection, at a level of PRAGMA synchronous.
func connect(ctx context.Context, name, synchronous string) (*conn, error) {
	db, err := sqlite3.OpenContext(ctx, name)
	if err != nil {
		return nil, err
	}
	c := &conn{db: db, stmts: make(map[string]*statement), waiting: func() bool { return ctx.Err() == nil }}
	err = db.BusyHandler(func(context.Context, int) bool { return c.wait() })
	if err == nil {
		// Where a flush leaves what is written in the disk's own cache, a full one
		// does not. Checkpoints are the writer's to time.
		err = c.exec("PRAGMA synchronous = " + synchronous +
			"; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON; PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 67108864")
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// wait waits a little for a lock that another process or connection holds, if
// that is still worth it. A time by chance gives each the same chance.
func (c *conn) wait() bool {
	if !c.waiting() {
		return false
	}
	time.Sleep(time.Duration(rand.Int64N(int64(time.Millisecond))))
	return true
}

func (c *conn) close() error {
	for _, s := range c.stmts {
		_ = s.s.Close() // it says again what its last step said
	}
	return c.db.Close()
}

// exec executes statements that have no parameters.
func (c *conn) exec(sql string) error { return c.db.Exec(sql) }

// rollback ends a transaction that has not ended.
func (c *conn) rollback() {
	if !c.db.GetAutocommit() {
		_ = c.prepare("ROLLBACK").exec() // it cannot fail: whatever goes wrong, the transaction has ended
	}
}

// prepare returns a statement to bind parameters to, in their order.
func (c *conn) prepare(sql string) *statement {
	st, ok := c.stmts[sql]
	if !ok {
		s, _, err := c.db.Prepare(sql)
		if err != nil {
			return &statement{err: err}
		}
		st = &statement{s: s, texts: make([]bound, s.BindCount()+1)}
		c.stmts[sql] = st
	}
	st.param, st.err = 0, nil
	return st
}

// isBusy reports whether an error says only that another connection is at work.
func isBusy(err error) bool {
	return errors.Is(err, sqlite3.BUSY) || errors.Is(err, sqlite3.PROTOCOL)
}

// errUnreadable is said of a column that this package has not written.
var errUnreadable = errors.New("the record cannot be read")

// statement binds the parameters of one execution and reads the columns of its
// rows, both in their order. The first error stays.
type statement struct {
	s             *sqlite3.Stmt
	texts         []bound // by parameter
	param, column int
	err           error
}

// bound is the text that a parameter was last bound to, if it was.
type bound struct {
	is   bool
	text string
}

// bind counts a parameter, unless there was an error.
func (st *statement) bind() bool {
	st.param++
	return st.err == nil
}

func (st *statement) int(n int64) {
	if st.bind() {
		st.err = st.s.BindInt64(st.param, n)
	}
}

// text binds a text, unless it is what is bound already: SQLite would copy it
// each time, and most are names that come again.
func (st *statement) text(s string) {
	if !st.bind() || st.texts[st.param] == (bound{true, s}) {
		return
	}
	st.err = st.s.BindText(st.param, s)
	st.texts[st.param] = bound{st.err == nil, s}
}

// blob binds bytes, or null for nil.
func (st *statement) blob(b []byte) {
	if st.bind() {
		st.err = st.s.BindBlob(st.param, b)
	}
}

// time binds microseconds, or null for the zero time.
func (st *statement) time(t time.Time) {
	switch {
	case !st.bind():
	case t.IsZero():
		st.err = st.s.BindNull(st.param)
	default:
		st.err = st.s.BindInt64(st.param, t.UnixMicro())
	}
}

func (st *statement) bool(b bool) {
	n := int64(0)
	if b {
		n = 1
	}
	st.int(n)
}

func (st *statement) duration(d time.Duration) { st.int(d.Microseconds()) }

// next goes to the next row, and reports whether there is one.
func (st *statement) next() bool {
	st.column = -1
	if st.err != nil {
		return false
	}
	if st.s.Step() {
		return true
	}
	st.err = st.s.Err() // that it was interrupted is not said again
	return false
}

// done ends the execution and returns its error.
func (st *statement) done() error {
	if st.s == nil {
		return st.err
	}
	err := st.s.Reset()
	if st.err != nil {
		return st.err
	}
	return err
}

// exec executes a statement without rows.
func (st *statement) exec() error {
	st.next()
	return st.done()
}

func (st *statement) readInt() int64 {
	st.column++
	return st.s.ColumnInt64(st.column)
}

func (st *statement) readText() string {
	st.column++
	return st.s.ColumnText(st.column)
}

// raw returns bytes that are valid until the next row.
func (st *statement) raw() []byte {
	st.column++
	return st.s.ColumnRawBlob(st.column)
}

// readBlob returns nil for null alone.
func (st *statement) readBlob() []byte {
	raw := st.raw()
	if raw == nil && st.s.ColumnType(st.column) != sqlite3.NULL {
		raw = []byte{}
	}
	if raw == nil {
		return nil
	}
	return append([]byte{}, raw...)
}

// readBytes reads as many bytes as there must be.
func (st *statement) readBytes(dst []byte) {
	if n := copy(dst, st.raw()); n != len(dst) && st.err == nil {
		st.err = fmt.Errorf("%w: %d bytes, not %d", errUnreadable, n, len(dst))
	}
}

func (st *statement) readTime() time.Time {
	st.column++
	if st.s.ColumnType(st.column) == sqlite3.NULL {
		return time.Time{}
	}
	return time.UnixMicro(st.s.ColumnInt64(st.column)).UTC()
}

func (st *statement) readDuration() time.Duration {
	return time.Duration(st.readInt()) * time.Microsecond
}

// readName reads what is written by its name.
func (st *statement) readName(name interface{ UnmarshalText([]byte) error }) {
	if err := name.UnmarshalText(st.raw()); err != nil && st.err == nil {
		st.err = fmt.Errorf("%w: %w", errUnreadable, err)
	}
}
