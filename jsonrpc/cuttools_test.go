package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// hidden are the tools that the tests hide.
func hidden(name string) bool { return strings.HasPrefix(name, "x") }

// cut returns text without the cuts.
func cut(text string, cuts [][2]int64) string {
	var b strings.Builder
	at := int64(0)
	for _, c := range cuts {
		b.WriteString(text[at:c[0]])
		at = c[1]
	}
	b.WriteString(text[at:])
	return b.String()
}

func TestCutTools(t *testing.T) {
	list := func(tools string) string { return `{"jsonrpc":"2.0","id":1,"result":{"tools":` + tools + `}}` }
	for _, tt := range []struct {
		name, text, want string
		err              error
	}{
		{"none hidden", list(`[{"name":"a"} , {"name":"b"}]`), list(`[{"name":"a"} , {"name":"b"}]`), nil},
		{"the only one", list(`[ {"name":"x"} ]`), list(`[  ]`), nil},
		{"the first", list(`[{"name":"x"},{"name":"a"}]`), list(`[{"name":"a"}]`), nil},
		{"the last", list(`[{"name":"a"},{"name":"x"}]`), list(`[{"name":"a"}]`), nil},
		{"in the middle", list(`[{"name":"a"},{"name":"x"},{"name":"b"}]`), list(`[{"name":"a"},{"name":"b"}]`), nil},
		{"the first two", list(`[{"name":"x"},{"name":"x2"},{"name":"a"}]`), list(`[{"name":"a"}]`), nil},
		{"the last two", list(`[{"name":"a"},{"name":"x"},{"name":"x2"}]`), list(`[{"name":"a"}]`), nil},
		{"all", list(`[{"name":"x"},{"name":"x2"}]`), list(`[]`), nil},
		{"every other one", list(`[{"name":"x"},{"name":"a"},{"name":"x"},{"name":"b"},{"name":"x"}]`), list(`[{"name":"a"},{"name":"b"}]`), nil},
		{"among white space", list("[\n  {\"name\":\"x\"} ,\n  {\"name\":\"a\"} ,\n  {\"name\":\"x\"}\n]"), list("[\n  {\"name\":\"a\"}\n]"), nil},
		{"an escaped name", list(`[{"n\u0061me":"\u0078"},{"name":"a"}]`), list(`[{"name":"a"}]`), nil},
		{"commas and brackets in what goes", list(`[{"name":"x","description":"],[\",","inputSchema":{"enum":[[1,2],{}]}},{"name":"a"}]`), list(`[{"name":"a"}]`), nil},
		{"all else stays", `{"result":{"ttlMs":5, "tools":[{"name":"x"}], "nextCursor":"n","d":1,"d":2},"id":1 } `, `{"result":{"ttlMs":5, "tools":[], "nextCursor":"n","d":1,"d":2},"id":1 } `, nil},
		{"the names elsewhere", `{"tools":[{"name":"x"}],"result":{"result":{"tools":[{"name":"x"}]},"tools":[{"name":"a","tools":[{"name":"x"}]}]}}`, `{"tools":[{"name":"x"}],"result":{"result":{"tools":[{"name":"x"}]},"tools":[{"name":"a","tools":[{"name":"x"}]}]}}`, nil},

		{"without a name", list(`[{"title":"a"},{"name":"a"}]`), list(`[{"name":"a"}]`), nil},
		{"with two names", list(`[{"name":"a","name":"a"},{"name":"b"}]`), list(`[{"name":"b"}]`), nil},
		{"with a name in another case", list(`[{"Name":"a"},{"name":"b"}]`), list(`[{"name":"b"}]`), nil},
		{"with a name in another case before it", list(`[{"NAME":"x","name":"a"},{"name":"b"}]`), list(`[{"name":"b"}]`), nil},
		{"with a name in another case behind it", list(`[{"name":"a","name\u0000":"x"},{"name":"b"}]`), list(`[{"name":"b"}]`), nil},
		{"with a name that is no string", list(`[{"name":1},{"name":null},{"name":["a"]},{"name":"b"}]`), list(`[{"name":"b"}]`), nil},
		{"with a name that is no text", list(`[{"name":"a\ud800"},{"name":"a` + "\xff" + `"},{"name":"b"}]`), list(`[{"name":"b"}]`), nil},
		{"no tools at all", list(`["a",null,1,[{"name":"a"}],{"name":"b"}]`), list(`[{"name":"b"}]`), nil},
		{"an empty name", list(`[{"name":""}]`), list(`[{"name":""}]`), nil},

		{"an empty list", list(`[ ]`), list(`[ ]`), nil},
		{"null for a list", list(`null`), list(`null`), nil},
		{"an error", `{"error":{"code":1,"message":"","data":{"tools":[{"name":"x"}]}}}`, `{"error":{"code":1,"message":"","data":{"tools":[{"name":"x"}]}}}`, nil},
		{"another result", `{"result":{"content":[]}}`, `{"result":{"content":[]}}`, nil},
		{"a result that is no object", `{"result":[{"tools":[{"name":"x"}]}]}`, `{"result":[{"tools":[{"name":"x"}]}]}`, nil},
		{"as many tools as there may be", list(`[` + strings.Repeat(`{},`, 9999) + `{"name":"a"}]`), list(`[{"name":"a"}]`), nil},

		{"more tools than there may be", list(`[` + strings.Repeat(`{},`, 10_000) + `{}]`), "", errTooManyTools},
		{"two results", `{"result":{"tools":[]},"result":{"tools":[{"name":"x"}]}}`, "", errTwoReaders},
		{"a result in another case", `{"Result":{"tools":[{"name":"x"}]}}`, "", errTwoReaders},
		{"two lists", `{"result":{"tools":[],"t\u006fols":[{"name":"x"}]}}`, "", errTwoReaders},
		{"a list in another case", `{"result":{"tools":[],"TOOLS":[{"name":"x"}]}}`, "", errTwoReaders},
		{"tools that are no array", list(`{"x":{}}`), "", errNoArray},
		{"a batch", `[` + list(`[]`) + `]`, "", errNoObject},
		{"a string", `"x"`, "", errNoObject},
		{"nothing", ``, "", errNoObject},
		{"HTML", `<html>`, "", errNoObject},
		{"with a byte order mark", "\xef\xbb\xbf" + list(`[]`), "", errNoObject},
		{"cut", list(`[{"name":"a"}]`)[:50], "", ErrNoJSON},
		{"cut in a name", `{"result":{"tools":[{"name":"a`, "", ErrNoJSON},
		{"more behind", list(`[]`) + `{}`, "", ErrNoJSON},
		{"a comma too many", list(`[{"name":"a"},]`), "", ErrNoJSON},
		{"a number that is none", `{"result":{"tools":[{"name":"x","default":NaN}]}}`, "", ErrNoJSON},
		{"too deep", list(`[` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001) + `]`), "", ErrNoJSON},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cuts, err := CutTools([]byte(tt.text), hidden)
			if !errors.Is(err, tt.err) {
				t.Fatalf("got %v, want %v", err, tt.err)
			}
			if err != nil {
				if cuts != nil {
					t.Errorf("cuts beside an error: %v", cuts)
				}
				return
			}
			for i := 1; i < len(cuts); i++ {
				if cuts[i][0] <= cuts[i-1][1] {
					t.Errorf("nothing is between the cuts %v", cuts)
				}
			}
			if got := cut(tt.text, cuts); got != tt.want {
				t.Errorf("got  %.300s\nwant %.300s", got, tt.want)
			}
		})
	}
}

