package gateway

import (
	"bytes"
	"math"
	"net/http/httptest"
	"testing"
	"testing/iotest"
)

// What is set aside for a body follows what has come of it, whatever length is
// declared, and one body of max_body never needs more than a byte above that.
func TestBodyIsBookedAsItComes(t *testing.T) {
	const limit = 100_000
	for _, tt := range []struct {
		name             string
		length, declared int64
		want             string // the refusal
	}{
		{"empty", 0, 0, ""},
		{"short", 400, 400, ""},
		{"undeclared", 50_000, -1, ""},
		{"max_body", limit, limit, ""},
		{"max_body, undeclared", limit, -1, ""},
		{"longer than declared", 50_000, 10_000, ""},
		{"shorter than declared", 10, limit, ""},
		{"larger", limit + 1, -1, "body_too_large"},
		{"larger than declared", limit + 1, 10, "body_too_large"},
		{"the largest that can be declared", 0, math.MaxInt64, "body_too_large"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &call{h: &Handler{held: budget{limit: limit + 1}, arriving: budget{limit: limit + 1, part: true}}}
			text := bytes.Repeat([]byte("x"), int(tt.length))
			watched := &watchedBody{Reader: bytes.NewReader(text), t: t, c: c}
			r := httptest.NewRequest("POST", "/mcp", iotest.HalfReader(watched))
			r.ContentLength = tt.declared
			body, refusal := readBody(r, &arrival{limit: limit, hold: c.hold, share: bodyShare{budget: &c.h.arriving}, grace: bodyGrace})
			defer c.release()
			if tt.want != "" {
				if refusal == nil || refusal.Reason != tt.want {
					t.Errorf("got %v", refusal)
				}
				return
			}
			if refusal != nil || !bytes.Equal(body, text) {
				t.Errorf("got %d bytes, refusal %v", len(body), refusal)
			}
			if left := c.h.arriving.used.Load(); left != 0 {
				t.Errorf("%d bytes are counted as arriving", left)
			}
			if c.heldBytes != int64(cap(body)) {
				t.Errorf("%d bytes are counted as held, and %d are", c.heldBytes, cap(body))
			}
		})
	}
}

// watchedBody checks at every read what is held for what was read before.
type watchedBody struct {
	*bytes.Reader
	t *testing.T
	c *call
}

func (w *watchedBody) Read(p []byte) (int, error) {
	came := w.Size() - int64(w.Len())
	if most := max(2*came, firstRead); w.c.heldBytes > most {
		w.t.Errorf("after %d bytes %d are held", came, w.c.heldBytes)
	}
	return w.Reader.Read(p)
}
