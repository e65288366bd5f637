package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"pgregory.net/rapid"
)

// lateWriter looks, when the last byte of a list is written, at what is known.
type lateWriter struct {
	*httptest.ResponseRecorder
	size   int
	atLast func()
}

func (w *lateWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseRecorder.Write(p)
	if w.Body.Len() == w.size {
		w.atLast()
	}
	return n, err
}

// TestListsInPieces relays one list after another, each the same as before or
// changed anywhere, cut into pieces anywhere and of a declared length or not.
// Every byte passes, and the last one only when the list is learned.
func TestListsInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
		defer cancel()
		h := new(Handler)
		if err := h.Provision(ctx); err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "no room for lists") {
			h.catalogue.lists.SetMaximum(0)
		}
		defer func() { _ = h.Cleanup() }()

		for range rapid.IntRange(2, 6).Draw(t, "lists") {
			// Longer or shorter, before, in and behind what is learned.
			header := rapid.SampledFrom([]string{"Region", "Reg", "Zone", "Area"}).Draw(t, "header")
			pad := strings.Repeat("x", rapid.IntRange(0, 2).Draw(t, "before")*200)
			end := rapid.SampledFrom([]string{"", " ", "\n", `,"d":1`}).Draw(t, "end")
			id := rapid.SampledFrom([]string{"1", "22", `"x"`}).Draw(t, "id")
			result := `"result":{"_":"` + pad + `","tools":[{"name":"t","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"` + header + `"}}}}]}`
			list := rapid.SampledFrom([]string{
				`{"jsonrpc":"2.0","id":` + id + `,` + result,
				`{` + result + `,"jsonrpc":"2.0","id":` + id,
			}).Draw(t, "order") + end + "}"

			r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(strings.Replace(listRequest, `"id":17`, `"id":`+id, 1)))
			r.Header = benchHeader("tools/list")
			learnedAtLast := false
			w := &lateWriter{httptest.NewRecorder(), len(list), func() {
				key := (&call{h: h, request: r}).viewKey()
				known := h.catalogue.find(key, "t", time.Now())
				learnedAtLast = known.state == learned && len(known.bindings.All()) == 1 && known.bindings.All()[0].Name == header
			}}
			declared := rapid.Bool().Draw(t, "declared")
			prepared := caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
			err := h.ServeHTTP(w, prepared, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
				w.Header().Set("Content-Type", "application/json")
				if declared {
					w.Header().Set("Content-Length", strconv.Itoa(len(list)))
				}
				for rest := list; rest != ""; {
					n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
					if n, err := fmt.Fprint(w, rest[:n]); err != nil {
						return fmt.Errorf("%d: %w", n, err)
					}
					rest = rest[n:]
				}
				return nil
			}))
			if got := w.Body.String(); err != nil || got != list {
				t.Fatalf("relayed %q, %v; want %q", got, err, list)
			}
			if !learnedAtLast {
				t.Fatalf("the last byte of %s passed before it was learned", list)
			}
		}
	})
}
