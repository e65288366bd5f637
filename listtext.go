package gateway

import "sync"

// listText is the text of a list that is held to be read.
type listText struct {
	c      *call
	text   []byte
	memory []byte // that the text stands in
}

// maxList is the longest page of a list that is read, in bytes.
const maxList = 16 << 20

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
	if grown > cap(t.memory) {
		t.memory = t.c.h.catalogue.memory.take(grown)
		copy(t.memory[:grown], t.text)
	}
	t.text = t.memory[:len(t.text):grown] // what is held is what counts as held
	return true
}

// drop gives up the text.
func (t *listText) drop() {
	t.unhold(int64(cap(t.text)))
	t.c.h.catalogue.memory.give(t.memory)
	t.text, t.memory = nil, nil
}

// handOver gives the text to someone who reads it when the call may be over.
func (t *listText) handOver() heldText {
	held := heldText{t.text, t.memory, t.c.h}
	t.c.heldBytes -= int64(cap(t.text))
	t.text, t.memory = nil, nil
	return held
}

// heldText is the text of a list that counts as held until it is given back.
type heldText struct {
	text   []byte
	memory []byte
	h      *Handler
}

func (t *heldText) giveBack() {
	t.h.listing.give(int64(cap(t.text)))
	t.h.held.give(int64(cap(t.text)))
	t.h.catalogue.memory.give(t.memory)
}

// spare is the memory of a list that is not needed any more, for the next one:
// to get new memory takes longer than to copy a list into it.
type spare struct {
	mu     sync.Mutex
	memory []byte
}

// Lists of up to minSpare bytes have memory of their own, which is as good as
// free, and what is kept for others is no more than maxSpare bytes.
const (
	minSpare = 32 << 10
	maxSpare = 1 << 20
)

// take returns memory of this size or more.
func (s *spare) take(size int) (memory []byte) {
	if size > minSpare {
		s.mu.Lock()
		if cap(s.memory) >= size {
			memory, s.memory = s.memory, nil
		}
		s.mu.Unlock()
	}
	if memory == nil {
		memory = make([]byte, 0, size)
	}
	return memory
}

// give takes memory that nobody uses any more.
func (s *spare) give(memory []byte) {
	if cap(memory) <= minSpare || cap(memory) > maxSpare {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if cap(memory) > cap(s.memory) {
		s.memory = memory[:0]
	}
}

// hold counts n more bytes of lists as held: they have a share of max_held, as
// they are held for as long as a client takes to read them.
func (t *listText) hold(n int64) bool {
	if !t.c.h.listing.take(n, 0) {
		return false
	}
	if !t.c.hold(n) {
		t.c.h.listing.give(n)
		return false
	}
	return true
}

// unhold returns n bytes that the list does not hold any more.
func (t *listText) unhold(n int64) {
	t.c.h.listing.give(n)
	t.c.unhold(n)
}
