package sqlite_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/sqlite"
)

// A path is a path, whatever it would mean in a URI. What is made is for the
// user alone.
func TestPaths(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it has no such names and permissions")
	}
	for _, name := range []string{
		"ledger.db", "a?b=c", "100%41", "#", "file:x", "with space + &=;'\"", "ü😀", "a/b/c", ":memory:",
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "made")
			path := filepath.Join(dir, name)
			l := open(t, path)
			if _, err := l.Apply(t.Context(), newCall("x")); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{path, path + "-wal", path + "-shm"} {
				if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
					t.Errorf("%s: %v, %v", file, info.Mode(), err)
				}
			}
			for folder := filepath.Dir(path); folder != filepath.Dir(dir); folder = filepath.Dir(folder) {
				if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("%s: %v, %v", folder, info.Mode(), err)
				}
			}
			shut(t, l)
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 1 {
				t.Errorf("left are %q", left)
			}
			l = open(t, path)
			defer shut(t, l)
			if record, _, err := l.Load(t.Context(), newCall("x").Key); err != nil || record.State != effect.Executing {
				t.Errorf("%s, %v", record.State, err)
			}
		})
	}
}

// A file that is none of ours, or not of a version that is known, is refused
// with a message that says what to do, and is what it was.
func TestFilesThatAreRefused(t *testing.T) {
	versioned := func(t *testing.T, path string, version string) {
		shut(t, open(t, path))
		execute(t, path, "PRAGMA user_version = "+version)
	}
	for _, c := range []struct {
		name string
		file func(t *testing.T, path string)
		want string
	}{
		{"text", func(t *testing.T, path string) { write(t, path, []byte(strings.Repeat("no database\n", 500))) }, "no SQLite database: name another path"},
		{"a short text", func(t *testing.T, path string) { write(t, path, []byte("x")) }, "no SQLite database: name another path"},
		{"another application's", func(t *testing.T, path string) { execute(t, path, "CREATE TABLE effects (x)") }, "another application: name another path"},
		{"another application's with a log", func(t *testing.T, path string) {
			execute(t, path, "PRAGMA journal_mode = WAL; CREATE TABLE effects (x)")
		}, "another application: name another path"},
		{"another application's with an id", func(t *testing.T, path string) {
			execute(t, path, "PRAGMA application_id = 7; PRAGMA user_version = 1")
		}, "another application: name another path"},
		{"a later release's", func(t *testing.T, path string) { versioned(t, path, "2") }, "version 2, and this release knows up to 1: a later release has written it; use that one"},
		{"older than any", func(t *testing.T, path string) { versioned(t, path, "0") }, "version 0, and this release knows from 1 on: use an earlier release"},
		{"a folder", func(_ *testing.T, path string) { _ = os.Mkdir(path, 0o700) }, "is a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger.db")
			c.file(t, path)
			before, _ := os.ReadFile(path)
			l, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err == nil {
				shut(t, l)
				t.Fatal("it is opened")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %q, want %q", err, c.want)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("it is changed")
			}
		})
	}
}

// A log without its file was that of a ledger. It is refused, and the log stays
// for whoever can bring back the file.
func TestLogWithoutItsFile(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"missing": os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger.db")
			l := open(t, path)
			if _, err := l.Apply(t.Context(), newCall("x")); err != nil {
				t.Fatal(err)
			}
			log, err := os.ReadFile(path + "-wal") // as it is left when the process is killed
			if err != nil || len(log) == 0 {
				t.Fatalf("%d bytes, %v", len(log), err)
			}
			shut(t, l)
			file, _ := os.ReadFile(path)
			write(t, path+"-wal", log)
			if err := lose(path); err != nil {
				t.Fatal(err)
			}
			for range 2 { // a second start is no other
				l, err := sqlite.Open(t.Context(), path, sqlite.Options{})
				if err == nil {
					shut(t, l)
					t.Fatal("it is opened")
				}
				if !strings.Contains(err.Error(), "effects on record are lost; bring back the file") {
					t.Errorf("got %q", err)
				}
			}
			if after, _ := os.ReadFile(path + "-wal"); !bytes.Equal(log, after) {
				t.Error("the log is changed")
			}
			write(t, path, file)
			l = open(t, path)
			defer shut(t, l)
			if record, _, err := l.Load(t.Context(), newCall("x").Key); err != nil || record.State != effect.Executing {
				t.Errorf("%s, %v", record.State, err)
			}
		})
	}
}

// Where the making of a file was interrupted, only what SQLite finds counts.
func TestForeignFileWithAJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	execute(t, path, "CREATE TABLE effects (x)")
	write(t, path+"-journal", nil)
	if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); err == nil || !strings.Contains(err.Error(), "another application") {
		t.Errorf("got %v", err)
	}
	write(t, path, []byte(strings.Repeat("no database\n", 500)))
	if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); err == nil || !strings.Contains(err.Error(), "no SQLite database") {
		t.Errorf("got %v", err)
	}
}

// A ledger is known by its header, for file(1) and for us.
func TestHeader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	shut(t, open(t, path))
	header, err := os.ReadFile(path)
	if err != nil || string(header[68:72]) != "mcpg" || binary.BigEndian.Uint32(header[60:]) != 1 {
		t.Errorf("%q, version %d, %v", header[68:72], header[60:64], err)
	}
}

func open(t testing.TB, path string) *sqlite.Ledger {
	t.Helper()
	l, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func shut(t testing.TB, l *sqlite.Ledger) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// execute executes statements in a database, which it makes if there is none.
func execute(t *testing.T, path, sql string) {
	t.Helper()
	db, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Exec(sql); err != nil {
		t.Fatal(err)
	}
}
