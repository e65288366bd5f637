package mcpheaders

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// definitionCase is one case of testdata/bindings.json.
type definitionCase struct {
	Name   string          `json:"name"`
	Source string          `json:"source"`
	Schema json.RawMessage `json:"schema"`
	Text   *string         `json:"text"`
	Want   struct {
		Bindings []struct {
			Name     string   `json:"name"`
			Header   string   `json:"header"`
			Path     []string `json:"path"`
			Required bool     `json:"required"`
		} `json:"bindings"`
		Reason string  `json:"reason"`
		At     *string `json:"at"`
	} `json:"want"`
}

func definitionCases(tb testing.TB) []definitionCase {
	tb.Helper()
	var file struct {
		About       string           `json:"about"`
		Definitions []definitionCase `json:"definitions"`
	}
	load(tb, "bindings.json", &file)
	return file.Definitions
}

func (c *definitionCase) text() []byte {
	if c.Text != nil {
		return []byte(*c.Text)
	}
	return c.Schema
}

func TestReadBindings(t *testing.T) {
	for _, c := range definitionCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			text := c.text()
			bindings, err := ReadBindings(text)
			if !slices.Equal(text, c.text()) {
				t.Error("the schema was changed")
			}
			if c.Want.Reason != "" {
				checkInvalid(t, err, c.Want.Reason, c.Want.At)
				return
			}
			if err != nil {
				t.Fatalf("invalid: %v", err)
			}
			var want []Binding
			for _, b := range c.Want.Bindings {
				want = append(want, Binding(b))
			}
			if got := bindings.All(); !reflect.DeepEqual(got, want) {
				t.Errorf("binds %+v, want %+v", got, want)
			}
		})
	}
}

func checkInvalid(t *testing.T, err error, reason string, at *string) {
	t.Helper()
	var invalid *InvalidDefinition
	if !errors.As(err, &invalid) {
		t.Fatalf("error %v, want the reason %s", err, reason)
	}
	if invalid.Reason != reason || at != nil && invalid.At != *at {
		t.Errorf("%s at %q, want %s", invalid.Reason, invalid.At, reason)
	}
	if text := invalid.Error(); !strings.Contains(text, ", at ") || len(text) > 512 || !isPlain(text) {
		t.Errorf("the text is %q", text)
	}
}

// TestDefinitionReasons shows that the reasons are closed, and each pinned by a
// case or by one of the tests below.
func TestDefinitionReasons(t *testing.T) {
	given := map[string]bool{"too_large": true, "path_empty": true, "path_repeated": true}
	for _, c := range definitionCases(t) {
		if c.Want.Reason != "" {
			given[c.Want.Reason] = true
		}
	}
	reasons := DefinitionReasons()
	if len(reasons) != len(given) {
		t.Errorf("%d reasons, %d are given", len(reasons), len(given))
	}
	for _, reason := range reasons {
		if !given[reason] {
			t.Errorf("no case is invalid for %s", reason)
		}
	}
}

func TestSchemaSize(t *testing.T) {
	schema := `{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}`
	schema += strings.Repeat(" ", maxSchemaBytes-len(schema))
	if bindings, err := ReadBindings([]byte(schema)); err != nil || len(bindings.All()) != 1 {
		t.Errorf("a schema of %d bytes: %v", len(schema), err)
	}
	_, err := ReadBindings([]byte(schema + " "))
	checkInvalid(t, err, "too_large", nil)
}

