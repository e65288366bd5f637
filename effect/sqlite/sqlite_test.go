package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/effecttest"
	"github.com/caddymcp/gateway/effect/sqlite"
)

func TestLedger(t *testing.T) {
	effecttest.Run(t, func(t *testing.T, clock *effecttest.Clock) effect.Ledger {
		l, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), sqlite.Options{Now: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		return l
	})
}
