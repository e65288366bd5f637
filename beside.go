package gateway

import (
	"io"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/sse"
)

// besideWriter relays the response to a message that is no tool call, and reads
// beside the relay what it says of tools: every page of a tools/list, and the
// notification that the tools have changed. Every byte and every flush passes
// as it comes, but for a list of no declared length, of which one piece waits for
// the next: before the last one passes the list is taken to be learned, so that no
// client knows a tool before the gateway does.
type besideWriter struct {
	caddyhttp.ResponseWriterWrapper
	listText          // of the list as JSON, or of an event's data
	waits    listText // the last piece, if no length is declared

	list   bool // the request was a tools/list
	status int
	json   bool // a list as one JSON text
	events bool

	came     int64     // bytes of it that came
	whole    int64     // its declared length, or -1
	same     *recalled // the list that is kept, as long as this one is the same: then the text is not
	learned  bool
	tooLarge bool // the event's data: they are not kept

	reader   *jsonrpc.ResponseReader
	splitter sse.Splitter // holds nothing
}

// beside returns a writer that reads beside the relay of a response.
func (c *call) beside(w http.ResponseWriter) *besideWriter {
	return &besideWriter{
		ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w},
		listText:              listText{c: c},
		waits:                 listText{c: c},
		list:                  c.message.Method == toolsList,
		whole:                 -1,
	}
}

// toolsList is the JSON-RPC method of a list of tools, toolsChanged the one of
// the notification that there is a new one.
const (
	toolsList    = "tools/list"
	toolsChanged = "notifications/tools/list_changed"
)

// WriteHeader decides by the head what there is to read.
func (w *besideWriter) WriteHeader(status int) {
	if status >= 200 && w.status == 0 {
		w.status = status
		w.begin()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *besideWriter) begin() {
	header := w.Header()
	switch {
	case w.status != http.StatusOK:
	case isEncoded(header):
		if w.list {
			countPage(pageEncoded)
			w.c.toolsChanged()
		}
	case isEventStream(header):
		w.events = true
		w.reader = readers.Get().(*jsonrpc.ResponseReader)
		w.reader.Reset(w.c.message.ID)
	case w.list:
		w.json = true
		w.whole = declaredLength(header)
	}
}

// Write passes on a piece of the body.
func (w *besideWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.events:
		w.splitter.Split(p, w)
	case w.json:
		return len(p), w.writeList(p)
	}
	return w.ResponseWriter.Write(p)
}

// writeList passes on what waits, and p too unless it may be the last piece.
func (w *besideWriter) writeList(p []byte) error {
	if err := w.pass(); err != nil {
		return err
	}
	if w.came == 0 {
		w.same = w.recall(p)
	}
	w.came += int64(len(p))
	switch {
	case !w.gather(p):
		w.giveUp()
	case w.whole < 0 && w.mayEnd():
		if w.waits.keep(p) {
			return nil
		}
		w.giveUp()
	case w.came == w.whole && !w.learned:
		w.learn()
	}
	_, err := w.ResponseWriter.Write(p)
	return err
}

// gather takes in the next piece of a list, or reports that it does not fit.
func (w *besideWriter) gather(p []byte) bool {
	if w.same != nil && w.same.match(p) {
		return true
	}
	if w.same != nil && !w.writeDown() {
		return false
	}
	if w.whole <= maxSpare {
		w.makeRoom(int(w.whole)) // at once, if there is that much, rather than by and by
	}
	return w.keep(p)
}

// mayEnd reports whether a list can be whole with what came.
func (w *besideWriter) mayEnd() bool { return w.same == nil || w.same.mayEnd() }

// pass relays the piece that waits.
func (w *besideWriter) pass() error {
	if len(w.waits.text) == 0 {
		return nil
	}
	_, err := w.ResponseWriter.Write(w.waits.text)
	w.waits.text = w.waits.text[:0]
	return err
}

// giveUp reads no more of a list that does not fit.
func (w *besideWriter) giveUp() {
	countPage(pageTooLarge)
	w.c.toolsChanged()
	w.json = false
	w.drop()
}

