package gateway

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/sse"
)

// hidingWriter passes on a response that may hold a list of tools, without those
// that are denied: a list is held until it is whole, and an event of a stream
// too. What cannot be read in one way, or not be held, is withheld: it may show
// what is to be hidden.
type hidingWriter struct {
	caddyhttp.ResponseWriterWrapper
	listText

	list   bool // the request was a tools/list
	status int
	does   doing

	announced map[string]int // trailers, and how many values the head has of these names

	splitter sse.Splitter
	out      []byte // of a stream, what can be passed on
	counted  int64  // held bytes of a stream that the budget knows of

	discarded int // bytes that came once the list was withheld
}

// doing is what a hidingWriter does with the body.
type doing uint8

const (
	passes   doing = iota // there is no list in it
	holds                 // one JSON text
	edits                 // events
	discards              // it is withheld
)

// mayList reports whether the response may have lists of tools: the one that was
// asked for, or the events of a stream that a client comes back to with a GET,
// which are those of any request it sent before (legacy revisions).
func (c *call) mayList() bool {
	return c.message.Method == toolsList || c.request.Method == http.MethodGet
}

// relayHiding runs the handlers beneath with a writer that hides tools. What is
// learned of lists is learned of the whole ones.
func (c *call) relayHiding(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (err error) {
	hiding := &hidingWriter{
		ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w},
		listText:              listText{c: c},
		list:                  c.message.Method == toolsList,
	}
	if hiding.list || acceptsEvents(r) {
		r = r.WithContext(r.Context())
		r.Header = maps.Clone(r.Header)
		r.Header["Accept-Encoding"] = []string{"identity"} // or it could not be read
	}
	broken := true // by a panic, unless next returns
	defer func() { hiding.end(broken) }()
	err = c.readBeside(hiding, r, next)
	broken = err != nil
	return err
}

func acceptsEvents(r *http.Request) bool {
	return strings.Contains(strings.ToLower(strings.Join(r.Header["Accept"], ",")), "text/event-stream")
}

// WriteHeader decides by the head what is done with the body.
func (w *hidingWriter) WriteHeader(status int) {
	switch {
	case status < 200:
		w.ResponseWriter.WriteHeader(status)
		return
	case w.status != 0:
		return
	}
	w.status = status
	header := w.Header()
	switch events := isEventStream(header); {
	case status >= 300, !w.list && !events:
		// No client takes a list from a redirect or an error, and only a
		// stream brings one that this request did not ask for.
		w.ResponseWriter.WriteHeader(status)
	case isEncoded(header):
		w.withhold("it is encoded, although it was not asked for like that")
	case events:
		w.does = edits
		w.splitter.Limit = maxList
		header.Del("Content-Length")
		dropContentDigests(header)
		w.ResponseWriter.WriteHeader(status)
	default:
		w.does = holds
		w.announced = announcedTrailers(header)
	}
}

