package jsonrpc

import (
	"bytes"
	"errors"

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

const errTooManyTools = laxError("more than 10,000 tools")

// ReadToolsPage reads the response to a tools/list request. Everything but the members that are
// read may be as odd as it likes. A tool without a name of its own is left out.
//
// An error says that nothing can be learned from the response: it is no JSON text (ErrNoJSON), has
// no result.tools (ErrNoTools), or two readers could see two of them.
func ReadToolsPage(response []byte) (ToolsPage, error) {
	var r toolsReader
	r.begin(bytes.TrimPrefix(response, []byte(byteOrderMark)), toolsMembers)
	found, err := r.response()
	if err = r.end(err); err != nil {
		return ToolsPage{}, err
	}
	if !found {
		return ToolsPage{}, ErrNoTools
	}
	return r.page, nil
}

// toolsReader is one pass over a response. Its methods read one value each.
type toolsReader struct {
	laxReader
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

// toolsMembers are the names of the members that are read.
var toolsMembers = []string{"result", "tools", "ttlMs", "cacheScope", "name", "inputSchema"}

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
