package mcpheaders

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/caddymcp/gateway/jsonrpc"
)

// callOf is a modern call and the headers that it needs without parameters.
func callOf(tb rapid.TB, arguments string) (*jsonrpc.Message, http.Header) {
	tb.Helper()
	msg := new(jsonrpc.Message)
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool","arguments":` + arguments + `,"_meta":{"` + metaVersionName + `":"2026-07-28"}}}`
	if err := msg.Parse([]byte(body)); err != nil {
		tb.Fatalf("%s: %v", body, err)
	}
	return msg, http.Header{versionHeader: {"2026-07-28"}, methodHeader: {"tools/call"}, nameHeader: {"tool"}}
}

func mustRead(tb rapid.TB, schema string) *Bindings {
	tb.Helper()
	bindings, err := ReadBindings([]byte(schema))
	if err != nil {
		tb.Fatalf("%s: %v", schema, err)
	}
	return bindings
}

// TestParamBounds pins what is still read.
func TestParamBounds(t *testing.T) {
	many := http.Header{}
	for i := range maxParams {
		many["Mcp-Param-X"+strconv.Itoa(i)] = []string{"x"}
	}
	long := http.Header{"Mcp-Param-X": {strings.Repeat("x", maxParamBytes-len("Mcp-Param-X"))}}
	for _, header := range []http.Header{many, long} {
		msg, sent := callOf(t, "{}")
		maps.Copy(sent, header)
		admission, refusal := (&Policy{Revisions: allRevisions()}).Message(msg, nil, sent, nil, nil)
		if refusal != nil || admission.UnverifiedParams != len(header) || len(admission.Forward) != 3+len(header) {
			t.Errorf("%d headers: %+v, refusal %+v", len(header), admission, refusal)
		}
	}

	// Past the bounds no parameter is read, and where nothing is judged there
	// are none.
	many["Mcp-Param-X"] = long["Mcp-Param-X"]
	msg, sent := callOf(t, "{}")
	maps.Copy(sent, many)
	admission, refusal := (&Policy{Revisions: allRevisions()}).Message(msg, nil, sent, nil, nil)
	if refusal == nil || refusal.Reason != "params_too_many" || len(admission.Forward) != 3 || admission.UnverifiedParams != len(many) {
		t.Errorf("too many: %+v, refusal %+v", admission, refusal)
	}
	admission, refusal = (&Policy{Revisions: allRevisions(), Params: Off}).Message(msg, nil, sent, nil, nil)
	if refusal != nil || admission.UnverifiedParams != len(many) {
		t.Errorf("off: %+v, refusal %+v", admission, refusal)
	}
}

// TestHeaderWithoutLines shows that a name without a line is no header.
func TestHeaderWithoutLines(t *testing.T) {
	bindings := mustRead(t, `{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}`)
	msg, header := callOf(t, `{}`)
	header["Mcp-Param-A"] = nil
	admission, refusal := (&Policy{Revisions: allRevisions(), Params: Require}).Message(msg, nil, header, nil, bindings)
	if refusal != nil || admission.UnverifiedParams != 0 || len(admission.Forward) != 3 {
		t.Errorf("%+v, refusal %+v", admission, refusal)
	}
}

// TestRefusedVerifiesNothing shows that a refused message has no verified
// parameter, even one that agrees: it says nothing of who sent it.
func TestRefusedVerifiesNothing(t *testing.T) {
	bindings := mustRead(t, `{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"B"}}}`)
	msg, header := callOf(t, `{"a":"1","b":"2"}`)
	header["Mcp-Param-A"], header["Mcp-Param-B"] = []string{"1"}, []string{"3"}
	admission, refusal := (&Policy{Revisions: allRevisions()}).Message(msg, nil, header, nil, bindings)
	if refusal == nil || refusal.Reason != "param_mismatch" {
		t.Fatalf("refusal %+v", refusal)
	}
	if len(admission.Params) != 0 || admission.UnverifiedParams != 2 {
		t.Errorf("verified %v, %d unverified", admission.Params, admission.UnverifiedParams)
	}
}

