package jsonrpc

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// ToolsPage is one page of a tools/list result.
type ToolsPage struct {
	Tools []ToolDefinition

	// TTL is ttlMs, 0 if it is absent or no integer above 0 (specification, Caching).
	TTL int64

	// Public says that cacheScope is "public": the page is the same for every caller.
	Public bool
}

// ToolDefinition is what one tool says of its name and arguments. Both are the page's bytes.
type ToolDefinition struct {
	Name        string
	InputSchema []byte // nil if there is none; unchecked
}

// ErrNoTools says that a response has no result.tools: most often it is an error.
var ErrNoTools = errors.New("no result with a tools array")

// Why else a page of tools cannot be read.
var (
	errNoJSON       = errors.New("not a JSON text")
	errTwoReaders   = errors.New("a member that is read stands there twice")
	errTooManyTools = errors.New("more than 10,000 tools")
)

// ReadToolsPage reads the response to a tools/list request. Everything but the members that are
// read may be as odd as it likes. A tool without a name of its own is left out.
//
// An error says that nothing can be learned from the response: it is no JSON text, has no
// result.tools, or two readers could see two of them.
func ReadToolsPage(response []byte) (ToolsPage, error) {
	r := toolsReader{text: response}
	r.buf = *bytes.NewBuffer(response)
	r.Reset(&r.buf, laxOptions...)
	found, err := r.response()
	if errors.Is(err, errTwoReaders) || errors.Is(err, errTooManyTools) {
		return ToolsPage{}, err
	}
	if err == nil {
		_, err = r.ReadToken()
	} else {
		err = errNoJSON
	}
	switch {
	case !errors.Is(err, io.EOF):
		return ToolsPage{}, errNoJSON
	case !found:
		return ToolsPage{}, ErrNoTools
	}
	return r.page, nil
}

var laxOptions = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// toolsReader is one pass over a response. Its methods read one value each.
type toolsReader struct {
	decoder
	text []byte
	page ToolsPage
}

// response reports whether there is a result with tools.
func (r *toolsReader) response() (found bool, err error) {
	return found, r.object(func(name string) (known bool, err error) {
		if name != "result" {
			return false, nil
		}
		return true, r.object(func(name string) (bool, error) {
			switch name {
			case "tools":
				found = r.PeekKind() == jsontext.KindBeginArray
				return true, r.tools()
			case "ttlMs":
				raw, err := r.raw()
				r.page.TTL = positiveInteger(raw)
				return true, err
			case "cacheScope":
				scope, err := r.string()
				r.page.Public = scope == "public"
				return true, err
			}
			return false, nil
		})
	})
}

func (r *toolsReader) tools() error {
	if r.PeekKind() != jsontext.KindBeginArray {
		return r.SkipValue()
	}
	if _, err := r.ReadToken(); err != nil {
		return err
	}
	for r.PeekKind() != jsontext.KindEndArray {
		if len(r.page.Tools) == maxPageTools {
			return errTooManyTools
		}
		if err := r.tool(); err != nil {
			return err
		}
	}
	_, err := r.ReadToken()
	return err
}

// maxPageTools is how many tools one page may have, so that a page costs no more memory than a
// few times its text.
const maxPageTools = 10_000

func (r *toolsReader) tool() error {
	var tool ToolDefinition
	err := r.object(func(name string) (known bool, err error) {
		switch name {
		case "name":
			tool.Name, err = r.string()
			return true, err
		case "inputSchema":
			tool.InputSchema, err = r.raw()
			return true, err
		}
		return false, nil
	})
	if err == nil && tool.Name != "" {
		r.page.Tools = append(r.page.Tools, tool)
	}
	return err
}

// object calls read with the name of each member; it reads the value, or says that the member is
// not known, and then it is skipped. A member that is known must be the only one of its name.
// Any other value than an object is skipped.
func (r *toolsReader) object(read func(name string) (known bool, err error)) error {
	if r.PeekKind() != jsontext.KindBeginObject {
		return r.SkipValue()
	}
	if _, err := r.ReadToken(); err != nil {
		return err
	}
	var seen []string // few are known
	for r.PeekKind() != jsontext.KindEndObject {
		token, err := r.ReadToken()
		if err != nil {
			return err
		}
		name := knownName(token)
		known := false
		if name != "" {
			if known, err = read(name); err != nil {
				return err
			}
		}
		if !known {
			if err := r.SkipValue(); err != nil {
				return err
			}
			continue
		}
		for _, other := range seen {
			if other == name {
				return errTwoReaders
			}
		}
		seen = append(seen, name)
	}
	_, err := r.ReadToken()
	return err
}

// toolsMembers are the names of the members that are read.
var toolsMembers = [...]string{"result", "tools", "ttlMs", "cacheScope", "name", "inputSchema"}

// knownName returns the member's name if it is one of those that are read, without an allocation.
func knownName(token jsontext.Token) string {
	text := token.String()
	for _, name := range toolsMembers {
		if text == name {
			return name
		}
	}
	return ""
}

// raw returns the next value as it stands in the text.
func (r *toolsReader) raw() ([]byte, error) {
	value, err := r.ReadValue()
	if err != nil {
		return nil, err
	}
	end := r.InputOffset()
	return r.text[end-int64(len(value)) : end : end], nil
}

// string returns the characters of the next value, none if it is no string.
func (r *toolsReader) string() (string, error) {
	raw, err := r.raw()
	if err != nil || raw[0] != '"' {
		return "", err
	}
	text, _ := unquote(raw)
	return string(text), nil
}

// positiveInteger returns the value of a plain integer above 0, or 0.
func positiveInteger(raw []byte) (n int64) {
	const most = 1 << 53
	for _, c := range raw {
		if !isDigit(c) {
			return 0
		}
		n = min(n*10+int64(c-'0'), most)
	}
	return n
}
