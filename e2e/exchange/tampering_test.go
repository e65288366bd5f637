package exchange

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// TestEveryTamperingIsCaught puts a proxy that tampers with one Mcp-Param
// header between a conforming client and the gateway, for random tools and
// calls. What it does to the header's meaning is refused, and the server never
// sees the call; what it does to the spelling alone passes.
func TestEveryTamperingIsCaught(t *testing.T) {
	for _, mode := range []string{"learn", "require"} {
		t.Run(mode, func(t *testing.T) {
			up := newLister(t)
			s := incaddy.Run(t, site("param_headers "+mode, proxy(up.addr)))
			hop := newTamperer(t, s)
			rapid.Check(t, func(rt *rapid.T) {
				d := drawTool(rt)
				up.list("[" + d.definition() + "]")
				hop.post(t, message{method: "tools/list"}, nil)

				judge := func(how string, change func(http.Header), passes bool) {
					a := hop.post(t, d.call(), change)
					arrived := up.took(a.uri)
					switch {
					case passes && (a.status != http.StatusOK || !arrived):
						rt.Fatalf("%s: %s, called with %s: answered %d %s", how, d.definition(), d.arguments, a.status, a.body)
					case !passes && (a.status != http.StatusBadRequest || !strings.Contains(a.body, `"code":-32020`) || arrived):
						rt.Fatalf("%s: %s, called with %s: answered %d %s; it arrived: %t", how, d.definition(), d.arguments, a.status, a.body, arrived)
					}
				}
				judge("nothing", nil, true)
				judge("a header that nothing explains", func(h http.Header) { h.Set("Mcp-Param-Another", "x") }, mode == "learn")
				if len(d.params) == 0 {
					return
				}
				param := rapid.SampledFrom(d.params).Draw(rt, "param")
				for _, tt := range param.tamperings(rt) {
					judge(tt.how+" of "+param.header, func(h http.Header) {
						h.Del(param.header)
						for _, line := range tt.lines {
							h.Add(param.header, line)
						}
					}, tt.harmless)
				}
			})
		})
	}
}

// tamperer is a proxy before a gateway.
type tamperer struct {
	url    string
	client *http.Client
	change func(http.Header)
}

func newTamperer(t *testing.T, s *incaddy.Site) *tamperer {
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	hop := &tamperer{client: incaddy.Client(t, true)}
	server := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		if hop.change != nil {
			hop.change(r.Out.Header)
		}
	}})
	t.Cleanup(server.Close)
	hop.url = server.URL
	return hop
}

// post sends a message through the proxy, which changes its header.
func (hop *tamperer) post(t *testing.T, m message, change func(http.Header)) answer {
	hop.change = change
	m.plain = true // what is learned belongs to a whole URI
	r := m.request(t.Context(), hop.url)
	return send(hop.client, r, m.uri)
}

// lister is a server that lists what the test sets, and takes every call.
type lister struct {
	addr string

	mu    sync.Mutex
	tools string
	taken map[string]bool
}

func newLister(t *testing.T) *lister {
	up := &lister{taken: make(map[string]bool)}
	server := httptest.NewServer(up)
	t.Cleanup(server.Close)
	up.addr = server.Listener.Addr().String()
	return up
}

func (up *lister) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	up.mu.Lock()
	defer up.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Header.Get("Mcp-Method") == "tools/list" {
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":`+up.tools+`}}`)
		return
	}
	up.taken[r.Header.Get(incaddy.CallHeader)] = true
	_, _ = io.WriteString(w, strings.ReplaceAll(complete, "$id", "1"))
}

func (up *lister) list(tools string) {
	up.mu.Lock()
	defer up.mu.Unlock()
	up.tools = tools
}

// took reports whether the call under this URI arrived.
func (up *lister) took(uri string) bool {
	up.mu.Lock()
	defer up.mu.Unlock()
	return up.taken[uri]
}

// drawnTool is a random tool and a call of it.
type drawnTool struct {
	schema, arguments string
	params            []*drawnParam
}

// drawnParam is a mirrored parameter of the tool.
type drawnParam struct {
	header   string
	text     string // of its value
	sent     bool   // it has a value
	required bool   // of its header, if it has one
}

