package gateway

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddymcp/gateway/jsonrpc"
)

// provisioned is a handler as a configuration makes it, but with a catalogue of
// its own, of which nobody reads lists in time, and what it logs.
func provisioned(t *testing.T, h *Handler) (*Handler, *observer.ObservedLogs) {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	t.Cleanup(cancel)
	if err := h.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Cleanup() })
	own, err := newCatalogue(h.MaxLearned)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Destruct() })
	own.lessons.timed = true
	h.catalogue = own
	core, logs := observer.New(zapcore.WarnLevel)
	h.logger = zap.New(core)
	return h, logs
}

// lists lets a client ask for a list that a server answers like this.
func (h *Handler) lists(t *testing.T, w http.ResponseWriter, body string, answer caddyhttp.HandlerFunc) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
	r.Header = benchHeader("tools/list")
	prepared := caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
	if err := h.ServeHTTP(w, prepared, answer); err != nil {
		t.Fatal(err)
	}
}

// pieces answers with a body in pieces, of a declared length or not.
func pieces(contentType string, declared bool, parts ...string) caddyhttp.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", contentType)
		if declared {
			w.Header().Set("Content-Length", strconv.Itoa(len(strings.Join(parts, ""))))
		}
		for _, part := range parts {
			if _, err := w.Write([]byte(part)); err != nil {
				return err
			}
		}
		return nil
	}
}

// ourList is a list that answers listRequest.
func ourList(header, more string) string {
	return strings.Replace(listOfTool("t", header, more), `"id":1`, `"id":17`, 1)
}

// view is that of the client which lists asks for.
func (h *Handler) view() viewKey {
	r := httptest.NewRequest(http.MethodPost, "/mcp", http.NoBody)
	r.Header = benchHeader("tools/list")
	return (&call{h: h, request: r}).viewKey()
}

// passedWriter looks, at each write, at what has passed.
type passedWriter struct {
	*httptest.ResponseRecorder
	passed []string
}

func (w *passedWriter) Write(p []byte) (int, error) {
	w.passed = append(w.passed, string(p))
	return w.ResponseRecorder.Write(p)
}

// The pieces of a list of a declared length pass at once; of one without, each
// waits for the next, unless what came is of a list that is kept and goes on.
func TestPiecesPassAtOnce(t *testing.T) {
	list := ourList("Region", "")
	parts := []string{list[:20], list[20:40], list[40:]}
	for _, tt := range []struct {
		name     string
		declared bool
		known    bool
		at       []int // how many pieces have passed when a piece was written
	}{
		{"declared", true, false, []int{1, 2, 3}},
		{"declared and known", true, true, []int{1, 2, 3}},
		{"undeclared", false, false, []int{0, 1, 2}},
		{"undeclared and known", false, true, []int{1, 2, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := provisioned(t, new(Handler))
			if tt.known {
				h.lists(t, httptest.NewRecorder(), listRequest, pieces("application/json", true, list))
				h.catalogue.readLessons()
			}
			w := &passedWriter{ResponseRecorder: httptest.NewRecorder()}
			h.lists(t, w, listRequest, func(inner http.ResponseWriter, _ *http.Request) error {
				for i, part := range parts {
					if i == 0 && tt.declared {
						inner.Header().Set("Content-Length", strconv.Itoa(len(list)))
					}
					if _, err := inner.Write([]byte(part)); err != nil {
						return err
					}
					if len(w.passed) != tt.at[i] {
						t.Errorf("after piece %d, %d have passed, want %d", i, len(w.passed), tt.at[i])
					}
				}
				return nil
			})
			if w.Body.String() != list {
				t.Errorf("relayed %q", w.Body)
			}
		})
	}
}

