package gateway

// listText is the text of a list that is held to be read.
type listText struct {
	c     *call
	text  []byte
	share bodyShare // of what lists may hold
}

// maxList is the longest page of a list that is read, in bytes.
const maxList = 16 << 20

func (c *call) listText() listText {
	return listText{c: c, share: bodyShare{budget: &c.h.listing}}
}

// keep adds p to the text, or reports that it does not fit.
func (t *listText) keep(p []byte) bool {
	if !t.makeRoom(len(t.text) + len(p)) {
		return false
	}
	t.text = append(t.text, p...)
	return true
}

// makeRoom makes room for a text of this size, or reports that it does not fit.
func (t *listText) makeRoom(size int) bool {
	if size > maxList {
		return false
	}
	if size <= cap(t.text) {
		return true
	}
	grown := max(size, 2*cap(t.text))
	if !t.hold(int64(grown - cap(t.text))) {
		return false
	}
	t.text = append(make([]byte, 0, grown), t.text...)
	return true
}

// hold counts n more bytes of lists as held: they have a share of max_held, as
// they are held for as long as a client takes to read them.
func (t *listText) hold(n int64) bool {
	if !t.share.take(n) {
		return false
	}
	if !t.c.hold(n) {
		t.share.giveBack(n)
		return false
	}
	return true
}

// unhold returns n bytes that the list does not hold any more.
func (t *listText) unhold(n int64) {
	t.share.giveBack(n)
	t.c.unhold(n)
}
