package mcpheaders

import (
	"encoding/json"
	"strconv"
)

// Refusal is one refused request: what the client is answered with and what the
// operator sees.
type Refusal struct {
	// Row is the row of the admission table, 1 to 21.
	Row int

	// Reason is its stable name in snake_case, one of Reasons: a metric label.
	// Two refusals with different texts have different reasons.
	Reason string

	// Status is the HTTP status, Code the JSON-RPC error code.
	Status int
	Code   int

	// Text says what is wrong and what to do next. Of each thing
	// that the client sent it repeats at most 64 bytes, escaped.
	Text string

	// Supported and Requested are the data of an UnsupportedProtocolVersion
	// error (row 16) and empty elsewhere.
	Supported []string
	Requested string
}

// The JSON-RPC error codes of the specification (Error Codes).
const (
	parseError                 = -32700
	invalidRequest             = -32600
	invalidParams              = -32602
	headerMismatch             = -32020
	unsupportedProtocolVersion = -32022
)

// refuse makes a refusal; the ladder adds what it knows of the row.
func refuse(reason, text string) *Refusal { return &Refusal{Reason: reason, Text: text} }

// AppendData appends the error's data member, if it has one.
func (r *Refusal) AppendData(dst []byte) []byte {
	if r.Code != unsupportedProtocolVersion {
		return dst
	}
	data, _ := json.Marshal(struct { // strings always have an encoding
		Supported []string `json:"supported"`
		Requested string   `json:"requested"`
	}{r.Supported, r.Requested})
	return append(dst, data...)
}

// echoLimit is how much of what a client sent a refusal repeats, in bytes.
const echoLimit = 64

// echo quotes the beginning of something the client sent.
func echo(sent string) string {
	return strconv.QuoteToASCII(clip(sent))
}

func clip(sent string) string { return sent[:min(len(sent), echoLimit)] }
