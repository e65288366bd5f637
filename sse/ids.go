package sse

// idDropper takes the id lines out of a stream, in whatever pieces it comes. All other lines stay as they are, but for
// the break before an id line: where a CR would meet an LF and two line breaks become one, the LF of the id line stays.
// The break of an id line at the very head stays too, lest a byte order mark after it become one.
type idDropper struct {
	state idState
	n     int  // how many bytes of the byte order mark or of the name id were read
	last  byte // the last byte that was kept, 0 if there is none
}

type idState uint8

const (
	inMark    idState = iota // at the head of the stream, where the byte order mark may be
	inName                   // at the head of a line, of which n bytes that are those of an id line are kept back
	inKept                   // in any other line
	inDropped                // in an id line
	inBreak                  // after the CR of an id line's break
)

var idName = []byte("id")

// next reads on from p[i] to what there is to keep, and returns that and where it is in p then.
func (d *idDropper) next(p []byte, i int, breaks *breakFinder) (kept []byte, next int) {
	for i < len(p) && len(kept) == 0 {
		from, c := i, p[i]
		switch d.state {
		case inMark:
			switch {
			case d.n == len(bom) || d.n == 0 && c != bom[0]:
				d.state, d.n = inName, 0
			case c != bom[d.n]:
				d.state, d.n = inKept, 0
			default:
				d.n++
				i++
				kept = p[from:i]
			}
		case inName:
			switch {
			case d.n < len(idName) && c == idName[d.n]:
				d.n++
				i++
			case d.n == len(idName) && (c == ':' || c == '\r' || c == '\n'):
				d.state, d.n = inDropped, 0
			default:
				kept = idName[:d.n]
				d.state, d.n = inKept, 0
			}
		case inKept:
			i = d.lines(p, i, breaks)
			kept = p[from:i]
		case inDropped:
			if i = breaks.find(p, i); i < len(p) {
				i++
				kept = d.lineBreak(p[i-1 : i])
			}
		case inBreak:
			d.state = inName
			if c == '\n' {
				i++
				kept = d.lineBreak(p[from:i])
			}
		}
	}
	if len(kept) > 0 {
		d.last = kept[len(kept)-1]
	}
	return kept, i
}

// lines returns where the current line ends, and the lines after it that are no id lines for sure.
func (d *idDropper) lines(p []byte, i int, breaks *breakFinder) int {
	for {
		if i = breaks.find(p, i); i == len(p) {
			return i
		}
		if i++; i == len(p) || p[i] == idName[0] {
			d.state = inName
			return i
		}
	}
}

// lineBreak returns what is to be kept of a byte of the break that ends an id line.
func (d *idDropper) lineBreak(b []byte) []byte {
	d.state = inName
	if b[0] == '\r' {
		d.state = inBreak
	}
	if d.last == 0 || d.last == '\r' && b[0] == '\n' {
		return b
	}
	return nil
}
