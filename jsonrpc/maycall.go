package jsonrpc

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// MayCall reports whether a server that reads a body less strictly than Parse might run a tool for
// it of which the function says that it is meant: of a batch any message, of members with one name
// any, in whatever case. It reads as far as it can, so of a body that is cut off or no JSON text
// what stands before that; of the rest nothing can be told.
//
// It takes too much for a call rather than too little: a name and the method need not stand in one
// message.
func MayCall(body []byte, tool func(name string) bool) bool {
	body = bytes.TrimPrefix(body, []byte(byteOrderMark))
	c := callFinder{tool: tool}
	c.buf = *bytes.NewBuffer(body)
	c.Reset(&c.buf, laxOptions...)
	for c.message() == nil {
	}
	return c.calls && c.named
}

// callFinder is one pass over a body.
type callFinder struct {
	decoder
	tool  func(name string) bool
	calls bool // a method is tools/call
	named bool // a name is one that is meant
}

// message reads one message, or a batch.
func (c *callFinder) message() error {
	if c.PeekKind() != jsontext.KindBeginArray {
		return c.object(func(member []byte) error {
			switch {
			case alike(member, []byte("method")):
				return c.string(func(text []byte) { c.calls = c.calls || alike(text, []byte("tools/call")) })
			case alike(member, []byte("params")):
				return c.object(c.param)
			}
			return c.SkipValue()
		})
	}
	if _, err := c.ReadToken(); err != nil {
		return err
	}
	for c.PeekKind() != jsontext.KindEndArray {
		if err := c.message(); err != nil {
			return err
		}
	}
	_, err := c.ReadToken()
	return err
}

func (c *callFinder) param(member []byte) error {
	if !alike(member, []byte("name")) {
		return c.SkipValue()
	}
	return c.string(func(text []byte) { c.named = c.named || c.tool(string(text)) })
}

// object calls read with the name of each member; it reads the value. Any other value than an
// object is skipped.
func (c *callFinder) object(read func(member []byte) error) error {
	if c.PeekKind() != jsontext.KindBeginObject {
		return c.SkipValue()
	}
	if _, err := c.ReadToken(); err != nil {
		return err
	}
	for c.PeekKind() != jsontext.KindEndObject {
		token, err := c.ReadToken()
		if err != nil {
			return err
		}
		if err := read([]byte(token.String())); err != nil {
			return err
		}
	}
	_, err := c.ReadToken()
	return err
}

// string calls read with the characters of a string, as far as they are some. Any other value is
// skipped.
func (c *callFinder) string(read func(text []byte)) error {
	raw, err := c.ReadValue()
	if err == nil && raw[0] == '"' {
		text, _ := unquote(raw)
		read(text)
	}
	return err
}
