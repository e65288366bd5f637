package jsonrpc

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestArgumentsAt(t *testing.T) {
	for _, row := range []struct {
		name, arguments string
		paths           [][]string
		want            []string // empty if absent
	}{
		{"none asked", `{"a":1}`, nil, nil},
		{"one", `{"a":1}`, [][]string{{"a"}}, []string{`1`}},
		{"in another order", `{"c":3,"a":1,"b":2}`, [][]string{{"a"}, {"b"}, {"c"}}, []string{`1`, `2`, `3`}},
		{"absent", `{"a":1}`, [][]string{{"b"}}, []string{``}},
		{"empty object", `{}`, [][]string{{"b"}}, []string{``}},
		{"null", `{"a":null}`, [][]string{{"a"}}, []string{`null`}},
		{"every type", `{"s":"x","n":-1.5e3,"t":true,"f":false,"o":{"a":1},"l":[1,{"a":2}]}`,
			[][]string{{"s"}, {"n"}, {"t"}, {"f"}, {"o"}, {"l"}}, []string{`"x"`, `-1.5e3`, `true`, `false`, `{"a":1}`, `[1,{"a":2}]`}},
		{"nested", `{"a":{"b":{"c":8}}}`, [][]string{{"a", "b", "c"}}, []string{`8`}},
		{"an object and what is in it", `{"a":{"b":1}}`, [][]string{{"a"}, {"a", "b"}}, []string{`{"b":1}`, `1`}},
		{"two in one object", `{"a":{"c":2,"b":1}}`, [][]string{{"a", "b"}, {"a", "c"}}, []string{`1`, `2`}},
		{"the same name elsewhere", `{"b":{"id":1},"id":2,"c":{"id":3}}`, [][]string{{"id"}, {"c", "id"}}, []string{`2`, `3`}},
		{"a name with a dot is one name", `{"a":{"b":1},"a.b":2}`, [][]string{{"a.b"}}, []string{`2`}},
		{"a name with a dot is not a path", `{"a.b":2}`, [][]string{{"a", "b"}}, []string{``}},
		{"through an array", `{"a":[{"b":1}]}`, [][]string{{"a", "b"}}, []string{``}},
		{"through a string", `{"a":"{\"b\":1}"}`, [][]string{{"a", "b"}}, []string{``}},
		{"through null", `{"a":null}`, [][]string{{"a", "b"}}, []string{``}},
		{"escaped name", `{"r\u0065gion":"x"}`, [][]string{{"region"}}, []string{`"x"`}},
		{"escaped quotes", `{"q\"":"\\\"","b":"\\\\","a":"\\"}`, [][]string{{`q"`}, {"a"}, {"b"}}, []string{`"\\\""`, `"\\"`, `"\\\\"`}},
		{"brackets in strings", `{"x":["}","]",{"y":"\"]}"}],"a":1}`, [][]string{{"a"}}, []string{`1`}},
		{"white space", " {\n\t\"a\" : { \"b\" :\r[ 1 , 2 ] } , \"c\"\t: 3 } ", [][]string{{"a", "b"}, {"c"}}, []string{`[ 1 , 2 ]`, `3`}},
		{"empty name", `{"":1}`, [][]string{{""}}, []string{`1`}},
		{"no path", `{"a":1}`, [][]string{{}}, []string{``}},
		{"special words", `{"__proto__":1,"constructor":{"prototype":2},"properties":3,"$ref":4}`,
			[][]string{{"__proto__"}, {"constructor", "prototype"}, {"properties"}, {"$ref"}, {"hasOwnProperty"}}, []string{`1`, `2`, `3`, `4`, ``}},
		{"arguments null", `null`, [][]string{{"a"}}, []string{``}},
		{"arguments array", `[1]`, [][]string{{"a"}}, []string{``}},
	} {
		t.Run(row.name, func(t *testing.T) {
			values, variant := withArguments(t, row.arguments).ArgumentsAt(NewPaths(row.paths))
			var got []string
			for _, value := range values {
				got = append(got, string(value.Raw))
				if (value.Type == Absent) != (value.Raw == nil) {
					t.Errorf("type %d of %s", value.Type, value.Raw)
				}
			}
			if !slices.Equal(got, row.want) || variant.Found {
				t.Errorf("%s at %q: %q, want %q; %v", row.arguments, row.paths, got, row.want, variant)
			}
		})
	}
}

