package jsonrpc

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// decoder is a jsontext.Decoder that reads a byte slice in place and can be used again.
type decoder struct {
	jsontext.Decoder
	buf bytes.Buffer // the decoder reads a *bytes.Buffer, and nothing else, without copying
}

// decoderOptions switch the decoder's own check for duplicate names off. It would end the pass
// at the first one, and it is slow in large objects.
var decoderOptions = []jsontext.Options{jsontext.AllowDuplicateNames(true)}

func (d *decoder) reset(text []byte) {
	d.buf = *bytes.NewBuffer(text)
	d.Reset(&d.buf, decoderOptions...)
}
