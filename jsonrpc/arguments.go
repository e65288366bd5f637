package jsonrpc

import (
	"bytes"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// The arguments are walked a second time for those who ask, which most messages do not need.
// Parse has found them to be valid JSON, so no walk here fails.

var decoders = sync.Pool{New: func() any { return new(decoder) }}

// walk calls read with a decoder over the arguments.
func (m *Message) walk(read func(*decoder)) {
	d := decoders.Get().(*decoder)
	d.reset(m.Params.Arguments.Raw)
	read(d)
	d.reset(nil)
	decoders.Put(d)
}

// Argument returns the value inside params.arguments at a member name or a dotted path:
// "a.b" is a member "a.b", or the member "b" of an object "a". It is absent when there is none,
// and also when a parser of another mind could see another value: when the path leads to more
// than one, or when a case variant of a member on the path stands beside it.
func (m *Message) Argument(path string) Member {
	if m.Params.Arguments.Type != Object {
		return Member{}
	}
	var s search
	m.walk(func(d *decoder) { s.object(d, []byte(path)) })
	if s.found != 1 || s.variant {
		return Member{}
	}
	return s.value
}

// search is one walk for the values at a path.
type search struct {
	value   Member
	found   int
	variant bool // a case variant was seen
}

// object searches the next value, an object, for the values at path.
func (s *search) object(d *decoder, path []byte) {
	_, _ = d.ReadToken()
	for d.PeekKind() == jsontext.KindString {
		raw, _ := d.ReadValue()
		name, _ := unquote(raw)
		rest, match := onPath(name, path)
		kind := d.PeekKind()
		switch {
		case match == inside && kind == jsontext.KindBeginObject:
			s.object(d, rest)
			continue
		case match == whole:
			s.found++
			s.value.Type = typeOf(kind)
			s.value.Raw, _ = d.ReadValue()
			continue
		case match == folded:
			s.variant = true
		}
		_ = d.SkipValue()
	}
	_, _ = d.ReadToken()
}

// match is what a member's name is to a path.
type match uint8

const (
	none   match = iota
	whole        // the path itself
	inside       // its beginning, up to a dot
	folded       // either of them, but for case
)

// onPath matches name with path and with each beginning of it that ends at a dot, and returns
// what is left of the path.
func onPath(name, path []byte) (rest []byte, m match) {
	for end := len(path); end >= 0; end = bytes.LastIndexByte(path[:end], '.') {
		switch {
		case !alike(name, path[:end]):
		case !bytes.Equal(name, path[:end]):
			return nil, folded
		case end == len(path):
			return nil, whole
		default:
			return path[end+1:], inside
		}
	}
	return nil, none
}

// NonInteger finds the first number in params.arguments that is not a [CanonicalInteger], and
// its JSON pointer (RFC 6901) within the arguments: "/items/3/price".
func (m *Message) NonInteger() (token []byte, pointer string, found bool) {
	m.walk(func(d *decoder) {
		for !found {
			switch d.PeekKind() {
			case jsontext.KindNumber:
				if token, _ = d.ReadValue(); !CanonicalInteger(token) {
					pointer, found = string(d.StackPointer()), true
				}
			case jsontext.KindInvalid:
				return
			default:
				_, _ = d.ReadToken()
			}
		}
	})
	if !found {
		return nil, "", false
	}
	return token, pointer, true
}
