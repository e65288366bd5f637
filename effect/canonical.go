package effect

import (
	"bytes"
	"slices"
	"strconv"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/caddymcp/gateway/jsonrpc"
)

// canonicalizer renders JSON texts in their canonical form (RFC 8785), in one
// pass. It must only see what jsonrpc.Message.Parse has found to be valid JSON
// without invalid UTF-8 or half surrogate pairs, of limited depth. Of numbers
// it knows the integers that are canonical already.
//
// Members are written as they come and put in order when their object ends.
type canonicalizer struct {
	text []byte
	at   int
	out  []byte

	members []written // of all the objects that are open, the innermost last
	arena   []byte    // names that were escaped
	scratch []byte

	inexact bool // a number was no canonical integer
}

// written is a member that was written.
type written struct {
	name       []byte // unescaped; aliases the text or the arena
	start, end int    // of its name and value in out
}

var canonicalizers = sync.Pool{New: func() any { return new(canonicalizer) }}

// What one unusual text made a canonicalizer grow to is not kept beyond this.
const (
	keptBytes   = 64 << 10
	keptMembers = 1024
)

// canonical calls use with a canonicalizer, whose buffers are valid until it
// returns.
func canonical(use func(*canonicalizer)) {
	c := canonicalizers.Get().(*canonicalizer)
	use(c)
	clear(c.members[:cap(c.members)]) // they alias the text
	if cap(c.out) > keptBytes || cap(c.scratch) > keptBytes || cap(c.arena) > keptBytes || cap(c.members) > keptMembers {
		return
	}
	*c = canonicalizer{out: c.out[:0], members: c.members[:0], arena: c.arena[:0], scratch: c.scratch[:0]}
	canonicalizers.Put(c)
}

// append writes the canonical form of one text.
func (c *canonicalizer) append(text []byte) {
	c.text, c.at = text, 0
	c.value()
}

// space skips white space and returns the byte that follows.
func (c *canonicalizer) space() byte {
	for {
		switch b := c.text[c.at]; b {
		case ' ', '\t', '\r', '\n':
			c.at++
		default:
			return b
		}
	}
}

// copy writes the next byte, which is punctuation.
func (c *canonicalizer) copy() {
	c.out = append(c.out, c.text[c.at])
	c.at++
}

func (c *canonicalizer) value() {
	switch c.space() {
	case '{':
		c.object()
	case '[':
		c.array()
	case '"':
		c.out = appendCanonicalString(c.out, c.string())
	case 't', 'f', 'n':
		c.out = append(c.out, c.scalar()...)
	default:
		number := c.scalar()
		c.inexact = c.inexact || !jsonrpc.CanonicalInteger(number)
		c.out = append(c.out, number...)
	}
}

func (c *canonicalizer) array() {
	c.copy()
	for c.space() != ']' {
		if c.text[c.at] == ',' {
			c.copy()
		}
		c.value()
	}
	c.copy()
}

func (c *canonicalizer) object() {
	c.copy()
	first, arena, start := len(c.members), len(c.arena), len(c.out)
	for c.space() != '}' {
		if c.text[c.at] == ',' {
			c.copy()
			c.space()
		}
		m := written{start: len(c.out)}
		raw := c.string()
		m.name = c.unescaped(raw)
		c.out = appendCanonicalString(c.out, raw)
		c.space()
		c.copy() // the colon
		c.value()
		m.end = len(c.out)
		c.members = append(c.members, m)
	}
	c.order(c.members[first:], start)
	c.members, c.arena = c.members[:first], c.arena[:arena]
	c.copy()
}

// order puts the members that were written from start on in order.
func (c *canonicalizer) order(members []written, start int) {
	if slices.IsSortedFunc(members, byName) {
		return
	}
	slices.SortFunc(members, byName)
	c.scratch = append(c.scratch[:0], c.out[start:]...)
	c.out = c.out[:start]
	for i, m := range members {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, c.scratch[m.start-start:m.end-start]...)
	}
}

