package jsonrpc

import (
	"bytes"
	"strconv"
)

// maxSafeInteger is 2^53-1, beyond which a double no longer holds every integer (RFC 7493,
// section 2.2).
const maxSafeInteger = 1<<53 - 1

// CanonicalInteger reports whether a JSON number token is an integer in its one canonical
// spelling, -?(0|[1-9][0-9]*) and not -0, within ±(2^53-1).
func CanonicalInteger(token []byte) bool {
	if len(token) > len("-9007199254740991") {
		return false
	}
	n, err := strconv.ParseInt(string(token), 10, 64)
	if err != nil || n < -maxSafeInteger || n > maxSafeInteger {
		return false
	}
	var canonical [20]byte
	return bytes.Equal(strconv.AppendInt(canonical[:0], n, 10), token)
}

// isInteger reports whether a JSON number token is spelled without a fraction or an exponent.
func isInteger(token []byte) bool {
	return !bytes.ContainsAny(token, ".eE")
}

// EqualNumbers reports whether two JSON number tokens have exactly the same value, however
// they are spelled: 2000, 2e3 and 2000.0 are equal, as are 0 and -0. Nothing is converted or
// expanded; the time is linear in the length of the tokens, whatever their exponents.
func EqualNumbers(a, b []byte) bool {
	x, y := parseDecimal(a), parseDecimal(b)
	if x.len() != y.len() {
		return false
	}
	if x.len() == 0 {
		return true
	}
	for i := range x.len() {
		if x.digit(i) != y.digit(i) {
			return false
		}
	}
	return x.negative == y.negative && x.exponent.minus(y.exponent) == y.scale-x.scale
}

// decimal is the value ±0.DDD × 10^(scale+exponent), where neither the first nor the last of
// the digits D is 0. Zero has no digits.
type decimal struct {
	negative bool
	whole    []byte // the digits before the point
	fraction []byte // the digits after it
	scale    int64
	exponent exponent
}

func parseDecimal(token []byte) decimal {
	var d decimal
	token, d.negative = bytes.CutPrefix(token, []byte("-"))
	if i := bytes.IndexAny(token, "eE"); i >= 0 {
		d.exponent = parseExponent(token[i+1:])
		token = token[:i]
	}
	whole, fraction, _ := bytes.Cut(token, []byte("."))

	d.whole = bytes.TrimLeft(whole, "0")
	d.fraction = bytes.TrimRight(fraction, "0")
	d.scale = int64(len(d.whole))
	if len(d.whole) == 0 {
		digits := bytes.TrimLeft(d.fraction, "0")
		d.scale = int64(len(digits) - len(d.fraction))
		d.fraction = digits
	}
	if len(d.fraction) == 0 {
		d.whole = bytes.TrimRight(d.whole, "0")
	}
	return d
}

func (d *decimal) len() int { return len(d.whole) + len(d.fraction) }

func (d *decimal) digit(i int) byte {
	if i < len(d.whole) {
		return d.whole[i]
	}
	return d.fraction[i-len(d.whole)]
}

// exponent is an integer of any size.
type exponent struct {
	negative bool
	digits   []byte
}

func parseExponent(text []byte) exponent {
	digits, negative := bytes.CutPrefix(text, []byte("-"))
	return exponent{negative, bytes.TrimPrefix(digits, []byte("+"))}
}

// minus returns e-f, or a number beyond the length of any token if it is that far from 0.
//
// It subtracts digit by digit, the highest first. Once the difference is large, no digits that
// follow can bring it back.
func (e exponent) minus(f exponent) int64 {
	const far = 1 << 56
	diff := int64(0)
	for place := max(len(e.digits), len(f.digits)); place > 0; place-- {
		diff = 10*diff + e.at(place) - f.at(place)
		if diff > far || diff < -far {
			return diff
		}
	}
	return diff
}

// at returns the signed digit at a decimal place, 1 being the last.
func (e exponent) at(place int) int64 {
	if place > len(e.digits) {
		return 0
	}
	digit := int64(e.digits[len(e.digits)-place] - '0')
	if e.negative {
		return -digit
	}
	return digit
}
