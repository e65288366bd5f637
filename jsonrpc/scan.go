package jsonrpc

// scanner reads a JSON text that is pushed to it in pieces of any size, in memory that does
// not depend on the size of the text but for one bit per open level.
//
// It knows the grammar of RFC 8259 and nothing else: duplicate names, invalid UTF-8 and lone
// surrogates pass.
type scanner struct {
	state  scanState
	naming bool   // the string that is being read is a member's name
	rest   string // of a literal: what must follow
	hex    int    // of an escape: the hexadecimal digits that must follow

	levels []uint64 // one bit per open level, the outermost first: 1 is an object
	depth  int      // number of open levels

	offset int64 // bytes that were consumed
	start  int64 // offset of the first byte of the last token

	typ     Type   // of the value that was read or opened last
	integer bool   // of a number: it has neither a fraction nor an exponent
	token   []byte // the last name, or the last scalar as far as it was asked for
	limit   int    // bytes of the token that are kept
	cut     bool   // the token is longer
	want    int    // bytes of the coming value to keep, if it is a string or a number
}

// event is what one call to scan ends with.
type event uint8

const (
	evNone  event = iota // the end of the piece
	evName               // a member's name: token
	evValue              // a scalar: typ, token, start
	evOpen               // the beginning of an object or array: typ, start
	evClose              // its end
)

type scanState uint8

const (
	atValue       scanState = iota // a value must come
	atFirst                        // after a bracket: a value or the end of the array
	atFirstMember                  // after a brace: a name or the end of the object
	atMember                       // after a comma in an object: a name
	atColon                        // after a name
	atNext                         // after a value in an array or object: a comma or its end
	atEnd                          // after the whole text: nothing
	inString                       // from here to inExponent: in a token
	inEscape                       // after a backslash
	inHex                          // after \u
	inLiteral
	inMinus // after the sign of a number
	inZero  // after a leading zero
	inWhole
	inPoint
	inFraction
	inE
	inESign
	inExponent
	broken // this is no JSON text
)

// maxLevels bounds the memory for open levels to 128 KiB.
const maxLevels = 1 << 20

// maxName is the number of bytes to keep of a name: those that are watched for fit in it even
// if each character is escaped.
const maxName = 6*len(OutcomeMember) + len(`""`)

func (s *scanner) reset() {
	*s = scanner{levels: s.levels[:0], token: s.token[:0]}
}

// scan consumes p up to the end of the next event, and returns how many bytes that are. The
// byte that shows a number's end is not consumed with it.
func (s *scanner) scan(p []byte) (n int, ev event) {
	token := 0 // where in p the token that is being read begins or goes on
	for n < len(p) && ev == evNone && s.state != broken {
		size := 1
		switch c := p[n]; s.state {
		case inString:
			if size = plainPrefix(p[n:]); size == 0 {
				size, ev = 1, s.endString(c)
			}
		case inEscape:
			s.escape(c)
		case inHex:
			s.hexDigit(c)
		case inLiteral:
			ev = s.literal(c)
		case inMinus, inZero, inWhole, inPoint, inFraction, inE, inESign, inExponent:
			if ev = s.number(c); ev != evNone {
				size = 0
			}
		default:
			if !isSpace(c) {
				token = n
				ev = s.between(c, s.offset+int64(n))
			}
		}
		n += size
	}
	if s.inToken() || ev == evName || ev == evValue {
		s.keep(p[token:n])
	}
	s.offset += int64(n)
	return n, ev
}

// plainPrefix returns how many bytes of a string come before one that has a meaning.
func plainPrefix(p []byte) int {
	for i, c := range p {
		if c == '"' || c == '\\' || c < ' ' {
			return i
		}
	}
	return len(p)
}

func isSpace(c byte) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r'
}

func isDigit(c byte) bool {
	return '0' <= c && c <= '9'
}

// inToken reports whether a string, number or literal has begun and not ended.
func (s *scanner) inToken() bool {
	return inString <= s.state && s.state <= inExponent
}

// keep appends to the token what its limit leaves room for.
func (s *scanner) keep(p []byte) {
	if room := s.limit - len(s.token); len(p) > room {
		p = p[:room]
		s.cut = true
	}
	s.token = append(s.token, p...)
}

