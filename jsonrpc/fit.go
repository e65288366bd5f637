package jsonrpc

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// FitResult returns the result of a response that was read, a JSON object, as it
// stands in a response of a revision: the modern ones have resultType
// "complete" in what has happened, and those before do not know the member.
// What has to be changed is a copy.
func FitResult(result []byte, modern bool) []byte {
	const member = `"resultType":"complete"`
	start, end, empty := findResultType(result)
	switch {
	case modern && end == 0 && empty:
		return []byte("{" + member + "}")
	case modern && end == 0:
		return append([]byte("{"+member+","), result[1:]...)
	case !modern && end != 0:
		return append(bytes.Clone(result[:start]), result[end:]...)
	}
	return result
}

// findResultType returns where the member resultType stands in an object, with
// the one comma that goes with it; end is 0 if it has none.
func findResultType(object []byte) (start, end int64, empty bool) {
	d := jsontext.NewDecoder(bytes.NewReader(object), laxOptions...)
	if _, err := d.ReadToken(); err != nil {
		return 0, 0, false
	}
	empty = d.PeekKind() == '}'
	for before := d.InputOffset(); d.PeekKind() == '"'; before = d.InputOffset() {
		name, err := d.ReadToken()
		if err != nil {
			return 0, 0, false
		}
		is := name.String() == "resultType"
		if d.SkipValue() != nil {
			return 0, 0, false
		}
		if !is {
			continue
		}
		if before > 1 {
			return before, d.InputOffset(), false // the comma before it is among the bytes
		}
		start, end = before, d.InputOffset()
		if rest := bytes.TrimLeft(object[end:], " \t\r\n"); rest[0] == ',' {
			end = int64(len(object)-len(rest)) + 1
		}
		return start, end, false
	}
	return 0, 0, empty
}
