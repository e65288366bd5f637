package sqlite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/caddymcp/gateway/effect"
)

// applicationID stands in the header of every ledger, so that no other file is
// taken for one: "mcpg".
const applicationID = 0x6d637067

// migrations lead from each version of the schema to the next, from an empty
// file to the first.
var migrations = []string{
	`
CREATE TABLE meta (secret BLOB NOT NULL) STRICT;
INSERT INTO meta VALUES (randomblob(32));

CREATE TABLE records (
	id               INTEGER PRIMARY KEY,
	digest           BLOB NOT NULL UNIQUE, -- of namespace and key
	namespace        TEXT NOT NULL,
	key              TEXT NOT NULL,
	state            TEXT NOT NULL,
	since            INTEGER NOT NULL, -- times and durations are in microseconds
	due              INTEGER,
	attempt          INTEGER NOT NULL,
	token            BLOB NOT NULL,
	tool             TEXT NOT NULL,
	fingerprint      BLOB NOT NULL,
	outline          BLOB,
	caller           TEXT NOT NULL,
	who              TEXT NOT NULL,
	revision         TEXT NOT NULL,
	upstream         TEXT NOT NULL,
	observation      TEXT NOT NULL,
	active           INTEGER NOT NULL,
	deadline         INTEGER,
	hold_digest      BLOB,
	hold_round       INTEGER NOT NULL,
	hold_deadline    INTEGER,
	hold_uncommitted INTEGER NOT NULL,
	task             TEXT NOT NULL,
	settle_after     INTEGER NOT NULL,
	retain           INTEGER NOT NULL,
	answer_until     INTEGER,
	answer           BLOB,
	receipt          INTEGER NOT NULL -- the id of the last one
) STRICT;
CREATE INDEX records_state ON records (state, since);
-- What is executing is not for long, and is found by its state.
CREATE INDEX records_due ON records (due) WHERE due IS NOT NULL AND state <> 'executing';
CREATE INDEX records_task ON records (task) WHERE task <> '';

CREATE TABLE receipts (
	id           INTEGER PRIMARY KEY,
	record       INTEGER NOT NULL, -- the id of the record
	previous     INTEGER NOT NULL, -- the id of the record's receipt before, 0 for none: that costs less than an index
	at           INTEGER NOT NULL,
	attempt      INTEGER NOT NULL,
	event        TEXT NOT NULL,
	answer       TEXT NOT NULL,
	state_before TEXT NOT NULL,
	state_after  TEXT NOT NULL,
	who          TEXT NOT NULL,
	why          TEXT NOT NULL,
	tool         TEXT NOT NULL,
	fingerprint  BLOB NOT NULL,
	observation  TEXT NOT NULL,
	revision     TEXT NOT NULL,
	upstream     TEXT NOT NULL,
	bytes        INTEGER NOT NULL,
	arguments    BLOB
) STRICT;
`,
}

var (
	errNotSQLite = errors.New("the file is no SQLite database: name another path, or move the file away")
	errForeign   = errors.New("the file is a database of another application: name another path")
	errLocked    = errors.New("another process keeps the file locked: end it, or what it does with the file")
	errRemoved   = errors.New("the file was removed or replaced: bring it back; whoever opens the path anew knows nothing of what was in it")
	errLost      = errors.New("the file is missing or empty, but not its log, with the extension -wal: effects on record are lost; bring back the file that belongs to the log, or move the log away to begin anew")
)

// prepare makes the file and its folder, for the user alone, and looks whether
// the file can be a ledger before anything in it is touched. It returns the
// name by which SQLite opens it.
func prepare(path, vfs string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	query := url.Values{"modeof": {path}} // the log's mode is to be the file's
	if vfs != "" {
		query = url.Values{"vfs": {vfs}}
	}
	name := &url.URL{Scheme: "file", Path: filepath.ToSlash(path)}
	name.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // to SQLite a plus is a plus
	if vfs != "" {
		return name.String(), nil
	}
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return "", err
	}
	if isLost(path) {
		return "", errLost
	}
	// The index of the log, too, is made by SQLite for all to read.
	for _, file := range []string{path, path + "-shm"} {
		f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return "", err
		}
		if file == path {
			err = inspect(f)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
	}
	return name.String(), nil
}

