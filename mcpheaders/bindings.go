package mcpheaders

import (
	"slices"
	"strconv"
	"strings"

	"github.com/caddymcp/gateway/jsonrpc"
)

// Bounds of one tool's bindings, so that what is kept of a tool, and what a
// call of it costs, does not depend on who wrote its definition. Real ones have
// a handful of bindings.
const (
	maxBindings  = 64
	maxNameBytes = 128  // of an x-mcp-header value
	maxPathNames = 32   // property names on one path
	maxPathBytes = 1024 // of all of them
)

// Binding ties a parameter of a tool to the header that mirrors it
// (specification, Custom Headers from Tool Parameters).
type Binding struct {
	// Name is the x-mcp-header value, in the case of the definition.
	Name string

	// Header is the header's name, Mcp-Param-<Name>, as net/http writes it.
	Header string

	// Path is the chain of property names that leads to the value.
	Path []string

	// Required says that a modern call must carry the header if it carries a
	// value. Where the definition does not say that the value is a string, an
	// integer or a boolean, clients disagree on whether there is a header at
	// all; one that is sent must agree.
	Required bool
}

// parameter is the path as an operator writes it.
func (b *Binding) parameter() string { return strings.Join(b.Path, ".") }

// Lost reports whether Caddy removes the header before any handler runs, and
// names the option of its server that keeps it. Caddy 2.11.9 removes every
// header whose name contains "_" or "." and is not listed there; of one that
// contains both it keeps what either option lists without a wildcard. A listed
// header that is sent in several copies, even equal ones, it removes too, as
// well as the header that has hyphens in their place.
func (b *Binding) Lost() (option string, lost bool) {
	switch {
	case strings.Contains(b.Header, "_"):
		return "expected_underscore_headers", true
	case strings.Contains(b.Header, "."):
		return "expected_dot_headers", true
	}
	return "", false
}

// Bindings are the bindings of one tool. They do not change, and so are safe
// for concurrent use.
type Bindings struct {
	list  []Binding      // in the order of their headers
	paths *jsonrpc.Paths // in the same order
}

// All returns the bindings in the order of their headers. A nil *Bindings has
// none.
func (b *Bindings) All() []Binding {
	if b == nil {
		return nil
	}
	return slices.Clone(b.list)
}

// Declaration is a binding that an operator declares. The definition need not
// be known, and the header is always required.
type Declaration struct {
	Name string // what follows Mcp-Param-
	Path string // property names, joined by dots
}

// NewBindings returns the declared bindings of a tool. A property whose name
// has a dot cannot be declared, only learned. The error is an
// *InvalidDefinition.
func NewBindings(declarations []Declaration) (*Bindings, error) {
	var list []Binding
	for _, d := range declarations {
		if fault := nameFault(d.Name); fault != "" {
			return nil, &InvalidDefinition{fault, d.Name}
		}
		path := strings.Split(d.Path, ".")
		if slices.Contains(path, "") {
			return nil, &InvalidDefinition{faultPathEmpty, d.Name}
		}
		list = append(list, Binding{d.Name, headerOf(d.Name), path, true})
	}
	return newBindings(list)
}

// Len returns how many bindings there are. A nil *Bindings has none.
func (b *Bindings) Len() int {
	if b == nil {
		return 0
	}
	return len(b.list)
}

// Size returns about how many bytes of memory the bindings take. A nil
// *Bindings takes none.
func (b *Bindings) Size() int {
	if b == nil {
		return 0
	}
	const perBindings, perBinding, perName = 100, 200, 120
	size := perBindings
	for i := range b.list {
		size += perBinding + 3*len(b.list[i].Name)
		for _, name := range b.list[i].Path {
			size += perName + 2*len(name)
		}
	}
	return size
}

