package exchange

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// What is public knowledge of how mirrored parameters go wrong, where it takes
// more than one request to show it. The rest is in testdata.

// A list for each call is what makes proxies slow
// (https://github.com/agentgateway/agentgateway/pull/2391).
func TestCallsAskForNoLists(t *testing.T) {
	const n = 200
	up := newServer(t, page(regional, ""))
	s := incaddy.Run(t, site("", proxy(up.up.Addr())))
	client := incaddy.Client(t, true)
	first, again := lists, agreeing
	first.plain, again.plain = true, true
	send(client, first.request(t.Context(), s.URL), "")
	for range n {
		if a := send(client, again.request(t.Context(), s.URL), ""); a.status != http.StatusOK {
			t.Fatalf("answered %d %s", a.status, a.body)
		}
	}
	if got := len(up.up.Requests()); got != 1+n {
		t.Errorf("the server received %d requests, want the list and %d calls", got, n)
	}
}

// A client forgets the headers on one of its paths
// (https://github.com/zonlabs/mcp-ts/pull/184): it is told, nothing happened,
// and the same call passes as soon as they are there.
func TestForgottenHeader(t *testing.T) {
	tool := strings.NewReplacer("create_refund", "issue_write", `"region"`, `"owner"`, `"Region"`, `"owner"`).Replace(regional)
	up := newServer(t, page(tool, ""))
	s := incaddy.Run(t, site("", proxy(up.up.Addr())))
	ask(t, s, lists)
	m := message{tool: "issue_write", args: `{"owner":"octocat"}`}
	a := ask(t, s, m)
	if a.status != http.StatusBadRequest || !strings.Contains(a.body, "-32020") || !strings.Contains(a.body, "Mcp-Param-Owner") {
		t.Errorf("answered %d %s", a.status, a.body)
	}
	if got := len(up.up.Requests()); got != 1 {
		t.Errorf("the server received %d requests, want the list alone", got)
	}
	passes(t, s, with(m, "Mcp-Param-owner: octocat"), 0)
}

// A tool that appears later is checked like those that were there from the
// beginning (https://github.com/microsoft/mcp-gateway/issues/98).
func TestToolThatAppearsLater(t *testing.T) {
	changed := "data: " + `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n\n"
	other := strings.Replace(regional, "create_refund", "create_order", 1)
	up := newServer(t, page(other, ""))
	s := incaddy.Run(t, site("", proxy(up.up.Addr())))
	ask(t, s, lists)
	knowsNothing(t, s)
	for _, list := range []string{other, regional} { // of the new list, two pages
		up.set(page(list, ""), brokenup.SSE(changed))
		ask(t, s, message{method: "subscriptions/listen"})
		up.set(page(list, ""), ok)
		ask(t, s, lists)
	}
	verifies(t, s)
}