// Write takes a piece of the body.
func (w *hidingWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	var err error
	switch w.does {
	case passes:
		return w.ResponseWriter.Write(p)
	case holds:
		if !w.keep(p) {
			w.withhold(problemTooLarge)
		}
	case edits:
		err = w.edit(p)
	case discards:
		// Read on, which leaves the upstream's connection usable, but not for
		// as long as it likes.
		if w.discarded += len(p); !w.list || w.discarded > maxList {
			err = errWithheld
		}
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// ReadFrom reads the body through Write, unless there is no list in it: the one
// of the wrapped writer goes past that.
func (w *hidingWriter) ReadFrom(r io.Reader) (int64, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.does == passes {
		return w.ResponseWriterWrapper.ReadFrom(r)
	}
	return io.Copy(struct{ io.Writer }{w}, r)
}

// FlushError flushes what was passed on. Without it a flush would commit a head
// that is still held.
func (w *hidingWriter) FlushError() error {
	if w.does == holds {
		return nil
	}
	return w.push()
}

func (w *hidingWriter) push() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// end passes on a list that is whole now. Of one that broke off nothing is: the
// connection breaks off, too.
func (w *hidingWriter) end(broken bool) {
	defer func() {
		w.handOver() // to the client's connection, which over HTTP/2 may still read it
		w.unhold(w.counted)
	}()
	if w.does == holds && !broken {
		w.show()
	}
}

// show sends the list without what is hidden.
func (w *hidingWriter) show() {
	var cuts [][2]int64
	if !isBlank(w.text) { // as the answer to a notification is
		var err error
		if cuts, err = jsonrpc.CutTools(w.text, w.c.h.denies); err != nil {
			w.withhold(err.Error())
			return
		}
	}
	header := w.Header()
	trailers := takeTrailers(header, w.announced)
	if len(cuts) > 0 {
		dropContentDigests(header)
		for _, name := range contentDigests {
			delete(trailers, name)
			delete(trailers, http.TrailerPrefix+name)
		}
	}
	size := len(w.text)
	for _, cut := range cuts {
		size -= int(cut[1] - cut[0])
	}
	switch {
	case trailers != nil:
		header.Del("Content-Length") // trailers need chunks
	case size > 0:
		header["Content-Length"] = []string{strconv.Itoa(size)}
	}
	w.ResponseWriter.WriteHeader(w.status)
	at := int64(0)
	for _, cut := range append(cuts, [2]int64{int64(len(w.text))}) {
		if _, err := w.ResponseWriter.Write(w.text[at:cut[0]]); err != nil {
			return // the client is gone
		}
		at = cut[1]
	}
	if trailers != nil {
		_ = w.push() // or a short body would get a length
		maps.Copy(header, trailers)
	}
}

// edit passes on what is complete of a stream.
func (w *hidingWriter) edit(p []byte) error {
	w.splitter.Split(p, w)
	if w.does == edits && !w.count() {
		w.withhold(problemTooLarge)
	}
	if len(w.out) > 0 {
		if _, err := w.ResponseWriter.Write(w.out); err != nil {
			return err
		}
	}
	if w.out = w.out[:0]; cap(w.out) > maxIdle {
		w.out = nil
	}
	if w.does == discards {
		w.splitter, w.out = sse.Splitter{}, nil
		if !w.list {
			return errWithheld
		}
	}
	w.count()
	return nil
}

// count keeps the budget informed of the memory that a stream uses, or reports
// that there is no room for it.
func (w *hidingWriter) count() bool {
	more := int64(w.splitter.Held()+cap(w.out)) - w.counted
	switch {
	case more > 0 && !w.hold(more):
		return false
	case more < 0:
		w.unhold(-more)
	}
	w.counted += more
	return true
}

// Data is not needed: an event is read when it is whole.
func (w *hidingWriter) Data([]byte) {}

// Pass lets comments and blank lines through.
func (w *hidingWriter) Pass(p []byte) {
	if w.does == edits {
		w.out = append(w.out, p...)
	}
}

// Overflow withholds an event that is too large to be held.
func (w *hidingWriter) Overflow([]byte) { w.tooLarge() }

func (w *hidingWriter) tooLarge() {
	if w.does == edits {
		w.withhold(problemTooLarge)
	}
}

// Event takes a complete event, of whatever type: not every client looks at it.
func (w *hidingWriter) Event(e *sse.Event) {
	if e.Oversize {
		w.tooLarge()
	}
	if w.does != edits {
		return
	}
	data := e.Data()
	if !looksLikeMessage(data) {
		w.out = append(w.out, e.Raw...)
		return
	}
	cuts, err := jsonrpc.CutTools(data, w.c.h.denies)
	switch {
	case err == nil:
		w.out = e.Cut(w.out, cuts)
	case w.list:
		w.withhold(err.Error())
	default:
		// One event that nobody can read does not end a stream which is not
		// a list's.
		w.log(err.Error())
	}
}

// looksLikeMessage reports whether anybody could find a JSON-RPC message in the
// data of an event, or a batch. Servers send other things to keep a stream open.
func looksLikeMessage(data []byte) bool {
	data = bytes.TrimLeft(data, " \t\r\n")
	return len(data) > 0 && (data[0] == '{' || data[0] == '[')
}

const problemTooLarge = "it is larger than what can be held"

// errWithheld ends a response whose rest nobody is to see.
var errWithheld = errors.New("the list of tools is withheld")

// codeListWithheld is the error that stands for a list of tools from which the
// denied ones could not be taken.
const codeListWithheld = -41017

// withhold answers in place of a list, at once, and discards what comes. A
// stream that is not a list's breaks off instead: its client can come back for
// the event.
func (w *hidingWriter) withhold(problem string) {
	w.log(problem)
	before := w.does
	w.does = discards
	w.drop()

	body := jsonrpc.AppendError(nil, w.c.message.ID, codeListWithheld,
		"the server's list of tools is withheld, since those that are not allowed here could not be taken out of it: "+problem+
			"; the operator of this server finds it in the log", nil)
	switch {
	case before == edits && !w.list:
	case before == edits:
		w.out = sse.AppendEvent(append(w.out, '\n'), body) // a long comment may have been let through in part
	default:
		w.replace(body)
	}
}

// replace answers in place of a response whose head was not sent yet.
func (w *hidingWriter) replace(body []byte) {
	header := w.Header()
	takeTrailers(header, w.announced)
	delete(header, "Trailer")
	dropContent(header)
	status := http.StatusOK
	if !w.list {
		status = http.StatusBadGateway // a stream has no id to answer under
		header.Set("Connection", "close")
	}
	_ = w.c.writeError(w.ResponseWriter, status, body)
	_ = w.push()
}

func (w *hidingWriter) log(problem string) {
	w.c.h.logger.Warn("a list of tools is withheld: what is denied could not be taken out of it",
		zap.Object("mcp", w.c), zap.String("problem", problem))
}