// TestParamTexts pins what the client of each refusal is told.
func TestParamTexts(t *testing.T) {
	const schema = `{"properties":{"region":{"type":"string","x-mcp-header":"Region"},"a":{"properties":{"b":{"type":"integer","x-mcp-header":"tenant_id"}}}}}`
	long := strings.Repeat("x", 100)
	for _, test := range []struct {
		arguments, header, value string
		text                     string
	}{
		{`{"region":"eu"}`, "", "", `the call of "tool": "region" has a value and no "Mcp-Param-Region"; send "eu"`},
		{`{"region":"é"}`, "", "", `the call of "tool": "region" has a value and no "Mcp-Param-Region"; send "=?base64?w6k=?="`},
		{`{"region":"` + long + `"}`, "", "", `the call of "tool": "region" has a value and no "Mcp-Param-Region"; send the body's value in it`},
		{`{"region":"eu"}`, "Mcp-Param-Region", "us", `the call of "tool": "region" is not what "Mcp-Param-Region" says, which is "us"; send "eu"`},
		{`{"region":"eu"}`, "Mcp-Param-Region", long, `the call of "tool": "region" is not what "Mcp-Param-Region" says, which is "` + long[:64] + `"; send "eu"`},
		{`{"region":"eu"}`, "Mcp-Param-Region", "=?base64?!?=", `the call of "tool": "region" is mirrored by "Mcp-Param-Region", which is not base64 of UTF-8 in its one canonical spelling; send "eu"`},
		{`{}`, "Mcp-Param-Region", "us", `the call of "tool": "region" has no value for "Mcp-Param-Region" to mirror; leave the header out`},
		{`{"region":0.5}`, "Mcp-Param-Region", "0.5", `the call of "tool": "region" has a value that "Mcp-Param-Region" cannot mirror; send a string, a boolean, or an integer of at most 2^53-1 in plain digits`},
		{`{"region":[1]}`, "Mcp-Param-Region", "=?base64?!?=", `the call of "tool": "region" is mirrored by "Mcp-Param-Region", which is not base64 of UTF-8 in its one canonical spelling; send the body's value in it`},
		{`{"a":{"b":5}}`, "", "", `the call of "tool": "a.b" has a value and no "Mcp-Param-Tenant_id", a header that Caddy removes unless its server lists it in expected_underscore_headers; send it, and tell the operator`},
		{`{"A":{"b":5}}`, "", "", `the arguments have a member that is "a" in another case, or continued after a NUL character; parsers disagree on which one counts`},
	} {
		msg, header := callOf(t, test.arguments)
		if test.header != "" {
			header[test.header] = []string{test.value}
		}
		_, refusal := (&Policy{Revisions: allRevisions()}).Message(msg, nil, header, nil, mustRead(t, schema))
		if refusal == nil || refusal.Text != test.text {
			t.Errorf("%s, %s: %s:\n got %+v\nwant %s", test.arguments, test.header, test.value, refusal, test.text)
		}
	}
}

// TestParamTextsAreShort shows that nothing that a client or a server chooses
// makes a refusal long, or puts a raw byte into a log.
func TestParamTextsAreShort(t *testing.T) {
	odd := strings.Repeat("\u202e<\"", 200)
	schema := `{"properties":{` + quoteJSON(odd) + `:{"type":"string","x-mcp-header":"` + strings.Repeat("n", 128) + `"}}}`
	header := headerOf(strings.Repeat("n", 128))
	for _, arguments := range []string{`{}`, `{` + quoteJSON(odd) + `:` + quoteJSON(odd) + `}`, `{` + quoteJSON(odd) + `:{}}`} {
		for _, value := range [][]string{nil, {strings.Repeat("x", 1000)}, {"=?base64?" + strings.Repeat("x", 1001) + "?="}} {
			msg, sent := callOf(t, arguments)
			sent[header] = value
			_, refusal := (&Policy{Revisions: allRevisions()}).Message(msg, nil, sent, nil, mustRead(t, schema))
			if refusal != nil && (len(refusal.Text) > 1024 || !isPlain(refusal.Text)) {
				t.Errorf("%d bytes: %s", len(refusal.Text), refusal.Text)
			}
		}
	}
}

// TestBindingsOfAnotherMethod shows that bindings are for calls of tools alone.
func TestBindingsOfAnotherMethod(t *testing.T) {
	bindings := mustRead(t, `{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)
	var msg jsonrpc.Message
	err := msg.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"tool","arguments":{"region":"eu","Region":"us"}}}`))
	header := http.Header{versionHeader: {"2025-11-25"}, "Mcp-Param-Region": {"x"}}
	admission, refusal := (&Policy{Revisions: allRevisions()}).Message(&msg, err, header, nil, bindings)
	if refusal != nil || len(admission.Params) != 0 || admission.UnverifiedParams != 1 {
		t.Errorf("%+v, refusal %+v", admission, refusal)
	}
}

// definition is a random tool and a call of it, written down beside what was
// drawn so that nothing is read back with the code that is tested.
type definition struct {
	schema, arguments string
	params            []drawnParam
}

type drawnParam struct {
	name     string
	text     string // of the one rendering
	sent     bool   // has a value that is mirrored
	required bool
}

// drawDefinition draws a tool with nested, annotated and other properties, and
// arguments of which some are absent or null.
func drawDefinition(t *rapid.T) *definition {
	d := new(definition)
	d.schema, d.arguments = d.drawObject(t, 0)
	return d
}

