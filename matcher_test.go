package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddymcp/gateway/mcpheaders"
)

const (
	writeCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"create_refund","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	readCall  = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_refund"}}`
	toolList  = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
	answer    = `{"jsonrpc":"2.0","id":1,"result":{}}`
)

func newMatcher(t testing.TB, m Matcher) *Matcher {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(cancel)
	if err := m.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	return &m
}

// newPost is a request with a body of unknown length. The context of a server's
// request ends with it, as this one does with the test.
func newPost(t testing.TB, body io.Reader, header http.Header) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", io.NopCloser(body))
	r.Header = header
	return r
}

// Kinds must all match, values of one kind are alternatives, and a body is
// matched only if it is a message that could be read in no two ways. What
// headers say of method and name is nothing.
func TestMatcherMatches(t *testing.T) {
	lying := http.Header{"Mcp-Method": {"tools/list"}, "Mcp-Name": {"get_refund"}}
	boasting := http.Header{"Mcp-Method": {"tools/call"}, "Mcp-Name": {"create_refund"}, "Content-Type": {"application/json"}}
	writes := Matcher{Tool: []string{"create_*", "delete_*", "refund"}}
	for _, tt := range []struct {
		name   string
		m      Matcher
		body   string
		header http.Header
		want   bool
	}{
		{"a prefix", writes, writeCall, nil, true},
		{"a prefix, whatever the headers say", writes, writeCall, lying, true},
		{"an escaped name", writes, strings.Replace(writeCall, "create_", `\u0063reate\u005f`, 1), nil, true},
		{"an exact name", writes, strings.Replace(writeCall, "create_refund", "refund", 1), nil, true},
		{"more than an exact name", writes, strings.Replace(writeCall, "create_refund", "refunds", 1), nil, false},
		{"another case", writes, strings.Replace(writeCall, "create_refund", "Create_refund", 1), nil, false},
		{"another tool", writes, readCall, nil, false},
		{"another tool, whatever the headers say", writes, readCall, boasting, false},
		{"any tool", Matcher{Tool: []string{"*"}}, readCall, nil, true},
		{"any tool, another method", Matcher{Tool: []string{"*"}}, toolList, boasting, false},
		{"a prompt of that name", writes, strings.Replace(writeCall, "tools/call", "prompts/get", 1), nil, false},
		{"a method", Matcher{Method: []string{"tools/list"}}, toolList, nil, true},
		{"another method", Matcher{Method: []string{"tools/list"}}, readCall, http.Header{"Mcp-Method": {"tools/list"}}, false},
		{"a prefix of methods", Matcher{Method: []string{"notifications/*"}}, cancelled, nil, true},
		{"any method", Matcher{Method: []string{"*"}}, cancelled, nil, true},
		{"a response has no method", Matcher{Method: []string{"*"}}, answer, boasting, false},
		{"tool and method", Matcher{Tool: []string{"create_*"}, Method: []string{"tools/call"}}, writeCall, nil, true},
		{"tool without method", Matcher{Tool: []string{"create_*"}, Method: []string{"tools/list"}}, writeCall, nil, false},
		{"method without tool", Matcher{Tool: []string{"delete_*"}, Method: []string{"tools/call"}}, writeCall, nil, false},
		{"revision, headers agreeing", Matcher{Revision: []string{"2026-07-28"}}, writeCall, http.Header{"Mcp-Protocol-Version": {"2026-07-28"}}, true},
		{"revision, headers lying", Matcher{Revision: []string{"2026-07-28", "2025-11-25"}}, writeCall, http.Header{"Mcp-Protocol-Version": {"2025-11-25"}}, false},
		{"revision, of the header alone", Matcher{Revision: []string{"2026-07-28"}}, readCall, http.Header{"Mcp-Protocol-Version": {"2026-07-28"}}, false},
		{"a legacy revision", Matcher{Revision: []string{"2025-06-18", "2025-11-25"}}, readCall, http.Header{"Mcp-Protocol-Version": {"2025-11-25"}}, true},
		{"no revision", Matcher{Revision: []string{"2025-03-26"}}, readCall, nil, true},
		{"tool without revision", Matcher{Tool: []string{"*"}, Revision: []string{"2026-07-28"}}, readCall, nil, false},
		{"a batch", writes, "[" + writeCall + "]", boasting, false},
		{"a duplicate name", writes, strings.Replace(writeCall, `"params":{`, `"params":{"name":"get_refund",`, 1), boasting, false},
		{"a duplicate name, escaped", writes, strings.Replace(writeCall, `"params":{`, `"params":{"n\u0061me":"get_refund",`, 1), boasting, false},
		{"a case variant of a member", writes, strings.Replace(writeCall, `"method"`, `"Method":"tools/list","method"`, 1), boasting, false},
		{"a case variant of the name", writes, strings.Replace(writeCall, `"params":{`, `"params":{"NAME":"get_refund",`, 1), boasting, false},
		{"a case variant of the arguments", writes, strings.Replace(writeCall, `"params":{`, `"params":{"Arguments":{},`, 1), boasting, false},
		{"no JSON-RPC", writes, strings.Replace(writeCall, "2.0", "1.0", 1), boasting, false},
		{"no id", writes, strings.Replace(writeCall, `"id":1,`, "", 1), boasting, false},
		{"no JSON", writes, writeCall + "]", boasting, false},
		{"a name that is no string", Matcher{Tool: []string{"*"}}, strings.Replace(writeCall, `"create_refund"`, "7", 1), boasting, false},
		{"no body", writes, "", boasting, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newPost(t, strings.NewReader(tt.body), tt.header)
			got, err := newMatcher(t, tt.m).MatchWithError(r)
			if got != tt.want || err != nil {
				t.Errorf("got %v, %v", got, err)
			}
			if body, err := io.ReadAll(r.Body); string(body) != tt.body || err != nil {
				t.Errorf("then the body is %q, %v", body, err)
			}
		})
	}
}

// awaitNothingHeld waits for the requests that are over to give back what the
// matchers held for them.
func awaitNothingHeld(t *testing.T) {
	t.Helper()
	const patience = 20 * time.Second
	late := time.After(patience)
	for matchersHeld.used.Load() != 0 {
		select {
		case <-late:
			t.Fatalf("%d bytes are still counted", matchersHeld.used.Load())
		default:
			runtime.Gosched()
		}
	}
}

// Only a POST carries a message. Nothing else is read.
func TestMatcherLeavesOtherMethods(t *testing.T) {
	m := newMatcher(t, Matcher{Method: []string{"*"}})
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		body := io.NopCloser(iotest.ErrReader(errors.New("was read")))
		r := httptest.NewRequest(method, "/mcp", nil)
		r.Body = body
		if got, err := m.MatchWithError(r); got || err != nil || r.Body != body {
			t.Errorf("%s: got %v, %v", method, got, err)
		}
	}
}

// A body that cannot be read to its end is an error and no answer to the
// question. What was read is still there, and the same end.
func TestMatcherRefusesUnreadable(t *testing.T) {
	torn := errors.New("connection reset")
	for _, tt := range []struct {
		name     string
		body     io.Reader
		declared int64
		status   int
		text     string // then the body
		err      error
	}{
		{"too large", strings.NewReader(strings.Repeat("x", 200)), -1, 413, strings.Repeat("x", 200), nil},
		{"too large, declared", strings.NewReader(strings.Repeat("x", 200)), 200, 413, strings.Repeat("x", 200), nil},
		{"too large for another", io.MultiReader(strings.NewReader("x"), iotest.ErrReader(&http.MaxBytesError{Limit: 1})), -1, 413, "x", &http.MaxBytesError{Limit: 1}},
		{"torn", io.MultiReader(strings.NewReader(writeCall[:50]), iotest.ErrReader(torn)), -1, 400, writeCall[:50], torn},
		{"stalled", io.MultiReader(strings.NewReader("{"), iotest.ErrReader(os.ErrDeadlineExceeded)), -1, 408, "{", os.ErrDeadlineExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newPost(t, tt.body, nil)
			r.ContentLength = tt.declared
			for range 2 { // a second one says the same
				got, err := newMatcher(t, Matcher{Method: []string{"*"}, MaxBody: 100}).MatchWithError(r)
				var refused caddyhttp.HandlerError
				if got || !errors.As(err, &refused) || refused.StatusCode != tt.status {
					t.Errorf("got %v, %v", got, err)
				}
			}
			body, err := io.ReadAll(r.Body)
			if string(body) != tt.text || (err == nil) != (tt.err == nil) || err != nil && err.Error() != tt.err.Error() {
				t.Errorf("then the body is %q, %v", body, err)
			}
		})
	}
}

// What one matcher read and parsed serves the others and the handler, as long
// as it stands in the request and nobody began to read it.
func TestMatcherSharesTheParse(t *testing.T) {
	awaitNothingHeld(t) // of the tests before
	match := func(r *http.Request, limit int64) *readAhead {
		t.Helper()
		if got, err := newMatcher(t, Matcher{Tool: []string{"create_*"}, MaxBody: limit}).MatchWithError(r); !got || err != nil {
			t.Fatalf("got %v, %v", got, err)
		}
		return r.Body.(*readAhead)
	}
	admit := func(r *http.Request) *call {
		t.Helper()
		h := &Handler{MaxBody: 1 << 20, held: budget{limit: 1 << 20}, arriving: budget{limit: 1 << 20, part: true}, grace: bodyGrace, policy: mcpheaders.Policy{Params: mcpheaders.Off}}
		c := &call{h: h, request: r}
		t.Cleanup(c.release)
		c.admitMessage()
		if used := matchersHeld.used.Load(); used != 0 {
			t.Errorf("the matchers hold %d bytes beside the handler", used)
		}
		return c
	}
	one := byte('x')
	first := func(b []byte) *byte {
		if len(b) == 0 {
			return &one
		}
		return &b[0]
	}

	r := newPost(t, strings.NewReader(writeCall), nil)
	ahead := match(r, 0)
	body := ahead.left
	if match(r, 1<<20) != ahead {
		t.Error("a second matcher read the body again")
	}
	c := admit(r)
	if first(c.body) != first(body) || c.summary.Name != "create_refund" || !c.strict || c.heldBytes != int64(cap(body)) {
		t.Errorf("the handler holds %d bytes of a body of its own: %q", c.heldBytes, c.body)
	}
	if left, err := io.ReadAll(ahead); len(left) != 0 || err != nil {
		t.Errorf("the body that the handler took is also left: %q, %v", left, err)
	}
	if match(r, 0) != ahead {
		t.Error("a matcher read a body that is gone")
	}

	r = newPost(t, strings.NewReader(" "+writeCall), nil)
	body = match(r, 0).left
	r.Body = io.NopCloser(io.MultiReader(r.Body, strings.NewReader(" "))) // as any handler may
	if c := admit(r); first(c.body) == first(body) || string(c.body) != " "+writeCall+" " {
		t.Errorf("the handler read %q", c.body)
	}

	r = newPost(t, strings.NewReader(" "+writeCall), nil)
	body = match(r, 0).left
	if _, err := r.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if c := admit(r); first(c.body) == first(body) || string(c.body) != writeCall {
		t.Errorf("the handler read %q", c.body)
	}
}

// The handler's own limits hold for what a matcher read, and what it does not
// take is left as it was.
func TestHandlerLimitsWhatMatcherRead(t *testing.T) {
	for _, tt := range []struct {
		maxBody, maxHeld int64
		want             string
	}{{10, 1 << 20, "body_too_large"}, {1 << 20, 10, "overloaded"}} {
		r := newPost(t, strings.NewReader(writeCall), nil)
		if _, err := newMatcher(t, Matcher{Method: []string{"*"}}).MatchWithError(r); err != nil {
			t.Fatal(err)
		}
		c := &call{h: &Handler{MaxBody: tt.maxBody, held: budget{limit: tt.maxHeld}}, request: r}
		if refusal := c.admitMessage(); refusal == nil || refusal.Reason != tt.want || c.heldBytes != 0 {
			t.Errorf("got %v, %d bytes held", refusal, c.heldBytes)
		}
		if body, err := io.ReadAll(r.Body); string(body) != writeCall || err != nil {
			t.Errorf("%s: then the body is %q, %v", tt.want, body, err)
		}
	}
}

// A matcher counts what it holds, until it is read out, closed, or the request
// is over.
func TestMatcherHoldsNoLonger(t *testing.T) {
	awaitNothingHeld(t) // of the tests before
	for _, tt := range []struct {
		name string
		end  func(r *http.Request, cancel func())
	}{
		{"read out", func(r *http.Request, _ func()) { _, _ = io.CopyN(io.Discard, r.Body, int64(len(writeCall))) }},
		{"closed", func(r *http.Request, _ func()) { r.Body.Close() }},
		{"over", func(_ *http.Request, cancel func()) { cancel() }},
		{"over before", nil},
		{"over while it is read", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var body io.Reader = strings.NewReader(writeCall)
			switch tt.name {
			case "over before":
				cancel()
			case "over while it is read":
				// With more to come than was set aside when it ended.
				body = io.MultiReader(body, cancelReader(cancel), strings.NewReader(strings.Repeat(" ", 2*firstRead)))
			}
			r := newPost(t, body, nil).WithContext(ctx)
			if got, err := newMatcher(t, Matcher{Tool: []string{"create_*"}}).MatchWithError(r); !got || err != nil {
				t.Fatalf("got %v, %v", got, err)
			}
			if tt.end != nil {
				if used := matchersHeld.used.Load(); used < int64(len(writeCall)) {
					t.Errorf("%d bytes are counted", used)
				}
				tt.end(r, cancel)
			}
			awaitNothingHeld(t)
			// What it said stays known, for error routes.
			if got, err := newMatcher(t, Matcher{Tool: []string{"create_*"}}).MatchWithError(r); !got || err != nil {
				t.Errorf("then got %v, %v", got, err)
			}
		})
	}
}

// cancelReader is an empty reader that ends its request, and lets that be
// noticed before it returns.
type cancelReader func()

func (end cancelReader) Read([]byte) (int, error) {
	end()
	for range 1000 {
		runtime.Gosched()
	}
	return 0, io.EOF
}

// What all matchers hold together has a limit, and what is past it is told to
// come again.
func TestMatchersHoldNoMore(t *testing.T) {
	awaitNothingHeld(t) // of the tests before
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m := newMatcher(t, Matcher{Method: []string{"*"}})
	defer func(limit int64) { matchersHeld.limit = limit }(matchersHeld.limit)
	matchersHeld.limit = firstRead
	for _, want := range []int{0, http.StatusServiceUnavailable} {
		r := newPost(t, strings.NewReader(toolList), nil).WithContext(ctx)
		got, err := m.MatchWithError(r)
		var refused caddyhttp.HandlerError
		if errors.As(err, &refused); refused.StatusCode != want || got != (want == 0) {
			t.Errorf("got %v, %v, want status %d", got, err, want)
		}
	}
	cancel()
	awaitNothingHeld(t)
}

// Errors name the line, say what is right, and where it stands.
func TestMatcherCaddyfileErrors(t *testing.T) {
	for _, tt := range []struct{ block, want string }{
		{"", "an mcp matcher needs at least one of tool, method and revision"},
		{"max_body 1MiB", "an mcp matcher needs at least one of tool, method and revision"},
		{"tool", "tool needs at least one value"},
		{"tool a*b", `tool pattern "a*b": a star may stand only at the end`},
		{`tool ""`, "a tool needs a name or a pattern"},
		{"tool {http.mcp.name}", `tool pattern "{http.mcp.name}": placeholders are not replaced here`},
		{"method", "method needs at least one value"},
		{"method */call", `method pattern "*/call": a star may stand only at the end`},
		{`method ""`, "a method needs a name or a pattern"},
		{"revision", "revision needs at least one value"},
		{"revision 2024-11-05", `revision "2024-11-05" is not known`},
		{"tool a\nmax_body 0", "max_body is 0"},
		{"tool a\nmax_body 96MiB", "all mcp matchers together hold"},
		{"tool a\nmax_body 1MiB\nmax_body 1MiB", "max_body is given twice"},
		{"name a", `unrecognized line "name" of an mcp matcher`},
	} {
		for _, form := range []string{"@m mcp {\n" + tt.block + "\n}\n", "@m {\nmcp {\n" + tt.block + "\n}\n}\n", "@m mcp " + tt.block + "\n"} {
			if strings.HasPrefix(form, "@m mcp "+tt.block) && strings.Contains(tt.block, "\n") {
				continue
			}
			_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte("localhost {\n"+form+"respond @m 200\n}\n"), map[string]any{"filename": "Caddyfile"})
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "at Caddyfile:") {
				t.Errorf("%q: got %v, want %q", form, err, tt.want)
			}
		}
	}
}

func TestMatcherValidate(t *testing.T) {
	for _, tt := range []struct {
		m    Matcher
		want string
	}{
		{Matcher{}, "needs at least one of"},
		{Matcher{Tool: []string{"a", ""}}, "a tool needs a name"},
		{Matcher{Method: []string{"a*b"}}, "a star may stand only at the end"},
		{Matcher{Method: []string{"{x}"}}, "placeholders"},
		{Matcher{Revision: []string{"2024-11-05"}}, "is not known"},
		{Matcher{Tool: []string{"a"}, MaxBody: -1}, "max_body is -1"},
		{Matcher{Tool: []string{"a"}, MaxBody: defaultMaxHeld}, "all mcp matchers together hold"},
	} {
		setDefault(&tt.m.MaxBody, defaultMaxBody)
		if err := tt.m.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %q", tt.m, err, tt.want)
		}
	}
}

// A matcher reads no more than its own limit allows, also of what another one
// has read.
func TestMatcherLimitsWhatAnotherRead(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	defer func() { _ = r.Body.Close() }() // the one that stands there by then
	if _, refusal := readAheadOf(r, 100); refusal != nil {
		t.Fatal(refusal.Text)
	}
	if _, refusal := readAheadOf(r, 10); refusal == nil || refusal.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("the second one, with a limit of 10: %+v", refusal)
	}
	if _, refusal := readAheadOf(r, 100); refusal != nil {
		t.Errorf("the third one, with a limit of 100: %+v", refusal)
	}
}
