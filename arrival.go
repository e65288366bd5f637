package gateway

import (
	"net/http"
	"time"
)

// What a body must come in: this much time, and more for what has come of it, so
// that one that comes faster than the rate has no end to meet. Caddy's own
// read_body_idle, 1 minute by default, is begun anew by every byte.
const (
	bodyGrace = 10 * time.Second
	bodyRate  = 16 << 10 // bytes per second
)

// arrival is how one body may come in. While it is not complete it counts
// against a budget of its own: a client that never completes it keeps nothing
// from the requests that are.
type arrival struct {
	limit  int64                    // of its size, in bytes
	hold   func(n int64) bool       // counts n more bytes as held, if they may be
	share  bodyShare                // of what bodies that are not complete may hold
	grace  time.Duration            // bodyGrace
	client *http.ResponseController // sets the deadline of a read; nil where there is none

	began, deadline time.Time
}

// take counts n more bytes, if they may be held.
func (a *arrival) take(n int64) bool { return a.share.take(n) && a.hold(n) }

func (a *arrival) start() { a.began = time.Now() }

// wait sets the time at which the next read fails, after n bytes have come.
// Where the client's connection takes no deadline, late is what notices.
func (a *arrival) wait(n int) {
	a.deadline = a.began.Add(a.grace + time.Duration(n/bodyRate)*time.Second)
	if a.client != nil {
		_ = a.client.SetReadDeadline(a.deadline)
	}
}

// late reports whether that time has passed.
func (a *arrival) late() bool { return time.Now().After(a.deadline) }

// end takes the deadline back: over HTTP/1 it would end the read by which Go
// notices that the client is gone, and with it the request.
func (a *arrival) end() {
	if a.client != nil {
		_ = a.client.SetReadDeadline(time.Time{})
	}
	a.share.give()
}
