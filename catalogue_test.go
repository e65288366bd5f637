package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/mcpheaders"
)

var (
	alice = viewKey{endpoint: 1, caller: 1}
	bob   = viewKey{endpoint: 1, caller: 2}
	noon  = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
)

// testSize is how many bytes the catalogues of tests keep.
const testSize = 1 << 20

func testCatalogue(t *testing.T) *catalogue {
	t.Helper()
	c, err := newCatalogue(testSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Destruct() })
	return c
}

// listing is the definitions of tools of these names, each with one binding.
func listing(ttl int64, public bool, names ...string) definitions {
	d := definitions{tools: make(map[string]*mcpheaders.Bindings), ttl: ttl, public: public}
	for _, name := range names {
		d.tools[name], _ = mcpheaders.NewBindings([]mcpheaders.Declaration{{Name: "Region", Path: "region"}})
	}
	return d
}

// A definition counts for as long as its list says, and an hour where that says
// nothing; when its list is seen again, from then on.
func TestLifetimeOfDefinitions(t *testing.T) {
	for _, tt := range []struct {
		name string
		ttl  int64
		want time.Duration
	}{
		{"unsaid", 0, time.Hour},
		{"a second", 1000, time.Second},
		{"a millisecond", 1, time.Millisecond},
		{"a year", 365 * 24 * 3600 * 1000, 30 * 24 * time.Hour},
		{"past what a duration holds", 1 << 53, 30 * 24 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := testCatalogue(t)
			if c.seenBefore(alice, 7, noon) {
				t.Error("seen before it was learned")
			}
			c.learn(alice, 7, listing(tt.ttl, false, "a"), noon)
			expect := func(at time.Time, want knowledgeState) {
				t.Helper()
				known := c.find(alice, "a", at)
				if known.state != want || (known.bindings != nil) != (want == learned) {
					t.Errorf("after %v: %v, %v", at.Sub(noon), knowledgeStates[known.state], known.bindings)
				}
			}
			expect(noon, learned)
			expect(noon.Add(tt.want-1), learned)
			expect(noon.Add(tt.want), stale)
			again := noon.Add(2 * tt.want)
			if !c.seenBefore(alice, 7, again) {
				t.Error("not seen before")
			}
			expect(again.Add(tt.want-1), learned)
			expect(again.Add(tt.want), stale)
		})
	}
}

func TestCatalogueViews(t *testing.T) {
	c := testCatalogue(t)
	state := func(key viewKey, tool string) string { return knowledgeStates[c.find(key, tool, noon).state] }
	c.learn(alice, 1, listing(0, false, "a"), noon)
	c.learn(bob, 2, listing(0, true, "b"), noon)
	for _, tt := range []struct {
		name string
		key  viewKey
		tool string
		want string
	}{
		{"her own", alice, "a", "learned"},
		{"not his", bob, "a", "unknown"},
		{"public, to him", bob, "b", "learned"},
		{"public, to her", alice, "b", "learned"},
		{"another tool", alice, "c", "unknown"},
		{"another endpoint", viewKey{2, alice.caller}, "b", "unknown"},
	} {
		if got := state(tt.key, tt.tool); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}

	// She is told that her tools have changed; what he was shown is his.
	c.learn(bob, 3, listing(0, false, "own"), noon)
	c.changed(alice, noon.Add(time.Minute))
	if state(alice, "a") != "stale" || state(alice, "b") != "stale" {
		t.Error("what she was shown outlives the notice that it has changed")
	}
	if state(bob, "own") != "learned" {
		t.Error("what he was shown does not outlive a notice to her")
	}
	later := noon.Add(2 * time.Minute)
	c.learn(alice, 4, listing(0, true, "b"), later)
	c.changed(bob, later.Add(time.Second)) // of the same change
	if known := c.find(alice, "b", later.Add(2*time.Second)); known.state != learned {
		t.Errorf("an echo of the change makes the new list %s", knowledgeStates[known.state])
	}
}

