package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	revision = "2026-07-28"
	toolName = "create_refund"

	outcomeMember = "io.github.caddymcp/outcome" // what the gateway adds to an answer
	resultSize    = 300                          // bytes of the upstream's answer
	patience      = 30 * time.Second             // for one answer

	firstPayment = "txn_000000000000" // of the calls that are all the same
)

// pad fills the text of a format with one %s up to size bytes.
func pad(format string, size int) ([]byte, error) {
	room := size - (len(format) - len("%s"))
	if room < 0 {
		return nil, fmt.Errorf("a message needs at least %d bytes", size-room)
	}
	return fmt.Appendf(nil, format, bytes.Repeat([]byte("x"), room)), nil
}

// callBody returns a tools/call of that many bytes, with everything that the revision requires.
func callBody(size int) ([]byte, error) {
	return pad(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+toolName+`",`+
		`"arguments":{"payment_id":"`+firstPayment+`","amount":2000,"note":"%s"},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"`+revision+`",`+
		`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},`+
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`, size)
}

// upstream is an HTTP server that gives every request the same result.
type upstream struct {
	addr   string
	server http.Server
}

func startUpstream() (*upstream, error) {
	result, err := pad(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete",`+
		`"content":[{"type":"text","text":"%s"}],"isError":false}}`, resultSize)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &upstream{addr: l.Addr().String()}
	u.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the sender sees what is wrong with the connection
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(result)
	})
	go u.server.Serve(l) // ends with close
	return u, nil
}

func (u *upstream) close() { u.server.Close() }

// check makes sure that what is measured is what is meant: the gateway marks the answer, plain Caddy does not.
func check(ctx context.Context, v *variant, body []byte) error {
	clients, err := dial(ctx, v.caddy.addr, 1, body, nil)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	answer, err := clients[0].call()
	if err != nil {
		return err
	}
	marked := bytes.Contains(answer, []byte(outcomeMember))
	if wanted := v.directive != ""; marked != wanted {
		return fmt.Errorf("the answer says what the outcome is: %v, want %v:\n%s", marked, wanted, answer)
	}
	return nil
}

// client sends one request again and again over one connection. It does no more than that takes, since it shares the
// machine with what it measures.
type client struct {
	conn    net.Conn
	in      *bufio.Reader
	request []byte
	answer  []byte

	payment []byte        // the digits of the payment in the request
	serial  *atomic.Int64 // of payments that nobody has called for yet; nil for one payment again and again
}

// dial makes connections that have carried a request already. With a serial
// number each call is for a payment of its own.
func dial(ctx context.Context, addr string, n int, body []byte, serial *atomic.Int64) (clients []*client, err error) {
	request := fmt.Appendf(nil, "POST /mcp HTTP/1.1\r\nHost: %s\r\n"+
		"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"MCP-Protocol-Version: "+revision+"\r\nMcp-Method: tools/call\r\nMcp-Name: "+toolName+"\r\n"+
		"Content-Length: %d\r\n\r\n%s", addr, len(body), body)
	defer func() {
		if err != nil {
			closeAll(clients)
		}
	}()
	for range n {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return clients, err
		}
		c := &client{conn: conn, in: bufio.NewReader(conn), request: bytes.Clone(request), serial: serial}
		if serial != nil {
			c.payment = c.request[bytes.Index(c.request, []byte(firstPayment))+len("txn_"):][:len(firstPayment)-len("txn_")]
		}
		clients = append(clients, c)
		if _, err := c.call(); err != nil {
			return clients, err
		}
	}
	return clients, nil
}

func closeAll(clients []*client) {
	for _, c := range clients {
		c.conn.Close()
	}
}

// call sends the request and returns the body of its answer, which is valid until the next call.
func (c *client) call() ([]byte, error) {
	if c.serial != nil {
		copy(c.payment, fmt.Sprintf("%0*d", len(c.payment), c.serial.Add(1)))
	}
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return nil, err
	}
	status, err := c.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200 ")) {
		return nil, fmt.Errorf("answered with %q", status)
	}
	size := -1
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			break
		}
		if name, value, _ := bytes.Cut(line, []byte(": ")); bytes.EqualFold(name, []byte("Content-Length")) {
			if size, err = strconv.Atoi(string(value)); err != nil {
				return nil, err
			}
		}
	}
	if size < 0 {
		return nil, errors.New("answered without a Content-Length")
	}
	c.answer = append(c.answer[:0], make([]byte, size)...)
	_, err = io.ReadFull(c.in, c.answer)
	return c.answer, err
}

// load has all clients send for that long, and each at least once. It returns the latencies of the requests, in
// seconds, and how long it took until the last was answered.
func load(clients []*client, d time.Duration) (latencies []float64, took time.Duration, err error) {
	var (
		all   sync.WaitGroup
		each  = make([][]float64, len(clients))
		errs  = make([]error, len(clients))
		begin = time.Now()
	)
	for i, c := range clients {
		all.Go(func() {
			for sent := time.Now(); ; {
				if _, errs[i] = c.call(); errs[i] != nil {
					return
				}
				now := time.Now()
				each[i] = append(each[i], now.Sub(sent).Seconds())
				if now.Sub(begin) >= d {
					return
				}
				sent = now
			}
		})
	}
	all.Wait()
	took = time.Since(begin)
	for _, l := range each {
		latencies = append(latencies, l...)
	}
	return latencies, took, errors.Join(errs...)
}
