package effect

import (
	"slices"
	"strings"
	"testing"
)

func TestKey(t *testing.T) {
	placeholders := map[string]any{
		"http.auth.user.id": "alice", "empty": "", "int": 7, "int64": int64(-7), "bool": true, "float": 0.5, "nil": nil,
		"bytes": "\xff", "long": strings.Repeat("x", MaxPart+1), "longest": strings.Repeat("x", MaxPart),
	}
	resolve := func(name string) (any, bool) {
		value, ok := placeholders[name]
		return value, ok
	}
	for _, c := range []struct{ name, part, arguments, want, problem string }{
		{"a string", "{http.mcp.args.id}", `{"id":"txn_1"}`, `["refund","txn_1"]`, ""},
		{"an integer", "{http.mcp.args.id}", `{"id":123}`, `["refund","123"]`, ""},
		{"the integer as a string", "{http.mcp.args.id}", `{"id":"123"}`, `["refund","123"]`, ""},
		{"an escaped string", "{http.mcp.args.id}", `{"id":"\u0031\"\n"}`, `["refund","1\"\n"]`, ""},
		{"an inner argument", "{http.mcp.args.order.id}", `{"order":{"id":1}}`, `["refund","1"]`, ""},
		{"a name with a dot", "{http.mcp.args.order.id}", `{"order.id":1}`, `["refund","1"]`, ""},
		{"a literal", "eu", `{}`, `["refund","eu"]`, ""},
		{"any placeholder", "{http.auth.user.id}", `{}`, `["refund","alice"]`, ""},
		{"a placeholder that is an int", "{int}", `{}`, `["refund","7"]`, ""},
		{"a placeholder that is an int64", "{int64}", `{}`, `["refund","-7"]`, ""},
		{"as long as can be", "{longest}", `{}`, `["refund","` + strings.Repeat("x", MaxPart) + `"]`, ""},

		{"absent", "{http.mcp.args.id}", `{}`, "", partAbsent},
		{"no arguments", "{http.mcp.args.id}", ``, "", partAbsent},
		{"both a member and a nested one", "{http.mcp.args.order.id}", `{"order":{"id":1},"order.id":1}`, "", partAbsent},
		{"a case variant beside it", "{http.mcp.args.id}", `{"id":1,"ID":2}`, "", partAbsent},
		{"empty", "{http.mcp.args.id}", `{"id":""}`, "", partEmpty},
		{"null", "{http.mcp.args.id}", `{"id":null}`, "", partType},
		{"a bool", "{http.mcp.args.id}", `{"id":true}`, "", partType},
		{"an object", "{http.mcp.args.id}", `{"id":{}}`, "", partType},
		{"an array", "{http.mcp.args.id}", `{"id":["txn_1"]}`, "", partType},
		{"a fraction", "{http.mcp.args.id}", `{"id":1.5}`, "", partInteger},
		{"an integer with a fraction", "{http.mcp.args.id}", `{"id":1.0}`, "", partInteger},
		{"negative zero", "{http.mcp.args.id}", `{"id":-0}`, "", partInteger},
		{"5,000 digits", "{http.mcp.args.id}", `{"id":` + strings.Repeat("7", 5000) + `}`, "", partInteger},
		{"a string of 5,000 digits", "{http.mcp.args.id}", `{"id":"` + strings.Repeat("7", 5000) + `"}`, "", partLong},
		{"an unknown placeholder", "{nobody}", `{}`, "", partAbsent},
		{"a placeholder that is nil", "{nil}", `{}`, "", partAbsent},
		{"an empty placeholder", "{empty}", `{}`, "", partEmpty},
		{"a placeholder that is a bool", "{bool}", `{}`, "", partType},
		{"a placeholder that is a fraction", "{float}", `{}`, "", partType},
		{"a placeholder that is no UTF-8", "{bytes}", `{}`, "", partUTF8},
		{"a placeholder that is too long", "{long}", `{}`, "", partLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			parts := []string{"refund", c.part}
			if c.part == "eu" {
				parts = []string{"refund", c.part, "{int}"}
				c.want = strings.Replace(c.want, "]", `,"7"]`, 1)
			}
			template, err := ParseTemplate(parts)
			if err != nil {
				t.Fatal(err)
			}
			key, refusal := template.Key("payments", parsed(t, `"pay"`, c.arguments), resolve)
			if c.problem == "" {
				if refusal != nil || key != (Key{"payments", c.want}) {
					t.Errorf("got %v, %v, want %s", key, refusal, c.want)
				}
				return
			}
			if refusal == nil || refusal.Code != CodeNoKey || refusal.Placeholder != c.part || !strings.Contains(refusal.Text, c.part+" "+c.problem+".") {
				t.Errorf("got %v, %+v, want -41013: %s %s", key, refusal, c.part, c.problem)
			}
		})
	}
}

func TestParseTemplate(t *testing.T) {
	for _, c := range []struct {
		name  string
		parts []string
		err   string
	}{
		{"one placeholder", []string{"{http.mcp.args.id}"}, ""},
		{"a literal and two", []string{"refund", "{http.mcp.args.id}", "{http.auth.user.id}"}, ""},
		{"nothing", nil, "has no placeholder"},
		{"only literals", []string{"refund", "eu"}, "has no placeholder"},
		{"an empty part", []string{"", "{a}"}, "is empty"},
		{"a placeholder within a text", []string{"refund:{a}"}, "one placeholder alone"},
		{"two in one part", []string{"{a}{b}"}, "one placeholder alone"},
		{"a brace that is not closed", []string{"{a"}, "one placeholder alone"},
		{"a brace that is not opened", []string{"a}"}, "one placeholder alone"},
		{"braces around nothing", []string{"{}"}, "one placeholder alone"},
		{"an argument without a name", []string{"{http.mcp.args.}"}, "one placeholder alone"},
		{"too long", []string{strings.Repeat("x", MaxPart+1), "{a}"}, "1025 bytes"},
		{"too many", slices.Repeat([]string{"{a}"}, MaxParts+1), "17 parts"},
		{"not UTF-8", []string{"\xff", "{a}"}, "not UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseTemplate(c.parts)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %v, want %q", err, c.err)
			}
		})
	}
}

// No two lists of parts have the same text or digest.
func TestKeysDoNotCollide(t *testing.T) {
	seen := make(map[[32]byte][]string)
	for _, parts := range [][]string{
		{"acme:evil", "p1"}, {"acme", "evil:p1"}, {"acme", "evil", "p1"}, {"acme,evil", "p1"},
		{`acme","evil`, "p1"}, {`acme\",\"evil`, "p1"}, {`["acme"]`}, {"acme"}, {"a", "b"}, {"a\",\"b"}, {"ab"}, {"a\x00b"}, {`a\u0000b`},
	} {
		for _, namespace := range []string{"", "payments", `payments",["a`} {
			key := NewKey(namespace, parts...)
			if other, ok := seen[key.Digest()]; ok {
				t.Errorf("%q %q has the digest of %q", namespace, parts, other)
			}
			seen[key.Digest()] = append(parts, namespace)
		}
	}
}
