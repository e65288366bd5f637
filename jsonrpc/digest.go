package jsonrpc

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// textDigest is the SHA-256 of the characters of a JSON string that is pushed to it in pieces of
// any size, without its quotes: the same for every spelling. The string must be valid JSON, as
// the scanner leaves it.
//
// Half a surrogate pair and invalid UTF-8 stand for no character. They are digested as what they
// are, three bytes that no UTF-8 has and the bytes themselves, so that the digest is that of a
// text that is no valid UTF-8 and differs from the digest of every text that is.
type textDigest struct {
	hash   hash.Hash
	escape []byte // an escape as far as it was read
	high   rune   // the first half of a surrogate pair, while the second may follow; else 0
	out    []byte // of one character; kept for its memory
}

func (d *textDigest) reset() {
	if d.hash == nil {
		d.hash = sha256.New()
	}
	d.hash.Reset()
	d.escape, d.high = d.escape[:0], 0
}

func (d *textDigest) write(p []byte) {
	for len(p) > 0 {
		if len(d.escape) == 0 && p[0] != '\\' {
			plain, _, _ := bytes.Cut(p, []byte{'\\'})
			d.endHalf()
			d.hash.Write(plain)
			p = p[len(plain):]
			continue
		}
		d.escape = append(d.escape, p[0])
		p = p[1:]
		d.endEscape()
	}
}

func (d *textDigest) sum() (sum [sha256.Size]byte) {
	d.endHalf()
	d.hash.Sum(sum[:0])
	return sum
}

// endEscape digests the escape, if it is whole.
func (d *textDigest) endEscape() {
	switch e := d.escape; {
	case len(e) == len(`\n`) && e[1] != 'u':
		d.endHalf()
		d.character(unescaped(e[1]))
	case len(e) == len(`\u0000`):
		unit, _ := strconv.ParseUint(string(e[2:]), 16, 16)
		d.unit(rune(unit))
	default:
		return
	}
	d.escape = d.escape[:0]
}

// unescaped returns the character that an escape of one letter stands for.
func unescaped(letter byte) rune {
	switch letter {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return rune(letter)
}

// unit digests a UTF-16 code unit.
func (d *textDigest) unit(unit rune) {
	if pair := utf16.DecodeRune(d.high, unit); pair != utf8.RuneError {
		d.high = 0
		d.character(pair)
		return
	}
	d.endHalf()
	if 0xD800 <= unit && unit < 0xDC00 {
		d.high = unit
		return
	}
	d.character(unit)
}

// endHalf digests the first half of a pair, to which the second did not follow.
func (d *textDigest) endHalf() {
	if d.high != 0 {
		high := d.high
		d.high = 0
		d.character(high)
	}
}

// character digests a character, or half a surrogate pair as the bytes that UTF-8 would have for
// it if it had any.
func (d *textDigest) character(c rune) {
	d.out = d.out[:0]
	if utf16.IsSurrogate(c) {
		d.out = append(d.out, 0xE0|byte(c>>12), 0x80|byte(c>>6)&0x3F, 0x80|byte(c)&0x3F)
	} else {
		d.out = utf8.AppendRune(d.out, c)
	}
	d.hash.Write(d.out)
}
