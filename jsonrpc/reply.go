package jsonrpc

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// AppendError appends a JSON-RPC error response to dst. The id is a token as Message has it;
// without one the response has no id member, as JSON-RPC over MCP wants it where the request's
// id could not be read. Data is a JSON text, or nil for none. Invalid UTF-8 in the message is
// replaced by U+FFFD.
func AppendError(dst []byte, id []byte, code int, message string, data []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	if id != nil {
		dst = append(dst, `,"id":`...)
		dst = append(dst, id...)
	}
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = append(dst, `,"message":`...)
	dst, _ = jsontext.AppendQuote(dst, message)
	if data != nil {
		dst = append(dst, `,"data":`...)
		dst = append(dst, data...)
	}
	return append(dst, "}}"...)
}
