package sse

import "bytes"

// breakFinder finds the line breaks of one slice from left to right, in time linear in its length however many of them
// are LF or CR: the next LF is remembered, lest a run of CRs has it searched for again at every line.
type breakFinder struct {
	known int // one more than the index of the LF that was found last, or than the length where there is none
}

// find returns the index of the first CR or LF in p[i:], or the length of p.
func (f *breakFinder) find(p []byte, i int) int {
	if f.known <= i {
		f.known = i + indexOrLen(p[i:], '\n') + 1
	}
	return i + indexOrLen(p[i:f.known-1], '\r')
}

// breakLen returns the length of the line break that p begins with: LF, CR, or CR and LF.
func breakLen(p []byte) int {
	if len(p) > 1 && p[0] == '\r' && p[1] == '\n' {
		return 2
	}
	return 1
}

func indexOrLen(p []byte, c byte) int {
	if i := bytes.IndexByte(p, c); i >= 0 {
		return i
	}
	return len(p)
}
