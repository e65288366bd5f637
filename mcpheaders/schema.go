package mcpheaders

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddymcp/gateway/jsonrpc"
)

// maxSchemaBytes is the longest schema that is read.
const maxSchemaBytes = 1 << 20

// noBindings are those of most tools.
var noBindings = new(Bindings)

// annotation is the keyword that binds a parameter (specification, Tools,
// x-mcp-header).
const annotation = "x-mcp-header"

// ReadBindings returns the bindings of a tool from its inputSchema. The error
// is an *InvalidDefinition: such a tool binds nothing, since a client must not
// offer it (specification, Schema Extension). The schema is not kept.
func ReadBindings(inputSchema []byte) (*Bindings, error) {
	if len(inputSchema) > maxSchemaBytes {
		return nil, &InvalidDefinition{faultTooLarge, ""}
	}
	// Most tools bind nothing, and a keyword can only be spelled another way
	// with an escape.
	if !bytes.Contains(inputSchema, []byte(annotation)) && !bytes.Contains(inputSchema, []byte(`\u`)) {
		return noBindings, nil
	}
	s := schemaReader{Decoder: jsontext.NewDecoder(bytes.NewBuffer(inputSchema))}
	if err := s.schema(true, 1); err != nil {
		return nil, err
	}
	if _, err := s.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, &InvalidDefinition{faultNotJSON, ""}
	}
	return newBindings(s.list)
}

// schemaReader is one pass over a schema. It enters those keywords that hold
// schemas and no others: what looks like an annotation in a default or an
// example is somebody's data.
type schemaReader struct {
	*jsontext.Decoder
	path []string // the property names that lead to the schema that is read
	list []Binding
}

// schemaShape is how the value of a keyword holds schemas.
type schemaShape uint8

const (
	oneOrMore schemaShape = iota + 1 // a schema, or an array of them
	named                            // an object with any names
)

// applicators are the keywords that hold schemas, but for properties (JSON
// Schema 2020-12, Core, section 10.3, and what earlier drafts had).
var applicators = map[string]schemaShape{
	"allOf": oneOrMore, "anyOf": oneOrMore, "oneOf": oneOrMore, "not": oneOrMore,
	"if": oneOrMore, "then": oneOrMore, "else": oneOrMore,
	"items": oneOrMore, "prefixItems": oneOrMore, "additionalItems": oneOrMore, "contains": oneOrMore, "unevaluatedItems": oneOrMore,
	"additionalProperties": oneOrMore, "unevaluatedProperties": oneOrMore, "propertyNames": oneOrMore,
	"contentSchema": oneOrMore,
	"$defs":         named, "definitions": named,
	"patternProperties": named, "dependentSchemas": named, "dependencies": named,
}

// schema reads the next value, which stands where a schema does. It is
// reachable if nothing but properties leads to it.
func (s *schemaReader) schema(reachable bool, depth int) error {
	if depth > jsonrpc.MaxDepth {
		return s.fault(faultTooDeep)
	}
	if s.PeekKind() != jsontext.KindBeginObject {
		return s.skip()
	}
	var header, kind jsontext.Value
	err := s.members(func(keyword string) error {
		switch shape := applicators[keyword]; {
		case keyword == annotation:
			if !reachable || len(s.path) == 0 {
				return s.fault(faultMisplaced)
			}
			return s.keep(&header)
		case keyword == "type":
			return s.keep(&kind)
		case keyword == "properties":
			return s.properties(reachable, depth)
		case shape == oneOrMore:
			return s.oneOrMore(depth)
		case shape == named:
			return s.named(depth)
		default:
			return s.skip()
		}
	})
	if err != nil || header == nil {
		return err
	}
	return s.bind(header, kind)
}

// members reads the next value, an object, and calls read for each name, which
// reads the value.
func (s *schemaReader) members(read func(name string) error) error {
	if _, err := s.ReadToken(); err != nil {
		return s.broken(err)
	}
	for s.PeekKind() != jsontext.KindEndObject {
		name, err := s.ReadToken()
		if err != nil {
			return s.broken(err)
		}
		if err := read(name.String()); err != nil {
			return err
		}
	}
	_, err := s.ReadToken()
	return s.broken(err)
}

