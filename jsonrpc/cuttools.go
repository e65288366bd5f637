package jsonrpc

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// Why else a response cannot be cut.
var (
	errNoObject = errors.New("not a JSON object")
	errNoArray  = errors.New("its tools are no array")
)

// CutTools finds what to cut out of the response to a tools/list request, so that no tool is left
// in it that hides says of that it is to be hidden, by its name. A tool goes with one comma, and
// all else stays as it is. The cuts are in the order of the text, each from its first byte to the
// one after its last.
//
// A tool that has no name, or one that two readers could read differently, goes too: nobody can say
// that it is none of the hidden. A response without result.tools has nothing to cut.
//
// An error says that somebody may find a list in the response, and not the one that is found here:
// it is no JSON object, or has result or tools twice, or in another case besides.
func CutTools(response []byte, hides func(name string) bool) (cuts [][2]int64, err error) {
	c := toolsCutter{text: response, hides: hides}
	c.buf = *bytes.NewBuffer(response)
	c.Reset(&c.buf, laxOptions...)
	err = c.response()
	switch {
	case err == nil:
		return c.cuts, nil
	case errors.Is(err, errNoObject), errors.Is(err, errTwoReaders), errors.Is(err, errNoArray), errors.Is(err, errTooManyTools):
		return nil, err
	}
	return nil, ErrNoJSON // the decoder's own error quotes the text
}

// toolsCutter is one pass over a response. Its methods read one value each.
type toolsCutter struct {
	decoder
	text  []byte
	hides func(name string) bool
	cuts  [][2]int64
}

func (c *toolsCutter) response() error {
	if c.PeekKind() != jsontext.KindBeginObject {
		return errNoObject
	}
	err := c.object("result", func() error { return c.object("tools", c.tools) })
	if err != nil {
		return err
	}
	if _, err := c.ReadToken(); !errors.Is(err, io.EOF) {
		return ErrNoJSON
	}
	return nil
}

// object reads an object of which one member matters, whose value read reads. It must be the only
// one that a reader could take for it. Any other value than an object is skipped.
func (c *toolsCutter) object(member string, read func() error) error {
	if c.PeekKind() != jsontext.KindBeginObject {
		return c.SkipValue()
	}
	if _, err := c.ReadToken(); err != nil {
		return err
	}
	seen := false
	for c.PeekKind() != jsontext.KindEndObject {
		token, err := c.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		if !alike([]byte(name), []byte(member)) {
			if err := c.SkipValue(); err != nil {
				return err
			}
			continue
		}
		if seen || name != member {
			return errTwoReaders
		}
		seen = true
		if err := read(); err != nil {
			return err
		}
	}
	_, err := c.ReadToken()
	return err
}

// tools reads the list. As long as no tool was left in it, what is cut goes to where the next one
// begins; then each goes from the end of the one before it, so that its comma is with it.
func (c *toolsCutter) tools() error {
	switch c.PeekKind() {
	case jsontext.KindNull:
		return c.SkipValue() // some servers have no other word for none
	case jsontext.KindBeginArray:
	default:
		return errNoArray
	}
	if _, err := c.ReadToken(); err != nil {
		return err
	}
	end := c.InputOffset()
	first := c.next(end)
	left := false // a tool stays
	for n := 0; c.PeekKind() != jsontext.KindEndArray; n++ {
		if n == maxPageTools {
			return errTooManyTools
		}
		before, begin := end, c.next(end)
		stays, err := c.tool()
		if err != nil {
			return err
		}
		end = c.InputOffset()
		switch {
		case stays && !left && n > 0:
			c.cut(first, begin)
		case !stays && left:
			c.cut(before, end)
		}
		left = left || stays
	}
	if !left && end > first {
		c.cut(first, end)
	}
	_, err := c.ReadToken()
	return err
}

// next returns where the value begins that follows the bracket or the value that ends at the offset.
func (c *toolsCutter) next(end int64) int64 {
	rest := c.text[end:]
	return end + int64(len(rest)-len(bytes.TrimLeft(rest, " \t\r\n,")))
}

func (c *toolsCutter) cut(start, end int64) {
	if last := len(c.cuts) - 1; last >= 0 && c.cuts[last][1] == start {
		c.cuts[last][1] = end
		return
	}
	c.cuts = append(c.cuts, [2]int64{start, end})
}

// tool reads one tool and reports whether it stays.
func (c *toolsCutter) tool() (stays bool, err error) {
	if c.PeekKind() != jsontext.KindBeginObject {
		return false, c.SkipValue()
	}
	if _, err := c.ReadToken(); err != nil {
		return false, err
	}
	names := 0
	for c.PeekKind() != jsontext.KindEndObject {
		token, err := c.ReadToken()
		if err != nil {
			return false, err
		}
		member := token.String()
		if !alike([]byte(member), []byte("name")) {
			if err := c.SkipValue(); err != nil {
				return false, err
			}
			continue
		}
		raw, err := c.ReadValue()
		if err != nil {
			return false, err
		}
		names++
		stays = member == "name" && raw[0] == '"' && c.shows(raw)
	}
	_, err = c.ReadToken()
	return stays && names == 1, err
}

// shows reports whether a tool of this name, a JSON string, is not to be hidden.
func (c *toolsCutter) shows(raw []byte) bool {
	name, ok := unquote(raw)
	return ok && !c.hides(string(name))
}
