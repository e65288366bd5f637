// Package jsonrpc reads the JSON-RPC messages that pass through the gateway.
//
// The two directions are read differently, because different things go wrong. A request is
// read strictly, in one pass, and nothing that two parsers could read differently gets
// through: what was checked here must be what runs there. A response is read leniently
// everywhere but in the few members that decide the outcome: an answer is never withheld
// for its text.
//
// Nothing is ever re-encoded. What is found is a slice of the bytes that came, or an offset
// into them.
package jsonrpc

import (
	"bytes"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Type is the JSON type of a member. The zero value says that there is no such member.
type Type uint8

// The JSON types.
const (
	Absent Type = iota
	Null
	Bool
	Number
	String
	Object
	Array
)

// Member is one member's value as it stands in the message.
type Member struct {
	Type Type
	Raw  []byte // the value's bytes, without the white space around it; aliases the body, nil when absent
}

// Text returns the characters of a string. It reports false for every other type.
func (m Member) Text() (string, bool) {
	text, ok := m.text()
	return string(text), ok
}

// text is Text without a copy where the string has no escapes.
func (m Member) text() ([]byte, bool) {
	if m.Type != String {
		return nil, false
	}
	return unquote(m.Raw)
}

// unquote returns the characters of a JSON string, without a copy where it has no escapes.
// It reports false if they are not all characters: invalid UTF-8, or half a surrogate pair.
func unquote(raw []byte) ([]byte, bool) {
	if bytes.IndexByte(raw, '\\') < 0 {
		plain := raw[1 : len(raw)-1]
		return plain, utf8.Valid(plain)
	}
	text, err := jsontext.AppendUnquote(nil, raw)
	return text, err == nil
}

// Kind is the kind of message.
type Kind uint8

// The kinds of message. The zero Kind belongs to a message that was refused.
const (
	Request      Kind = iota + 1 // a method and an id
	Notification                 // a method without an id
	Response                     // a result or an error, without a method
)

// Message is what one strict pass found in a request body.
type Message struct {
	Body []byte
	Kind Kind // 0 when Parse returned an error

	// ID is the id's token, byte for byte, for a refusal to carry. It is nil when the message
	// has no id, or when the id cannot be read unambiguously: the body is no JSON text, the id
	// stands there twice or beside a case variant, or it is neither a string nor an integer.
	// Otherwise it is set even when Parse returned an error.
	ID []byte

	Method string
	Params Params
}

// Params are the members of params that the gateway reads.
type Params struct {
	Member // params itself

	Name, URI, TaskID Member // params.name, params.uri, params.taskId
	Arguments         Member // params.arguments
	RequestState      Member // params.requestState
	Meta              Member // params._meta
	ProtocolVersion   Member // params._meta["io.modelcontextprotocol/protocolVersion"]

	variants variantSet
}

// versionMember is the member of _meta that names the revision a modern request speaks.
const versionMember = "io.modelcontextprotocol/protocolVersion"

// Variant reports whether params, or its _meta for the protocol version, holds a member whose
// name equals the given one under simple case folding but not byte for byte: "Name", "uRI",
// "_META". A parser that ignores case would take it for the member itself. The given name is
// that of a member in Params: "name", "uri", "taskId", "arguments", "requestState", "_meta" or
// "io.modelcontextprotocol/protocolVersion"; for any other the answer is false.
func (p *Params) Variant(name string) bool {
	return p.variants.has(name)
}