// A caller's doubt is its own, until it is shown a list again.
func TestDoubt(t *testing.T) {
	for _, public := range []bool{false, true} {
		c := testCatalogue(t)
		show := func(key viewKey) {
			if !c.seenBefore(key, 1, noon) {
				c.learn(key, 1, listing(0, public, "a", "b"), noon)
			}
		}
		expect := func(key viewKey, tool string, want knowledgeState) {
			t.Helper()
			if got := c.find(key, tool, noon).state; got != want {
				t.Errorf("public %v: %s is %s, want %s", public, tool, knowledgeStates[got], knowledgeStates[want])
			}
		}
		show(alice)
		show(bob)
		c.doubt(alice, "a", noon)
		expect(alice, "a", stale)
		expect(alice, "b", learned)
		expect(bob, "a", learned)
		show(alice)
		expect(alice, "a", learned)
	}
}

// A list that is shown again gives its tools back what it says of them, although
// another list had said otherwise in the meantime.
func TestAlternatingLists(t *testing.T) {
	c := testCatalogue(t)
	show := func(digest uint64, d definitions) {
		if !c.seenBefore(alice, digest, noon) {
			c.learn(alice, digest, d, noon)
		}
	}
	first, second := listing(0, false, "a", "b"), listing(0, false, "a")
	for range 3 {
		show(1, first)
		if got := c.find(alice, "a", noon).bindings; got != first.tools["a"] {
			t.Error("the first list does not count")
		}
		show(2, second)
		if got := c.find(alice, "a", noon).bindings; got != second.tools["a"] {
			t.Error("the second list does not count")
		}
		if got := c.find(alice, "b", noon).bindings; got != first.tools["b"] {
			t.Error("what the second list does not have is forgotten")
		}
	}
}

// What a caller was shown last counts, private or public.
func TestPublicAfterPrivate(t *testing.T) {
	c := testCatalogue(t)
	private, public := listing(0, false, "a"), listing(0, true, "a")
	c.learn(alice, 1, private, noon)
	c.learn(bob, 2, public, noon)
	if c.find(alice, "a", noon).bindings != private.tools["a"] {
		t.Error("a public list that she was not shown counts for her")
	}
	if !c.seenBefore(alice, 2, noon) || c.find(alice, "a", noon).bindings != public.tools["a"] {
		t.Error("a public list that she was shown does not count")
	}
	c.learn(alice, 1, private, noon)
	c.learn(alice, 3, listing(0, true, "b"), noon)
	if c.find(alice, "a", noon).bindings != public.tools["a"] {
		t.Error("what she was shown before a new public list counts")
	}
}

// When the notice of a view is forgotten, nothing that it says counts.
func TestForgottenNotice(t *testing.T) {
	c := testCatalogue(t)
	c.learn(alice, 1, listing(0, false, "a"), noon)
	c.notices.Invalidate(alice)
	if got := c.find(alice, "a", noon).state; got != stale {
		t.Errorf("it is %s", knowledgeStates[got])
	}
	if c.seenBefore(alice, 1, noon) {
		t.Error("a page was renewed that nobody knows a notice of")
	}
	c.learn(alice, 1, listing(0, false, "b"), noon)
	if got := c.find(alice, "a", noon).state; got != unknown {
		t.Errorf("what was learned before is %s", knowledgeStates[got])
	}
}

// Whatever servers say, what is kept stays within its bound.
func TestCatalogueIsBounded(t *testing.T) {

	c := testCatalogue(t)
	for i := range 2000 {
		key := alice
		key.caller = uint64(i) + 1
		var names []string
		for j := range 20 {
			names = append(names, fmt.Sprintf("tool_%d_%d", i, j))
		}
		c.learn(key, uint64(i), listing(0, false, names...), noon)
	}
	c.views.CleanUp()
	if got := c.views.WeightedSize(); got > testSize {
		t.Errorf("%d bytes are kept", got)
	}
	key := alice
	for i := range 100 {
		c.learn(key, uint64(i), listing(0, false, manyNames(i, 1000)...), noon)
	}
	if v, ok := c.views.GetIfPresent(key); ok && len(v.tools) > maxTools {
		t.Errorf("one caller's view has %d tools", len(v.tools))
	}
}

