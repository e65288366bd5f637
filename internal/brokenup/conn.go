package brokenup

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// Conn is one connection to an Upstream, as its script sees it. Its methods
// report only whether they could do what they say: a script that meets a
// broken connection has nothing left to do but return.
type Conn struct {
	N int // ordinal of the connection at its upstream, from 0

	up     *Upstream
	raw    net.Conn // the socket
	stream net.Conn // what the request travels on: raw, or TLS over it
	in     *bufio.Reader
	framed bool // received is filled by a protocol, not by reading

	head *http.Request // of the request whose head was read last

	// guarded by up.mu
	received []byte
	ended    bool
}

// Request is a request that an upstream received whole.
type Request struct {
	Conn   int // ordinal of the connection it came on
	Method string
	Target string
	Header http.Header
	// Trailer holds the fields that followed a chunked body.
	Trailer http.Header
	Body    []byte
}

// ID is the JSON token of the body's id member, byte for byte, or "null".
func (r *Request) ID() string {
	var m struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(r.Body, &m) != nil || m.ID == nil {
		return "null"
	}
	return string(m.ID)
}

func newConn(u *Upstream, raw net.Conn, n int) *Conn {
	c := &Conn{N: n, up: u, raw: raw, stream: raw}
	c.in = bufio.NewReader(recorder{c})
	return c
}

func (c *Conn) run() {
	defer func() {
		c.Close()
		c.up.mu.Lock()
		defer c.up.mu.Unlock()
		c.ended = true
		c.up.changed.Broadcast()
	}()
	if c.up.tls != nil {
		t := tls.Server(c.raw, c.up.tls)
		if t.Handshake() != nil {
			return
		}
		c.stream = t
	}
	c.up.script(c)
}

// recorder reads from the connection and keeps what it reads.
type recorder struct{ c *Conn }

func (r recorder) Read(p []byte) (int, error) {
	n, err := r.c.stream.Read(p)
	if !r.c.framed {
		r.c.record(p[:n])
	}
	return n, err
}

func (c *Conn) record(p []byte) {
	c.up.mu.Lock()
	defer c.up.mu.Unlock()
	c.received = append(c.received, p...)
	c.up.changed.Broadcast()
}

// Await blocks until a byte has arrived, and leaves it unread in the socket.
func (c *Conn) Await() bool {
	return c.in.Buffered() > 0 || peek(c.raw, make([]byte, 1)) > 0
}

// ReadHead reads one request up to the end of its header.
func (c *Conn) ReadHead() bool {
	req, err := http.ReadRequest(c.in)
	if err != nil {
		return false
	}
	c.head = req
	return true
}

// ReadBody reads the body of the request whose head was read, and reports the
// request as arrived.
func (c *Conn) ReadBody() (*Request, bool) {
	body, err := io.ReadAll(c.head.Body)
	if err != nil {
		return nil, false
	}
	r := &Request{
		Conn: c.N, Method: c.head.Method, Target: c.head.RequestURI,
		Header: c.head.Header, Trailer: c.head.Trailer, Body: body,
	}
	r.Header.Set("Host", c.head.Host)
	c.up.arrived(r)
	return r, true
}

// Read reads one whole request.
func (c *Conn) Read() (*Request, bool) {
	if !c.ReadHead() {
		return nil, false
	}
	return c.ReadBody()
}

// Drain reads until the peer closes or breaks the connection.
func (c *Conn) Drain() {
	io.Copy(io.Discard, c.in)
}

// Send writes text as it stands.
func (c *Conn) Send(text string) bool {
	_, err := io.WriteString(c.stream, text)
	return err == nil
}

// Chunk writes text as one chunk of a chunked body.
func (c *Conn) Chunk(text string) bool {
	return c.Send(fmt.Sprintf("%x\r\n%s\r\n", len(text), text))
}

// Close closes the connection. The peer sees an end of stream, or a reset if
// bytes of its own were left unread.
func (c *Conn) Close() { c.stream.Close() }

// HalfClose ends the sending direction only, so that what still arrives can be
// read and logged.
func (c *Conn) HalfClose() {
	if t, ok := c.stream.(*tls.Conn); ok {
		t.CloseWrite()
	}
	c.raw.(interface{ CloseWrite() error }).CloseWrite()
}

// Reset breaks the connection with an RST. What arrived and was not read is
// logged first: the truth must not be lost with the socket.
func (c *Conn) Reset() {
	if c.stream == c.raw && !c.framed {
		unread := make([]byte, 64<<10)
		if n := glance(c.raw, unread); n > 0 {
			c.record(unread[:n])
		}
	}
	linger(c.raw)
	c.raw.Close()
}

// Framing is how the end of a response body is marked.
type Framing uint8

// The framings.
const (
	Sized   Framing = iota // Content-Length
	Chunked                // Transfer-Encoding: chunked
	Unsized                // by the end of the connection
)

// Reply is a response as a script writes it.
type Reply struct {
	Status  int      // 200 if 0
	Header  []string // lines, "Name: value"
	Body    string   // $id stands for the request's id token
	Framing Framing
}

// JSON is a reply with a JSON body.
func JSON(body string) Reply {
	return Reply{Header: []string{"Content-Type: application/json"}, Body: body}
}

// SSE is a chunked event stream with a body.
func SSE(body string) Reply {
	return Reply{Header: []string{"Content-Type: text/event-stream"}, Body: body, Framing: Chunked}
}

// With returns the reply with another status and more header lines.
func (r Reply) With(status int, header ...string) Reply {
	r.Status = status
	r.Header = append(append([]string(nil), r.Header...), header...)
	return r
}

// For fills in the id of the request that is answered.
func (r Reply) For(q *Request) Reply {
	if q != nil {
		r.Body = strings.ReplaceAll(r.Body, "$id", q.ID())
	}
	return r
}

// Head writes the reply's status line and header.
func (c *Conn) Head(r Reply) bool {
	var b bytes.Buffer
	status := r.Status
	if status == 0 {
		status = http.StatusOK
	}
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	for _, line := range r.Header {
		b.WriteString(line + "\r\n")
	}
	switch r.Framing {
	case Sized:
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(r.Body))
	case Chunked:
		b.WriteString("Transfer-Encoding: chunked\r\n")
	case Unsized:
		b.WriteString("Connection: close\r\n")
	}
	b.WriteString("\r\n")
	return c.Send(b.String())
}

// Reply writes a whole reply.
func (c *Conn) Reply(r Reply) bool {
	if !c.Head(r) {
		return false
	}
	switch {
	case r.Framing != Chunked:
		return c.Send(r.Body)
	case r.Body == "":
		return c.Send("0\r\n\r\n")
	}
	return c.Chunk(r.Body) && c.Send("0\r\n\r\n")
}