func drawTool(t *rapid.T) *drawnTool {
	d := new(drawnTool)
	d.schema, d.arguments = d.drawObject(t, 0)
	return d
}

func (d *drawnTool) definition() string {
	return `{"name":"create_refund","inputSchema":` + d.schema + `}`
}

// call is what a conforming client sends.
func (d *drawnTool) call() message {
	m := message{args: d.arguments}
	for _, param := range d.params {
		if param.sent {
			m.header = append(m.header, param.header+": "+rendered(param.text))
		}
	}
	return m
}

// drawObject draws the schema of an object and a value of it.
func (d *drawnTool) drawObject(t *rapid.T, depth int) (schema, value string) {
	name := rapid.OneOf(
		rapid.SampledFrom([]string{"properties", "$ref", "items", "type", "x-mcp-header", "__proto__", "constructor", "a.b", "", "é", "~", `q"`}),
		rapid.StringMatching(`[a-z]{1,3}[0-9]`),
	)
	names := rapid.SliceOfNDistinct(name, 0, 4, func(s string) string { return s }).Draw(t, "properties")
	var properties, members []string
	for _, name := range names {
		schema, value := d.drawProperty(t, depth)
		properties = append(properties, inJSON(name)+":"+schema)
		if value != "" {
			members = append(members, inJSON(name)+":"+value)
		}
	}
	return `{"type":"object","properties":{` + strings.Join(properties, ",") + `}}`, "{" + strings.Join(members, ",") + "}"
}

