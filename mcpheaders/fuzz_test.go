package mcpheaders

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/jsonrpc"
)

// FuzzAgree holds the comparison against the one rendering, written another
// way: what agrees canonically is what the body's token says itself.
func FuzzAgree(f *testing.F) {
	for _, test := range agreementCases(f).Agreement {
		f.Add(test.Value, test.Text)
	}
	f.Fuzz(func(t *testing.T, value, text string) {
		var msg jsonrpc.Message
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"v":` + value + `}}}`
		if msg.Parse([]byte(body)) != nil {
			return
		}
		member := msg.Argument("v")
		canonical, lenient := agree(member, text, Canonical), agree(member, text, Lenient)
		if canonical && !lenient {
			t.Errorf("%s agrees with %q, but not leniently", value, text)
		}
		want := false
		switch raw := string(member.Raw); member.Type {
		case jsonrpc.String:
			characters, _ := member.Text()
			want = characters == text
		case jsonrpc.Bool:
			want = raw == text
		case jsonrpc.Number:
			want = raw == text && jsonrpc.CanonicalInteger([]byte(text))
			if lenient && (strings.ContainsAny(text, "+_xX \t\n") || !jsonrpc.EqualNumbers(member.Raw, []byte(text))) {
				t.Errorf("%s agrees leniently with %q", value, text)
			}
		}
		if canonical != want {
			t.Errorf("%s agrees with %q: %t, want %t", value, text, canonical, want)
		}
	})
}

// FuzzLadder shows that nothing makes the ladder panic, that a refusal is
// complete, and that a modern request is only admitted if every mirrored header
// says what the body says.
func FuzzLadder(f *testing.F) {
	for _, c := range headerCases(f) {
		header := c.header(f)
		f.Add(c.body(f), strings.Join(header.Values(versionHeader), "\n"), strings.Join(header.Values(methodHeader), "\n"),
			strings.Join(header.Values(nameHeader), "\n"), header.Get("Connection"), c.Policy.RawNames)
	}
	reasons := Reasons()
	f.Fuzz(func(t *testing.T, body []byte, version, method, name, connection string, rawNames bool) {
		if len(body) > 1<<16 {
			return
		}
		header := http.Header{}
		for field, lines := range map[string]string{versionHeader: version, methodHeader: method, nameHeader: name, "Connection": connection} {
			if lines != "" {
				header[field] = strings.Split(lines, "\n")
			}
		}
		policy := &Policy{Revisions: allRevisions(), RawNames: rawNames, Tools: NewToolNames([]string{"echo"})}
		policy.Head("POST", header)
		var msg jsonrpc.Message
		admission, refusal := policy.Message(&msg, msg.Parse(body), header, nil, nil)
		if refusal != nil {
			if !slices.Contains(reasons, refusal.Reason) || refusal.Row == 0 || refusal.Status == 0 || refusal.Code == 0 || refusal.Text == "" {
				t.Errorf("an incomplete refusal: %+v", refusal)
			}
			return
		}
		checkAgreement(t, &msg, admission)
	})
}

// checkAgreement reads what is forwarded as an upstream would.
func checkAgreement(t *testing.T, msg *jsonrpc.Message, admission Admission) {
	forwarded := http.Header{}
	for _, header := range admission.Forward {
		if len(forwarded[header.Name]) > 0 {
			t.Errorf("%s is forwarded twice", header.Name)
		}
		forwarded.Add(header.Name, header.Value)
	}
	if sent := forwarded[methodHeader]; len(sent) > 0 && sent[0] != msg.Method {
		t.Errorf("Mcp-Method %q, method %q", sent[0], msg.Method)
	}
	source := sourceOf(msg.Method)
	if sent := forwarded[nameHeader]; len(sent) > 0 && source != nil {
		carried, ok := decode(sent[0])
		if mirrored, isString := source.value(&msg.Params).Text(); !ok || !isString || carried != mirrored {
			t.Errorf("Mcp-Name %q carries %q, %t; the body says %q, %t", sent[0], carried, ok, mirrored, isString)
		}
	}
	meta, hasMeta := msg.Params.ProtocolVersion.Text()
	if sent := forwarded.Get(versionHeader); sent != "" && hasMeta && sent != meta {
		t.Errorf("version %q, _meta %q", sent, meta)
	}
	if !admission.Revision.Modern || msg.Kind != jsonrpc.Request {
		return
	}
	if forwarded.Get(versionHeader) != admission.Revision.Name || !hasMeta || meta != admission.Revision.Name {
		t.Errorf("version %q, _meta %q, revision %q", forwarded.Get(versionHeader), meta, admission.Revision.Name)
	}
	if len(forwarded[methodHeader]) == 0 || len(forwarded[nameHeader]) == 0 && source != nil && source.required {
		t.Errorf("%s: a required header is absent: %q", msg.Method, forwarded)
	}
}

// FuzzParams shows that an admitted call has the header of each bound value and
// no other, as a reader of another make sees them: encoding/json.
func FuzzParams(f *testing.F) {
	bindings, err := ReadBindings([]byte(`{"properties":{"r":{"type":"string","x-mcp-header":"R"},"a":{"properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}`))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"r":"eu","a":{"n":5}}`), "eu", "5", true, true)
	f.Add([]byte(`{"r":"\u00e9","a":null}`), "=?base64?w6k=?=", "", true, false)
	f.Add([]byte(`{"r":"","a":{"n":-9007199254740991}}`), "=?base64??=", "-9007199254740991", true, true)
	f.Fuzz(func(t *testing.T, arguments []byte, r, n string, sendsR, sendsN bool) {
		body := slices.Concat([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":`), arguments, []byte(`,"_meta":{"`+metaVersionName+`":"2026-07-28"}}}`))
		header := http.Header{versionHeader: {"2026-07-28"}, methodHeader: {"tools/call"}, nameHeader: {"t"}}
		if sendsR {
			header["Mcp-Param-R"] = []string{r}
		}
		if sendsN {
			header["Mcp-Param-N"] = []string{n}
		}
		var msg jsonrpc.Message
		admission, refusal := (&Policy{Revisions: allRevisions(), Params: Require}).Message(&msg, msg.Parse(body), header, nil, bindings)
		if refusal != nil {
			return
		}
		var read struct {
			Params struct{ Arguments map[string]any }
		}
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		if err := decoder.Decode(&read); err != nil {
			return // arguments of another type bind nothing
		}
		inner, _ := read.Params.Arguments["a"].(map[string]any)
		var want []Param
		if number := inner["n"]; number != nil {
			want = append(want, Param{"N", fmt.Sprint(number)})
		}
		if text := read.Params.Arguments["r"]; text != nil {
			want = append(want, Param{"R", fmt.Sprint(text)})
		}
		if !slices.Equal(admission.Params, want) || admission.UnverifiedParams != 0 {
			t.Errorf("%s with R %q %t, N %q %t: verified %q, want %q", arguments, r, sendsR, n, sendsN, admission.Params, want)
		}
	})
}

// FuzzParseOrigin shows that a serialized origin is its own serialized form,
// and contains nothing that could end it elsewhere.
func FuzzParseOrigin(f *testing.F) {
	for _, origin := range []string{"https://app.example:443", "http://[::1]:80", "null", "HTTP://A.b", "http://[::ffff:1.2.3.4]"} {
		f.Add(origin)
	}
	f.Fuzz(func(t *testing.T, origin string) {
		got, err := ParseOrigin(origin)
		if err != nil {
			return
		}
		if again, err := ParseOrigin(got); err != nil || again != got {
			t.Errorf("%q becomes %q becomes %q, error %v", origin, got, again, err)
		}
		if strings.ContainsAny(got, " ,/?#@\\*") && strings.Count(got, "/") != 2 || got != lower(got) {
			t.Errorf("%q becomes %q", origin, got)
		}
	})
}
