package exchange

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// What is larger than can be held and will be replaced shows the client
// nothing of its status, on which it might repeat the call by itself.
func TestLargeErrorsAreReplaced(t *testing.T) {
	pad := `{"message":"` + large(4000) + `"}`
	for _, tt := range []struct {
		name  string
		reply brokenup.Reply
	}{
		{"503", brokenup.JSON(pad).With(503, "Retry-After: 1")},
		{"429, chunked", chunked(brokenup.JSON(pad)).With(429, "Retry-After: 1")},
		{"500 with a message", brokenup.JSON(`{"jsonrpc":"2.0","id":$id,"error":{"code":-32603,"message":"` + large(4000) + `"}}`).With(500)},
		{"404", brokenup.JSON(pad).With(404)},
		{"503, of which one piece is larger", brokenup.JSON(`{"message":"` + large(300_000) + `"}`).With(503)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := brokenup.TCP(t, brokenup.Answer(tt.reply))
			s := incaddy.Run(t, site("response_buffer 1KiB", proxy(up.Addr())))
			httpStatus.check(t, s, call(t, s, message{}))
		})
	}
}

// A body that will be replaced and has no end does not keep the client waiting.
func TestEndlessBodyIsReplaced(t *testing.T) {
	for _, tt := range []struct {
		name, piece string
		status      int
		want        want
	}{
		{"an HTML page", "<p>" + large(100), 200, unreadable},
		{"an HTML page under 502", "<p>" + large(100), 502, httpStatus},
		{"JSON under 502", strings.Repeat("[", 100), 502, httpStatus},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := brokenup.TCP(t, func(c *brokenup.Conn) {
				c.Read()
				c.Head(chunked(brokenup.Reply{}).With(tt.status))
				for c.Chunk(tt.piece) {
				}
			})
			s := incaddy.Run(t, site("response_buffer 1KiB", proxy(up.Addr())))
			tt.want.check(t, s, call(t, s, message{}))
		})
	}
}

// Clients read events under 200 only.
func TestEventsUnderAnotherStatus(t *testing.T) {
	for _, status := range []int{http.StatusCreated, http.StatusAccepted, http.StatusNoContent, http.StatusPartialContent} {
		up := brokenup.TCP(t, func(c *brokenup.Conn) {
			if q, ok := c.Read(); ok {
				r := brokenup.SSE(final).With(status).For(q)
				if status == http.StatusNoContent {
					r.Body, r.Framing = "", brokenup.Unsized
				}
				c.Reply(r)
			}
		})
		s := incaddy.Run(t, site("", proxy(up.Addr())))
		unreadable.check(t, s, call(t, s, message{}))
	}
}

// Trailers come as trailers, once, whatever was held before them.
func TestTrailers(t *testing.T) {
	for _, tt := range []struct {
		name, announced string
	}{
		{"announced", "Trailer: X-Sum, x-took\r\n"},
		{"not announced", ""},
	} {
		for name, body := range map[string]string{"JSON": complete, "replaced": "<h1>"} {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				up := brokenup.TCP(t, func(c *brokenup.Conn) {
					if q, ok := c.Read(); ok {
						c.Send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + tt.announced + "Transfer-Encoding: chunked\r\n\r\n")
						c.Chunk(strings.ReplaceAll(body, "$id", q.ID()))
						c.Send("0\r\nX-Sum: 17\r\nX-Took: 3\r\n\r\n")
					}
				})
				s := incaddy.Run(t, site("", proxy(up.Addr())))
				m := message{}
				res, err := incaddy.Client(t, false).Do(m.request(t.Context(), s.URL))
				if err != nil {
					t.Fatal(err)
				}
				a := readAnswer(res, m.uri)
				if a.header.Get("X-Sum") != "" || a.header.Get("X-Took") != "" {
					t.Errorf("trailers came as header fields: %v", a.header)
				}
				if body != complete {
					unreadable.check(t, s, a)
					if len(res.Trailer) != 0 {
						t.Errorf("the trailers of what was replaced came: %v", res.Trailer)
					}
					return
				}
				committed.check(t, s, a)
				if got := res.Trailer; got.Get("X-Sum") != "17" || got.Get("X-Took") != "3" {
					t.Errorf("the trailers are %v", got)
				}
			})
		}
	}
	t.Run("announced and missing", func(t *testing.T) {
		up := brokenup.TCP(t, brokenup.Answer(chunked(ok).With(200, "Trailer: X-Sum")))
		s := incaddy.Run(t, site("", proxy(up.Addr())))
		committed.check(t, s, call(t, s, message{}))
	})
}

// The header of a stream says nothing of bytes that may be added to.
func TestStreamDigests(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(brokenup.SSE(final).With(200, "Content-Digest: sha-256=:x:", `Etag: "v1"`)))
	s := incaddy.Run(t, site("", proxy(up.Addr())))
	a := call(t, s, message{})
	committed.check(t, s, a)
	if a.header.Get("Content-Digest") != "" || a.header.Get("Etag") != "" {
		t.Errorf("the digests of other bytes were left: %v", a.header)
	}
}

// Of an answer that is replaced, what speaks of the exchange stays.
func TestHeaderOfReplacedAnswer(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(brokenup.Reply{Body: "<h1>"}.With(503,
		"Content-Security-Policy: default-src 'none'", "Retry-After: 7", "Content-Language: en", "Content-Disposition: inline", "Last-Modified: x")))
	s := incaddy.Run(t, site("", proxy(up.Addr())))
	a := call(t, s, message{})
	httpStatus.check(t, s, a)
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'", "Retry-After": "7",
		"Content-Language": "", "Content-Disposition": "", "Last-Modified": "",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
