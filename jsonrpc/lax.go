package jsonrpc

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// laxReader is one pass over a message of the upstream for a few members: of those there must be
// one at most, everything else may be as odd as it likes. Its methods read one value each.
type laxReader struct {
	decoder
	text  []byte
	names []string // of the members that are read
}

// laxError is why a message cannot be read.
type laxError string

func (e laxError) Error() string { return string(e) }

// ErrNoJSON says that a response is no JSON text.
const ErrNoJSON = laxError("not a JSON text")

// byteOrderMark may stand before a text: clients that decode it as UTF-8 leave it out.
const byteOrderMark = "\xEF\xBB\xBF"

const errTwoReaders = laxError("a member that is read stands there twice")

var laxOptions = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

func (r *laxReader) begin(text []byte, names []string) {
	r.text, r.names = text, names
	r.buf = *bytes.NewBuffer(text)
	r.Reset(&r.buf, laxOptions...)
}

// end ends a pass that read one value with the given error. Nothing but white space may follow.
func (r *laxReader) end(err error) error {
	if _, known := errors.AsType[laxError](err); known {
		return err
	}
	if err == nil {
		if _, err = r.ReadToken(); errors.Is(err, io.EOF) {
			return nil
		}
	}
	return ErrNoJSON
}

// object calls read with the name of each member; it reads the value, or says that the member is
// not known, and then it is skipped. A member that is known must be the only one of its name.
// Any other value than an object is skipped.
func (r *laxReader) object(read func(name string) (known bool, err error)) error {
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
		name := r.known(token)
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

// known returns the member's name if it is one of those that are read, without an allocation.
func (r *laxReader) known(token jsontext.Token) string {
	text := token.String()
	for _, name := range r.names {
		if text == name {
			return name
		}
	}
	return ""
}

// raw returns the next value as it stands in the text.
func (r *laxReader) raw() ([]byte, error) {
	value, err := r.ReadValue()
	if err != nil {
		return nil, err
	}
	end := r.InputOffset()
	return r.text[end-int64(len(value)) : end : end], nil
}

// string returns the characters of the next value, none if it is no string.
func (r *laxReader) string() (string, error) {
	raw, err := r.raw()
	if err != nil || raw[0] != '"' {
		return "", err
	}
	text, _ := unquote(raw)
	return string(text), nil
}

// shortText returns the characters of the next value, none if it is no string, not all characters
// or longer than maxText bytes.
func (r *laxReader) shortText() (string, error) {
	raw, err := r.raw()
	if err != nil || raw[0] != '"' {
		return "", err
	}
	if text, ok := unquote(raw); ok && len(text) <= maxText {
		return string(text), nil
	}
	return "", nil
}

// member calls read at the value of the one member that is read of the next value.
func (r *laxReader) member(name string, read func() error) error {
	return r.object(func(other string) (known bool, err error) {
		if other != name {
			return false, nil
		}
		return true, read()
	})
}
