package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"pgregory.net/rapid"
)

// TestHidingInPieces relays lists in which any tools are denied, as JSON or as
// an event, in pieces of any size, the same list once more or another one.
func TestHidingInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
		defer cancel()
		h := &Handler{Deny: []string{"x*"}, ParamHeaders: rapid.SampledFrom([]string{learn, off}).Draw(t, "param_headers")}
		if err := h.Provision(ctx); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = h.Cleanup() }()

		for range rapid.IntRange(1, 4).Draw(t, "lists") {
			var all, left []string
			for _, name := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "x", "xx"}), 0, 5).Draw(t, "tools") {
				tool := `{"name":"` + name + `","inputSchema":{"properties":{"r":{"type":"string","x-mcp-header":"Region"}}}}`
				all = append(all, tool)
				if name[0] != 'x' {
					left = append(left, tool)
				}
			}
			frame := rapid.SampledFrom([]string{"%s", ": open\n\nid: 3\ndata: %s\n\n: done\n\n"}).Draw(t, "frame")
			list := func(tools []string) string {
				return fmt.Sprintf(frame, `{"jsonrpc":"2.0","id":17,"result":{"tools":[`+strings.Join(tools, ",")+`]}}`)
			}
			sent, want := list(all), list(left)

			r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(listRequest))
			r.Header = benchHeader("tools/list")
			w := httptest.NewRecorder()
			prepared := caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
			declared := rapid.Bool().Draw(t, "declared")
			copied := rapid.Bool().Draw(t, "copied")
			trailer := rapid.Bool().Draw(t, "trailer") // beside a length, as HTTP/2 allows
			err := h.ServeHTTP(w, prepared, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
				w.Header().Set("Content-Type", "application/json")
				if frame != "%s" {
					w.Header().Set("Content-Type", "text/event-stream")
				}
				if declared {
					w.Header().Set("Content-Length", strconv.Itoa(len(sent)))
				}
				if trailer {
					w.Header().Set("Trailer", "X-Sum")
				}
				for rest := sent; rest != ""; {
					n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
					var err error
					if copied { // as files are, for which some writers have a shorter way
						_, err = w.(io.ReaderFrom).ReadFrom(strings.NewReader(rest[:n]))
					} else {
						_, err = fmt.Fprint(w, rest[:n])
					}
					if err != nil {
						return err
					}
					_ = http.NewResponseController(w).Flush()
					rest = rest[n:]
				}
				if trailer {
					w.Header().Set("X-Sum", "17")
				}
				return nil
			}))
			if got := w.Body.String(); err != nil || got != want {
				t.Fatalf("relayed %q, %v; want %q", got, err, want)
			}
			if frame == "%s" && w.Flushed && !trailer {
				t.Error("the head was sent before the list was read")
			}
			if length := w.Header().Get("Content-Length"); length != "" && length != strconv.Itoa(len(want)) {
				t.Errorf("Content-Length %s of %d bytes", length, len(want))
			}
			h.catalogue.readLessons()
			if used := h.held.used.Load() + h.listing.used.Load(); used != 0 {
				t.Errorf("%d bytes are still held", used)
			}
		}
	})
}

// A stream that goes on for hours holds nothing of the events that have passed,
// however large.
func TestHidingHoldsOnlyWhatIsIncomplete(t *testing.T) {
	h := &Handler{Deny: []string{"x"}}
	if err := provision(t, h); err != nil {
		t.Fatal(err)
	}
	c := &call{h: h, request: httptest.NewRequest(http.MethodGet, "/mcp", http.NoBody)}
	w := &hidingWriter{ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: httptest.NewRecorder()}, listText: listText{c: c}}
	w.Header().Set("Content-Type", "text/event-stream")
	const size = 1 << 20
	for range 3 {
		_, err := w.Write([]byte(`data: {"a":"` + strings.Repeat("x", size)))
		if used := h.listing.used.Load(); err != nil || used < size || h.held.used.Load() != used {
			t.Errorf("%d bytes are held of an event of %d: %v", used, size, err)
		}
		_, err = w.Write([]byte("\"}\n\n"))
		if used := h.listing.used.Load(); err != nil || used > 2*maxIdle || h.held.used.Load() != used {
			t.Errorf("%d bytes are held of no event: %v", used, err)
		}
	}
	w.end(false)
	c.release()
	if used := h.held.used.Load() + h.listing.used.Load(); used != 0 {
		t.Errorf("%d bytes are still held", used)
	}
}

// What is said in place of a list does not continue a comment of which a part
// has passed.
func TestWithheldBehindAComment(t *testing.T) {
	h := &Handler{Deny: []string{"x"}}
	if err := provision(t, h); err != nil {
		t.Fatal(err)
	}
	c := &call{h: h, request: httptest.NewRequest(http.MethodPost, "/mcp", http.NoBody)}
	recorder := httptest.NewRecorder()
	w := &hidingWriter{ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: recorder}, listText: listText{c: c}, list: true}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	w.splitter.Limit = 5
	_, _ = w.Write([]byte(": a long comment"))
	w.withhold("of a test")
	_ = w.edit([]byte(" goes on"))
	if got := recorder.Body.String(); !strings.HasPrefix(got, ": a long comment\nevent: message\ndata: {") {
		t.Errorf("relayed %q", got)
	}
}

// A stream that is not a list's breaks off at once, although nothing may follow
// for hours.
func TestWithheldStreamBreaksOff(t *testing.T) {
	h := &Handler{Deny: []string{"x"}}
	if err := provision(t, h); err != nil {
		t.Fatal(err)
	}
	for _, coding := range []string{"", "gzip"} {
		c := &call{h: h, request: httptest.NewRequest(http.MethodGet, "/mcp", http.NoBody)}
		w := &hidingWriter{ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: httptest.NewRecorder()}, listText: listText{c: c}}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Encoding", coding)
		w.WriteHeader(http.StatusOK)
		w.splitter.Limit = 5
		for range 2 {
			if _, err := w.Write([]byte("data: {\"a\":")); !errors.Is(err, errWithheld) {
				t.Errorf("encoded in %q: %v", coding, err)
			}
		}
	}
}
