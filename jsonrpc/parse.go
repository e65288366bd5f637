package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of a request body, from rows 5 and 6 of the design's admission table.
const (
	MaxDepth   = 128    // objects and arrays around the innermost value
	MaxMembers = 10_000 // members of one object

	// Members of an object and of those around it, as far as they were read. What finds
	// duplicates keeps the names of all of them.
	MaxOpenMembers = 2 * MaxMembers
)

// Parse reads body in one strict pass, and refuses what rows 5 to 8 of the admission table
// refuse. The rows are judged in their order: a body that offends several is refused for the
// first of them, wherever in the text the offences stand. A non-nil error is an [*Error].
//
// After an offence against row 5 nothing but Body is set. After any other, all but Kind hold
// what was read, duplicates with their last value, for a gateway that only reports.
//
// The message keeps and aliases body, which must not change as long as the message is used.
func (m *Message) Parse(body []byte) error {
	p := parsers.Get().(*parser)
	err := p.parse(m, body)
	p.release()
	if err != nil {
		return err
	}
	return nil
}

// parser reads one body after another.
type parser struct {
	decoder
	names nameSet
	pass
}

// pass is what a parser notes during one pass.
type pass struct {
	msg *Message

	version, id, method, result, err Member // of the message
	ids                              int    // how many members "id" there are
	badName                          *Error // the first offence against row 6
	variant                          *Error // the first case variant among the message's members
	idVariant                        bool   // one of those is of id
}

var parsers = sync.Pool{New: func() any { return new(parser) }}

func (p *parser) release() {
	p.decoder.reset(nil)
	p.names.reset()
	p.pass = pass{}
	parsers.Put(p)
}

func (p *parser) parse(m *Message, body []byte) *Error {
	*m = Message{Body: body}
	p.msg = m
	p.decoder.reset(body)

	top, err := p.value(inMessage, 1)
	if err == nil {
		err = p.end()
	}
	if err != nil {
		*m = Message{Body: body}
		return err
	}
	if p.ids == 1 && !p.idVariant && validID(p.id) {
		m.ID = p.id.Raw
	}
	if name, ok := p.method.text(); ok {
		m.Method = methodName(name)
	}
	if p.badName != nil {
		return p.badName
	}
	if err := p.envelope(top); err != nil {
		return err
	}
	m.Kind = p.kind()
	return nil
}

// envelope is rows 7 and 8, in the order of the Problem constants.
func (p *parser) envelope(top Member) *Error {
	var problem Problem
	responds := p.result.Type != Absent || p.err.Type != Absent
	switch {
	case top.Type == Array:
		problem = Batch
	case top.Type != Object:
		problem = NotObject
	case p.variant != nil:
		return p.variant
	case !isText(p.version, "2.0"):
		problem = NotVersion2
	case p.method.Type == Absent && !responds:
		problem = NoMethod
	case p.method.Type != Absent && responds:
		problem = MixedKinds
	case p.method.Type != Absent && (p.msg.Method == "" || strings.IndexByte(p.msg.Method, 0) >= 0 || isMethodVariant(p.msg.Method)):
		problem = BadMethod
	case p.id.Type != Absent && !validID(p.id):
		problem = BadID
	default:
		return nil
	}
	return &Error{problem, int64(len(p.msg.Body) - len(bytes.TrimLeft(p.msg.Body, " \t\r\n")))}
}

func (p *parser) kind() Kind {
	switch {
	case p.method.Type == Absent:
		return Response
	case p.id.Type == Absent:
		return Notification
	default:
		return Request
	}
}

func isText(m Member, want string) bool {
	text, ok := m.text()
	return ok && string(text) == want
}

// validID reports whether an id can be copied into a response without changing its meaning:
// some peers round fractions and large exponents, so a number must be spelled as an integer.
func validID(id Member) bool {
	return id.Type == String || id.Type == Number && isInteger(id.Raw)
}

// scope is what the members of an object are to the gateway.
type scope uint8

const (
	elsewhere scope = iota // nothing
	inMessage              // those of the message itself
	inParams               // those of params
	inMeta                 // those of params._meta
)

