package gateway

import "testing"

// What is set aside for small requests is out of reach for large ones, and the
// limit holds for all.
func TestReserveIsForTheSmall(t *testing.T) {
	const limit, large = 16 << 20, 4 << 20
	for _, tt := range []struct {
		name          string
		largest       int64
		used, n, held int64
		want          bool
	}{
		{"small, within the reserve", large, 12 << 20, smallHold, 0, true},
		{"small, past the limit", large, limit - 1, 2, 0, false},
		{"small, and no more after that", large, 12 << 20, 1, smallHold, false},
		{"large, up to the reserve", large, 8 << 20, large, 0, true},
		{"large, within the reserve", large, 8<<20 + 1, large, 0, false},
		{"the largest, for which there is no reserve", limit, 0, limit, 0, true},
		{"one that leaves a smaller reserve", 15 << 20, 0, 15 << 20, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b budget
			b.part = true // of none that the metric counts
			b.setLimit(limit, tt.largest)
			b.used.Store(tt.used)
			want := tt.used
			if tt.want {
				want += tt.n
			}
			if got := b.take(tt.n, tt.held); got != tt.want || b.used.Load() != want {
				t.Errorf("taken %v, used %d", got, b.used.Load())
			}
		})
	}
}