// What encoding/json reads of a list that was cut is what it reads of the whole, but for the tools
// that go.
func FuzzCutTools(f *testing.F) {
	f.Add(`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"x"}, {"name":"a"},{"name":"x2"} ,1]}}`)
	f.Add("{\"result\":{\"tools\":[\n{\"name\":\"x\"}\n,{\"name\":\"\\u0078\"},{\"name\":\"b\",\"Name\":\"x\"}\n]}}")
	f.Add(`{"result":{"tools":[{"name":"a"},{"name":"x"},{"name":"b"}],"tools2":[{"name":"x"}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		cuts, err := CutTools([]byte(text), hidden)
		if err != nil {
			return
		}
		if !json.Valid([]byte(text)) {
			t.Fatalf("%q is no JSON text and was read", text)
		}
		got := cut(text, cuts)
		var before, after map[string]any
		if err := json.Unmarshal([]byte(got), &after); err != nil {
			t.Fatalf("%q became %q: %v", text, got, err)
		}
		again, err := CutTools([]byte(got), hidden)
		if err != nil || len(again) > 0 {
			t.Errorf("of %q is left %q, with %v to cut, %v", text, got, again, err)
		}
		if !utf8.ValidString(text) || strings.ContainsRune(text, utf8.RuneError) || strings.Contains(strings.ToLower(text), `\ufffd`) {
			return // encoding/json has that for what is no text, too
		}
		_ = json.Unmarshal([]byte(text), &before)
		removeHidden(t, before, text)
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%q became %q", text, got)
		}
	})
}

// removeHidden is CutTools over what encoding/json makes of a text.
func removeHidden(t *testing.T, message map[string]any, text string) {
	result, _ := message["result"].(map[string]any)
	tools, ok := result["tools"].([]any)
	if !ok {
		return
	}
	var raw struct {
		Result struct{ Tools []json.RawMessage }
	}
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		t.Skip(err) // its other members in another case
	}
	left := []any{}
	for i, tool := range raw.Result.Tools {
		names := membersNamed(tool)
		if len(names) == 1 && !hidden(names[0]) && !strings.ContainsRune(names[0], utf8.RuneError) {
			left = append(left, tools[i])
		}
	}
	result["tools"] = left
}

// membersNamed returns the values of the members name of a tool, and one that is hidden for each
// that is no string or is spelled in another case.
func membersNamed(tool json.RawMessage) (names []string) {
	d := json.NewDecoder(bytes.NewReader(tool))
	if first, _ := d.Token(); first != json.Delim('{') {
		return nil
	}
	for d.More() {
		member, _ := d.Token()
		var value any
		_ = d.Decode(&value)
		if !alike([]byte(member.(string)), []byte("name")) {
			continue
		}
		name, ok := value.(string)
		if !ok || member != "name" {
			name = "x"
		}
		names = append(names, name)
	}
	return names
}

func BenchmarkCutTools500(b *testing.B) {
	var tools []string
	for i := range 500 {
		tools = append(tools, fmt.Sprintf(`{"name":"%stool_%d","description":%q,"inputSchema":{"type":"object"}}`, []string{"", "x"}[i%2], i, strings.Repeat("what it does ", 40)))
	}
	text := []byte(`{"jsonrpc":"2.0","id":1,"result":{"tools":[` + strings.Join(tools, ",") + `]}}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if cuts, err := CutTools(text, hidden); err != nil || len(cuts) != 250 {
			b.Fatal(len(cuts), err)
		}
	}
}