// between reads a byte that is not white space, outside of strings, numbers and literals.
func (s *scanner) between(c byte, offset int64) event {
	switch s.state {
	case atFirst:
		if c == ']' {
			return s.pop()
		}
		return s.value(c, offset)
	case atValue:
		return s.value(c, offset)
	case atFirstMember, atMember:
		switch {
		case c == '"':
			s.begin(String, inString, maxName, offset)
			s.naming = true
			return evNone
		case c == '}' && s.state == atFirstMember:
			return s.pop()
		}
	case atColon:
		if c == ':' {
			s.state = atValue
			return evNone
		}
	case atNext:
		switch {
		case c == ',' && s.inObject():
			s.state = atMember
			return evNone
		case c == ',':
			s.state = atValue
			return evNone
		case c == '}' && s.inObject(), c == ']' && !s.inObject():
			return s.pop()
		}
	}
	s.state = broken
	return evNone
}

// value reads the first byte of a value.
func (s *scanner) value(c byte, offset int64) event {
	switch {
	case c == '"':
		s.begin(String, inString, s.want, offset)
	case c == '-':
		s.begin(Number, inMinus, s.want, offset)
	case c == '0':
		s.begin(Number, inZero, s.want, offset)
	case isDigit(c):
		s.begin(Number, inWhole, s.want, offset)
	case c == 't':
		s.begin(Bool, inLiteral, 1, offset)
		s.rest = "rue"
	case c == 'f':
		s.begin(Bool, inLiteral, 1, offset)
		s.rest = "alse"
	case c == 'n':
		s.begin(Null, inLiteral, 1, offset)
		s.rest = "ull"
	case c == '{':
		s.begin(Object, atFirstMember, 0, offset)
		return s.push()
	case c == '[':
		s.begin(Array, atFirst, 0, offset)
		return s.push()
	default:
		s.state = broken
	}
	return evNone
}

// begin begins a token, of which up to limit bytes are kept.
func (s *scanner) begin(typ Type, state scanState, limit int, offset int64) {
	s.typ, s.state, s.start = typ, state, offset
	s.naming, s.integer = false, true
	s.token, s.limit, s.cut = s.token[:0], limit, false
	s.want = 0
}

// done ends a value.
func (s *scanner) done(ev event) event {
	s.state = atNext
	if s.depth == 0 {
		s.state = atEnd
	}
	return ev
}

// push opens a level for the object or array that begins.
func (s *scanner) push() event {
	if s.depth == maxLevels {
		s.state = broken
		return evNone
	}
	word, bit := s.depth/64, uint64(1)<<(s.depth%64)
	if word == len(s.levels) {
		s.levels = append(s.levels, 0)
	}
	s.levels[word] &^= bit
	if s.typ == Object {
		s.levels[word] |= bit
	}
	s.depth++
	return evOpen
}

func (s *scanner) inObject() bool {
	top := s.depth - 1
	return s.levels[top/64]>>(top%64)&1 != 0
}

func (s *scanner) pop() event {
	s.depth--
	return s.done(evClose)
}

// endString reads a byte that ends a string's plain characters.
func (s *scanner) endString(c byte) event {
	switch {
	case c == '\\':
		s.state = inEscape
		return evNone
	case c != '"': // a raw control character
		s.state = broken
		return evNone
	case s.naming:
		s.state = atColon
		return evName
	}
	return s.done(evValue)
}

func (s *scanner) escape(c byte) {
	switch c {
	case 'u':
		s.state, s.hex = inHex, 4
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.state = inString
	default:
		s.state = broken
	}
}

func (s *scanner) hexDigit(c byte) {
	if !isDigit(c) && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
		s.state = broken
		return
	}
	if s.hex--; s.hex == 0 {
		s.state = inString
	}
}

func (s *scanner) literal(c byte) event {
	if c != s.rest[0] {
		s.state = broken
		return evNone
	}
	if s.rest = s.rest[1:]; s.rest == "" {
		return s.done(evValue)
	}
	return evNone
}

// number reads a byte of a number, or the one after it.
func (s *scanner) number(c byte) event {
	e := c == 'e' || c == 'E'
	state := s.state
	switch {
	case state == inMinus && c == '0':
		s.state = inZero
	case (state == inMinus || state == inWhole) && isDigit(c):
		s.state = inWhole
	case (state == inZero || state == inWhole) && c == '.':
		s.state, s.integer = inPoint, false
	case (state == inPoint || state == inFraction) && isDigit(c):
		s.state = inFraction
	case (state == inZero || state == inWhole || state == inFraction) && e:
		s.state, s.integer = inE, false
	case state == inE && (c == '+' || c == '-'):
		s.state = inESign
	case (state == inE || state == inESign || state == inExponent) && isDigit(c):
		s.state = inExponent
	case state == inZero || state == inWhole || state == inFraction || state == inExponent:
		return s.done(evValue)
	default:
		s.state = broken
	}
	return evNone
}