// member returns where the value of the member that was found goes, nil if it is not read, and
// what the members of that value are.
func (p *parser) member(in scope, name []byte) (*Member, scope) {
	params := &p.msg.Params
	switch in {
	case inMessage:
		switch string(name) {
		case "jsonrpc":
			return &p.version, elsewhere
		case "id":
			p.ids++
			return &p.id, elsewhere
		case "method":
			return &p.method, elsewhere
		case "params":
			*params = Params{}
			return &params.Member, inParams
		case "result":
			return &p.result, elsewhere
		case "error":
			return &p.err, elsewhere
		}
		p.noteVariant(name)
	case inParams:
		switch string(name) {
		case "name":
			return &params.Name, elsewhere
		case "uri":
			return &params.URI, elsewhere
		case "taskId":
			return &params.TaskID, elsewhere
		case "arguments":
			return &params.Arguments, elsewhere
		case "requestState":
			return &params.RequestState, elsewhere
		case "_meta":
			params.ProtocolVersion = Member{}
			return &params.Meta, inMeta
		}
		params.variants.add(in, name)
	case inMeta:
		if string(name) == versionMember {
			return &params.ProtocolVersion, elsewhere
		}
		params.variants.add(in, name)
	}
	return nil, elsewhere
}

// noteVariant notes a member of the message that is not read, if it is a case variant.
func (p *parser) noteVariant(name []byte) {
	i := foldedIndex(messageNames, name)
	if i < 0 {
		return
	}
	if p.variant == nil {
		p.variant = &Error{CaseVariant, p.InputOffset()}
	}
	if string(messageNames[i]) == "id" {
		p.idVariant = true
	}
}

// value reads the next value, at a nesting depth that starts with 1. If it is an object, its
// members are those of the scope inner.
func (p *parser) value(inner scope, depth int) (Member, *Error) {
	kind := p.PeekKind()
	if kind != jsontext.KindBeginObject && kind != jsontext.KindBeginArray {
		raw, err := p.ReadValue()
		if err != nil {
			return Member{}, p.notJSON(err)
		}
		return Member{typeOf(kind), raw}, nil
	}
	if _, err := p.ReadToken(); err != nil {
		return Member{}, p.notJSON(err)
	}
	start := p.InputOffset() - 1
	if depth > MaxDepth {
		return Member{}, &Error{TooDeep, start}
	}
	var err *Error
	if kind == jsontext.KindBeginObject {
		err = p.object(inner, depth)
	} else {
		err = p.array(depth)
	}
	end := p.InputOffset()
	return Member{typeOf(kind), p.msg.Body[start:end:end]}, err
}

// object reads the rest of an object whose brace was read.
func (p *parser) object(in scope, depth int) *Error {
	names := p.names.open()
	defer p.names.close(names)
	for count := 1; p.PeekKind() != jsontext.KindEndObject; count++ {
		raw, err := p.ReadValue()
		if err != nil {
			return p.notJSON(err)
		}
		name := p.names.unquote(raw)
		p.checkName(names, name, count)

		target, inner := p.member(in, name)
		value, failure := p.value(inner, depth+1)
		if failure != nil {
			return failure
		}
		if target != nil {
			*target = value
		}
	}
	return p.closing()
}

// checkName is row 6 for the name that was just read, the count-th of its object. After an
// offence the pass goes on, since one against row 5 may follow and outrank it, but no further
// names are kept.
func (p *parser) checkName(names openObject, name []byte, count int) {
	switch {
	case p.badName != nil:
	case count > MaxMembers, p.names.count() == MaxOpenMembers:
		p.badName = &Error{TooManyMembers, p.InputOffset()}
	case !p.names.add(names, name):
		p.badName = &Error{DuplicateName, p.InputOffset()}
	}
}

// array reads the rest of an array whose bracket was read.
func (p *parser) array(depth int) *Error {
	for p.PeekKind() != jsontext.KindEndArray {
		if _, err := p.value(elsewhere, depth+1); err != nil {
			return err
		}
	}
	return p.closing()
}

// closing reads the bracket or brace that was peeked at.
func (p *parser) closing() *Error {
	if _, err := p.ReadToken(); err != nil {
		return p.notJSON(err)
	}
	return nil
}

// end makes sure that nothing but white space follows.
func (p *parser) end() *Error {
	if p.PeekKind() != jsontext.KindInvalid {
		return &Error{NotJSON, p.InputOffset()}
	}
	if _, err := p.ReadToken(); !errors.Is(err, io.EOF) {
		return p.notJSON(err)
	}
	return nil
}

// notJSON is row 5. Of the decoder's error only the offset is taken: its text quotes the body.
func (p *parser) notJSON(err error) *Error {
	offset := p.InputOffset()
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		offset = syntax.ByteOffset
	}
	return &Error{NotJSON, offset}
}

func typeOf(kind jsontext.Kind) Type {
	switch kind {
	case jsontext.KindNull:
		return Null
	case jsontext.KindFalse, jsontext.KindTrue:
		return Bool
	case jsontext.KindString:
		return String
	case jsontext.KindNumber:
		return Number
	case jsontext.KindBeginObject:
		return Object
	default:
		return Array
	}
}