// drawObject draws the schema of an object, and a value of it.
func (d *definition) drawObject(t *rapid.T, depth int) (schema, value string) {
	special := []string{"properties", "$ref", "items", "type", "x-mcp-header", "__proto__", "constructor", "a.b", "", "é", "~", `q"`}
	name := rapid.OneOf(rapid.SampledFrom(special), rapid.StringMatching(`[a-z]{1,3}[0-9]`))
	names := rapid.SliceOfNDistinct(name, 0, 5, func(s string) string { return s }).Draw(t, "properties")
	var properties, members []string
	for _, name := range names {
		propertySchema, propertyValue, absent := d.drawProperty(t, depth)
		properties = append(properties, quoteJSON(name)+":"+propertySchema)
		if !absent {
			members = append(members, quoteJSON(name)+":"+propertyValue)
		}
	}
	return `{"type":"object","properties":{` + strings.Join(properties, ",") + `}}`, "{" + strings.Join(members, " , ") + "}"
}

// drawNested draws a property that is an object, or has no members to read.
func (d *definition) drawNested(t *rapid.T, depth int) (schema, value string, absent bool) {
	before := len(d.params)
	schema, value = d.drawObject(t, depth+1)
	instead := rapid.SampledFrom([]string{"", "", "absent", "null", `"{}"`, "[" + value + "]"}).Draw(t, "instead")
	if instead == "" {
		return schema, value, false
	}
	for i := range d.params[before:] {
		d.params[before+i].sent = false
	}
	return schema, instead, instead == "absent"
}

