package gateway

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/certmagic"
	"github.com/ncruces/go-sqlite3"

	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

func init() { caddy.RegisterModule(&sharedStorage{}) }

// sharedStorage is one that is not known to be the local file system.
type sharedStorage struct{}

type remote struct{ certmagic.Storage }

func (*sharedStorage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.storage.shared", New: func() caddy.Module { return new(sharedStorage) }}
}
func (*sharedStorage) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }
func (*sharedStorage) CertMagicStorage() (certmagic.Storage, error) {
	return remote{caddy.DefaultStorage}, nil
}

func protecting(namespaces ...string) string {
	var sites strings.Builder
	for _, n := range namespaces {
		path := strings.TrimRight("/"+n, "/") + "/*"
		sites.WriteString("handle " + path + " {\nprotect {\nnamespace \"" + n + "\"\ntools create_refund\n}\n}\n")
	}
	return sites.String()
}

// Two handlers never share the effects of one namespace.
func TestNamespaces(t *testing.T) {
	newSpy(t, "namespaces")
	cfg := spied("namespaces")
	cfg.Site = protecting("", "payments", "mail")
	incaddy.Run(t, cfg).Stop(t)

	cfg.Site = protecting("payments", "mail", "payments")
	if err := incaddy.Refused(t, cfg); !strings.Contains(err.Error(), `two handlers protect tools in namespace "payments", and each would take the effects of the other for its own: give each a namespace of its own`) {
		t.Errorf("got %v", err)
	}
	cfg.Site = protecting("", "mail", "")
	if err := incaddy.Refused(t, cfg); !strings.Contains(err.Error(), "two handlers protect tools and have no namespace") {
		t.Errorf("got %v", err)
	}
	cfg.Site, cfg.Also = protecting("payments"), "http://127.0.0.1:0 {\n"+protecting("payments")+"\n}"
	if err := incaddy.Refused(t, cfg); !strings.Contains(err.Error(), "If they lead to the same one, as those of a site on two ports do, that would let one call be made twice: serve it on one port") {
		t.Errorf("two sites: %v", err)
	}
}

// Where several hosts are likely the place of the ledger is not guessed.
func TestLedgerIsNamedWithSharedStorage(t *testing.T) {
	newSpy(t, "named")
	cfg := spied("named")
	cfg.Global += "\nstorage shared"
	incaddy.Run(t, cfg).Stop(t)

	cfg.Global = "storage shared"
	err := incaddy.Refused(t, cfg)
	if !strings.Contains(err.Error(), "name the ledger in the global option mcp_gateway, as in: ledger sqlite "+caddy.AppDataDir()) {
		t.Errorf("got %v", err)
	}

	// Nothing is protected, and nothing is on record.
	cfg.Global, cfg.Site = "storage shared\nmcp_gateway {\n}", ""
	incaddy.Run(t, cfg).Stop(t)
}

// By default the ledger is in a file under Caddy's data directory, made when
// the configuration starts.
func TestDefaultLedger(t *testing.T) {
	data := t.TempDir()
	t.Setenv("XDG_DATA_HOME", data)
	file := filepath.Join(data, "caddy", "mcp_gateway", "effects.db")
	site := incaddy.Run(t, incaddy.Config{Site: protecting("")})
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if got := get(t, site.URL+"/1"); got != "forward executing" {
		t.Error(got)
	}
	site.Stop(t)

	// What is in it is there after a restart.
	site = incaddy.Run(t, incaddy.Config{Site: protecting("")})
	if got := get(t, site.URL+"/1"); got != "in_progress executing" {
		t.Error(got)
	}
}

// Where the environment names no home, Caddy's data directory is a relative one.
func TestDefaultLedgerWithoutHome(t *testing.T) {
	for _, name := range []string{"XDG_DATA_HOME", "HOME", "home", "AppData", "HOMEDRIVE", "HOMEPATH", "USERPROFILE"} {
		t.Setenv(name, "")
	}
	s := new(SQLiteLedger)
	if err := s.Provision(caddy.Context{}); err != nil || !filepath.IsAbs(s.Place()) {
		t.Errorf("the place is %q, %v", s.Place(), err)
	}
}

// A place is a path after placeholders and the working directory: two
// spellings are one ledger.
func TestLedgerPath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("LEDGER_DIR", dir)
	var shared *sharedLedger
	for _, path := range []string{"effects.db", "{env.LEDGER_DIR}/effects.db", "./sub/../effects.db"} {
		incaddy.Run(t, incaddy.Config{Global: "mcp_gateway {\nledger sqlite " + path + "\n}", Site: protecting("")})
		a := running.newest()
		if want := filepath.Join(dir, "effects.db"); a.store.Place() != want {
			t.Errorf("got %s, want %s", a.store.Place(), want)
		}
		if shared != nil && a.ledger() != shared {
			t.Errorf("%s is another ledger", path)
		}
		shared = a.ledger()
	}
}

// A ledger that cannot be opened keeps the configuration from starting, and
// says which it is and why.
func TestLedgerThatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("not a database, but a text\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	later := filepath.Join(dir, "later")
	incaddy.Run(t, incaddy.Config{Global: "mcp_gateway {\nledger sqlite " + later + "\n}", Site: protecting("")}).Stop(t)
	db, err := sqlite3.Open(later)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Exec("PRAGMA user_version = 99"), db.Close()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, path, want string }{
		{"of a later release", later, "opening the ledger " + later + ": the file is of version 99"},
		{"no database", text, "opening the ledger " + text + ": "},
		{"a folder", dir, "opening the ledger " + dir + ": "},
		{"no folder", filepath.Join(dir, "unmounted", "effects.db"), "unmounted: no such file or directory"},
		{"unknown placeholder", "{env.NO_SUCH_LEDGER}", `path "{env.NO_SUCH_LEDGER}"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := incaddy.Refused(t, incaddy.Config{Global: "mcp_gateway {\nledger sqlite " + tt.path + "\n}", Site: protecting("")})
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q, want it to contain %q", err, tt.want)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "unmounted")); !os.IsNotExist(err) {
		t.Errorf("a folder was made: %v", err)
	}
}

// A file that another process has locked does not keep Caddy from being told
// anything for ever.
func TestLedgerThatIsLocked(t *testing.T) {
	s := &SQLiteLedger{path: filepath.Join(t.TempDir(), "effects.db"), patience: 100 * time.Millisecond}
	ledger, err := (&SQLiteLedger{path: s.path}).Open(t.Context(), func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ledger.Close() }()
	other, err := sqlite3.Open(s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if err := other.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), func(int) {}); err == nil || err.Error() != "opening the ledger "+s.path+": another process keeps the file locked: end it, or what it does with the file" {
		t.Errorf("got %v", err)
	}
	if err := other.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	again, err := s.Open(t.Context(), func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}