func manyNames(series, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%d_%d", series, i)
	}
	return names
}

// Pages are told apart by everything but the id of the request they answer.
func TestDigestOfPages(t *testing.T) {
	c := testCatalogue(t)
	digest := func(text, id string) uint64 { return c.digest([]byte(text), []byte(id)) }
	first := digest(`{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`, "1")
	pad := strings.Repeat("x", 300)
	for _, tt := range []struct {
		name, text, id string
		same           bool
	}{
		{"the same", `{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`, "1", true},
		{"another id", `{"jsonrpc":"2.0","id":"abc","result":{"tools":[]}}`, `"abc"`, true},
		{"other tools", `{"jsonrpc":"2.0","id":1,"result":{"tools":[1]}}`, "1", false},
		{"the id elsewhere", `{"jsonrpc":"2.0","result":{"tools":[]},"id":1}`, "1", false},
		{"no id", `{"jsonrpc":"2.0","result":{"tools":[]}}`, "1", false},
	} {
		if got := digest(tt.text, tt.id) == first; got != tt.same {
			t.Errorf("%s: the same %v, want %v", tt.name, got, tt.same)
		}
	}
	tail := func(id string) string { return `{"result":{"x":"` + pad + `","id":7},"jsonrpc":"2.0","id":` + id + `}` }
	spaced := func(id string) string { return `{"jsonrpc": "2.0", "id": ` + id + `, "result": {"tools": []}}` }
	if digest(spaced("1"), "1") != digest(spaced("22"), "22") {
		t.Error("an id after a space is not left out")
	}
	if digest(tail("1"), "1") != digest(tail("22"), "22") {
		t.Error("an id at the end is not left out")
	}
	if digest(`{"id":1,"result":{"a":1}}`, "1") == digest(`{"id":1,"result":{"a":11}}`, "1") {
		t.Error("the id's digits are left out elsewhere")
	}
}

func TestCallers(t *testing.T) {
	c := testCatalogue(t)
	request := func(header http.Header, cert string) *http.Request {
		r := &http.Request{Header: header}
		if cert != "" {
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: []byte(cert)}}}
		}
		return r
	}
	seen := make(map[uint64]string)
	for _, tt := range []struct {
		name   string
		header http.Header
		cert   string
	}{
		{"nobody", nil, ""},
		{"a token", http.Header{"Authorization": {"a"}}, ""},
		{"another token", http.Header{"Authorization": {"b"}}, ""},
		{"a cookie of the same text", http.Header{"Cookie": {"a"}}, ""},
		{"two tokens", http.Header{"Authorization": {"a", "b"}}, ""},
		{"one token of both", http.Header{"Authorization": {"ab"}}, ""},
		{"a token and a tenant", http.Header{"Authorization": {"a"}, "X-Tenant": {"1"}}, ""},
		{"a certificate", nil, "cert"},
		{"a certificate and a token", http.Header{"Authorization": {"a"}}, "cert"},
	} {
		id := c.caller(request(tt.header, tt.cert), []string{"X-Tenant"})
		if other, taken := seen[id]; taken {
			t.Errorf("%s and %s are one caller", tt.name, other)
		}
		seen[id] = tt.name
		if id != c.caller(request(tt.header, tt.cert), []string{"X-Tenant"}) {
			t.Errorf("%s is two callers", tt.name)
		}
		if id == 0 {
			t.Errorf("%s is the public", tt.name)
		}
	}
}