// end learns what is complete now that nothing comes any more, and passes on
// what waited for that. A response that broke off teaches nothing.
func (w *besideWriter) end(broken bool) {
	defer w.drop()
	defer w.waits.handOver() // to the client's connection, which over HTTP/2 may still read it
	if w.json && !w.learned && !broken {
		w.learn()
	}
	if w.json {
		// An error here means that the client is gone.
		_ = w.pass()
	}
	if w.json && broken {
		_ = http.NewResponseController(w.ResponseWriter).Flush() // or what came would be lost with the connection
	}
	if w.reader != nil {
		readers.Put(w.reader)
	}
}

// learn sees to it that the list that came is learned.
func (w *besideWriter) learn() {
	w.learned = true
	if w.same != nil && w.recognize() {
		return
	}
	if w.same != nil && !w.writeDown() {
		countPage(pageTooLarge)
		w.c.toolsChanged()
		return
	}
	w.c.learnTools(&w.listText, false)
}

// Data takes the next piece of an event's data. In the answer to a tools/list it is
// kept, to be read later like any list; what is too large for that, or is on
// another stream, is read while it comes.
func (w *besideWriter) Data(p []byte) {
	if w.list && !w.tooLarge {
		if w.keep(p) {
			return
		}
		w.tooLarge = true
		w.reader.Write(w.text)
		w.drop()
	}
	w.reader.Write(p)
}

// Event takes the end of an event.
func (w *besideWriter) Event(e *sse.Event) {
	switch {
	case !w.list || w.tooLarge:
		w.readEvent(e)
	case e.Message():
		w.c.learnTools(&w.listText, true)
	}
	w.text, w.tooLarge = w.text[:0], false
}

// readEvent ends the reading of an event's data.
func (w *besideWriter) readEvent(e *sse.Event) {
	answer := w.reader.Close()
	w.reader.Reset(w.c.message.ID)
	switch {
	case !e.Message():
	case tellsOfChange(&answer), w.list && answer.Doubtful:
		w.c.toolsChanged()
	case w.list && answersRequest(&answer):
		countPage(pageTooLarge)
		w.c.toolsChanged()
	}
}

// tellsOfChange reports whether a message says that the tools have changed.
func tellsOfChange(m *jsonrpc.Answer) bool {
	return m.Kind == jsonrpc.Other && m.Method == toolsChanged
}

// answersRequest reports whether a message is the result of the request.
func answersRequest(m *jsonrpc.Answer) bool {
	return m.Kind == jsonrpc.Result && m.ID == jsonrpc.IDOurs
}

// Pass and Overflow are not needed: the bytes are relayed apart from this.
func (w *besideWriter) Pass([]byte)     {}
func (w *besideWriter) Overflow([]byte) {}

// ReadFrom reads the body through Write if there is something to read beside
// it, and else leaves it to the wrapped writer, which may have a shorter way.
func (w *besideWriter) ReadFrom(r io.Reader) (int64, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.events && !w.json {
		return w.ResponseWriterWrapper.ReadFrom(r)
	}
	return io.Copy(struct{ io.Writer }{w}, r)
}

// relayBeside runs the handlers beneath with writers that read beside them, and
// hide what is denied.
func (c *call) relayBeside(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if c.h.restricts() && c.mayList() {
		return c.relayHiding(w, r, next)
	}
	return c.readBeside(w, r, next)
}

// readBeside runs the handlers beneath with writers that read beside them.
func (c *call) readBeside(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if c.h.ledger != nil {
		return c.settleBeside(w, r, next)
	}
	return c.learnBeside(w, r, next)
}

// listens reports whether the request opens a stream for what the server has to
// tell of itself: a GET in legacy revisions, subscriptions/listen in modern ones.
func (c *call) listens() bool {
	return c.message.Method == "subscriptions/listen" || c.request.Method == http.MethodGet && acceptsEvents(c.request)
}

// learnBeside runs the handlers beneath with a writer that reads what they say of
// tools.
func (c *call) learnBeside(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (err error) {
	if !c.h.learns() {
		return next.ServeHTTP(w, r)
	}
	beside := c.beside(w)
	if beside.list || c.listens() {
		r.Header["Accept-Encoding"] = []string{"identity"} // or it could not be read
	}
	broken := true // by a panic, unless next returns
	defer func() { beside.end(broken) }()
	err = next.ServeHTTP(beside, r)
	broken = err != nil
	return err
}
