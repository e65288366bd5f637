package jsonrpc

import (
	"strings"
	"testing"
)

func TestMayCall(t *testing.T) {
	const (
		calls = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{}}}`
		other = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"name":"x"}}}`
		lists = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	)
	for _, tt := range []struct {
		name, body string
		want       bool
	}{
		{"a call", calls, true},
		{"a call of another tool", other, false},
		{"no call", strings.Replace(calls, "tools/call", "prompts/get", 1), false},
		{"a notification", strings.Replace(calls, `"id":1,`, "", 1), true},
		{"escaped", `{"m\u0065thod":"tools\/call","params":{"name":"\u0078"}}`, true},

		{"the first of two names", `{"method":"tools/call","params":{"name":"x","name":"a"}}`, true},
		{"the last of two names", `{"method":"tools/call","params":{"name":"a","name":"x"}}`, true},
		{"the first of two params", `{"method":"tools/call","params":{"name":"x"},"params":{"name":"a"}}`, true},
		{"the last of two params", `{"method":"tools/call","params":{"name":"a"},"params":{"name":"x"}}`, true},
		{"the first of two methods", `{"method":"tools/call","method":"ping","params":{"name":"x"}}`, true},
		{"the last of two methods", `{"method":"ping","method":"tools/call","params":{"name":"x"}}`, true},
		{"in another case", `{"Method":"Tools/Call","PARAMS":{"Name":"x"}}`, true},
		{"continued after a NUL", `{"method\u0000":"tools/call\u0000","params\u0000":{"name\u00001":"x"}}`, true},
		{"in a batch", `[` + lists + `,` + calls + `]`, true},
		{"in a batch of others", `[` + lists + `,` + other + `]`, false},
		{"in a batch in a batch", `[[` + calls + `]]`, true},
		{"the second text", lists + calls, true},
		{"before what is no JSON", calls + `]`, true},
		{"before what is missing", calls[:strings.Index(calls, `"arguments"`)], true},
		{"after what is no JSON", `{"a":x}` + calls, false},
		{"with a byte order mark", "\xef\xbb\xbf" + calls, true},
		{"beside invalid UTF-8", strings.Replace(calls, `"id":1`, "\"id\":\"\xff\"", 1), true},
		{"beside deep nesting", strings.Replace(calls, `{}`, strings.Repeat("[", 1000)+strings.Repeat("]", 1000), 1), true},

		{"a name that is no string", `{"method":"tools/call","params":{"name":["x"]}}`, false},
		{"a method that is no string", `{"method":["tools/call"],"params":{"name":"x"}}`, false},
		{"params that are no object", `{"method":"tools/call","params":[{"name":"x"}]}`, false},
		{"no params", `{"method":"tools/call"}`, false},
		{"a string", `"x"`, false},
		{"nothing", ``, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := MayCall([]byte(tt.body), hidden); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// Whatever Parse reads of a body that it refuses is found, too.
func FuzzMayCall(f *testing.F) {
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
	f.Add(`[{"method":"tools/call","params":{"name":"a","Name":"x"}}]{`)
	f.Add(`{"method":"tools/call","method":1,"params":{"name":"xy","name":"a"}}]`)
	f.Fuzz(func(t *testing.T, body string) {
		var m Message
		_ = m.Parse([]byte(body))
		name, named := m.Params.Name.Text()
		if m.Method == "tools/call" && named && hidden(name) && !MayCall([]byte(body), hidden) {
			t.Errorf("%q calls %q", body, name)
		}
	})
}