// An endpoint is what the client asked for, and where.
func TestEndpoints(t *testing.T) {
	c := testCatalogue(t)
	request := func(port int, host, target, rewritten string) *http.Request {
		original := httptest.NewRequest(http.MethodPost, target, nil)
		original.Host = host
		ctx := context.WithValue(original.Context(), http.LocalAddrContextKey, &net.TCPAddr{Port: port})
		r := original.WithContext(context.WithValue(ctx, caddyhttp.OriginalRequestCtxKey, http.Request{URL: original.URL}))
		r.URL = httptest.NewRequest(http.MethodPost, rewritten, nil).URL
		return r
	}
	first := c.endpoint(request(443, "mcp.example.com", "/mcp", "/mcp"), "")
	for _, tt := range []struct {
		name      string
		r         *http.Request
		namespace string
		same      bool
	}{
		{"the same", request(443, "mcp.example.com", "/mcp", "/mcp"), "", true},
		{"the host in capitals", request(443, "MCP.example.com", "/mcp", "/mcp"), "", true},
		{"rewritten", request(443, "mcp.example.com", "/mcp", "/other?x=1"), "", true},
		{"rewritten to the same", request(443, "mcp.example.com", "/other", "/mcp"), "", false},
		{"another query", request(443, "mcp.example.com", "/mcp?v=2", "/mcp"), "", false},
		{"another host", request(443, "example.com", "/mcp", "/mcp"), "", false},
		{"another port", request(8443, "mcp.example.com", "/mcp", "/mcp"), "", false},
		{"another namespace", request(443, "mcp.example.com", "/mcp", "/mcp"), "x", false},
	} {
		if got := c.endpoint(tt.r, tt.namespace) == first; got != tt.same {
			t.Errorf("%s: the same %v, want %v", tt.name, got, tt.same)
		}
	}
}

func TestReadDefinitions(t *testing.T) {
	schema := func(text string) []byte { return []byte(text) }
	d := readDefinitions(jsonrpc.ToolsPage{Public: true, TTL: 5, Tools: []jsonrpc.ToolDefinition{
		{Name: "bound", InputSchema: schema(`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}}`)},
		{Name: "plain", InputSchema: schema(`{"type":"object"}`)},
		{Name: "no schema"},
		{Name: "invalid", InputSchema: schema(`{"type":"object","properties":{"a":{"type":"array","x-mcp-header":"A"}}}`)},
		{Name: "twice", InputSchema: schema(`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}}`)},
		{Name: "twice", InputSchema: schema(`{"type":"object"}`)},
	}})
	for name, want := range map[string]int{"bound": 1, "plain": 0, "no schema": 0, "invalid": 0, "twice": 0} {
		if bindings, ok := d.tools[name]; !ok || bindings.Len() != want {
			t.Errorf("%s: %d bindings, known %v", name, bindings.Len(), ok)
		}
	}
	var faults []string
	for _, f := range d.faults {
		faults = append(faults, f.tool+" "+f.reason)
	}
	if got := strings.Join(faults, ", "); got != "invalid type_not_primitive, twice tool_repeated" || !d.public || d.ttl != 5 {
		t.Errorf("faults %s, public %v, ttl %d", got, d.public, d.ttl)
	}
}

// A change that a lesson tells of does not take back a later one.
func TestChangeStays(t *testing.T) {
	h := lessonHandler(t)
	c := h.catalogue
	h.catalogue.teach(lessonOf(t, h, alice, listOfTool("t", "Region", ""), noon.Add(2)))
	c.changed(alice, noon.Add(3))
	if got := said(c.find(alice, "t", noon.Add(4))); got != "stale" {
		t.Fatal(got)
	}
	l := lessonOf(t, h, alice, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, noon.Add(1)) // it waited for room in the queue
	l.event = true
	c.teach(l)
	if got := said(c.find(alice, "t", noon.Add(4))); got != "stale" {
		t.Errorf("after the older notification: %s", got)
	}
}
