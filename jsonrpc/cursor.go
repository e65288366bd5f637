package jsonrpc

import "bytes"

// cursor steps through a JSON text that is known to be valid, as the strict pass leaves it. It
// checks nothing and copies nothing, which makes it several times faster than a decoder, and it
// must not see any other text.
type cursor struct {
	text []byte
	at   int
}

// space skips white space and returns the byte that follows.
func (c *cursor) space() byte {
	for {
		switch b := c.text[c.at]; b {
		case ' ', '\t', '\r', '\n':
			c.at++
		default:
			return b
		}
	}
}

// take skips one byte.
func (c *cursor) take() { c.at++ }

// string skips the string at the cursor and returns it, quotes included.
func (c *cursor) string() []byte {
	start := c.at
	for end := start + 1; ; end++ {
		end += bytes.IndexByte(c.text[end:], '"')
		if !isEscaped(c.text[start+1 : end]) {
			c.at = end + 1
			return c.text[start:c.at]
		}
	}
}

// isEscaped reports whether what follows inner, the beginning of a string, is escaped.
func isEscaped(inner []byte) bool {
	backslashes := len(inner) - len(bytes.TrimRight(inner, `\`))
	return backslashes%2 == 1
}

// value skips the value at the cursor, of any type.
func (c *cursor) value() {
	switch c.text[c.at] {
	case '"':
		c.string()
	case '{', '[':
		c.container()
	default:
		c.literal()
	}
}

// since returns the value that began at start and ends at the cursor.
func (c *cursor) since(start int) Member {
	raw := c.text[start:c.at:c.at]
	switch raw[0] {
	case '"':
		return Member{String, raw}
	case '{':
		return Member{Object, raw}
	case '[':
		return Member{Array, raw}
	case 't', 'f':
		return Member{Bool, raw}
	case 'n':
		return Member{Null, raw}
	default:
		return Member{Number, raw}
	}
}

// container skips the object or array at the cursor.
func (c *cursor) container() {
	for depth := 0; ; {
		switch c.text[c.at] {
		case '"':
			c.string()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		c.at++
		if depth == 0 {
			return
		}
	}
}

// literal skips the number or word at the cursor.
func (c *cursor) literal() {
	for c.at < len(c.text) {
		switch c.text[c.at] {
		case ' ', '\t', '\r', '\n', ',', ']', '}':
			return
		}
		c.at++
	}
}
