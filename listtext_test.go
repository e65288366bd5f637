package gateway

import "testing"

// What is kept for the next list is the largest memory of up to a bound, and of
// no use to small lists.
func TestSpare(t *testing.T) {
	var s spare
	for _, tt := range []struct {
		given, want int // bytes
	}{
		{minSpare, 0},
		{minSpare + 1, minSpare + 1},
		{3 * minSpare, 3 * minSpare},
		{2 * minSpare, 3 * minSpare},
		{maxSpare, maxSpare},
		{maxSpare + 1, maxSpare},
	} {
		s.give(make([]byte, tt.given))
		if got := cap(s.memory); got != tt.want {
			t.Errorf("given %d bytes it keeps %d, want %d", tt.given, got, tt.want)
		}
	}
	for _, tt := range []struct {
		taken, want, left int
	}{
		{minSpare, minSpare, maxSpare},
		{maxSpare + 1, maxSpare + 1, maxSpare},
		{maxSpare/16 - 1, maxSpare/16 - 1, maxSpare}, // of which most would be in vain
		{maxSpare / 16, maxSpare, 0},
		{maxSpare / 16, maxSpare / 16, 0},
	} {
		if got := cap(s.take(tt.taken)); got != tt.want || cap(s.memory) != tt.left {
			t.Errorf("asked for %d bytes it gives %d and keeps %d, want %d and %d", tt.taken, got, cap(s.memory), tt.want, tt.left)
		}
	}
}

// All the memory that a list stands in counts.
func TestListTextCounts(t *testing.T) {
	h := lessonHandler(t)
	h.catalogue.memory.give(make([]byte, maxSpare))
	text := listText{c: &call{h: h}}
	text.keep(make([]byte, maxSpare/3))
	if used := h.listing.used.Load(); used != maxSpare || used != int64(cap(text.text)) {
		t.Errorf("%d bytes count, of %d", used, cap(text.text))
	}
	text.drop()
	if used := h.held.used.Load() + h.listing.used.Load(); used != 0 {
		t.Errorf("%d bytes are still held", used)
	}
}

// A list that does not fit into what all requests may hold takes nothing of what
// lists may.
func TestListThatDoesNotFit(t *testing.T) {
	h := lessonHandler(t)
	h.held.limit = 10
	if (&listText{c: &call{h: h}}).keep(make([]byte, 11)) {
		t.Error("it is kept")
	}
	if used := h.held.used.Load() + h.listing.used.Load(); used != 0 {
		t.Errorf("%d bytes are held", used)
	}
}

// A list that fits is kept whatever memory is spare.
func TestSpareTooLargeForBudget(t *testing.T) {
	for _, spare := range []int{0, maxSpare} {
		h := lessonHandler(t)
		h.listing.limit = 256 << 10
		if spare > 0 {
			h.catalogue.memory.give(make([]byte, spare))
		}
		text := listText{c: &call{h: h}}
		if !text.keep(make([]byte, 70<<10)) {
			t.Errorf("with %d bytes spare, a list of 70 KiB does not fit into 256 KiB", spare)
		}
		text.drop()
	}
}