// A list that comes again is not learned again, whatever it came in. What is wrong
// with it is logged when it is learned.
func TestListsThatComeAgain(t *testing.T) {
	faulty := strings.Replace(ourList("Region", ""), `"string"`, `"array"`, 1)
	for _, tt := range []struct{ name, contentType, text string }{
		{"JSON", "application/json", faulty},
		{"an event", "text/event-stream", "data: " + faulty + "\n\n"},
		{"an event whose id is not found", "text/event-stream", "data: " + strings.Replace(faulty, `"id":`, `"id" : `, 1) + "\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, logs := provisioned(t, new(Handler))
			for range 3 {
				h.lists(t, httptest.NewRecorder(), listRequest, pieces(tt.contentType, false, tt.text))
				h.catalogue.readLessons()
			}
			if logs.Len() != 1 {
				t.Errorf("learned %d times: %v", logs.Len(), logs.All())
			}
		})
	}
}

// A list in an event is its own data, after an event of another type and beside
// data for somebody else.
func TestListAmongEvents(t *testing.T) {
	h, _ := provisioned(t, new(Handler))
	other := strings.Replace(listOfTool("u", "Zone", ""), `"id":1`, `"id":18`, 1)
	h.lists(t, httptest.NewRecorder(), listRequest, pieces("text/event-stream", false,
		"data: "+other+"\n\n", "event: x\ndata: {\"a\":1}\n\n", "data: "+ourList("Region", "")+"\n\n"))
	for tool, want := range map[string]string{"t": "learned Region", "u": "unknown"} {
		if got := said(h.catalogue.find(h.view(), tool, time.Now())); got != want {
			t.Errorf("%s: %s, want %s", tool, got, want)
		}
	}
}

// A write of nothing behind the last byte of a list is no list.
func TestEmptyWriteBehindAList(t *testing.T) {
	h, logs := provisioned(t, new(Handler))
	h.lists(t, httptest.NewRecorder(), listRequest, pieces("application/json", true, ourList("Region", ""), ""))
	h.catalogue.readLessons()
	if logs.Len() != 0 {
		t.Errorf("logged %v", logs.All())
	}
}

// A list that is one which is kept, but for white space behind it, is learned
// before its last byte passes, too.
func TestListWithoutItsLineBreak(t *testing.T) {
	h, _ := provisioned(t, new(Handler))
	list := ourList("Region", "")
	for _, text := range []string{list + "\r\n", list} {
		h.catalogue.changed(h.view(), time.Now())
		got := ""
		w := &lateWriter{httptest.NewRecorder(), len(text), func() { got = said(h.catalogue.find(h.view(), "t", time.Now())) }}
		h.lists(t, w, listRequest, pieces("application/json", false, text))
		if got != "learned Region" {
			t.Errorf("%q passed, and the tool is %s", text, got)
		}
	}
}

// What waits to be read takes no room from the next list, with the least room
// that a handler can have, and keeps no request out.
func TestRoomBesideLessons(t *testing.T) {
	for _, deny := range [][]string{nil, {"evil"}} {
		h, _ := provisioned(t, &Handler{MaxHeld: defaultMaxBody + defaultResponseBuffer, Deny: deny})
		body := strings.Replace(listRequest, `"params":{`, `"params":{"_":"`+strings.Repeat("x", defaultMaxBody-1000)+`",`, 1)
		for i, header := range []string{"A", "B", "C"} {
			list := ourList(header, `,"_":"`+strings.Repeat("x", 430<<10)+`"`)
			w := httptest.NewRecorder()
			h.lists(t, w, body, pieces("application/json", true, list))
			if w.Code != http.StatusOK || w.Body.String() != list {
				t.Errorf("deny %v: list %d did not pass: %d %.200s", deny, i, w.Code, w.Body)
			}
		}
		if got := said(h.catalogue.find(h.view(), "t", time.Now())); got != "learned C" {
			t.Errorf("deny %v: %s, want the last list", deny, got)
		}
	}
}

// panicking is a writer that panics.
type panicking struct{ *httptest.ResponseRecorder }

func (panicking) Write([]byte) (int, error) { panic("no client") }

