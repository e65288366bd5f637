package gateway

import "sync"

// listText is the text of a list that is held to be read.
type listText struct {
	c    *call
	text []byte // all of its capacity counts as held
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
	before := t.text
	memory := t.c.h.catalogue.memory.take(max(size, 2*cap(before)))
	if !t.hold(int64(cap(memory) - cap(before))) {
		t.c.h.catalogue.memory.give(memory) // no more than it needs, then
		if memory = make([]byte, 0, size); !t.hold(int64(size - cap(before))) {
			return false
		}
	}
	t.text = memory[:copy(memory[:len(before)], before)]
	t.c.h.catalogue.memory.give(before)
	return true
}

// drop gives up the text.
func (t *listText) drop() {
	t.c.h.catalogue.memory.give(t.handOver())
}

// handOver gives the text to someone who holds it for as long as it is needed.
func (t *listText) handOver() (text []byte) {
	text, t.text = t.text, nil
	t.unhold(int64(cap(text)))
	return text
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

// take returns empty memory of this size or more, though not of very much more:
// all of it counts for the list that stands in it.
func (s *spare) take(size int) (memory []byte) {
	if size > minSpare {
		s.mu.Lock()
		if kept := cap(s.memory); size <= kept && kept <= 16*size {
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
