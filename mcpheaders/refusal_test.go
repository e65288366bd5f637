package mcpheaders

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/jsonrpc"
)

// TestEchoIsShort shows that nothing a client sends makes a refusal long, or
// puts a raw byte of it into a log.
func TestEchoIsShort(t *testing.T) {
	long := strings.Repeat("x", 1000)
	odd := "\u202e\x01\xff<script>\"\n" + long
	policy := &Policy{Revisions: allRevisions(), RawNames: true}
	for _, sent := range []string{long, odd} {
		heads := []*Refusal{
			policy.Head("POST", http.Header{"Origin": {sent}}),
			policy.Head(sent, nil),
			policy.Head("POST", http.Header{"Content-Type": {sent}}),
		}
		for i, refusal := range heads {
			checkText(t, i+1, refusal)
		}
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":` + quoteJSON(strings.ToValidUTF8(sent, "?")) + `,"_meta":{"` + metaVersionName + `":"2026-07-28"}}}`
		for _, test := range []struct {
			row             int
			header, trailer http.Header
		}{
			{11, http.Header{"Connection": {"Mcp-Param-" + sent}}, nil},
			{11, nil, http.Header{"Mcp-Param-" + sent: nil}},
			{12, http.Header{"Mcp-Param-" + sent: {"a", "b"}}, nil},
			{13, http.Header{"Mcp-Param-" + sent: {"\xff"}}, nil},
			{14, http.Header{versionHeader: {long}}, nil},
			{19, http.Header{versionHeader: {"2026-07-28"}, methodHeader: {long}}, nil},
			{20, http.Header{versionHeader: {"2026-07-28"}, methodHeader: {"tools/call"}}, nil},
			{20, http.Header{versionHeader: {"2026-07-28"}, methodHeader: {"tools/call"}, nameHeader: {long[1:]}}, nil},
			{20, http.Header{versionHeader: {"2026-07-28"}, methodHeader: {"tools/call"}, nameHeader: {"=?base64?!" + long + "?="}}, nil},
		} {
			var msg jsonrpc.Message
			err := msg.Parse([]byte(body))
			_, refusal := policy.Message(&msg, err, test.header, test.trailer, nil)
			checkText(t, test.row, refusal)
		}
	}
}

func checkText(t *testing.T, row int, refusal *Refusal) {
	t.Helper()
	switch {
	case refusal == nil:
		t.Errorf("row %d: not refused", row)
	case refusal.Row != row:
		t.Errorf("row %d: refused by row %d: %s", row, refusal.Row, refusal.Text)
	case len(refusal.Text) > 512:
		t.Errorf("row %d: a text of %d bytes", row, len(refusal.Text))
	case !isPlain(refusal.Text) || strings.Contains(refusal.Text, strings.Repeat("x", echoLimit+1)):
		t.Errorf("row %d: %s", row, refusal.Text)
	}
}

// TestEcho pins the exact limit.
func TestEcho(t *testing.T) {
	for _, test := range []struct{ sent, want string }{
		{"", `""`},
		{"a\"é\x00", `"a\"\u00e9\x00"`},
		{strings.Repeat("x", 64), `"` + strings.Repeat("x", 64) + `"`},
		{strings.Repeat("x", 65), `"` + strings.Repeat("x", 64) + `"`},
	} {
		if got := echo(test.sent); got != test.want {
			t.Errorf("%q is quoted as %s, want %s", test.sent, got, test.want)
		}
	}
}

// TestTexts pins the texts that depend on more than the reason.
func TestTexts(t *testing.T) {
	const meta = `"_meta":{"` + metaVersionName + `":"2026-07-28"}`
	call := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + meta + `}}`
	}
	modern := func(method string, name ...string) http.Header {
		return http.Header{versionHeader: {"2026-07-28"}, methodHeader: {method}, nameHeader: name}
	}
	fits, long := strings.Repeat("x", 64), strings.Repeat("x", 65)
	for _, test := range []struct {
		body   string
		header http.Header
		text   string
	}{
		{call("tools/call", `"name":"echo",`), modern("tools/call"), "Mcp-Name is missing; send Mcp-Name: echo"},
		{call("tools/call", `"name":"é",`), modern("tools/call"), "Mcp-Name is missing; send Mcp-Name: =?base64?w6k=?="},
		{call("tools/call", `"name":"`+fits+`",`), modern("tools/call"), "Mcp-Name is missing; send Mcp-Name: " + fits},
		{call("resources/read", `"uri":"`+long+`",`), modern("resources/read"), "Mcp-Name is missing; send params.uri in it"},
		{call("prompts/get", ``), modern("prompts/get"), "Mcp-Name is missing; send params.name in it"},
		{call("prompts/get", `"name":42,`), modern("prompts/get"), "Mcp-Name is missing; send params.name in it"},
		{call("tasks/get", `"taskId":"a",`), modern("tasks/get", "=?base64?Yg==?="), `Mcp-Name says "b" and params.taskId does not; send the body's value in it`},
		{call("tools/call", `"name":"a","NAME":"b",`), modern("tools/call", "a"), "params has a member that is name in another case, or continued after a NUL character; parsers disagree on which one counts"},
		{call("tools/call", `"name":"a","ARGUMENTS":{},`), modern("tools/call", "a"), "params has a member that is arguments in another case, or continued after a NUL character; parsers disagree on which one counts"},
		{call("tools/list", `"_Meta":{},`), modern("tools/list"), "params has a member that is _meta in another case, or continued after a NUL character; parsers disagree on which one counts"},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"IO.modelcontextprotocol/protocolVersion":""}}}`, modern("m"), "params has a member that is " + metaVersionName + " in another case, or continued after a NUL character; parsers disagree on which one counts"},
	} {
		var msg jsonrpc.Message
		err := msg.Parse([]byte(test.body))
		_, refusal := (&Policy{Revisions: allRevisions()}).Message(&msg, err, test.header, nil, nil)
		if refusal == nil || refusal.Text != test.text {
			t.Errorf("%s:\n got %+v\nwant %s", test.body, refusal, test.text)
		}
	}
	if text := BodyTooLarge(4194304).Text; !strings.Contains(text, "4194304 bytes") {
		t.Errorf("the limit is not in %q", text)
	}
}

// TestProblems shows that each problem of the body has a row, and a text that
// says what it is.
func TestProblems(t *testing.T) {
	texts := map[string]jsonrpc.Problem{}
	for problem := jsonrpc.NotJSON; problem.String() != ""; problem++ {
		_, refusal := (&Policy{}).Message(&jsonrpc.Message{}, &jsonrpc.Error{Problem: problem}, nil, nil, nil)
		if refusal.Reason != problem.String() {
			t.Errorf("%s is refused with %s", problem, refusal.Reason)
		}
		if other, found := texts[refusal.Text]; found {
			t.Errorf("%s and %s are both refused with: %s", other, problem, refusal.Text)
		}
		texts[refusal.Text] = problem
	}
}