// What a list held is given back when the writer panics, and panics once more
// when what waits is passed on.
func TestPanickingWriter(t *testing.T) {
	list := ourList("Region", "")
	for name, begin := range map[string]func(c *call) (http.ResponseWriter, func(bool)){
		"beside": func(c *call) (http.ResponseWriter, func(bool)) {
			w := c.beside(panicking{httptest.NewRecorder()})
			return w, w.end
		},
		"beside a list that broke off": func(c *call) (http.ResponseWriter, func(bool)) {
			w := c.beside(panicking{httptest.NewRecorder()})
			return w, func(bool) { w.end(true) }
		},
		"hiding": func(c *call) (http.ResponseWriter, func(bool)) {
			w := &hidingWriter{
				ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: panicking{httptest.NewRecorder()}},
				listText:              listText{c: c},
				list:                  true,
			}
			return w, w.end
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := lessonHandler(t)
			c := &call{h: h, request: httptest.NewRequest(http.MethodPost, "/mcp", http.NoBody), message: jsonrpc.Message{Method: toolsList, ID: []byte("17")}}
			w, end := begin(c)
			w.Header().Set("Content-Type", "application/json")
			func() {
				defer func() { _ = recover() }()
				defer func() { end(false) }()
				_, _ = w.Write([]byte(list[:20]))
				_, _ = w.Write([]byte(list[20:]))
			}()
			c.release()
			if used := h.held.used.Load(); used != 0 {
				t.Errorf("%d bytes are still held", used)
			}
			if used := h.listing.used.Load(); used != 0 {
				t.Errorf("of the share of lists, %d bytes are still held", used)
			}
		})
	}
}

// A list that could be read in two ways makes older knowledge say nothing, also
// where it comes as an event.
func TestUnreadableListInAnEvent(t *testing.T) {
	zone := ourList("Zone", "")
	for name, list := range map[string]string{
		"two results": strings.Replace(zone, `"result":`, `"result":{},"result":`, 1),
		"two ids":     strings.Replace(zone, `"id":17`, `"id":17,"id":17`, 1),
	} {
		for _, how := range []string{"application/json", "text/event-stream"} {
			h, _ := provisioned(t, new(Handler))
			h.lists(t, httptest.NewRecorder(), listRequest, pieces("application/json", true, ourList("Region", "")))
			text := list
			if how == "text/event-stream" {
				text = "data: " + list + "\n\n"
			}
			h.lists(t, httptest.NewRecorder(), listRequest, pieces(how, false, text))
			if got := said(h.catalogue.find(h.view(), "t", time.Now())); got == "learned Region" {
				t.Errorf("%s, %s: %s", name, how, got)
			}
		}
	}
}

// A list that was known, is not any more, and cannot be written down is newer
// than what is known.
func TestListThatCannotBeWrittenDown(t *testing.T) {
	h, _ := provisioned(t, new(Handler))
	known, newer := ourList("Region", ""), ourList("Zone", "")
	h.lists(t, httptest.NewRecorder(), listRequest, pieces("application/json", true, known))
	h.catalogue.readLessons()
	h.lists(t, httptest.NewRecorder(), listRequest, func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(known)))
		_, _ = w.Write([]byte(known[:40]))
		// Meanwhile another request of the same client is answered by the newer list.
		h.lists(t, httptest.NewRecorder(), listRequest, pieces("application/json", true, newer))
		h.catalogue.readLessons()
		h.listing.limit = 10
		_, err := w.Write([]byte(known[40:]))
		return err
	})
	if got := said(h.catalogue.find(h.view(), "t", time.Now())); got == "learned Zone" {
		t.Errorf("shown a list with Region last, which was not read; the tool is %s", got)
	}
}

// Memory that was written to a client is not used for another list: over HTTP/2
// the connection may still read it when the stream was reset.
func TestWrittenMemoryIsNotSpare(t *testing.T) {
	list := ourList("Region", `,"_":"`+strings.Repeat("x", 2*minSpare)+`"`)
	for name, deny := range map[string][]string{"the piece that waits": nil, "a list without what is denied": {"evil"}} {
		t.Run(name, func(t *testing.T) {
			h, _ := provisioned(t, &Handler{Deny: deny})
			h.lists(t, httptest.NewRecorder(), listRequest, pieces("application/json", false, list))
			if kept := cap(h.catalogue.memory.memory); kept != 0 { // the text that is learned from still waits
				t.Errorf("%d bytes of it are spare", kept)
			}
		})
	}
}