func (d *definition) drawProperty(t *rapid.T, depth int) (schema, value string, absent bool) {
	kinds := []string{"string", "integer", "boolean", "number", "union", "plain"}
	if depth < 3 {
		kinds = append(kinds, "object")
	}
	kind := rapid.SampledFrom(kinds).Draw(t, "kind")
	if kind == "object" {
		return d.drawNested(t, depth)
	}
	if kind == "plain" {
		return `{"type":"array"}`, rapid.SampledFrom([]string{`[]`, `[{"x":"}"}]`, `0.5`, `"text \" ]"`, `{"region":"x"}`}).Draw(t, "value"), rapid.Bool().Draw(t, "absent")
	}
	param := drawnParam{name: fmt.Sprintf("%s-%d", rapid.SampledFrom([]string{"Region", "tenantId", "X"}).Draw(t, "name"), len(d.params)), required: true}
	kindJSON := quoteJSON(kind)
	switch kind {
	case "union":
		kindJSON, param.required = `["string","null"]`, false
	case "number":
		param.required = false
	}
	schema = `{"x-mcp-header":` + quoteJSON(param.name) + `,"type":` + kindJSON + `}`
	switch kind {
	case "integer", "number":
		param.text = strconv.FormatInt(rapid.Int64Range(-1<<53+1, 1<<53-1).Draw(t, "integer"), 10)
		value = param.text
	case "boolean":
		param.text = strconv.FormatBool(rapid.Bool().Draw(t, "boolean"))
		value = param.text
	default:
		param.text = rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{0,6}`), rapid.Just("")).Draw(t, "string")
		value = quoteJSON(param.text)
	}
	switch rapid.SampledFrom([]string{"value", "value", "value", "null", "absent"}).Draw(t, "presence") {
	case "value":
		param.sent = true
	case "null":
		value = "null"
	case "absent":
		absent = true
	}
	d.params = append(d.params, param)
	return schema, value, absent
}

// TestEveryTamperingIsCaught shows for random tools and calls that the headers
// a conforming client sends pass, and that no change of one of them does:
// altered, added, dropped, doubled or encoded again.
func TestEveryTamperingIsCaught(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDefinition(t)
		bindings := mustRead(t, d.schema)
		policy := &Policy{Revisions: allRevisions(), Params: rapid.SampledFrom([]ParamMode{Learn, Require}).Draw(t, "mode")}
		judge := func(change func(http.Header)) (Admission, *Refusal) {
			msg, header := callOf(t, d.arguments)
			for _, param := range d.params {
				if param.sent {
					header.Set("Mcp-Param-"+param.name, encode(param.text))
				}
			}
			change(header)
			return policy.Message(msg, nil, header, nil, bindings)
		}

		admission, refusal := judge(func(http.Header) {})
		if refusal != nil {
			t.Fatalf("%s, %s: refused: %s", d.schema, d.arguments, refusal.Text)
		}
		var want []Param
		for _, param := range d.params {
			if param.sent {
				want = append(want, Param{param.name, param.text})
			}
		}
		slices.SortFunc(want, func(a, b Param) int { return strings.Compare(headerOf(a.Name), headerOf(b.Name)) })
		if !slices.Equal(admission.Params, want) || admission.UnverifiedParams != 0 {
			t.Fatalf("%s: verified %q, want %q", d.arguments, admission.Params, want)
		}
		if len(d.params) == 0 {
			return
		}

		param := rapid.SampledFrom(d.params).Draw(t, "param")
		for how, change := range tamperings(t, param) {
			if admission, refusal := judge(change); refusal == nil {
				t.Fatalf("%s, %s: %s of %s passes: %+v", d.schema, d.arguments, how, param.name, admission)
			}
		}
	})
}

// tamperings are what a hop in between may do to the header of param that
// changes what it says, or that it is there.
func tamperings(t *rapid.T, param drawnParam) map[string]func(http.Header) {
	header := headerOf(param.name)
	set := func(values ...string) func(http.Header) {
		return func(h http.Header) { h[header] = values }
	}
	other := rapid.OneOf(rapid.String(), rapid.StringMatching(`-?[0-9]{1,4}`)).Draw(t, "other")
	if !param.sent {
		return map[string]func(http.Header){"an addition": set(encode(other)), "an empty addition": set(""), "a null": set("null")}
	}
	changes := map[string]func(http.Header){
		"another copy":      func(h http.Header) { h.Add(header, encode(param.text+"x")) },
		"a joined copy":     set(encode(param.text) + ", " + encode(param.text)),
		"double encoding":   set(wrap(wrap(param.text))),
		"a longer text":     set(encode(param.text + "0")),
		"a space, encoded":  set(encode(param.text + " ")),
		"a newline encoded": set(encode(param.text + "\n")),
		"a broken sentinel": set(sentinelPrefix + "=" + sentinelSuffix),
		"JSON":              set(encode(quoteJSON(param.text))),
	}
	if other != param.text {
		changes["another value"] = set(encode(other))
	}
	if param.required {
		changes["dropping"] = func(h http.Header) { h.Del(header) }
	}
	if upper := strings.ToUpper(param.text); upper != param.text {
		changes["upper case"] = set(encode(upper))
	}
	return changes
}

// wrap encodes text, whether it needs that or not.
func wrap(text string) string {
	return sentinelPrefix + base64.StdEncoding.EncodeToString([]byte(text)) + sentinelSuffix
}

// TestSameValueInAnotherEncoding shows that what is not tampering passes: the
// same text, encoded though it need not be, in equal copies, amid white space.
func TestSameValueInAnotherEncoding(t *testing.T) {
	bindings := mustRead(t, `{"properties":{"v":{"type":"string","x-mcp-header":"V"}}}`)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`([!-~]([ -~]{0,6}[!-~])?)?`).Draw(t, "text")
		msg, header := callOf(t, `{"v":`+quoteJSON(text)+`}`)
		for _, lines := range [][]string{{encode(text)}, {wrap(text)}, {encode(text), encode(text)}, {"\t" + encode(text) + " "}} {
			header["Mcp-Param-V"] = lines
			if _, refusal := (&Policy{Revisions: allRevisions()}).Message(msg, nil, header, nil, bindings); refusal != nil {
				t.Fatalf("%q as %q: %s", text, lines, refusal.Text)
			}
		}
	})
}

// With lenient numbers what is verified, and what is advised, is the integer that
// the body says, however the body spells it.
func TestLenientSpellings(t *testing.T) {
	bindings := mustRead(t, `{"properties":{"n":{"type":"integer","x-mcp-header":"N"}}}`)
	policy := &Policy{Revisions: allRevisions(), Numeric: Lenient}
	for _, tt := range []struct{ body, want string }{
		{"42", "42"}, {"42.0", "42"}, {"4.2e1", "42"}, {"4.2E1", "42"}, {"4.2e+1", "42"}, {"4.2E+1", "42"}, {"420e-001", "42"}, {"0.042e+003", "42"}, {"42e-0", "42"},
		{"-4.2e+1", "-42"}, {"0", "0"}, {"-0", "0"}, {"-0.0", "0"}, {"0e5", "0"},
	} {
		msg, header := callOf(t, `{"n":`+tt.body+`}`)
		_, refusal := policy.Message(msg, nil, header, nil, bindings)
		if advice := "send " + strconv.Quote(tt.want); refusal == nil || !strings.HasSuffix(refusal.Text, advice) {
			t.Errorf("body %s, no header: %+v, want the advice %s", tt.body, refusal, advice)
		}
		header["Mcp-Param-N"] = []string{tt.want}
		admission, refusal := policy.Message(msg, nil, header, nil, bindings)
		if refusal != nil || len(admission.Params) != 1 || admission.Params[0].Value != tt.want {
			t.Errorf("body %s, header %s: verified %q, %+v", tt.body, tt.want, admission.Params, refusal)
		}
	}
}
