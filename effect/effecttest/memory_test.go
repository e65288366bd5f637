package effecttest

import (
	"testing"

	"github.com/caddymcp/gateway/effect"
)

func TestMemory(t *testing.T) {
	Run(t, func(_ *testing.T, clock *Clock) effect.Ledger { return NewMemory(clock) })
}
