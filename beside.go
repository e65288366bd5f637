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
// as it comes; only the last bytes of a list wait until it is learned, so that
// no client knows a tool before the gateway does.
type besideWriter struct {
	caddyhttp.ResponseWriterWrapper
	listText // of the list as JSON, or what was read of the event's data

	list   bool // the request was a tools/list
	status int
	json   bool // a list as one JSON text
	events bool

	passed   int       // bytes of a JSON text that were relayed
	came     int64     // bytes of it that came
	whole    int64     // its declared length, or -1
	same     *recalled // the list that is kept, as long as this one is the same: then the text is not
	learned  bool
	tooLarge bool

	reader   *jsonrpc.ResponseReader
	splitter sse.Splitter // holds nothing
}

// beside returns a writer that reads beside the relay of a response.
func (c *call) beside(w http.ResponseWriter) *besideWriter {
	return &besideWriter{
		ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w},
		listText:              c.listText(),
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

// writeList passes on what came before p, and p too if it is the last piece.
func (w *besideWriter) writeList(p []byte) error {
	if err := w.pass(); err != nil {
		return err
	}
	if w.came == 0 {
		w.same = w.recall(p)
	}
	w.came += int64(len(p))
	if w.same != nil && w.same.match(p) {
		return w.writeSame(p)
	}
	if w.same != nil && !w.writeDown() || !w.keep(p) {
		w.json = false
		w.drop()
		_, err := w.ResponseWriter.Write(p)
		return err
	}
	if w.came == w.whole {
		w.learn()
		return w.pass()
	}
	return nil
}

// pass relays what was not yet of a JSON text.
func (w *besideWriter) pass() error {
	if w.passed == len(w.text) {
		return nil
	}
	_, err := w.ResponseWriter.Write(w.text[w.passed:])
	w.passed = len(w.text)
	return err
}

// drop gives up a text that does not fit.
func (w *besideWriter) drop() {
	countPage(pageTooLarge)
	w.unhold(int64(cap(w.text)))
	w.text, w.passed = nil, 0
}

// end learns what is complete now that nothing comes any more, and passes on
// what waited for that. A response that broke off teaches nothing.
func (w *besideWriter) end(broken bool) {
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
	w.share.give()
}

// learn takes in the list that came.
func (w *besideWriter) learn() {
	w.learned = true
	if w.same != nil && (w.recognize() || !w.writeDown()) {
		return
	}
	w.c.learnTools(w.text)
}

// Data reads the message of an event while it comes.
func (w *besideWriter) Data(p []byte) {
	w.reader.Write(p)
	if w.list && !w.tooLarge {
		w.tooLarge = !w.keep(p)
	}
}

// Event takes the end of an event.
func (w *besideWriter) Event(e *sse.Event) {
	answer := w.reader.Close()
	w.reader.Reset(w.c.message.ID)
	switch {
	case !e.Message():
	case answer.Kind == jsonrpc.Other && answer.Method == toolsChanged:
		w.c.toolsChanged()
	case !w.list || answer.Kind != jsonrpc.Result || answer.ID != jsonrpc.IDOurs:
	case w.tooLarge:
		countPage(pageTooLarge)
	default:
		w.learn()
	}
	w.text, w.tooLarge = w.text[:0], false
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

// learnBeside runs the handlers beneath with a writer that reads what they say of
// tools.
func (c *call) learnBeside(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (err error) {
	if !c.h.learns() {
		return next.ServeHTTP(w, r)
	}
	beside := c.beside(w)
	if beside.list {
		r.Header["Accept-Encoding"] = []string{"identity"} // or it could not be read
	}
	broken := true // by a panic, unless next returns
	defer func() { beside.end(broken) }()
	err = next.ServeHTTP(beside, r)
	broken = err != nil
	return err
}