// byName compares names by their UTF-16 code units (RFC 8785, section 3.2.3).
// UTF-8 sorts alike, but for the characters beyond the basic plane (first byte
// from 0xF0), which UTF-16 puts before U+E000 to U+FFFF (0xEE and 0xEF).
func byName(a, b written) int {
	for i := range min(len(a.name), len(b.name)) {
		if x, y := a.name[i], b.name[i]; x != y {
			return int(utf16Order(x)) - int(utf16Order(y))
		}
	}
	return len(a.name) - len(b.name)
}

func utf16Order(b byte) byte {
	if b == 0xEE || b == 0xEF {
		return b + 0x10
	}
	return b
}

// string skips the string at the cursor and returns it without its quotes.
func (c *canonicalizer) string() []byte {
	start := c.at + 1
	for end := start; ; end++ {
		end += bytes.IndexByte(c.text[end:], '"')
		raw := c.text[start:end]
		if escapes := len(raw) - len(bytes.TrimRight(raw, `\`)); escapes%2 == 0 {
			c.at = end + 1
			return raw
		}
	}
}

// scalar skips the number or word at the cursor and returns it.
func (c *canonicalizer) scalar() []byte {
	start := c.at
	for c.at < len(c.text) {
		switch c.text[c.at] {
		case ' ', '\t', '\r', '\n', ',', ']', '}':
			return c.text[start:c.at]
		}
		c.at++
	}
	return c.text[start:]
}

// unescaped returns the characters of a name, in the arena if it has escapes.
func (c *canonicalizer) unescaped(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	start := len(c.arena)
	for len(raw) > 0 {
		var r rune
		r, raw = nextRune(raw)
		c.arena = utf8.AppendRune(c.arena, r)
	}
	return c.arena[start:]
}

// appendCanonicalString appends the canonical form of a valid JSON string,
// which raw is without its quotes.
func appendCanonicalString(dst, raw []byte) []byte {
	dst = append(dst, '"')
	for {
		plain := bytes.IndexByte(raw, '\\')
		if plain < 0 {
			break
		}
		dst = append(dst, raw[:plain]...)
		var r rune
		r, raw = nextRune(raw[plain:])
		dst = appendRune(dst, r)
	}
	return append(append(dst, raw...), '"')
}

// appendString appends the canonical form of a text that is valid UTF-8.
func appendString(dst []byte, text string) []byte {
	dst = append(dst, '"')
	for _, r := range text {
		dst = appendRune(dst, r)
	}
	return append(dst, '"')
}

// appendRune appends a character as the canonical form has it: escaped only
// where JSON demands it, by the short escape if there is one (RFC 8785,
// section 3.2.2.2).
func appendRune(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, `\b`...)
	case '\t':
		return append(dst, `\t`...)
	case '\n':
		return append(dst, `\n`...)
	case '\f':
		return append(dst, `\f`...)
	case '\r':
		return append(dst, `\r`...)
	}
	if r < ' ' {
		const hex = "0123456789abcdef"
		return append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&0xF])
	}
	return utf8.AppendRune(dst, r)
}

// nextRune reads the first character of a string that is valid JSON.
func nextRune(raw []byte) (r rune, rest []byte) {
	if raw[0] != '\\' {
		r, size := utf8.DecodeRune(raw)
		return r, raw[size:]
	}
	switch raw[1] {
	case 'b':
		return '\b', raw[2:]
	case 'f':
		return '\f', raw[2:]
	case 'n':
		return '\n', raw[2:]
	case 'r':
		return '\r', raw[2:]
	case 't':
		return '\t', raw[2:]
	case 'u':
		const escape = len(`\u0000`)
		r, rest = hexRune(raw), raw[escape:]
		if utf16.IsSurrogate(r) {
			return utf16.DecodeRune(r, hexRune(rest)), rest[escape:]
		}
		return r, rest
	}
	return rune(raw[1]), raw[2:] // a quote, a slash or a backslash
}

// hexRune reads the code unit of an escape \uXXXX.
func hexRune(raw []byte) rune {
	unit, _ := strconv.ParseUint(string(raw[2:6]), 16, 16)
	return rune(unit)
}
