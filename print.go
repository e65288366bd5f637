package gateway

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// printable returns a text for a terminal: what cannot be printed, and could
// do something to it, is escaped as in JSON. Tools and keys are what callers
// say.
func printable(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return b.String()
}
