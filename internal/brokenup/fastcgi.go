package brokenup

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
)

// FastCGI record types and sizes (FastCGI specification 1.0, section 8).
const (
	fcgiVersion      = 1
	fcgiEndRequest   = 3
	fcgiParams       = 4
	fcgiStdin        = 5
	fcgiStdout       = 6
	fcgiMaxContent   = 65535
	fcgiHeaderLength = 8
)

// ReadFastCGI reads one whole FastCGI request: parameters and standard input
// up to their empty records.
func (c *Conn) ReadFastCGI() (*Request, bool) {
	var params, stdin bytes.Buffer
	header := make([]byte, fcgiHeaderLength)
	for {
		if _, err := io.ReadFull(c.in, header); err != nil {
			return nil, false
		}
		content := make([]byte, binary.BigEndian.Uint16(header[4:]))
		if _, err := io.ReadFull(c.in, content); err != nil {
			return nil, false
		}
		if _, err := c.in.Discard(int(header[6])); err != nil {
			return nil, false
		}
		switch {
		case header[1] == fcgiParams:
			params.Write(content)
		case header[1] == fcgiStdin && len(content) > 0:
			stdin.Write(content)
		case header[1] == fcgiStdin:
			r := &Request{Conn: c.N, Header: make(http.Header), Body: stdin.Bytes()}
			for name, value := range pairs(params.Bytes()) {
				switch name {
				case "REQUEST_METHOD":
					r.Method = value
				case "REQUEST_URI":
					r.Target = value
				}
				r.Header.Set(name, value)
			}
			c.up.arrived(r)
			return r, true
		}
	}
}

// pairs decodes FastCGI name-value pairs (section 3.4).
func pairs(p []byte) map[string]string {
	m := make(map[string]string)
	length := func() int {
		if len(p) == 0 {
			return 0
		}
		if p[0]>>7 == 0 || len(p) < 4 {
			n := int(p[0])
			p = p[1:]
			return n
		}
		n := int(binary.BigEndian.Uint32(p) & 0x7fffffff)
		p = p[4:]
		return n
	}
	for len(p) > 0 {
		n, v := length(), length()
		if n+v > len(p) {
			return m
		}
		m[string(p[:n])] = string(p[n : n+v])
		p = p[n+v:]
	}
	return m
}

// SendFastCGI writes text, a CGI response, to standard output and, if last,
// ends the request.
func (c *Conn) SendFastCGI(text string, last bool) bool {
	var b bytes.Buffer
	record := func(kind byte, content string) {
		b.Write([]byte{fcgiVersion, kind, 0, 1})
		binary.Write(&b, binary.BigEndian, uint16(len(content)))
		b.Write([]byte{0, 0})
		b.WriteString(content)
	}
	for len(text) > 0 {
		n := min(len(text), fcgiMaxContent)
		record(fcgiStdout, text[:n])
		text = text[n:]
	}
	if last {
		record(fcgiStdout, "")
		record(fcgiEndRequest, "\x00\x00\x00\x00\x00\x00\x00\x00")
	}
	return c.Send(b.String())
}