// newBindings makes bindings of a list whose names are valid.
func newBindings(list []Binding) (*Bindings, error) {
	if len(list) > maxBindings {
		return nil, &InvalidDefinition{faultTooMany, list[maxBindings].Name}
	}
	slices.SortFunc(list, func(a, b Binding) int { return strings.Compare(a.Header, b.Header) })
	var paths [][]string
	for i, b := range list {
		switch {
		case len(b.Path) > maxPathNames || len(b.parameter()) > maxPathBytes:
			return nil, &InvalidDefinition{faultPathTooLong, b.Name}
		case i > 0 && list[i-1].Header == b.Header:
			return nil, &InvalidDefinition{faultNameRepeated, b.Name}
		case slices.ContainsFunc(paths, func(p []string) bool { return slices.Equal(p, b.Path) }):
			return nil, &InvalidDefinition{faultPathRepeated, b.Name}
		}
		paths = append(paths, b.Path)
	}
	return &Bindings{list, jsonrpc.NewPaths(paths)}, nil
}

// headerOf is the header of a name, as net/http writes it: two names that
// differ in case are one header.
func headerOf(name string) string {
	header := []byte(paramPrefix + lower(name))
	for i := range header {
		if 'a' <= header[i] && header[i] <= 'z' && (i == 0 || header[i-1] == '-') {
			header[i] -= 'a' - 'A'
		}
	}
	return string(header)
}

// nameFault is what is wrong with an x-mcp-header value, empty if nothing.
func nameFault(name string) string {
	switch {
	case name == "":
		return faultNameEmpty
	case len(name) > maxNameBytes:
		return faultNameTooLong
	case strings.ContainsFunc(name, func(r rune) bool { return !isTokenRune(r) }):
		return faultNameNoToken
	}
	return ""
}

// isTokenRune reports whether a header name may contain r (RFC 9110, section
// 5.6.2).
func isTokenRune(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return true
	}
	return strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// InvalidDefinition says why a tool binds nothing.
type InvalidDefinition struct {
	// Reason is one of DefinitionReasons: a metric label.
	Reason string

	// At is where: the place of the annotation in the schema as a JSON pointer
	// (RFC 6901), or the name of the binding.
	At string
}

func (e *InvalidDefinition) Error() string {
	for _, fault := range definitionFaults {
		if fault.reason == e.Reason {
			return fault.text + ", at " + echo(e.At)
		}
	}
	return e.Reason
}

// The Reasons of an InvalidDefinition.
const (
	faultTooLarge      = "too_large"
	faultNotJSON       = "not_json"
	faultDuplicateName = "duplicate_name"
	faultTooDeep       = "too_deep"
	faultMisplaced     = "misplaced"
	faultNameNotString = "name_not_string"
	faultNameEmpty     = "name_empty"
	faultNameTooLong   = "name_too_long"
	faultNameNoToken   = "name_not_token"
	faultNameRepeated  = "name_repeated"
	faultType          = "type_not_primitive"
	faultPathEmpty     = "path_empty"
	faultPathTooLong   = "path_too_long"
	faultPathRepeated  = "path_repeated"
	faultTooMany       = "too_many"
)

var definitionFaults = []struct{ reason, text string }{
	{faultTooLarge, "the schema has more than " + strconv.Itoa(maxSchemaBytes) + " bytes"},
	{faultNotJSON, "the schema is not one strict JSON text"},
	{faultDuplicateName, "an object of the schema has two members of one name"},
	{faultTooDeep, "schemas nest deeper than " + strconv.Itoa(jsonrpc.MaxDepth) + " levels"},
	{faultMisplaced, "an x-mcp-header that more than properties lead to"},
	{faultNameNotString, "an x-mcp-header that is not a string"},
	{faultNameEmpty, "an empty header name"},
	{faultNameTooLong, "a header name of more than " + strconv.Itoa(maxNameBytes) + " bytes"},
	{faultNameNoToken, "a name that no header can have"},
	{faultNameRepeated, "two parameters with one header name, but for case"},
	{faultType, "an x-mcp-header on what is no string, integer or boolean"},
	{faultPathEmpty, "an empty property name in the path of a parameter"},
	{faultPathTooLong, "a parameter that is too deep in the arguments"},
	{faultPathRepeated, "one parameter with two headers"},
	{faultTooMany, "more than " + strconv.Itoa(maxBindings) + " headers"},
}

// DefinitionReasons returns every Reason of an InvalidDefinition.
func DefinitionReasons() []string {
	var all []string
	for _, fault := range definitionFaults {
		all = append(all, fault.reason)
	}
	return all
}