// drawProperty draws the schema of a property and a value of it, none if it is
// absent.
func (d *drawnTool) drawProperty(t *rapid.T, depth int) (schema, value string) {
	kinds := []string{`"string"`, `"integer"`, `"boolean"`, `"number"`, `["string","null"]`, `"array"`, `"object"`}
	if depth == 2 {
		kinds = kinds[:len(kinds)-1]
	}
	kind := rapid.SampledFrom(kinds).Draw(t, "kind")
	switch kind {
	case `"object"`:
		return d.drawNested(t, depth)
	case `"array"`:
		return `{"type":"array"}`, `[{"region":"x"}]`
	}
	param := &drawnParam{
		header:   fmt.Sprintf("Mcp-Param-%s-%d", rapid.SampledFrom([]string{"Region", "tenantId", "X"}).Draw(t, "name"), len(d.params)),
		required: kind != `"number"` && kind != `["string","null"]`,
	}
	d.params = append(d.params, param)
	schema = `{"type":` + kind + `,"x-mcp-header":` + inJSON(strings.TrimPrefix(param.header, "Mcp-Param-")) + `}`
	switch rapid.IntRange(0, 4).Draw(t, "presence") {
	case 0:
		return schema, ""
	case 1:
		return schema, "null"
	}
	param.sent = true
	switch kind {
	case `"integer"`, `"number"`:
		param.text = strconv.FormatInt(rapid.Int64Range(-1<<53+1, 1<<53-1).Draw(t, "integer"), 10)
		return schema, param.text
	case `"boolean"`:
		param.text = strconv.FormatBool(rapid.Bool().Draw(t, "boolean"))
		return schema, param.text
	default:
		param.text = rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{0,6}`), rapid.Just("")).Draw(t, "string")
		return schema, inJSON(param.text)
	}
}

// drawNested draws a property that is an object, or has no members to read.
func (d *drawnTool) drawNested(t *rapid.T, depth int) (schema, value string) {
	before := len(d.params)
	schema, value = d.drawObject(t, depth+1)
	instead := rapid.SampledFrom([]string{value, value, "", "null", `"{}"`, "[" + value + "]"}).Draw(t, "instead")
	if instead != value {
		for _, param := range d.params[before:] {
			param.sent = false
		}
	}
	return schema, instead
}

// tampering is what becomes of a header's lines.
type tampering struct {
	how      string
	lines    []string
	harmless bool
}

func (p *drawnParam) tamperings(t *rapid.T) []tampering {
	other := rapid.OneOf(rapid.String(), rapid.StringMatching(`-?[0-9]{1,4}`)).Draw(t, "other")
	if !p.sent {
		return []tampering{
			{how: "addition", lines: []string{rendered(other)}},
			{how: "empty addition", lines: []string{""}},
			{how: "addition of null", lines: []string{"null"}},
		}
	}
	line := rendered(p.text)
	all := []tampering{
		{how: "dropping", harmless: !p.required},
		{how: "an equal copy", lines: []string{line, line}, harmless: true},
		{how: "another copy, behind", lines: []string{line, rendered(p.text + "x")}},
		{how: "another copy, before", lines: []string{rendered(p.text + "x"), line}},
		{how: "an empty copy", lines: []string{line, ""}, harmless: line == ""},
	}
	for how, altered := range map[string]string{
		"joining with a copy":         line + ", " + line,
		"another value":               rendered(other),
		"appending":                   rendered(p.text + "0"),
		"padding":                     rendered(p.text + " "),
		"breaking the line":           rendered(p.text + "\n"),
		"folding":                     rendered(strings.ToUpper(p.text)),
		"flipping a bit":              rendered(flip(t, p.text)),
		"emptying":                    "",
		"encoding":                    encoded(p.text),
		"encoding twice":              encoded(encoded(p.text)),
		"writing as JSON":             rendered(inJSON(p.text)),
		"percent encoding":            url.QueryEscape(p.text),
		"encoding without padding":    strings.ReplaceAll(encoded(p.text), "=?=", "?="),
		"encoding for URLs":           strings.NewReplacer("+", "-", "/", "_").Replace(encoded(p.text)),
		"encoding with stray bits":    strayBits(p.text),
		"breaking the sentinel":       "=?base64?=?=",
		"encoding under another name": strings.Replace(encoded(p.text), "base64", "BASE64", 1),
		"writing as MIME does":        "=?utf-8?B?" + base64.StdEncoding.EncodeToString([]byte(p.text)) + "?=",
		"writing a plus":              "+" + p.text,
		"writing a zero":              "0" + p.text,
		"writing a fraction":          p.text + ".0",
	} {
		if strings.ContainsFunc(altered, func(r rune) bool { return r < ' ' || r > '~' }) {
			continue // nothing that a hop could send
		}
		text, ok := says(altered)
		all = append(all, tampering{how: how, lines: []string{altered}, harmless: ok && text == p.text})
	}
	return all
}

// flip changes one byte of ASCII text, or the end of another.
func flip(t *rapid.T, text string) string {
	i := rapid.IntRange(0, len(text)).Draw(t, "at")
	if i == len(text) || text[i] >= 0x80 {
		return text + "\x01"
	}
	return text[:i] + string(text[i]^1) + text[i+1:]
}

// strayBits encodes text so that lax decoders read the same, where its length
// leaves room for that.
func strayBits(text string) string {
	b := base64.StdEncoding.EncodeToString([]byte(text))
	end := strings.TrimRight(b, "=")
	if end == b {
		return encoded(text)
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	last := alphabet[strings.IndexByte(alphabet, end[len(end)-1])+1]
	return "=?base64?" + end[:len(end)-1] + string(last) + b[len(end):] + "?="
}

// rendered is the header value that a conforming client sends for text.
func rendered(text string) string {
	plain := !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) && strings.Trim(text, " ") == text
	if _, isEncoded := inner(text); plain && !isEncoded {
		return text
	}
	return encoded(text)
}

func encoded(text string) string {
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}

// says is the text that a header value stands for, by the specification.
func says(line string) (text string, ok bool) {
	line = strings.Trim(line, " ")
	b, isEncoded := inner(line)
	if !isEncoded {
		return line, true
	}
	decoded, err := base64.StdEncoding.DecodeString(b)
	return string(decoded), err == nil && encoded(string(decoded)) == line
}

// inner is what stands between the marks of an encoded value.
func inner(line string) (string, bool) {
	rest, prefixed := strings.CutPrefix(line, "=?base64?")
	rest, suffixed := strings.CutSuffix(rest, "?=")
	return rest, prefixed && suffixed
}

func inJSON(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}
