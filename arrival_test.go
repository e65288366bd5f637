package gateway

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

const smallPing = `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`

var pingHeader = http.Header{"Content-Type": {"application/json"}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"ping"}}

// Clients that never complete their bodies, however many, keep nobody else out.
func TestUnfinishedBodiesLeaveRoom(t *testing.T) {
	h := &Handler{MaxBody: 1 << 20, ResponseBuffer: 1 << 20, MaxHeld: 8 << 20}
	if err := provision(t, h); err != nil {
		t.Fatal(err)
	}
	var unfinished sync.WaitGroup
	defer unfinished.Wait()
	for range 64 {
		reader, writer := io.Pipe()
		defer writer.Close()
		r := newPost(t, reader, pingHeader)
		r.ContentLength = 1 << 20
		unfinished.Go(func() {
			c := &call{h: h, request: r}
			defer c.release()
			c.admit()
			_ = reader.Close()
		})
		// Returns once all of it was read, or the request was refused.
		_, _ = writer.Write(bytes.Repeat([]byte(" "), 1<<19+1))
	}
	if arriving, most := h.arriving.used.Load(), h.MaxHeld/2; arriving < 1<<20 || arriving > most {
		t.Errorf("%d bytes are arriving, and at most %d may be", arriving, most)
	}
	c := &call{h: h, request: newPost(t, strings.NewReader(smallPing), pingHeader)}
	defer c.release()
	if refusal := c.admit(); refusal != nil {
		t.Errorf("a small request is refused: %s", refusal.Text)
	}
}

// deadlines is a client's writer that records the deadlines of its reads.
type deadlines struct {
	http.ResponseWriter
	set []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

// A body that comes faster than the rate earns time, and once it is there no
// deadline is left, however it ended.
func TestDeadlineFollowsTheBody(t *testing.T) {
	const length = 4*bodyRate + 1
	for _, tt := range []struct {
		name string
		body io.Reader
		want string // the refusal
	}{
		{"complete", bytes.NewReader(make([]byte, length)), ""},
		{"broken", io.MultiReader(bytes.NewReader(make([]byte, length)), iotest.ErrReader(io.ErrUnexpectedEOF)), "body_broken"},
		{"too large", bytes.NewReader(make([]byte, 2*length)), "body_too_large"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := budget{limit: 4 * length, part: true}
			client := new(deadlines)
			_, refusal := readBody(newPost(t, tt.body, nil), &arrival{
				limit: length, hold: func(int64) bool { return true }, share: bodyShare{budget: &b}, grace: bodyGrace, client: http.NewResponseController(client),
			})
			if tt.want == "" && refusal != nil || tt.want != "" && (refusal == nil || refusal.Reason != tt.want) {
				t.Errorf("refused with %v", refusal)
			}
			last := len(client.set) - 1
			if last < 2 || !client.set[last].IsZero() {
				t.Fatalf("deadlines %v", client.set)
			}
			if earned := client.set[last-1].Sub(client.set[0]); earned != 4*time.Second {
				t.Errorf("the bytes earned %v", earned)
			}
		})
	}
}

// Without a deadline to set, as in a matcher, a trickle is noticed when it comes.
func TestTrickleIsNoticed(t *testing.T) {
	b := budget{limit: 1 << 20, part: true}
	body, refusal := readBody(newPost(t, iotest.OneByteReader(strings.NewReader(smallPing)), nil), &arrival{
		limit: 1 << 20, hold: func(int64) bool { return true }, share: bodyShare{budget: &b}, grace: -time.Second,
	})
	if refusal == nil || refusal.Reason != "body_stalled" || len(body) != 1 {
		t.Errorf("after %d bytes refused with %v", len(body), refusal)
	}
}

// A body that stops arriving is refused, whatever the protocol.
func TestStalledBody(t *testing.T) {
	h := new(Handler)
	if err := provision(t, h); err != nil {
		t.Fatal(err)
	}
	h.grace = time.Millisecond
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
		if err := h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })); err != nil {
			t.Error(err)
		}
	}))
	site.Config.Protocols = new(http.Protocols)
	site.Config.Protocols.SetHTTP1(true)
	site.Config.Protocols.SetUnencryptedHTTP2(true)
	site.Start()
	defer site.Close()
	for _, http2 := range []bool{false, true} {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(!http2)
		transport.Protocols.SetUnencryptedHTTP2(http2)
		reader, writer := io.Pipe()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, site.URL+"/mcp", reader)
		if err != nil {
			t.Fatal(err)
		}
		request.Header = pingHeader
		go func() { _, _ = writer.Write([]byte(" ")) }()
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusRequestTimeout {
			t.Errorf("HTTP/2 %v: got %s", http2, response.Status)
		}
		_ = response.Body.Close()
		_ = writer.Close()
		transport.CloseIdleConnections()
	}
}
