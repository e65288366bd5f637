package jsonrpc

import (
	"strings"
	"testing"
)

func withArguments(t *testing.T, arguments string) *Message {
	t.Helper()
	m := new(Message)
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":` + arguments + `}}`
	if err := m.Parse([]byte(body)); err != nil {
		t.Fatalf("%s: %v", arguments, err)
	}
	return m
}

func TestArgument(t *testing.T) {
	for _, row := range []struct {
		name, arguments, path string
		want                  string // empty if absent
	}{
		{"member", `{"id":"x"}`, "id", `"x"`},
		{"last of several", `{"a":{"id":1},"b":[{"id":2}],"id":3}`, "id", `3`},
		{"escaped name", `{"i\u0064":4}`, "id", `4`},
		{"null", `{"id":null}`, "id", `null`},
		{"container", `{"id": {"a" : 1} }`, "id", `{"a" : 1}`},
		{"absent", `{"a":1}`, "id", ``},
		{"dotted path", `{"order":{"id":7}}`, "order.id", `7`},
		{"three levels", `{"a":{"b":{"c":8}}}`, "a.b.c", `8`},
		{"member with a dot", `{"order.id":9}`, "order.id", `9`},
		{"member with a dot, further down", `{"a":{"b.c":1}}`, "a.b.c", `1`},
		{"member with a dot, further up", `{"a.b":{"c":1}}`, "a.b.c", `1`},
		{"member with a dot and nested", `{"order.id":9,"order":{"id":7}}`, "order.id", ``},
		{"nested and member with a dot", `{"order":{"id":7},"order.id":9}`, "order.id", ``},
		{"equal values on both paths", `{"order":{"id":7},"order.id":7}`, "order.id", ``},
		{"two ways down", `{"a.b":{"c":1},"a":{"b.c":1}}`, "a.b.c", ``},
		{"a dead end beside the way", `{"a.b":{"x":1},"a":{"b":{"c":2}}}`, "a.b.c", `2`},
		{"through an array", `{"a":[{"id":1}]}`, "a.id", ``},
		{"through an index", `{"a":[1]}`, "a.0", ``},
		{"through a string", `{"a":"id"}`, "a.id", ``},
		{"through a string, with the rest of the path beside it", `{"a":"x","id":1}`, "a.id", ``},
		{"through null", `{"a":null}`, "a.id", ``},
		{"case variant beside it", `{"id":1,"ID":2}`, "id", ``},
		{"case variant before it", `{"Id":2,"id":1}`, "id", ``},
		{"case variant alone", `{"ID":2}`, "id", ``},
		{"a NUL behind it", `{"id":1,"id\u0000":2}`, "id", ``},
		{"case variant with a NUL behind it", `{"id":1,"ID\u0000x":2}`, "id", ``},
		{"long s", `{"status":1,"ſtatus":2}`, "status", ``},
		{"case variant on the way", `{"order":{"id":7},"Order":{}}`, "order.id", ``},
		{"case variant further down", `{"order":{"id":7,"Id":8}}`, "order.id", ``},
		{"case variant of the member with a dot", `{"order":{"id":7},"Order.Id":8}`, "order.id", ``},
		{"case variant off the path", `{"order":{"id":7,"x":1,"X":2},"y":1,"Y":2}`, "order.id", `7`},
		{"case variant elsewhere", `{"id":1,"a":{"ID":2}}`, "id", `1`},
		{"longer name", `{"id":1,"ids":2,"i":3}`, "id", `1`},
		{"name that ends with a dot", `{"a.":1}`, "a.", `1`},
		{"empty path", `{"":1,"a":2}`, "", `1`},
		{"empty member further down", `{"a":{"":1}}`, "a.", `1`},
		{"arguments null", `null`, "id", ``},
		{"arguments array", `[{"id":1}]`, "id", ``},
		{"arguments string", `"id"`, "id", ``},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := withArguments(t, row.arguments).Argument(row.path)
			if string(got.Raw) != row.want || (got.Type == Absent) != (row.want == "") {
				t.Errorf("%s at %q: type %d %s, want %s", row.arguments, row.path, got.Type, got.Raw, row.want)
			}
		})
	}
}

func TestArgumentType(t *testing.T) {
	m := withArguments(t, `{"n":null,"b":true,"i":-1,"s":"x","o":{},"a":[]}`)
	for path, want := range map[string]Type{"n": Null, "b": Bool, "i": Number, "s": String, "o": Object, "a": Array, "x": Absent} {
		if got := m.Argument(path); got.Type != want {
			t.Errorf("%s: type %d, want %d", path, got.Type, want)
		}
	}
}

func TestNoArguments(t *testing.T) {
	var m Message
	if err := m.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"id":1.5}}`)); err != nil {
		t.Fatal(err)
	}
	if got := m.Argument("id"); got.Type != Absent {
		t.Errorf("argument %s", got.Raw)
	}
	if token, pointer, found := m.NonInteger(); found || token != nil || pointer != "" {
		t.Errorf("%s at %q", token, pointer)
	}
}

func TestNonInteger(t *testing.T) {
	for _, row := range []struct{ arguments, token, pointer string }{
		{`{}`, "", ""},
		{`null`, "", ""},
		{`{"a":1,"b":[-2,{"c":9007199254740991}],"d":"0.1","e":true}`, "", ""},
		{`{"a":0.1}`, "0.1", "/a"},
		{`{"items":[{},{},{},{"price":0.10}]}`, "0.10", "/items/3/price"},
		{`{"a":1,"b":2.0,"c":3.0}`, "2.0", "/b"},
		{`{"a":{"b":1},"c":-0}`, "-0", "/c"},
		{`{"a":2e0}`, "2e0", "/a"},
		{`{"a":9007199254740992}`, "9007199254740992", "/a"},
		{`{"a":1e400}`, "1e400", "/a"},
		{`{"a/b":{"c~d":[0.5]}}`, "0.5", "/a~1b/c~0d/0"},
		{`{"\u0061":0.5}`, "0.5", "/a"},
		{`{"":0.5}`, "0.5", "/"},
		{`[1,0.5]`, "0.5", "/1"},
		{`0.5`, "0.5", ""},
	} {
		token, pointer, found := withArguments(t, row.arguments).NonInteger()
		if string(token) != row.token || pointer != row.pointer || found != (row.token != "") {
			t.Errorf("%s: %s at %q, %v", row.arguments, token, pointer, found)
		}
	}
}

// A walk leaves nothing to the next message that gets the same pooled decoder.
func TestWalksDoNotMix(t *testing.T) {
	deep := withArguments(t, `{"a":`+strings.Repeat("[", 100)+"0.5"+strings.Repeat("]", 100)+`}`)
	plain := withArguments(t, `{"a":1}`)
	for range 3 {
		if _, _, found := deep.NonInteger(); !found {
			t.Fatal("not found")
		}
		if token, pointer, found := plain.NonInteger(); found {
			t.Fatalf("%s at %s", token, pointer)
		}
		if got := plain.Argument("a"); string(got.Raw) != "1" {
			t.Fatalf("argument %s", got.Raw)
		}
	}
}