// makeFolder makes a folder, and those above it, so that they survive a loss
// of power.
func makeFolder(dir string) error {
	if _, err := os.Stat(dir); err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeFolder(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if runtime.GOOS == "windows" {
		return nil // where a folder cannot be flushed
	}
	f, err := os.Open(parent)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// isLost reports whether there is a log, but nothing that it is the log of:
// SQLite would delete it, and begin anew. A file is never empty any more when its
// log is made, so while others make them the log is to be looked at first.
func isLost(path string) bool {
	if wal, err := os.Stat(path + "-wal"); err != nil || wal.Size() == 0 {
		return false
	}
	file, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist) || err == nil && file.Size() == 0
}

// inspect refuses a file that by its header is none of ours: already to open
// it could change it.
func inspect(f *os.File) error {
	var header [100]byte
	n, err := io.ReadFull(f, header[:])
	if _, journal := os.Stat(f.Name() + "-journal"); n == 0 || journal == nil {
		return nil // it is new, or its making was interrupted, which SQLite undoes
	}
	if err != nil || !bytes.HasPrefix(header[:], []byte("SQLite format 3\x00")) {
		return errNotSQLite
	}
	if binary.BigEndian.Uint32(header[68:]) != applicationID {
		return errForeign
	}
	return nil
}

// migrate brings the schema to the version that this release knows, from what
// the file says, all of it or nothing.
func (c *conn) migrate() error {
	if err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer c.rollback()
	application, err := c.number("PRAGMA application_id")
	if err != nil {
		return err
	}
	version, err := c.number("PRAGMA user_version")
	if err != nil {
		return err
	}
	tables, err := c.number("SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return err
	}
	newest := int64(len(migrations))
	switch isNew := application == 0 && version == 0 && tables == 0; {
	case isNew:
	case application != applicationID:
		return errForeign
	case version > newest:
		return fmt.Errorf("the file is of version %d, and this release knows up to %d: a later release has written it; use that one, or name another path", version, newest)
	case version < 1:
		return fmt.Errorf("the file is of version %d, and this release knows from 1 on: use an earlier release, or name another path", version)
	case version == newest:
		return nil
	}
	for _, migration := range migrations[version:] {
		if err := c.exec(migration); err != nil {
			return err
		}
	}
	if err := c.exec(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, newest)); err != nil {
		return err
	}
	return c.exec("COMMIT")
}

// logAhead makes the database one with a write-ahead log, if it is not. The
// busy handler is not asked where two processes begin at once.
func (c *conn) logAhead() error {
	for {
		st := c.prepare("PRAGMA journal_mode = WAL")
		mode := ""
		if st.next() {
			mode = st.readText()
		}
		err := st.done()
		switch {
		case isBusy(err) && c.wait():
		case err == nil && mode != "wal":
			return fmt.Errorf("the file system cannot share memory between processes, the journal is %q: name a path on a local one", mode)
		default:
			return err
		}
	}
}

// number returns the one number that a query returns.
func (c *conn) number(sql string) (n int64, err error) {
	st := c.prepare(sql)
	if st.next() {
		n = st.readInt()
	}
	return n, st.done()
}

func (c *conn) readSecret() (s effect.Secret, err error) {
	st := c.prepare("SELECT secret FROM meta")
	if st.next() {
		st.readBytes(s[:])
	}
	if err := st.done(); err != nil {
		return s, err
	}
	if s == (effect.Secret{}) {
		return s, errors.New("the secret is missing")
	}
	return s, nil
}
