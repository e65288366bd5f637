package jsonrpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestReadToolsPage(t *testing.T) {
	tool := func(name, schema string) ToolDefinition { return ToolDefinition{name, []byte(schema)} }
	for _, tt := range []struct {
		name, text string
		want       ToolsPage
		err        error
	}{
		{"a page", `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}},{"description":"","inputSchema": {} ,"name":"b"}],"ttlMs":300000,"cacheScope":"public","nextCursor":"x"}}`,
			ToolsPage{[]ToolDefinition{tool("a", `{"type":"object"}`), tool("b", `{}`)}, 300000, true}, nil},
		{"a legacy page", `{"result":{"tools":[{"name":"a"}]},"id":1}`, ToolsPage{[]ToolDefinition{{Name: "a"}}, 0, false}, nil},
		{"a byte order mark", "\xEF\xBB\xBF" + `{"result":{"tools":[{"name":"a"}]}}`, ToolsPage{Tools: []ToolDefinition{{Name: "a"}}}, nil},
		{"no tools", `{"result":{"tools":[]}}`, ToolsPage{}, nil},
		{"a private page", `{"result":{"tools":[],"cacheScope":"private","ttlMs":1}}`, ToolsPage{TTL: 1}, nil},
		{"escaped names", `{"r\u0065sult":{"tools":[{"n\u0061me":"\u0061","inputSchema":[1]}]}}`, ToolsPage{Tools: []ToolDefinition{tool("a", "[1]")}}, nil},
		{"oddities elsewhere", `{"x":1,"x":2,"result":{"tools":[{"name":"a","d":1,"d":"` + "\xff" + `\ud800"}]}}`, ToolsPage{Tools: []ToolDefinition{{Name: "a"}}}, nil},
		{"the names elsewhere", `{"tools":[],"name":"x","result":{"name":"y","inputSchema":1,"tools":[{"name":"a","result":{"tools":[]},"ttlMs":5}]}}`, ToolsPage{Tools: []ToolDefinition{{Name: "a"}}}, nil},
		{"tools without a name", `{"result":{"tools":[{},{"name":""},{"name":1},"x",null,{"name":"a"}]}}`, ToolsPage{Tools: []ToolDefinition{{Name: "a"}}}, nil},
		{"a ttl of 0", `{"result":{"tools":[],"ttlMs":0}}`, ToolsPage{}, nil},
		{"a negative ttl", `{"result":{"tools":[],"ttlMs":-5}}`, ToolsPage{}, nil},
		{"a fraction of a ttl", `{"result":{"tools":[],"ttlMs":1.5}}`, ToolsPage{}, nil},
		{"a ttl that is text", `{"result":{"tools":[],"ttlMs":"5"}}`, ToolsPage{}, nil},
		{"an endless ttl", `{"result":{"tools":[],"ttlMs":99999999999999999999}}`, ToolsPage{TTL: 1 << 53}, nil},

		{"an error", `{"error":{"code":1,"message":""}}`, ToolsPage{}, ErrNoTools},
		{"another result", `{"result":{}}`, ToolsPage{}, ErrNoTools},
		{"tools that are no array", `{"result":{"tools":{}}}`, ToolsPage{}, ErrNoTools},
		{"a result that is no object", `{"result":[]}`, ToolsPage{}, ErrNoTools},
		{"a batch", `[{"result":{"tools":[]}}]`, ToolsPage{}, ErrNoTools},
		{"two results", `{"result":{"tools":[]},"result":{"tools":[]}}`, ToolsPage{}, errTwoReaders},
		{"two lists", `{"result":{"tools":[],"tools":[]}}`, ToolsPage{}, errTwoReaders},
		{"two scopes", `{"result":{"tools":[],"cacheScope":"public","cacheScope":"private"}}`, ToolsPage{}, errTwoReaders},
		{"two names", `{"result":{"tools":[{"name":"a","nam\u0065":"b"}]}}`, ToolsPage{}, errTwoReaders},
		{"two schemas", `{"result":{"tools":[{"name":"a","inputSchema":{},"inputSchema":{}}]}}`, ToolsPage{}, errTwoReaders},
		{"as many tools as there may be", `{"result":{"tools":[` + strings.Repeat(`{"name":""},`, 9999) + `{}]}}`, ToolsPage{}, nil},
		{"more tools than there may be", `{"result":{"tools":[` + strings.Repeat(`{"name":"a"},`, 10_000) + `{"name":"a"}]}}`, ToolsPage{}, errTooManyTools},
		{"cut", `{"result":{"tools":[{"name":"a"`, ToolsPage{}, ErrNoJSON},
		{"more behind", `{"result":{"tools":[]}}{}`, ToolsPage{}, ErrNoJSON},
		{"nothing", ``, ToolsPage{}, ErrNoJSON},
		{"HTML", `<html>`, ToolsPage{}, ErrNoJSON},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadToolsPage([]byte(tt.text))
			if !errors.Is(err, tt.err) || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, %v\nwant %+v, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

// What encoding/json reads of a page without duplicates is what is learned.
func FuzzReadToolsPage(f *testing.F) {
	f.Add(`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","inputSchema":{"type":"object"}}],"ttlMs":3,"cacheScope":"public"}}`)
	f.Add(`{"result":{"tools":[{},{"name":1},[]]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ReadToolsPage([]byte(text))
		if err != nil {
			if len(got.Tools) > 0 {
				t.Error("tools beside an error")
			}
			return
		}
		if !json.Valid([]byte(text)) {
			t.Fatalf("%q is no JSON text and was read", text)
		}
		for _, tool := range got.Tools {
			if tool.Name == "" {
				t.Error("a tool without a name")
			}
			if tool.InputSchema != nil && !json.Valid(tool.InputSchema) {
				t.Errorf("the schema %q is no JSON text", tool.InputSchema)
			}
		}
	})
}

func BenchmarkReadToolsPage500(b *testing.B) {
	var tools []string
	for i := range 500 {
		tools = append(tools, fmt.Sprintf(`{"name":"tool_%d","description":%q,"inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region","description":"where"},"amount":{"type":"integer"}}}}`, i, strings.Repeat("what it does ", 40)))
	}
	text := []byte(`{"jsonrpc":"2.0","id":1,"result":{"tools":[` + strings.Join(tools, ",") + `]}}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadToolsPage(text); err != nil {
			b.Fatal(err)
		}
	}
}
