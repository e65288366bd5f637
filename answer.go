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

// outcomeMember is the value of the member that marks an answer with what is
// known of the call. Its words come from bounded sets and need no escaping.
func (x *exchange) outcomeMember() []byte {
	b := append(make([]byte, 0, 96), `{"outcome":"`...)
	b = append(b, x.verdict.Outcome.String()...)
	b = append(b, `","observation":"`...)
	b = append(b, x.verdict.Observation...)
	b = append(b, '"')
	if status := x.writer.status; status != 0 && status != http.StatusOK {
		b = append(b, `,"status":`...)
		b = strconv.AppendInt(b, int64(status), 10)
	}
	return append(b, '}')
}

// outcomeData is the data of the gateway's own errors.
func (x *exchange) outcomeData() []byte {
	b := append(make([]byte, 0, 160), `{"`+jsonrpc.OutcomeMember+`":`...)
	b = append(b, x.outcomeMember()...)
	return append(b, '}')
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

// dropContent removes what a response says about a content that is replaced.
// What it says about the exchange stays, like Retry-After or a session.
func dropContent(header http.Header) {
	dropContentDigests(header)
	for name := range header {
		if strings.HasPrefix(name, "Content-") || name == "Last-Modified" || name == "Trailer" {
			delete(header, name)
		}
	}
}
