package exchange

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// progress is a notification as an event.
func progress(n int) string {
	return fmt.Sprintf(`data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":%d}}`+"\n\n", n)
}

func large(n int) string { return strings.Repeat("x", n) }

// final is the response as an event.
const final = "data: " + complete + "\n\n"

// event is what is left of an event once its outcome mark is taken out.
type event struct {
	name, id, data string
}

// events splits a stream, which must not be torn, as a client reads it.
func events(t testing.TB, stream string) []event {
	t.Helper()
	stream = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(stream)
	if stream != "" && !strings.HasSuffix(stream, "\n\n") {
		t.Errorf("the stream ends within an event: %q", stream[max(0, len(stream)-100):])
	}
	var all []event
	var e event
	var data []string
	for line := range strings.Lines(stream) {
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if data != nil {
				e.data = strings.Join(data, "\n")
				all = append(all, e)
			}
			e, data = event{}, nil
		case field == "data":
			data = append(data, value)
		case field == "event":
			e.name = value
		case field == "id":
			e.id = value
		}
	}
	return all
}

// TestStreams ends event streams in every way. The client gets what the
// upstream sent, the final response marked, or one more event.
func TestStreams(t *testing.T) {
	crlf := strings.NewReplacer("\n", "\r\n").Replace
	cr := strings.NewReplacer("\n", "\r").Replace
	ended := want{"ambiguous", "stream_ended", http.StatusOK, unknown, ""}
	note := progress(1)
	legacy := message{legacy: true}
	for _, tt := range []struct {
		name     string
		message  message
		stream   string
		want     want
		before   int // events of the upstream before the final or appended one
		appended bool
	}{
		{"final", message{}, final, committed, 0, false},
		{"progress, final", message{}, note + final, committed, 1, false},
		{"CRLF", message{}, crlf(note + final), committed, 1, false},
		{"CR", message{}, cr(note + final), committed, 1, false},
		{"comments, retry and names", message{}, ": hi\n\nretry: 5\n\nevent: message\n" + final, committed, 0, false},
		{"byte order mark", message{}, "\ufeff" + final, committed, 0, false},
		{"data in several lines", message{}, "data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":$id,\ndata:\"result\":{\"resultType\":\"complete\"}}\n\n", committed, 0, false},
		{"another event's name", message{}, "event: other\n" + final, ended, 1, true},
		{"final, then more", message{}, final + note, committed, 0, false},
		{"two finals", message{}, final + "data: " + failure("-32602") + "\n\n", committed, 0, false},
		{"another id, then ours", message{}, `data: {"jsonrpc":"2.0","id":2,"result":{"resultType":"odd"}}` + "\n\n" + final, committed, 1, false},
		{"error first", message{}, "data: " + failure("-32602") + "\n\n", want{"failed", "error_before_dispatch", 200, 0, ""}, 0, false},
		{"error after a comment", message{}, ": hi\n\ndata: " + failure("-32602") + "\n\n", want{"failed", "error_before_dispatch", 200, 0, ""}, 0, false},
		{"error after another event", message{}, note + "data: " + failure("-32602") + "\n\n", want{"ambiguous", "error", 200, 0, ""}, 1, false},
		{"error after a priming event", message{legacy: true}, "id: 1\ndata:\n\ndata: " + failure("-32602") + "\n\n", want{"failed", "error_before_dispatch", 200, 0, ""}, 1, false},
		{"isError", message{}, "data: " + result(`"resultType":"complete","isError":true`) + "\n\n", want{"ambiguous", "tool_error", 200, 0, ""}, 0, false},
		{"id field", message{}, "id: 7\n" + final, committed, 0, false},

		{"empty", message{}, "", ended, 0, true},
		{"no final", message{}, note + note, ended, 2, true},
		{"torn in a line", message{}, note + final[:40], ended, 1, true},
		{"torn at a field's end", message{}, note + strings.TrimSuffix(final, "\n"), ended, 1, true},
		{"torn after CR", message{}, note + strings.TrimSuffix(crlf(final), "\r\n"), ended, 1, true},
		{"no message", message{}, "data: hello\n\n", ended, 1, true},
		{"wrong id", message{}, `data: {"jsonrpc":"2.0","id":"1","result":{"resultType":"complete"}}` + "\n\n", ended, 1, true},
		{"batch", message{}, "data: [" + complete + "]\n\n", ended, 1, true},
		{"legacy without ids", legacy, note, ended, 1, true},
		{"legacy with an id", legacy, "id: 1\n" + note, ended, 1, false},
		{"legacy with a priming event", legacy, "id: 1\ndata:\n\n", ended, 1, false},
		{"legacy with an id and an empty one in one event", legacy, "id: 1\nid:\n" + note, ended, 1, true},
		{"legacy with an id that a later event resets", legacy, "id: 1\n" + note + "id\n\n", ended, 1, true},
		{"legacy with an id after a reset", legacy, "id:\n" + note + "id: 2\n\n", ended, 1, false},
		{"legacy with an empty id", legacy, "id:\n" + note, ended, 1, true},
		{"modern with an id", message{}, "id: 1\n" + note, ended, 1, true},
	} {
		whole := brokenup.SSE(tt.stream)
		endings := map[string]brokenup.Script{
			"properly":                         brokenup.Answer(whole),
			"without a last chunk":             brokenup.Cut(whole, len(tt.stream)),
			"by the end of the connection":     brokenup.Answer(unsized(whole)),
			"sized":                            brokenup.Answer(sized(whole)),
			"properly, byte by byte":           dribble(whole),
			"without a last chunk, by a reset": resetAfter(whole),
		}
		for ending, script := range endings {
			if strings.Contains(tt.stream, "$id") && ending == "without a last chunk" {
				script = cutAfter(whole)
			}
			t.Run(tt.name+", ended "+ending, func(t *testing.T) {
				up := brokenup.TCP(t, script)
				s := incaddy.Run(t, site("", proxy(up.Addr())))
				a := call(t, s, tt.message)
				w := tt.want
				w.code = 0
				w.check(t, s, a)
				if ct := a.header.Get("Content-Type"); ct != "text/event-stream" {
					t.Errorf("Content-Type %q", ct)
				}
				checkStream(t, a.body, strings.ReplaceAll(tt.stream, "$id", "1"), tt.want, tt.before, tt.appended)
			})
		}
	}
}

