package gateway

import (
	"io"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/sse"
)

// taskWriter relays a response in which something may be said of a task, and
// records what became of it before the client is told. What passes stays as it
// is. A text that is longer than a response is held teaches nothing.
type taskWriter struct {
	caddyhttp.ResponseWriterWrapper
	c *call

	status int
	held   bool // the whole response is held, as one JSON text
	events bool

	text     []byte // of the response, or of the event's data
	tooLarge bool
	reader   *jsonrpc.ResponseReader
	splitter sse.Splitter // holds nothing
}

func (c *call) besideTasks(w http.ResponseWriter) *taskWriter {
	return &taskWriter{ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w}, c: c}
}

// WriteHeader decides by the head what there is to read.
func (w *taskWriter) WriteHeader(status int) {
	if status >= 200 && w.status == 0 {
		w.status = status
		header := w.Header()
		if status == http.StatusOK && !isEncoded(header) {
			w.events = isEventStream(header)
			w.held = !w.events && w.c.asksForTask()
		}
		if w.events || w.held {
			w.reader = readers.Get().(*jsonrpc.ResponseReader)
			w.reader.Reset(w.c.message.ID)
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write takes a piece of the body. Of a stream it is read before it is passed
// on.
func (w *taskWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.events:
		w.splitter.Split(p, w)
	case w.held:
		w.reader.Write(p)
		if w.keep(p) {
			return len(p), nil
		}
		w.held = false
		_, err := w.ResponseWriter.Write(w.text)
		w.drop()
		if err != nil {
			return 0, err
		}
	}
	return w.ResponseWriter.Write(p)
}

// keep adds p to the text, or reports that it does not fit.
func (w *taskWriter) keep(p []byte) bool {
	size := len(w.text) + len(p)
	if int64(size) > w.c.h.ResponseBuffer {
		return false
	}
	if size > cap(w.text) {
		grown := max(size, 2*cap(w.text))
		if !w.c.hold(int64(grown - cap(w.text))) {
			return false
		}
		w.text = append(make([]byte, 0, grown), w.text...)
	}
	w.text = append(w.text, p...)
	return true
}

// FlushError flushes what was passed on. Of a response that is held only the
// head could be, which is no use to anybody.
func (w *taskWriter) FlushError() error {
	if w.held {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Data reads the message of an event while it comes.
func (w *taskWriter) Data(p []byte) {
	w.reader.Write(p)
	w.tooLarge = w.tooLarge || !w.keep(p)
}

// Event takes the end of an event.
func (w *taskWriter) Event(e *sse.Event) {
	answer := w.reader.Close()
	w.reader.Reset(w.c.message.ID)
	if e.Message() && !w.tooLarge && (isTaskNotice(&answer) || w.c.asksForTask()) {
		w.c.settleTask(w.text, &answer)
	}
	w.text, w.tooLarge = w.text[:0], false
	if cap(w.text) > maxIdle {
		w.drop() // a stream may last for hours
	}
}

// drop gives up the memory of the text.
func (w *taskWriter) drop() {
	w.c.unhold(int64(cap(w.text)))
	w.text = nil
}

// Pass and Overflow are not needed: the bytes are relayed apart from this.
func (w *taskWriter) Pass([]byte)     {}
func (w *taskWriter) Overflow([]byte) {}

// ReadFrom reads the body through Write if there is something to read in it, and
// else leaves it to the wrapped writer, which may have a shorter way.
func (w *taskWriter) ReadFrom(r io.Reader) (int64, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.events && !w.held {
		return w.ResponseWriterWrapper.ReadFrom(r)
	}
	return io.Copy(struct{ io.Writer }{w}, r)
}

// end passes on what is held. A response that broke off says nothing.
func (w *taskWriter) end(broken bool) {
	if w.held {
		if answer := w.reader.Close(); !broken {
			w.c.settleTask(w.text, &answer)
		}
		// An error here means that the client is gone.
		_, _ = w.ResponseWriter.Write(w.text)
		if broken {
			_ = http.NewResponseController(w.ResponseWriter).Flush() // or what came would be lost with the connection
		}
	}
	if w.reader != nil {
		readers.Put(w.reader)
	}
}

// settleBeside runs the handlers beneath with a writer that learns what
// became of tasks.
func (c *call) settleBeside(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (err error) {
	tasks := c.besideTasks(w)
	if c.asksForTask() {
		r.Header["Accept-Encoding"] = []string{"identity"} // or it could not be read
	}
	broken := true // by a panic, unless next returns
	defer func() { tasks.end(broken) }()
	err = c.learnBeside(tasks, r, next)
	broken = err != nil
	return err
}
