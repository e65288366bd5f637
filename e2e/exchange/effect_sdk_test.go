//go:build unix

package exchange

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// A tool on the Python SDK that acts, and then asks its client something
// (ctx.elicit, create_message, list_roots), where nothing can be asked: on
// revision 2026-07-28, and of the earlier ones without sessions or with JSON
// answers. What the SDK answers then has the code -32600 and the call's own id.
// An invalid request would have been refused before it got this far: row 8.
func TestInvalidRequestFromARunningTool(t *testing.T) {
	const raised = `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Cannot send 'elicitation/create': this transport context has no back-channel for server-initiated requests."}}`
	for _, c := range []struct {
		name   string
		legacy bool
		reply  brokenup.Reply
	}{
		{"modern", false, brokenup.JSON(raised).With(http.StatusBadRequest)},
		{"legacy, JSON", true, brokenup.JSON(raised)},
		{"legacy, events", true, brokenup.SSE("event: message\r\ndata: " + raised + "\r\n\r\n")},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := brokenup.TCP(t, brokenup.Answer(c.reply))
			p := protect(t, refundTool, proxy(up.Addr()))
			m := refund()
			m.legacy = c.legacy
			call(t, p.Site, m)
			p.wantState(t, effect.Ambiguous, 1)
			call(t, p.Site, m)
			if n := deliveries(up); n != 1 {
				t.Errorf("%d deliveries, want 1", n)
			}
		})
	}
}

// SDK clients continue a call by themselves, up to ten times (Python, Go and
// TypeScript alike): a tool that asks so often works as it does without the
// gateway. Python clients also continue, without any input, what has a
// requestState and asks for nothing.
func TestContinuationsOfSDKClients(t *testing.T) {
	const rounds = 10
	var states []string
	for round := range rounds {
		states = append(states, fmt.Sprintf(`"s%d"`, round+1))
	}
	up := brokenup.TCP(t, asks(false, states...))
	p := protect(t, refundTool, proxy(up.Addr()))
	m := refund()
	for round := range rounds {
		inputRequired.check(t, p.Site, call(t, p.Site, m))
		m = continued(m, states[round])
	}
	committed.check(t, p.Site, call(t, p.Site, m))
}

// Clients follow a 307 or 308 by themselves and send the call again: Python's
// httpx, as the SDK sets it up, fetch, and Go's client. Starlette answers so
// for each POST to a mounted server without the slash at its end, and names
// the server as the proxy called it.
func TestRedirectedCallIsNotSentAgain(t *testing.T) {
	elsewhere := brokenup.TCP(t, brokenup.Answer(brokenup.JSON(complete)))
	up := brokenup.TCP(t, brokenup.Answer(brokenup.Reply{}.With(http.StatusTemporaryRedirect, "Location: http://"+elsewhere.Addr()+"/mcp/")))
	p := protect(t, refundTool, proxy(up.Addr()))
	m := refund()
	r := m.request(t.Context(), p.URL)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, _ = r.GetBody()
	a := send(&http.Client{Transport: incaddy.Client(t, false).Transport}, r, m.uri) // one that follows
	p.wantState(t, effect.Ambiguous, 1)
	if n := deliveries(elsewhere); n != 0 {
		t.Errorf("the client was sent past the gateway, and made the call there %d times; the record says that nobody knows", n)
	}
	want{"ambiguous", "redirect", http.StatusOK, -41010, ""}.check(t, p.Site, a)
	if a.header.Get("Location") != "" {
		t.Errorf("it still says where to go: %s", a.header.Get("Location"))
	}
}

// What a redirect's trailers say is not the head of the answer in its place.
func TestTrailersOfARedirect(t *testing.T) {
	up := brokenup.TCP(t, func(c *brokenup.Conn) {
		c.Read()
		c.Send("HTTP/1.1 307 Temporary Redirect\r\nLocation: /mcp/\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 17\r\n\r\n")
	})
	p := protect(t, refundTool, proxy(up.Addr()))
	a := call(t, p.Site, refund())
	want{"ambiguous", "redirect", http.StatusOK, -41010, ""}.check(t, p.Site, a)
	if got := a.header.Get("X-Sum"); got != "" {
		t.Errorf("the answer's head has the trailer X-Sum: %s", got)
	}
}

// A handler inside that sends the caller elsewhere, as to a login, before anything
// could send the call, is no server that may have run it.
func TestRedirectInside(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(brokenup.JSON(complete)))
	p := protect(t, refundTool, "route {\n@stranger not header Authorization *\nredir @stranger https://login.example/ 302\n"+proxy(up.Addr())+"\n}")
	a := call(t, p.Site, refund())
	want{"failed", "never_connected", http.StatusFound, 0, ""}.check(t, p.Site, a)
	if a.header.Get("Location") != "https://login.example/" {
		t.Errorf("answered %v", a.header)
	}
	p.wantState(t, effect.Failed, 1)
	if n := deliveries(up); n != 0 {
		t.Errorf("%d deliveries, want none", n)
	}
}