// checkStream compares what the client got with what the upstream sent.
func checkStream(t *testing.T, got, sent string, w want, before int, appended bool) {
	t.Helper()
	said := events(t, got)
	if appended {
		if len(said) != before+1 {
			t.Fatalf("%d events came, want %d and one more: %q", len(said), before, got)
		}
		w.checkError(t, said[before].data)
		if said[before].id != "" {
			t.Error("the appended event has an id")
		}
		if i := strings.LastIndex(got, said[before].data); !strings.HasPrefix(sent, strings.TrimSuffix(strings.TrimSuffix(got[:i], "data: "), "event: message\n")) {
			t.Errorf("before the appended event came %q, sent was %q", got[:i], sent)
		}
		return
	}
	if w.code != 0 { // left as it is
		if got != sent {
			t.Errorf("came %q, sent was %q", got, sent)
		}
		return
	}
	mark := fmt.Sprintf(`"%s":{"outcome":%q,"observation":%q}`, outcomeMember, w.outcome, w.observation)
	if n := strings.Count(got, mark); n != 1 {
		t.Fatalf("%d marks %s in %q", n, mark, got)
	}
	for _, added := range []string{
		`"_meta":{` + mark + `},`, `,"_meta":{` + mark + `}`, `"_meta":{` + mark + `}`,
		`"data":{` + mark + `},`, `,"data":{` + mark + `}`,
	} {
		if strings.Replace(got, added, "", 1) == sent {
			return
		}
	}
	t.Errorf("came %q, sent was %q", got, sent)
}

func sized(r brokenup.Reply) brokenup.Reply {
	r.Framing = brokenup.Sized
	return r
}

// dribble sends a chunk for every byte.
func dribble(r brokenup.Reply) brokenup.Script {
	return func(c *brokenup.Conn) {
		q, ok := c.Read()
		if !ok || !c.Head(r) {
			return
		}
		for _, b := range []byte(r.For(q).Body) {
			if !c.Chunk(string([]byte{b})) {
				return
			}
		}
		c.Send("0\r\n\r\n")
	}
}

// cutAfter sends the whole body and no last chunk.
func cutAfter(r brokenup.Reply) brokenup.Script {
	return func(c *brokenup.Conn) {
		if q, ok := c.Read(); ok && c.Head(r) {
			c.Chunk(r.For(q).Body)
		}
	}
}

// resetAfter does as cutAfter and waits for its peer to close: what was sent
// is then read before the connection breaks.
func resetAfter(r brokenup.Reply) brokenup.Script {
	return func(c *brokenup.Conn) {
		if q, ok := c.Read(); ok && c.Head(r) {
			if body := r.For(q).Body; body != "" {
				c.Chunk(body)
			}
			c.Send("zz\r\n") // no chunk: a protocol error
			c.Drain()
		}
	}
}

