package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

const (
	boundTool = `{"name":"create_refund","inputSchema":{"type":"object","properties":{"payment_id":{"type":"string","x-mcp-header":"Payment-Id"},` +
		`"amount":{"type":"integer","x-mcp-header":"Amount"},"currency":{"type":"string","x-mcp-header":"Currency"},` +
		`"dry_run":{"type":"boolean","x-mcp-header":"Dry-Run"},` +
		`"scope":{"type":"object","properties":{"tenant":{"type":"string","x-mcp-header":"TenantId"}}}}}}`

	boundCall = `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"create_refund","arguments":{"payment_id":"pay_8f3a1c",` +
		`"amount":2000,"currency":"EUR","dry_run":false,"scope":{"tenant":"acme"},"reason":"the customer returned the goods"},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`

	listRequest = `{"jsonrpc":"2.0","id":17,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
)

// BenchmarkAdmissionBound is the admission of a call with five mirrored
// parameters: without them, what verifying them adds for a tool that is known
// to one that is not, and what all of it adds, the search for the tool
// included. The three take turns; the figures are medians.
func BenchmarkAdmissionBound(b *testing.B) {
	header := benchHeader("tools/call")
	header["Mcp-Name"] = []string{"create_refund"}
	for name, value := range map[string]string{"Payment-Id": "pay_8f3a1c", "Amount": "2000", "Currency": "EUR", "Dry-Run": "false", "Tenantid": "acme"} {
		header["Mcp-Param-"+name] = []string{value}
	}
	r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
	r.Header = header
	body := strings.NewReader("")
	r.Body = io.NopCloser(body)

	const batch = 100
	admit := func(h *Handler, verified int) float64 {
		start := time.Now()
		for range batch {
			body.Reset(boundCall)
			c := &call{h: h, request: r}
			if refusal := c.admit(); refusal != nil || len(c.admission.Params) != verified || c.admission.UnverifiedParams != 5-verified {
				b.Fatal(refusal, c.admission)
			}
			c.release()
		}
		return float64(time.Since(start).Nanoseconds()) / batch
	}
	plain, unknown, listed := benchHandler(b, "off", off), benchHandler(b, "unknown", learn), benchHandler(b, "learned", learn)
	serveList(b, listed, httptest.NewRecorder(), []byte(`{"jsonrpc":"2.0","id":17,"result":{"tools":[`+boundTool+`]}}`))
	var base, verifying, all []float64
	for b.Loop() {
		p, u, l := admit(plain, 0), admit(unknown, 0), admit(listed, 5)
		base, verifying, all = append(base, p), append(verifying, l-u), append(all, l-p)
	}
	b.ReportMetric(0, "ns/op") // it is of three batches
	b.ReportMetric(median(base), "off-ns")
	b.ReportMetric(median(verifying), "verifying-ns")
	b.ReportMetric(median(all), "all-ns")
}

// BenchmarkListInProcess is a tools/list of 500 tools, written in pieces as
// reverse_proxy does, and the learning of it: not learned, learned once and seen
// again, and another one each time.
func BenchmarkListInProcess(b *testing.B) {
	list := newBenchLists()
	again := func() []byte { return list.again }
	for _, bench := range []struct {
		name, mode string
		next       func() []byte
	}{{"off", off, again}, {"again", learn, again}, {"first", learn, list.another}} {
		b.Run(bench.name, func(b *testing.B) {
			h := benchHandler(b, bench.name, bench.mode)
			w := &discard{make(http.Header)}
			b.ReportAllocs()
			for b.Loop() {
				serveList(b, h, w, bench.next())
				h.catalogue.readLessons()
			}
		})
	}
}

// BenchmarkListThroughCaddy is the same through a whole Caddy, between a client
// and a server that speak HTTP on this machine. One iteration is a list
// that is learned between two that are not, so that whatever else the machine
// does strikes all of them alike; the figures are medians. It is the client's time
// that is measured: a list that is new is read when it has passed.
func BenchmarkListThroughCaddy(b *testing.B) {
	list, renew, events := newBenchLists(), false, false
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		text := list.again
		if renew {
			text = list.another()
		}
		if events {
			w.Header()["Content-Type"] = []string{"text/event-stream"}
			_, _ = fmt.Fprintf(w, "event: message\ndata: %s\n\n", text)
			return
		}
		w.Header()["Content-Type"] = []string{"application/json"}
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(text))}
		_, _ = w.Write(text)
	}))
	defer upstream.Close()
	site := incaddy.Run(b, incaddy.Config{
		Site: "mcp_gateway /off {\nparam_headers off\n}\nmcp_gateway /again\nmcp_gateway /first\n" +
			"reverse_proxy " + upstream.Listener.Addr().String(),
		NoAccessLog: true,
	})
	defer site.Stop(b)
	client := incaddy.Client(b, true)
	header := benchHeader("tools/list")
	catalogue, err := useCatalogue(defaultMaxLearned)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = releaseCatalogue(defaultMaxLearned) }()
	ask := func(path string) float64 {
		start := time.Now()
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, site.URL+path, strings.NewReader(listRequest))
		if err != nil {
			b.Fatal(err)
		}
		r.Header = header
		res, err := client.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, res.Body)
		if err != nil || res.StatusCode != http.StatusOK || n < 500_000 {
			b.Fatal(res.Status, n, err)
		}
		_ = res.Body.Close()
		return float64(time.Since(start).Microseconds())
	}
	for _, name := range []string{"again", "first", "again-events", "first-events"} {
		b.Run(name, func(b *testing.B) {
			var kind string
			kind, events = strings.CutSuffix(name, "-events")
			renew = kind == "first"
			var off, learned, ratio, noise []float64
			for b.Loop() {
				// What was read since leaves the processor's caches cold, which is
				// as bad for the one as for the other only after the first.
				ask("/off")
				before, t, after := ask("/off"), ask("/"+kind), ask("/off")
				catalogue.readLessons()
				off, learned = append(off, before), append(learned, t)
				ratio, noise = append(ratio, 2*t/(before+after)), append(noise, after/before)
			}
			b.ReportMetric(0, "ns/op") // it is of all three
			b.ReportMetric(median(off), "off-µs")
			b.ReportMetric(median(learned), kind+"-µs")
			b.ReportMetric(median(ratio), kind+"/off")
			b.ReportMetric(median(noise), "off/off")
		})
	}
}

func median(figures []float64) float64 {
	slices.Sort(figures)
	return figures[len(figures)/2]
}

// benchLists are lists of 500 tools.
type benchLists struct {
	again   []byte
	changed []byte
	at      int
	serial  int
}

func newBenchLists() *benchLists {
	list := benchList()
	return &benchLists{again: list, changed: bytes.Clone(list), at: bytes.Index(list, []byte("0000000000"))}
}

// another is a list of its own, until the next one: it differs in the digits that
// stand in the first description.
func (l *benchLists) another() []byte {
	l.serial++
	copy(l.changed[l.at:], fmt.Sprintf("%010d", l.serial))
	return l.changed
}

// benchList is a list of 500 tools of 1 KB, of which every tenth mirrors five
// parameters.
func benchList() []byte {
	var tools []string
	for i := range 500 {
		properties := `"note":{"type":"string"}`
		if i%10 == 0 {
			properties = boundTool[strings.Index(boundTool, `"payment_id"`) : len(boundTool)-len("}}}")]
		}
		tool := fmt.Sprintf(`{"name":"tool_%d","description":"0000000000 ~","inputSchema":{"type":"object","properties":{%s}}}`, i, properties)
		tools = append(tools, strings.Replace(tool, "~", strings.Repeat("what it does ", 100)[:1024-len(tool)], 1))
	}
	return []byte(`{"jsonrpc":"2.0","id":17,"result":{"resultType":"complete","tools":[` + strings.Join(tools, ",") + `]}}`)
}

func benchHeader(method string) http.Header {
	return http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "User-Agent": {"bench"},
		"Authorization":        {"Bearer eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJiZW5jaCJ9.c2lnbmF0dXJl"},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method},
	}
}

func benchHandler(b *testing.B, namespace, mode string) *Handler {
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	b.Cleanup(cancel)
	h := &Handler{ParamHeaders: mode, Namespace: namespace}
	if err := h.Provision(ctx); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.Cleanup() })
	return h
}

// serveList lets a client ask for a list.
func serveList(b *testing.B, h *Handler, w http.ResponseWriter, list []byte) {
	r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(listRequest))
	r.Header = benchHeader("tools/list")
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server))
	err := h.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
		w.Header()["Content-Type"] = []string{"application/json"}
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(list))}
		w.WriteHeader(http.StatusOK)
		const piece = 32 << 10 // of reverse_proxy
		for rest := list; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
			if _, err := w.Write(rest[:min(piece, len(rest))]); err != nil {
				return err
			}
		}
		return nil
	}))
	if err != nil {
		b.Fatal(err)
	}
}
