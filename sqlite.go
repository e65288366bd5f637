package gateway

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/sqlite"
)

func init() {
	caddy.RegisterModule(&SQLiteLedger{})
}

// SQLiteLedger keeps effects on record in an SQLite file. Several processes on
// one host can share it; a file system that several hosts share cannot hold it.
type SQLiteLedger struct {
	// The file. Global placeholders such as `{env.LEDGER}` are replaced. It is
	// created if it is not there, but no folder for it is: a ledger on a disk
	// that is not mounted would know of nothing. Default:
	// `mcp_gateway/effects.db` under Caddy's data directory.
	Path string `json:"path,omitempty"`

	path     string        // absolute
	patience time.Duration // openTime, but for tests
}

// openTime is for how long it is tried to open a file that another process has
// locked. Until it is open nothing else can be loaded, nor Caddy be stopped.
const openTime = 30 * time.Second

// CaddyModule returns the Caddy module information.
func (*SQLiteLedger) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "mcp_gateway.ledgers.sqlite",
		New: func() caddy.Module { return new(SQLiteLedger) },
	}
}

// Provision finds the place of the file, and leaves it alone.
func (s *SQLiteLedger) Provision(caddy.Context) (err error) {
	path := filepath.Join(caddy.AppDataDir(), "mcp_gateway", "effects.db")
	if s.Path != "" {
		if path, err = caddy.NewReplacer().ReplaceOrErr(s.Path, true, true); err != nil {
			return fmt.Errorf("path %q: %w", s.Path, err)
		}
	}
	s.path, err = filepath.Abs(path) // without a home the data directory is a relative one
	return err
}

// Place returns the path of the file.
func (s *SQLiteLedger) Place() string { return s.path }

// OneHost reports true.
func (*SQLiteLedger) OneHost() bool { return true }

// Open opens the file.
func (s *SQLiteLedger) Open(ctx context.Context, onBatch func(size int)) (effect.Ledger, error) {
	if s.Path != "" {
		if _, err := os.Stat(filepath.Dir(s.path)); err != nil {
			return nil, fmt.Errorf("opening the ledger %s: %w", s.path, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.patience, openTime))
	defer cancel()
	ledger, err := sqlite.Open(ctx, s.path, sqlite.Options{OnBatch: func(size int, _ time.Duration) { onBatch(size) }})
	if err != nil {
		return nil, err
	}
	return ledger, nil
}

// Interface guards
var (
	_ LedgerStore       = (*SQLiteLedger)(nil)
	_ caddy.Provisioner = (*SQLiteLedger)(nil)
)