// A client sees each event before the next one is sent.
func TestStreamIsFlushedAtOnce(t *testing.T) {
	pieces := []string{": keep-alive\n\n", progress(1), progress(2),
		`data: {"jsonrpc":"2.0","id":"e","method":"elicitation/create","params":{}}` + "\n\n"}
	for _, tt := range []struct {
		name    string
		message message
	}{
		{"tool call", message{}},
		{"legacy tool call", message{legacy: true}},
		{"subscriptions/listen", message{method: "subscriptions/listen"}},
		{"legacy tools/list", message{method: "tools/list", legacy: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			next := make(chan string)
			up := brokenup.TCP(t, func(c *brokenup.Conn) {
				c.Read()
				c.Head(brokenup.SSE(""))
				for piece := range next {
					c.Chunk(piece)
				}
				c.Chunk(strings.ReplaceAll(final, "$id", "1"))
				c.Send("0\r\n\r\n")
			})
			s := incaddy.Run(t, site("", proxy(up.Addr())))
			res, err := incaddy.Client(t, false).Do(tt.message.request(t.Context(), s.URL))
			if err != nil {
				t.Fatal(err) // the header came before anything else was sent
			}
			defer res.Body.Close()
			for _, piece := range pieces {
				next <- piece
				got := make([]byte, len(piece))
				if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != piece {
					t.Fatalf("came %q (%v), sent was %q", got, err, piece)
				}
			}
			// Half an event is held, and passes once it is whole.
			half, rest := progress(3)[:30], progress(3)[30:]
			next <- half
			next <- rest
			got := make([]byte, len(half+rest))
			if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != half+rest {
				t.Fatalf("came %q (%v), sent was %q", got, err, half+rest)
			}
			close(next)
			if end, err := io.ReadAll(res.Body); err != nil || !strings.HasSuffix(string(end), "\n\n") {
				t.Errorf("ended with %q (%v)", end, err)
			}
		})
	}
}

// An event that is larger than what can be held is relayed and read all the
// same.
func TestLargeEvent(t *testing.T) {
	huge := `{"jsonrpc":"2.0","id":$id,"result":{"resultType":"complete","content":[{"type":"text","text":"` + large(5<<20) + `"}]}}`
	run := func(t *testing.T, script brokenup.Script) (answer, *incaddy.Site) {
		up := brokenup.TCP(t, script)
		s := incaddy.Run(t, site("", proxy(up.Addr())))
		return call(t, s, message{}), s
	}
	t.Run("whole", func(t *testing.T) {
		for _, reply := range []brokenup.Reply{brokenup.SSE("data: " + huge + "\n\n"), brokenup.SSE(progress(1) + "data: " + huge + "\n\n")} {
			a, s := run(t, brokenup.Answer(reply))
			committed.check(t, s, a)
			if sent := strings.ReplaceAll(reply.Body, "$id", "1"); a.body != sent {
				t.Errorf("%d bytes came, which are not the %d sent", len(a.body), len(sent))
			}
		}
	})
	t.Run("torn", func(t *testing.T) {
		a, s := run(t, brokenup.Cut(brokenup.SSE("data: "+huge+"\n\n"), 3<<20))
		want{observation: "stream_ended", outcome: "ambiguous"}.checkLog(t, s, a.uri)
		// Half of it is out: nothing can be appended, and it must not end well.
		if a.err == nil {
			t.Errorf("the stream ended properly after %d bytes", len(a.body))
		}
		if bytes.Contains([]byte(a.body), []byte("41010")) {
			t.Error("an event was appended to a torn line")
		}
	})
}

// The final response is held until it is classified, and its client may go.
func TestClientGoneAfterTheAnswer(t *testing.T) {
	release := make(chan struct{})
	up := brokenup.TCP(t, func(c *brokenup.Conn) {
		q, _ := c.Read()
		c.Head(brokenup.SSE(""))
		c.Chunk(strings.ReplaceAll(final, "$id", q.ID()))
		<-release // the stream stays open after its answer
		c.Send("0\r\n\r\n")
	})
	s := incaddy.Run(t, site("", proxy(up.Addr())))
	m := message{}
	res, err := incaddy.Client(t, false).Do(m.request(t.Context(), s.URL))
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(res.Body).ReadString('\n')
	if err != nil || !strings.Contains(line, "committed") {
		t.Errorf("the answer did not come at once: %q %v", line, err)
	}
	res.Body.Close()
	close(release)
	committed.checkLog(t, s, m.uri)
}

// A stream of another protocol's status.
func TestStreamStatus(t *testing.T) {
	for status, w := range map[int]want{
		http.StatusUnauthorized:        {"ambiguous", "result_despite_refusal", http.StatusUnauthorized, 0, ""},
		http.StatusInternalServerError: httpStatus,
	} {
		up := brokenup.TCP(t, brokenup.Answer(brokenup.SSE(progress(1)).With(status, "WWW-Authenticate: Bearer")))
		s := incaddy.Run(t, site("", proxy(up.Addr())))
		w.check(t, s, call(t, s, message{}))
	}
}
