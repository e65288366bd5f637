package exchange

import (
	"context"
	"io"
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
	// Not even as messages: clients repeat upon these by themselves.
	for _, status := range []int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			up := brokenup.TCP(t, brokenup.Answer(brokenup.JSON(`{"jsonrpc":"2.0","id":$id,"error":{"code":-32000,"message":"`+large(4000)+`"}}`).With(status)))
			s := incaddy.Run(t, site("response_buffer 1KiB", proxy(up.Addr())))
			httpStatus.check(t, s, call(t, s, message{}))
		})
	}
	t.Run("but not a refusal of the protocol", func(t *testing.T) {
		up := brokenup.TCP(t, brokenup.Answer(brokenup.JSON(`{"jsonrpc":"2.0","id":$id,"error":{"code":-32602,"message":"`+large(4000)+`"}}`).With(400)))
		s := incaddy.Run(t, site("response_buffer 1KiB", proxy(up.Addr())))
		want{"failed", "error_before_dispatch", 400, 0, ""}.check(t, s, call(t, s, message{}))
	})
}

// The head of a response that will be replaced, and whose body does not go on,
// keeps nobody waiting; neither does that of a refusal that passes.
func TestStalledBody(t *testing.T) {
	for _, tt := range []struct {
		name, head string
		want       want
	}{
		{"503", "HTTP/1.1 503 Busy\r\nContent-Type: text/html\r\n", httpStatus},
		{"200", "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n", unreadable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := brokenup.TCP(t, brokenup.SayThenHold(tt.head+"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"))
			s := incaddy.Run(t, site("", proxy(up.Addr())))
			tt.want.check(t, s, call(t, s, message{}))
		})
	}
	t.Run("401", func(t *testing.T) {
		up := brokenup.TCP(t, brokenup.SayThenHold("HTTP/1.1 401 No\r\nContent-Type: text/plain\r\nWWW-Authenticate: Bearer\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"))
		s := incaddy.Run(t, site("", proxy(up.Addr())))
		m := message{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		res, err := incaddy.Client(t, false).Do(m.request(ctx, s.URL))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if piece := make([]byte, 5); res.StatusCode != 401 {
			t.Errorf("status %d", res.StatusCode)
		} else if _, err := io.ReadFull(res.Body, piece); err != nil || string(piece) != "hello" {
			t.Errorf("read %q, %v", piece, err)
		}
	})
}

// White space that follows a message may be all that comes: what ends the
// message is kept back with it.
func TestWhiteSpaceAfterALargeAnswer(t *testing.T) {
	release := make(chan struct{})
	body := `{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","x":"` + large(5000) + `"}}`
	up := brokenup.TCP(t, func(c *brokenup.Conn) {
		c.Read()
		c.Head(chunked(brokenup.JSON("")))
		c.Chunk(body)
		c.Chunk("\n")
		<-release
		c.Send("0\r\n\r\n")
	})
	s := incaddy.Run(t, site("response_buffer 1KiB", proxy(up.Addr(), "flush_interval -1")))
	m := message{}
	got := make(chan answer, 1)
	r := m.request(t.Context(), s.URL)
	go func() { got <- send(incaddy.Client(t, false), r, m.uri) }()
	up.AwaitRequest(1)
	close(release)
	if a := <-got; a.err == nil || strings.Contains(a.body, "}}") {
		t.Errorf("a foreign result came whole: %d bytes, %v", len(a.body), a.err)
	}
	want{observation: "wrong_id", outcome: "ambiguous"}.checkLog(t, s, m.uri)
}

// What stands in the head stays there, although a trailer of its name is
// announced.
func TestTrailersOfNamesInTheHead(t *testing.T) {
	up := brokenup.TCP(t, func(c *brokenup.Conn) {
		if q, ok := c.Read(); ok {
			c.Send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: s1\r\nTrailer: Mcp-Session-Id, X-Sum, Content-Type\r\nTransfer-Encoding: chunked\r\n\r\n")
			c.Chunk(strings.ReplaceAll(complete, "$id", q.ID()))
			c.Send("0\r\nX-Sum: 17\r\n\r\n")
		}
	})
	s := incaddy.Run(t, site("", proxy(up.Addr())))
	m := message{}
	res, err := incaddy.Client(t, false).Do(m.request(t.Context(), s.URL))
	if err != nil {
		t.Fatal(err)
	}
	committed.check(t, s, readAnswer(res, m.uri))
	if res.Header.Get("Mcp-Session-Id") != "s1" || res.Header.Get("Content-Type") != "application/json" || res.Trailer.Get("X-Sum") != "17" {
		t.Errorf("head %v, trailers %v", res.Header, res.Trailer)
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
