package gateway

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/caddymcp/gateway/jsonrpc"
)

// The gateway's own answers to a tool call. The codes lie outside the range
// that JSON-RPC reserves.
const (
	codeUnknown = -41010
	codeNotSent = -41011

	textUnknown = "the outcome of this call is unknown: it was sent, and no readable answer came back. " +
		"It may have taken effect. Do not repeat it before you have checked whether it did."
	textNotSent = "this call was not sent: no connection to the tool server could be made. " +
		"Nothing has happened; it can be repeated."
)

// appendOutcome appends the value of the member that marks an answer with what
// is known of the call. Its words come from bounded sets and need no escaping.
func (x *exchange) appendOutcome(b []byte) []byte {
	b = append(b, `{"outcome":"`...)
	b = append(b, x.verdict.Outcome.String()...)
	b = append(b, `","observation":"`...)
	b = append(b, x.verdict.Observation...)
	b = append(b, '"')
	if status := x.writer.status; status != 0 && status != http.StatusOK {
		b = append(b, `,"status":`...)
		b = strconv.AppendInt(b, int64(status), 10)
	}
	if x.unrecorded {
		b = append(b, `,"recorded":false`...)
	}
	return append(b, '}')
}

// outcomeText is the text that adds the outcome to the upstream's answer in
// place of its bytes [start, end).
func (x *exchange) outcomeText(splice jsonrpc.Splice) (start, end int64, text []byte) {
	value := x.appendOutcome(x.mark[:0])
	return splice.Edit(value[len(value):], value)
}

// outcomeData is the data of the gateway's own errors.
func (x *exchange) outcomeData() []byte {
	b := append(x.mark[:0], `{"`+jsonrpc.OutcomeMember+`":`...)
	return append(x.appendOutcome(b), '}')
}

// contentDigests are the header fields that speak of the exact bytes of a
// response's content.
var contentDigests = [...]string{"Etag", "Content-Md5", "Digest", "Repr-Digest", "Content-Digest", "Accept-Ranges"}

// dropContentDigests removes what is no longer true of a content that was
// added to.
func dropContentDigests(header http.Header) {
	for _, name := range contentDigests {
		delete(header, name)
	}
}

// contentFields are the header fields that speak of a response's content.
var contentFields = [...]string{
	"Content-Type", "Content-Length", "Content-Encoding", "Content-Language", "Content-Location",
	"Content-Disposition", "Content-Range", "Last-Modified",
}

// dropContent removes what a response says about a content that is replaced.
// What it says about the exchange stays, like Retry-After or a session.
func dropContent(header http.Header) {
	dropContentDigests(header)
	for _, name := range contentFields {
		delete(header, name)
	}
}

// announcedTrailers are the names that Trailer announces, with how many values
// of each stand in the head itself.
func announcedTrailers(header http.Header) map[string]int {
	var announced map[string]int
	for _, line := range header["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			if announced == nil {
				announced = make(map[string]int)
			}
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			announced[name] = len(header[name])
		}
	}
	return announced
}

// takeTrailers takes out of a header the trailers of a response that was held
// to its end: those that were announced stand among the fields by then, behind
// what the head has of the same name, and the others have a prefix. It returns
// them, and nil if none came nor was announced.
func takeTrailers(header http.Header, announced map[string]int) http.Header {
	var trailers http.Header
	if announced != nil {
		trailers = make(http.Header)
	}
	for name, heads := range announced {
		if values := header[name]; len(values) > heads {
			trailers[name] = values[heads:]
			header[name] = values[:heads:heads]
		}
		if heads == 0 {
			delete(header, name)
		}
	}
	for name, values := range header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			if trailers == nil {
				trailers = make(http.Header)
			}
			trailers[name] = values
			delete(header, name)
		}
	}
	return trailers
}
