package brokenup

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Stream is one HTTP/2 request, as a script sees it. Like a Conn's, its
// methods report only success.
type Stream struct {
	conn *h2conn
	id   uint32

	header http.Header
	method string
	target string
	body   bytes.Buffer
	ended  chan struct{} // closed when the request has arrived whole, or the connection ended
	whole  bool          // valid once ended is closed
}

type h2conn struct {
	*Conn
	framer  *http2.Framer
	write   sync.Mutex // guards framer's writing half, encoder and block
	encoder *hpack.Encoder
	block   bytes.Buffer
}

// HTTP2 is a script that speaks HTTP/2 and runs s for every request as soon as
// its header has come. The connection ends when the client closes it or s
// kills it.
func HTTP2(s func(*Stream)) Script {
	return func(c *Conn) {
		c.framed = true
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(c.in, preface); err != nil {
			return
		}
		h := &h2conn{Conn: c, framer: http2.NewFramer(c.stream, c.in)}
		h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		h.encoder = hpack.NewEncoder(&h.block)
		h.serve(s)
	}
}

func (h *h2conn) serve(s func(*Stream)) {
	var scripts sync.WaitGroup
	streams := make(map[uint32]*Stream)
	defer func() {
		for _, st := range streams {
			close(st.ended)
		}
		h.Close()
		scripts.Wait()
	}()
	if h.framer.WriteSettings() != nil {
		return
	}
	end := func(st *Stream) {
		delete(streams, st.id)
		st.whole = true
		h.up.arrived(&Request{
			Conn: h.N, Method: st.method, Target: st.target,
			Header: st.header, Body: st.body.Bytes(),
		})
		close(st.ended)
	}
	for {
		frame, err := h.framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				h.locked(h.framer.WriteSettingsAck)
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				h.locked(func() error { return h.framer.WritePing(true, f.Data) })
			}
		case *http2.MetaHeadersFrame:
			st := &Stream{conn: h, id: f.StreamID, header: make(http.Header), ended: make(chan struct{})}
			for _, field := range f.Fields {
				h.record([]byte(field.Name + ": " + field.Value + "\r\n"))
				switch field.Name {
				case ":method":
					st.method = field.Value
				case ":path":
					st.target = field.Value
				default:
					st.header.Add(field.Name, field.Value)
				}
			}
			streams[st.id] = st
			scripts.Go(func() { s(st) })
			if f.StreamEnded() {
				end(st)
			}
		case *http2.DataFrame:
			h.record(f.Data())
			st := streams[f.StreamID]
			if st == nil {
				continue
			}
			st.body.Write(f.Data())
			if n := f.Header().Length; n > 0 {
				h.locked(func() error { return h.framer.WriteWindowUpdate(0, n) })
				h.locked(func() error { return h.framer.WriteWindowUpdate(st.id, n) })
			}
			if f.StreamEnded() {
				end(st)
			}
		}
	}
}

func (h *h2conn) locked(write func() error) bool {
	h.write.Lock()
	defer h.write.Unlock()
	return write() == nil
}

// Wait blocks until the request has arrived whole; false means that it never
// will.
func (s *Stream) Wait() bool {
	<-s.ended
	return s.whole
}

// Body is what has arrived of the request's body, to be asked after Wait.
func (s *Stream) Body() string { return s.body.String() }

// Head sends the header of a response, and ends it there if last.
func (s *Stream) Head(r Reply, last bool) bool {
	h := s.conn
	return h.locked(func() error {
		h.block.Reset()
		status := r.Status
		if status == 0 {
			status = http.StatusOK
		}
		h.encoder.WriteField(hpack.HeaderField{Name: ":status", Value: strconv.Itoa(status)})
		for _, line := range r.Header {
			name, value, _ := strings.Cut(line, ": ")
			h.encoder.WriteField(hpack.HeaderField{Name: strings.ToLower(name), Value: value})
		}
		return h.framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: s.id, BlockFragment: h.block.Bytes(), EndHeaders: true, EndStream: last,
		})
	})
}

// Data sends a piece of the body, which must fit the client's window, and ends
// the response there if last.
func (s *Stream) Data(text string, last bool) bool {
	return s.conn.locked(func() error { return s.conn.framer.WriteData(s.id, last, []byte(text)) })
}

// Reply sends a whole response.
func (s *Stream) Reply(r Reply) bool {
	id := Request{Body: s.body.Bytes()}
	body := r.For(&id).Body
	return s.Head(r, false) && s.Data(body, true)
}

// Reset ends the stream with an error.
func (s *Stream) Reset(code http2.ErrCode) bool {
	return s.conn.locked(func() error { return s.conn.framer.WriteRSTStream(s.id, code) })
}

// GoAway announces that no stream after last was or will be processed.
func (s *Stream) GoAway(last uint32) bool {
	return s.conn.locked(func() error { return s.conn.framer.WriteGoAway(last, http2.ErrCodeNo, nil) })
}

// Kill breaks the whole connection.
func (s *Stream) Kill() { s.conn.Reset() }
