package gateway

import (
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// lesson is a list of tools that was relayed and is to be learned. To read a list
// takes longer than to relay it, so it is read a moment later, and whoever asks
// before that for what it may say reads it first: what is found is the same as if
// it had been read before its last byte was relayed.
type lesson struct {
	heldText
	server   *caddyhttp.Server // nil outside Caddy's own
	key      viewKey
	event    bool   // it is the data of an event, and may be any message
	id       []byte // of the request that the list answers
	revision string
	at       time.Time

	once sync.Once
}

// learnTools sees to it that the response to a tools/list is learned, or what it
// is that an event of it says of tools.
func (c *call) learnTools(text *listText, event bool) {
	server, _ := c.request.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	c.h.catalogue.teach(&lesson{
		heldText: text.handOver(),
		server:   server,
		key:      c.viewKey(),
		event:    event,
		id:       c.message.ID,
		revision: c.revision,
		at:       time.Now(),
	})
}

// lessons are those of a catalogue that nobody has learned yet, oldest first.
type lessons struct {
	mu    sync.Mutex
	queue []*lesson
	size  int
	timed bool        // they will be read
	some  atomic.Bool // there are any: most requests find none
}

// maxUnread is how much of lists may wait to be read, in bytes: more than most
// have, and read in a few milliseconds. Past it whoever relays one reads it.
const maxUnread = 4 << 20

// readAfter is when a list is read that nobody asks for. At once it would compete
// for the processor with the relay of its own last bytes: a goroutine that computes
// keeps those waiting that are ready to read from the network.
const readAfter = 10 * time.Millisecond

// perLesson is about what a lesson takes beside its text, in bytes.
const perLesson = 1 << 10

// teach puts a lesson behind those that wait.
func (c *catalogue) teach(l *lesson) {
	q := &c.lessons
	q.mu.Lock()
	q.queue = append(q.queue, l)
	q.size += len(l.text) + perLesson
	q.some.Store(true)
	full, first := q.size > maxUnread, !q.timed
	q.timed = true
	q.mu.Unlock()
	if first {
		time.AfterFunc(readAfter, c.readLessons)
	}
	if full {
		c.catchUp(l.key)
	}
}

// readLessons learns what waits until there is no more.
func (c *catalogue) readLessons() {
	for l := c.nextLesson(); l != nil; l = c.nextLesson() {
		c.finish(l)
	}
}

// nextLesson returns the oldest lesson. If there is none, the next one that comes
// sets the time for its reading.
func (c *catalogue) nextLesson() *lesson {
	q := &c.lessons
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		q.timed = false
		return nil
	}
	return q.queue[0]
}

// catchUp returns when all is learned that says something of a view: what its
// caller was shown, and what other callers of the endpoint were shown before
// that; of the view of everybody, what anybody was shown.
//
// Whoever learns lessons of an endpoint does so in their order, since what was
// shown last counts.
func (c *catalogue) catchUp(key viewKey) {
	if !c.lessons.some.Load() {
		return
	}
	for _, l := range c.lessonsFor(key) {
		c.finish(l)
	}
}

func (c *catalogue) lessonsFor(key viewKey) (found []*lesson) {
	q := &c.lessons
	q.mu.Lock()
	defer q.mu.Unlock()
	last := 0
	for _, l := range q.queue {
		if l.key.endpoint != key.endpoint {
			continue
		}
		found = append(found, l)
		if l.key == key || key == key.public() {
			last = len(found)
		}
	}
	return found[:last]
}

// finish returns when a lesson is learned.
func (c *catalogue) finish(l *lesson) {
	l.once.Do(func() {
		defer c.forget(l)
		defer l.survive()
		c.take(l)
	})
}

// forget takes a lesson off the queue, and gives back what it held.
func (c *catalogue) forget(l *lesson) {
	c.unlist(l)
	l.giveBack()
}

func (c *catalogue) unlist(l *lesson) {
	q := &c.lessons
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = slices.DeleteFunc(q.queue, func(other *lesson) bool { return other == l })
	q.size -= len(l.text) + perLesson
	q.some.Store(len(q.queue) > 0)
}

// survive keeps a list that makes its reader panic from ending the process: no
// request's goroutine, where net/http would, reads it.
func (l *lesson) survive() {
	if panicked := recover(); panicked != nil {
		countPage(pageUnreadable)
		l.h.catalogue.noteChange(l.key, l.at) // the client goes by this list
		l.h.logger.Error("a tools/list result was not read to its end, which is a fault of mcp_gateway; "+
			"please report it: its tools' parameters are not verified",
			zap.Any("panic", panicked), zap.ByteString("stack", debug.Stack()))
	}
}
