package jsonrpc

import (
	"bytes"
	"hash/maphash"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// nameSet finds duplicate names in all the objects that are open at one point of the pass.
// Objects nest, so everything here is a stack: what belongs to the innermost object lies on
// top, and goes when it is closed.
//
// The names of a small object are compared one by one. From linearNames on, they are found
// through an open-addressed table with a seeded hash, so that no sender can choose names that
// all collide.
type nameSet struct {
	names [][]byte // unescaped
	slots []uint16 // hash tables of the large objects: 1 + index of a name in its object, 0 if free
	arena []byte   // characters of the names that were escaped
}

const (
	linearNames = 16
	firstSlots  = 4 * linearNames // a power of two
)

// Memory that one unusual body made the set grow to is not kept beyond these capacities.
const (
	keptNames = 1024
	keptSlots = 4096
	keptArena = 4096
)

// A slot holds 1 + an index of at most MaxMembers-1.
const _ = uint16(MaxMembers)

var hashSeed = maphash.MakeSeed()

// openObject is where one object's part of the set begins.
type openObject struct{ names, slots, arena int }

func (s *nameSet) open() openObject {
	return openObject{len(s.names), len(s.slots), len(s.arena)}
}

// close forgets the names of o, which must be the innermost open object.
func (s *nameSet) close(o openObject) {
	clear(s.names[o.names:]) // they alias the body, which a pooled set must not hold on to
	s.names = s.names[:o.names]
	s.slots = s.slots[:o.slots]
	s.arena = s.arena[:o.arena]
}

// count returns how many names the set holds.
func (s *nameSet) count() int { return len(s.names) }

// reset empties the set for another body.
func (s *nameSet) reset() {
	s.close(openObject{})
	if cap(s.names) > keptNames {
		s.names = nil
	}
	if cap(s.slots) > keptSlots {
		s.slots = nil
	}
	if cap(s.arena) > keptArena {
		s.arena = nil
	}
}

// unquote returns the characters of a name that is valid JSON. They live in the arena, if they
// were escaped, until the innermost open object is closed.
func (s *nameSet) unquote(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	start := len(s.arena)
	s.arena, _ = jsontext.AppendUnquote(s.arena, raw)
	return s.arena[start:]
}

// add puts name into o, the innermost open object, and reports whether it is new there.
// The set keeps name, which must not change while o is open.
func (s *nameSet) add(o openObject, name []byte) bool {
	own := s.names[o.names:]
	if len(own) < linearNames {
		for _, other := range own {
			if bytes.Equal(other, name) {
				return false
			}
		}
		s.names = append(s.names, name)
		return true
	}
	if size := len(s.slots) - o.slots; 2*len(own) >= size {
		s.rehash(o, max(firstSlots, 2*size))
	}
	slot := s.slot(o, name)
	if *slot != 0 {
		return false
	}
	s.names = append(s.names, name)
	*slot = uint16(len(own) + 1)
	return true
}

// slot returns where name stands in the table of o, or the free slot where it belongs.
// A table is at most half full, so there is one.
func (s *nameSet) slot(o openObject, name []byte) *uint16 {
	table := s.slots[o.slots:]
	for h := maphash.Bytes(hashSeed, name); ; h++ {
		slot := &table[h&uint64(len(table)-1)]
		if *slot == 0 || bytes.Equal(s.names[o.names+int(*slot)-1], name) {
			return slot
		}
	}
}

// rehash gives o a table of the given size, a power of two.
func (s *nameSet) rehash(o openObject, size int) {
	s.slots = slices.Grow(s.slots[:o.slots], size)[:o.slots+size]
	clear(s.slots[o.slots:])
	for i, name := range s.names[o.names:] {
		*s.slot(o, name) = uint16(i + 1)
	}
}