func TestArgumentsAtWithout(t *testing.T) {
	var m Message
	if err := m.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)); err != nil {
		t.Fatal(err)
	}
	if values, variant := m.ArgumentsAt(NewPaths([][]string{{"a"}})); len(values) != 1 || values[0].Type != Absent || variant.Found {
		t.Errorf("%v, %v", values, variant)
	}
}

func TestArgumentVariants(t *testing.T) {
	for _, row := range []struct {
		name, arguments string
		paths           [][]string
		want            string // empty if none
	}{
		{"beside it", `{"region":1,"Region":2}`, [][]string{{"region"}}, "region"},
		{"before it", `{"REGION":2,"region":1}`, [][]string{{"region"}}, "region"},
		{"alone", `{"Region":2}`, [][]string{{"region"}}, "region"},
		{"on the way", `{"a":{"b":1},"A":{}}`, [][]string{{"a", "b"}}, "a"},
		{"further down", `{"a":{"b":1,"B":2}}`, [][]string{{"a", "b"}}, "b"},
		{"escaped", `{"\u0052egion":2}`, [][]string{{"region"}}, "region"},
		{"long s", `{"ſtatus":2}`, [][]string{{"status"}}, "status"},
		{"Kelvin sign", `{"\u212aey":2}`, [][]string{{"key"}}, "key"},
		{"the first of two", `{"B":1,"A":2}`, [][]string{{"a"}, {"b"}}, "b"},
		{"off the path", `{"x":1,"X":2,"a":{"Y":1},"b":{"A":1}}`, [][]string{{"a"}, {"b", "y"}}, ""},
		{"of a longer name", `{"REGIONS":1}`, [][]string{{"region"}}, ""},
		{"both are on paths", `{"region":1,"Region":2}`, [][]string{{"region"}, {"Region"}}, ""},
		{"in an array", `{"a":[{"B":1}]}`, [][]string{{"a", "b"}}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, variant := withArguments(t, row.arguments).ArgumentsAt(NewPaths(row.paths))
			if variant.Exact != row.want || variant.Found != (row.want != "") {
				t.Errorf("%s: %+v, want %q", row.arguments, variant, row.want)
			}
		})
	}
}

// The cursor trusts that the text is valid. FuzzArgumentsAt holds it against a decoder that
// does not.
func FuzzArgumentsAt(f *testing.F) {
	for _, arguments := range []string{`{"a":{"b":"\"\\"},"c":[1,{"a":2}]}`, ` { "a" : 1 } `, `{"A":1}`, `{"b":{"a":null}}`, `{"a":"\\","b":"\\\""}`} {
		f.Add([]byte(arguments), "a\nb\na/b\nb/a")
	}
	f.Fuzz(func(t *testing.T, arguments []byte, list string) {
		var m Message
		body := slices.Concat([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":`), arguments, []byte(`}}`))
		if m.Parse(body) != nil || len(list) > 100 {
			return
		}
		var paths [][]string
		for path := range strings.SplitSeq(list, "\n") {
			if split := strings.Split(path, "/"); !slices.ContainsFunc(paths, func(p []string) bool { return slices.Equal(p, split) }) {
				paths = append(paths, split)
			}
		}
		values, _ := m.ArgumentsAt(NewPaths(paths))
		for i, path := range paths {
			if want := decodedAt(m.Params.Arguments.Raw, path); !bytes.Equal(values[i].Raw, want) {
				t.Errorf("%s at %q: %q, want %q", arguments, path, values[i].Raw, want)
			} else if want != nil && values[i].Type != typeOf(jsontext.Value(want).Kind()) {
				t.Errorf("%s at %q: type %d", arguments, path, values[i].Type)
			}
		}
	})
}

// decodedAt is what a decoder finds at a path.
func decodedAt(text []byte, path []string) []byte {
	if len(path) == 0 {
		return text
	}
	if jsontext.Value(text).Kind() != jsontext.KindBeginObject {
		return nil
	}
	d := jsontext.NewDecoder(bytes.NewReader(text))
	_, _ = d.ReadToken()
	for d.PeekKind() == jsontext.KindString {
		name, _ := d.ReadToken()
		same := name.String() == path[0]
		value, _ := d.ReadValue()
		if same {
			return decodedAt(slices.Clone(value), path[1:])
		}
	}
	return nil
}
