package brokenup

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/quic-go/quic-go/http3"
)

// HTTP3 starts an upstream that answers every HTTP/3 request with r. It logs
// whole requests; of bytes that came before it knows nothing.
func HTTP3(t testing.TB, r Reply) *Upstream {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening: %v", err)
	}
	l := &quicListener{pc: pc, closed: make(chan struct{})}
	u := start(t, l, nil, nil)
	l.server = &http3.Server{
		TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{certificate(t)}}),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			body, err := io.ReadAll(q.Body)
			if err != nil {
				return
			}
			arrived := &Request{Method: q.Method, Target: q.RequestURI, Header: q.Header, Body: body}
			u.arrived(arrived)
			for _, line := range r.Header {
				name, value, _ := strings.Cut(line, ": ")
				w.Header().Set(name, value)
			}
			if r.Status != 0 {
				w.WriteHeader(r.Status)
			}
			io.WriteString(w, r.For(arrived).Body)
		}),
	}
	u.wg.Go(func() { l.server.Serve(pc) })
	return u
}

// quicListener stands where an Upstream has its listener.
type quicListener struct {
	pc     net.PacketConn
	server *http3.Server
	closed chan struct{}
}

func (l *quicListener) Accept() (net.Conn, error) {
	<-l.closed
	return nil, net.ErrClosed
}

func (l *quicListener) Addr() net.Addr { return l.pc.LocalAddr() }

func (l *quicListener) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
		l.server.Close()
		l.pc.Close()
	}
	return nil
}