func TestDeclare(t *testing.T) {
	for _, test := range []struct {
		name     string
		declared []Declaration
		want     []Binding
		reason   string
	}{
		{"none", nil, nil, ""},
		{"one", []Declaration{{"Region", "region"}}, []Binding{{"Region", "Mcp-Param-Region", []string{"region"}, true}}, ""},
		{"a dotted path, in the order of the headers", []Declaration{{"tenant", "filter.tenant.id"}, {"Region", "region"}},
			[]Binding{{"Region", "Mcp-Param-Region", []string{"region"}, true}, {"tenant", "Mcp-Param-Tenant", []string{"filter", "tenant", "id"}, true}}, ""},
		{"a name twice", []Declaration{{"Region", "a"}, {"region", "b"}}, nil, "name_repeated"},
		{"a path twice", []Declaration{{"A", "a.b"}, {"B", "a.b"}}, nil, "path_repeated"},
		{"no name", []Declaration{{"", "a"}}, nil, "name_empty"},
		{"no token", []Declaration{{"a b", "a"}}, nil, "name_not_token"},
		{"a long name", []Declaration{{strings.Repeat("n", 129), "a"}}, nil, "name_too_long"},
		{"no path", []Declaration{{"A", ""}}, nil, "path_empty"},
		{"a path that ends with a dot", []Declaration{{"A", "a."}}, nil, "path_empty"},
		{"a path with two dots", []Declaration{{"A", "a..b"}}, nil, "path_empty"},
		{"a deep path", []Declaration{{"A", strings.Repeat("a.", 32) + "a"}}, nil, "path_too_long"},
		{"a long path", []Declaration{{"A", strings.Repeat("a", 1025)}}, nil, "path_too_long"},
		{"65", slices.Repeat([]Declaration{{"A", "a"}}, 65), nil, "too_many"},
	} {
		t.Run(test.name, func(t *testing.T) {
			bindings, err := NewBindings(test.declared)
			if test.reason != "" {
				checkInvalid(t, err, test.reason, nil)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := bindings.All(); !reflect.DeepEqual(got, test.want) {
				t.Errorf("binds %+v, want %+v", got, test.want)
			}
		})
	}
}

// TestHeaderOf shows that a header's name is the key under which net/http has
// it, whatever the token.
func TestHeaderOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching("[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}").Draw(t, "name")
		if nameFault(name) != "" {
			t.Fatalf("%q is no token", name)
		}
		if got, want := headerOf(name), http.CanonicalHeaderKey("Mcp-Param-"+name); got != want {
			t.Fatalf("%q becomes %q, want %q", name, got, want)
		}
	})
}

func TestLost(t *testing.T) {
	for _, test := range []struct{ name, option string }{
		{"Region", ""},
		{"Tenant-Id", ""},
		{"!#$%&'*+^`|~", ""},
		{"tenant_id", "expected_underscore_headers"},
		{"tenant.id", "expected_dot_headers"},
		{"a.b_c", "expected_underscore_headers"},
	} {
		b := Binding{Name: test.name, Header: headerOf(test.name)}
		if option, lost := b.Lost(); option != test.option || lost != (test.option != "") {
			t.Errorf("%s: %q, %t, want %q", test.name, option, lost, test.option)
		}
	}
}

// FuzzReadBindings shows that reading a schema ends, that what it binds is
// valid, and that a definition is never half read.
func FuzzReadBindings(f *testing.F) {
	for _, c := range definitionCases(f) {
		f.Add(c.text())
	}
	reasons := DefinitionReasons()
	f.Fuzz(func(t *testing.T, schema []byte) {
		before := slices.Clone(schema)
		bindings, err := ReadBindings(schema)
		if !slices.Equal(schema, before) {
			t.Fatal("the schema was changed")
		}
		if err != nil {
			var invalid *InvalidDefinition
			if bindings != nil || !errors.As(err, &invalid) || !slices.Contains(reasons, invalid.Reason) {
				t.Errorf("%v, error %v", bindings, err)
			}
			return
		}
		var root any
		list := bindings.All()
		if len(list) > 0 && json.Unmarshal(schema, &root) != nil {
			t.Error("bound by what is no JSON")
		}
		for i, b := range list {
			if nameFault(b.Name) != "" || b.Header != http.CanonicalHeaderKey("Mcp-Param-"+b.Name) || len(b.Path) == 0 || len(list) > maxBindings {
				t.Errorf("binding %+v", b)
			}
			if i > 0 && list[i-1].Header >= b.Header {
				t.Errorf("%s does not come after %s", b.Header, list[i-1].Header)
			}
			if got := annotationAt(root, b.Path); got != b.Name {
				t.Errorf("%q is annotated with %v, bound as %q", b.Path, got, b.Name)
			}
		}
	})
}

// annotationAt is the annotation at a path of properties.
func annotationAt(schema any, path []string) any {
	for _, name := range path {
		object, _ := schema.(map[string]any)
		properties, _ := object["properties"].(map[string]any)
		schema = properties[name]
	}
	object, _ := schema.(map[string]any)
	return object["x-mcp-header"]
}
