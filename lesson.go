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
	h        *Handler
	server   *caddyhttp.Server // nil outside Caddy's own
	key      viewKey
	text     []byte
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
	defer text.handOver() // it is held until there is room for it in the queue
	c.h.catalogue.teach(&lesson{
		h:        c.h,
		server:   server,
		key:      c.viewKey(),
		text:     text.text,
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
// have. One list alone may be larger.
const maxUnread = 4 << 20

// perLesson is what a lesson counts for beside its text, in bytes: to learn a
// small list takes as long as to read one of about this size.
const perLesson = 64 << 10

// readAfter is when a list is read that nobody asks for. At once it would compete
// for the processor with the relay of its own last bytes: a goroutine that computes
// keeps those waiting that are ready to read from the network.
const readAfter = 10 * time.Millisecond

func (l *lesson) size() int { return cap(l.text) + len(l.id) + perLesson }

// teach puts a lesson behind those that wait. What does not fit any more is
// learned first.
func (c *catalogue) teach(l *lesson) {
	oldest, timed := c.lessons.add(l)
	for oldest != nil {
		c.finish(oldest)
		oldest, timed = c.lessons.add(l)
	}
	if !timed {
		time.AfterFunc(readAfter, c.readLessons)
	}
}

// add puts a lesson into the queue, or returns the oldest one if there is no room
// for another. Where nobody has set the time for the reading yet, the caller does.
func (q *lessons) add(l *lesson) (oldest *lesson, timed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) > 0 && q.size+l.size() > maxUnread {
		return q.queue[0], true
	}
	q.queue = append(q.queue, l)
	q.size += l.size()
	q.some.Store(true)
	timed, q.timed = q.timed, true
	return nil, timed
}

// remove takes a lesson off the queue.
func (q *lessons) remove(l *lesson) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = slices.DeleteFunc(q.queue, func(other *lesson) bool { return other == l })
	q.size -= l.size()
	q.some.Store(len(q.queue) > 0)
}

// next returns the oldest lesson. If there is none, the next one that comes sets
// the time for its reading.
func (q *lessons) next() *lesson {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		q.timed = false
		return nil
	}
	return q.queue[0]
}

// of returns the lessons that say something of a view, in their order.
func (q *lessons) of(key viewKey) (found []*lesson) {
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

// readLessons learns what waits until there is no more.
func (c *catalogue) readLessons() {
	for l := c.lessons.next(); l != nil; l = c.lessons.next() {
		c.finish(l)
	}
}

// readWaiting learns what waits now, and nothing that comes meanwhile.
func (c *catalogue) readWaiting() {
	c.lessons.mu.Lock()
	waiting := slices.Clone(c.lessons.queue)
	c.lessons.mu.Unlock()
	for _, l := range waiting {
		c.finish(l)
	}
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
	for _, l := range c.lessons.of(key) {
		c.finish(l)
	}
}

// finish returns when a lesson is learned.
func (c *catalogue) finish(l *lesson) {
	l.once.Do(func() {
		defer func() {
			c.lessons.remove(l)
			c.memory.give(l.text)
		}()
		defer c.survive(l)
		c.take(l)
	})
}

// survive keeps a list that makes its reader panic from ending the process, which
// it would do where it is read in time.
func (c *catalogue) survive(l *lesson) {
	if panicked := recover(); panicked != nil {
		countPage(pageUnreadable)
		c.noteChange(l.key, l.at) // the client goes by this list
		l.h.logger.Error("a tools/list result was not read to its end, which is a fault of mcp_gateway; "+
			"please report it: its tools' parameters are not verified",
			zap.Any("panic", panicked), zap.ByteString("stack", debug.Stack()))
	}
}
