package mcpheaders

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"github.com/caddymcp/gateway/jsonrpc"
)

// NumericMatch says how a header is held against an integer of the body.
type NumericMatch uint8

const (
	// Canonical accepts the one rendering of the integer and nothing else.
	Canonical NumericMatch = iota

	// Lenient also accepts other decimal spellings of the same integer, in the
	// header and in the body: 42.0 and 4.2e1 for 42. The specification says
	// that a server SHOULD; every such spelling is one that another hop may
	// read differently.
	Lenient
)

// agree reports whether text, a decoded header value, is the one rendering of
// value (design, Agreement). Both are compared as text: there is no parser in
// the comparison, and so none that another hop could disagree with. What has no
// rendering, null, fractions, exponents, integers beyond ±(2^53-1), arrays and
// objects, agrees with nothing.
func agree(value jsonrpc.Member, text string, numeric NumericMatch) bool {
	switch value.Type {
	case jsonrpc.String:
		return isText(value, text)
	case jsonrpc.Bool:
		return string(value.Raw) == text
	case jsonrpc.Number:
		if jsonrpc.CanonicalInteger(value.Raw) && string(value.Raw) == text {
			return true
		}
		return numeric == Lenient && isSpelling(text, value.Raw)
	default:
		return false
	}
}

// isSpelling is the lenient comparison: text stands for the integer that the
// body's token stands for. It relaxes how an integer is spelled, not its range:
// written out, it must be canonical.
func isSpelling(text string, token []byte) bool {
	integer, ok := integerOf(text)
	return ok && jsonrpc.CanonicalInteger([]byte(integer)) && jsonrpc.EqualNumbers(token, []byte(integer))
}

// decimal is what the lenient comparison reads as a number: no plus sign, no
// leading zero, no white space, no other base or digits, and an exponent too
// small to expand into much.
var decimal = regexp.MustCompile(`^(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE](-?[0-9]{1,2}))?$`)

// integerOf writes out the integer that a decimal spelling stands for.
func integerOf(text string) (integer string, ok bool) {
	parts := decimal.FindStringSubmatch(text)
	if parts == nil {
		return "", false
	}
	sign, whole, fraction := parts[1], parts[2], parts[3]
	exponent := 0
	if parts[4] != "" {
		exponent, _ = strconv.Atoi(parts[4]) // the expression admits nothing else
	}

	// Move the point: digits[:point] is the integer, the rest must be zeros.
	digits, point := whole+fraction, len(whole)+exponent
	if point > len(digits) {
		digits += strings.Repeat("0", point-len(digits))
	}
	point = max(point, 0)
	if strings.Trim(digits[point:], "0") != "" {
		return "", false
	}
	integer = strings.TrimLeft(digits[:point], "0")
	if integer == "" {
		integer = "0"
	}
	return sign + integer, true
}

// integerOfToken writes out the integer that a number of the body stands for,
// which JSON lets spell in ways that a header may not; empty if there is none, or
// its exponent is large.
func integerOfToken(token string) string {
	if digits, exponent, ok := strings.Cut(strings.ToLower(token), "e"); ok {
		exponent = strings.TrimPrefix(exponent, "+")
		sign := ""
		if strings.HasPrefix(exponent, "-") {
			sign = "-"
		}
		exponent = strings.TrimLeft(strings.TrimPrefix(exponent, "-"), "0")
		if exponent == "" {
			exponent = "0"
		}
		token = digits + "e" + sign + exponent
	}
	integer, _ := integerOf(token)
	if integer == "-0" {
		return "0"
	}
	return integer
}

// isText reports whether value is a string of exactly these characters.
func isText(value jsonrpc.Member, text string) bool {
	return value.Type == jsonrpc.String && string(characters(value)) == text
}

// characters returns those of a string. It copies nothing unless the string has
// escapes.
func characters(value jsonrpc.Member) []byte {
	inner := value.Raw[1 : len(value.Raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	unescaped, _ := value.Text()
	return []byte(unescaped)
}
