package effect

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/caddymcp/gateway/jsonrpc"
)

// Limits of a key. A part is an identifier, not a text. A key may still be
// longer than what every store can index: its digest is not.
const (
	MaxParts = 16
	MaxPart  = 1024 // bytes of one resolved part
)

// argumentPrefix begins the placeholders that name an argument of the call.
const argumentPrefix = "http.mcp.args."

// Template is what the key of a tool's effect is made of.
type Template struct {
	parts []part
}

// part is a literal or a placeholder.
type part struct {
	literal     string
	placeholder string // without its braces
}

// ParseTemplate reads the parts of an effect. Each is a literal or exactly one
// placeholder: where several stand in one part, two effects could get one key.
// Without any placeholder all calls would be one effect, which is refused.
func ParseTemplate(parts []string) (*Template, error) {
	if len(parts) > MaxParts {
		return nil, fmt.Errorf("an effect has %d parts: it can have %d", len(parts), MaxParts)
	}
	t := new(Template)
	variable := false
	for _, text := range parts {
		p, err := parsePart(text)
		if err != nil {
			return nil, err
		}
		variable = variable || p.placeholder != ""
		t.parts = append(t.parts, p)
	}
	if !variable {
		return nil, fmt.Errorf("effect %q has no placeholder: every call would be the same effect", strings.Join(parts, " "))
	}
	return t, nil
}

func parsePart(text string) (part, error) {
	switch {
	case text == "":
		return part{}, fmt.Errorf("a part of an effect is empty")
	case len(text) > MaxPart:
		return part{}, fmt.Errorf("a part of an effect has %d bytes: it can have %d", len(text), MaxPart)
	case !utf8.ValidString(text):
		return part{}, fmt.Errorf("part %q of an effect is not UTF-8", text)
	case !strings.ContainsAny(text, "{}"):
		return part{literal: text}, nil
	}
	name, opened := strings.CutPrefix(text, "{")
	name, closed := strings.CutSuffix(name, "}")
	if !opened || !closed || name == "" || name == argumentPrefix || strings.ContainsAny(name, "{}") {
		return part{}, fmt.Errorf("part %q of an effect must be a text without braces or one placeholder alone: separate parts with spaces", text)
	}
	return part{placeholder: name}, nil
}

// Key resolves the parts for one message. An argument is read from the
// message, any other placeholder through resolve, which is called with its
// name and reports false if it is unknown; its value may be a string or an
// integer.
//
// A part that has no usable value refuses the call, with CodeNoKey.
func (t *Template) Key(namespace string, m *jsonrpc.Message, resolve func(placeholder string) (any, bool)) (Key, *Refusal) {
	texts := make([]string, len(t.parts))
	for i, p := range t.parts {
		var problem string
		if texts[i], problem = p.resolve(m, resolve); problem != "" {
			return Key{}, &Refusal{
				Code:        CodeNoKey,
				Text:        "The effect of this call cannot be identified: {" + p.placeholder + "} " + problem + ". Nothing was forwarded; correct it and call again.",
				Placeholder: "{" + p.placeholder + "}",
			}
		}
	}
	return NewKey(namespace, texts...), nil
}

// The problems of a part, as they end the sentence that names it.
const (
	partAbsent  = "is absent, or can be read in two ways"
	partEmpty   = "is empty"
	partType    = "is neither a string nor an integer"
	partInteger = "is no integer in its plain decimal form within ±(2^53-1)"
	partLong    = "is too long"
	partUTF8    = "is not UTF-8"
)

func (p part) resolve(m *jsonrpc.Message, resolve func(string) (any, bool)) (text, problem string) {
	if p.placeholder == "" {
		return p.literal, ""
	}
	if path, ok := strings.CutPrefix(p.placeholder, argumentPrefix); ok {
		text, problem = memberText(m.Argument(path))
	} else if value, ok := resolve(p.placeholder); ok {
		text, problem = valueText(value)
	} else {
		return "", partAbsent
	}
	switch {
	case problem != "":
		return "", problem
	case text == "":
		return "", partEmpty
	case len(text) > MaxPart:
		return "", partLong
	case !utf8.ValidString(text):
		return "", partUTF8
	}
	return text, ""
}

// memberText is the text as which an argument enters a key: 123 and "123" are
// one payment.
func memberText(m jsonrpc.Member) (text, problem string) {
	switch m.Type {
	case jsonrpc.Absent:
		return "", partAbsent
	case jsonrpc.String:
		text, _ = m.Text() // admission has refused what is no text
		return text, ""
	case jsonrpc.Number:
		if jsonrpc.CanonicalInteger(m.Raw) {
			return string(m.Raw), ""
		}
		return "", partInteger
	}
	return "", partType
}

// valueText is memberText for the value of a placeholder.
func valueText(value any) (text, problem string) {
	switch v := value.(type) {
	case nil:
		return "", partAbsent
	case string:
		return v, ""
	case int:
		return strconv.Itoa(v), ""
	case int64:
		return strconv.FormatInt(v, 10), ""
	}
	return "", partType
}
