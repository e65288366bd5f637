package mcpheaders

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// The two marks of an encoded header value (specification, Value Encoding).
// Case matters.
const (
	sentinelPrefix = "=?base64?"
	sentinelSuffix = "?="
)

// encode returns the header value that carries text: text itself where that is
// safe, otherwise the sentinel. A text that looks like a sentinel is not safe.
func encode(text string) string {
	_, marked := cutSentinel(text)
	if !marked && text == trim(text) && isPlain(text) {
		return text
	}
	return sentinelPrefix + base64.StdEncoding.EncodeToString([]byte(text)) + sentinelSuffix
}

// decode returns the text that a trimmed header value carries. It is false for
// a sentinel that is not canonical base64 of valid UTF-8. Such a value is never
// compared as it stands: a body that holds the wrapper's own characters would
// agree with it.
func decode(value string) (text string, ok bool) {
	inner, marked := cutSentinel(value)
	if !marked {
		return value, true
	}
	decoded, err := base64.StdEncoding.DecodeString(inner)
	if err != nil || !utf8.Valid(decoded) {
		return "", false
	}
	// One text has one spelling: the decoder skips newlines and ignores stray
	// low bits, other decoders do not.
	if base64.StdEncoding.EncodeToString(decoded) != inner {
		return "", false
	}
	return string(decoded), true
}

// cutSentinel returns what stands between the two marks. A value with only one
// of them, or in which they overlap, is a literal.
func cutSentinel(value string) (inner string, marked bool) {
	rest, prefixed := strings.CutPrefix(value, sentinelPrefix)
	if !prefixed {
		return "", false
	}
	return strings.CutSuffix(rest, sentinelSuffix)
}

// trim removes the white space around a header value (RFC 9110, section 5.5).
func trim(value string) string { return strings.Trim(value, " \t") }

// isPlain reports whether a header can carry the bytes of text as they are:
// 0x20 to 0x7E and HTAB.
func isPlain(text string) bool {
	for i := range len(text) {
		if !isPlainByte(text[i]) {
			return false
		}
	}
	return true
}

func isPlainByte(b byte) bool { return 0x20 <= b && b <= 0x7E || b == '\t' }