// properties reads the schemas of an object's properties. Their names are the
// server's to choose, and none of them is a keyword.
func (s *schemaReader) properties(reachable bool, depth int) error {
	if s.PeekKind() != jsontext.KindBeginObject {
		return s.skip()
	}
	return s.members(func(name string) error {
		s.path = append(s.path, name)
		err := s.schema(reachable, depth+1)
		s.path = s.path[:len(s.path)-1]
		return err
	})
}

// named reads schemas under names that say nothing of where the value is.
func (s *schemaReader) named(depth int) error {
	if s.PeekKind() != jsontext.KindBeginObject {
		return s.skip()
	}
	return s.members(func(string) error { return s.schema(false, depth+1) })
}

func (s *schemaReader) oneOrMore(depth int) error {
	if s.PeekKind() != jsontext.KindBeginArray {
		return s.schema(false, depth+1)
	}
	_, err := s.ReadToken()
	for err == nil && s.PeekKind() != jsontext.KindEndArray {
		if err := s.schema(false, depth+1); err != nil {
			return err
		}
	}
	if err == nil {
		_, err = s.ReadToken()
	}
	return s.broken(err)
}

// bind adds the binding of an annotated property.
func (s *schemaReader) bind(header, kind jsontext.Value) error {
	if header.Kind() != jsontext.KindString {
		return s.fault(faultNameNotString)
	}
	unquoted, _ := jsontext.AppendUnquote(nil, header) // the decoder has read it
	name := string(unquoted)
	if fault := nameFault(name); fault != "" {
		return s.fault(fault)
	}
	required, ok := isRequired(kind)
	if !ok {
		return s.fault(faultType)
	}
	s.list = append(s.list, Binding{name, headerOf(name), slices.Clone(s.path), required})
	return nil
}

// isRequired reports whether a call with a value of a property of this type
// must carry its header. It is not ok if no such property can have one.
//
// Of number the specification says that it may not be annotated. Some clients
// mirror it nevertheless, and a header that is sent should not lie; nor should
// the tool's other headers go unchecked for it. Of a list of types, or none, it
// says nothing, and clients differ.
func isRequired(kind jsontext.Value) (required, ok bool) {
	switch kind.Kind() {
	case jsontext.KindInvalid: // there is none
		return false, true
	case jsontext.KindString, jsontext.KindBeginArray:
	default:
		return false, false
	}
	for name := range typeNames(kind) {
		switch name {
		case "string", "integer", "boolean":
			return kind.Kind() == jsontext.KindString, true
		case "number":
			ok = true
		}
	}
	return false, ok
}

// typeNames yields the types in a value of the keyword type.
func typeNames(kind jsontext.Value) iter.Seq[string] {
	return func(yield func(string) bool) {
		d := jsontext.NewDecoder(bytes.NewReader(kind))
		for {
			token, err := d.ReadToken()
			if err != nil {
				return
			}
			if token.Kind() == jsontext.KindString && d.StackDepth() <= 1 && !yield(token.String()) {
				return
			}
		}
	}
}

// keep reads the next value into v.
func (s *schemaReader) keep(v *jsontext.Value) error {
	value, err := s.ReadValue()
	*v = slices.Clone(value)
	return s.broken(err)
}

func (s *schemaReader) skip() error { return s.broken(s.SkipValue()) }

// broken is what the decoder's error says of the definition. The decoder's own
// text is not kept: it may be long.
func (s *schemaReader) broken(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jsontext.ErrDuplicateName):
		return s.fault(faultDuplicateName)
	default:
		return s.fault(faultNotJSON)
	}
}

func (s *schemaReader) fault(reason string) error {
	return &InvalidDefinition{reason, clip(string(s.StackPointer()))}
}
