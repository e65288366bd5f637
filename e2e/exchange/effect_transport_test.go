//go:build unix

package exchange

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quic-go/quic-go/http3"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// protectHTTP3 is protectWatched for a site that speaks HTTP/3.
func protectHTTP3(t *testing.T, options, rest string) *protected {
	t.Helper()
	for len(left) > 0 {
		<-left
	}
	port, dir := freePort(t), t.TempDir()
	certificate := newCertificate(t, "gateway")
	writePEM(t, filepath.Join(dir, "cert.pem"), "CERTIFICATE", certificate.Certificate[0])
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, filepath.Join(dir, "key.pem"), "PRIVATE KEY", key)
	path := filepath.Join(dir, "effects.db")
	s := incaddy.Run(t, incaddy.Config{
		Global: fmt.Sprintf("mcp_gateway {\nledger sqlite %q\n}", path),
		Also: fmt.Sprintf("https://:%s {\nbind 127.0.0.1\nlog {\noutput incaddy\nformat json\n}\ntls %s/cert.pem %s/key.pem\nmcp_gateway /mcp {\n%s}\nwatch\n%s\n}",
			port, dir, dir, options, rest),
	})
	s.Addr, s.URL = "127.0.0.1:"+port, "https://127.0.0.1:"+port
	return &protected{s, path}
}

// clientHTTP3 is an HTTP/3 client, and what ends its connections.
func clientHTTP3(t *testing.T) (c *http.Client, leave func()) {
	t.Helper()
	transport := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: "gateway"}} //nolint:gosec // the test's own server
	t.Cleanup(func() { _ = transport.Close() })
	return &http.Client{Transport: transport}, func() { _ = transport.Close() }
}

// The client of a protected call may go away over HTTP/3 too, by giving its call
// up or with all of its connection.
func TestDrainOverHTTP3(t *testing.T) {
	for _, c := range []struct{ name, before, after string }{
		{"before the head", "", jsonResponse(complete)},
		{"in the middle of JSON", begun(jsonResponse(complete)), rest(jsonResponse(complete))},
		{"between events", streamHead + chunkOf(progress(1)), chunkOf(progress(2)) + chunkOf(final) + lastChunk},
	} {
		for _, all := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the connection: %v", c.name, all), func(t *testing.T) {
				begun, speak := make(chan struct{}), make(chan struct{})
				up := brokenup.TCP(t, func(conn *brokenup.Conn) {
					if _, there := conn.Read(); there {
						conn.Send(c.before)
						close(begun)
						<-speak
						conn.Send(c.after)
					}
				})
				p := protectHTTP3(t, refundTool, proxy(up.Addr()))
				leaver := &leaving{done: make(chan struct{})}
				var disconnect func()
				leaver.client, disconnect = clientHTTP3(t)
				leaver.ctx, leaver.leave = context.WithCancel(t.Context())
				if all {
					leaver.leave = disconnect
				}
				uri := leaver.call(p.Site, refund())
				<-begun
				leaver.gone(t)
				p.wantState(t, effect.Executing, 1)
				close(speak)
				committed.checkLog(t, p.Site, uri)
				p.wantState(t, effect.Committed, 1)

				again, _ := clientHTTP3(t)
				m := refund()
				send(again, m.request(t.Context(), p.URL), m.uri).replays(t, "1")
				if n := deliveries(up); n != 1 {
					t.Errorf("%d deliveries, want 1", n)
				}
			})
		}
	}
}

// Of two calls on one connection one is given up, and goes on; the other one
// has its answer.
func TestDrainBesideAnotherCall(t *testing.T) {
	speak := make(chan struct{})
	up := brokenup.TCP(t, func(c *brokenup.Conn) {
		if _, there := c.Read(); there {
			c.Send(begun(jsonResponse(complete)))
			<-speak
			c.Send(rest(jsonResponse(complete)))
		}
	})
	p := protectWatched(t, refundTool, proxy(up.Addr()))
	leaver := newLeaving(t, true)
	leaver.client.Transport.(*http.Transport).DisableKeepAlives = false
	var conns atomic.Int32
	leaver.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conns.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	answered := make(chan answer)
	other := message{args: `{"payment_id":"txn_2"}`}
	r := other.request(t.Context(), p.URL)
	go func() { answered <- send(leaver.client, r, other.uri) }()
	up.AwaitRequest(1)
	uri := leaver.call(p.Site, refund())
	up.AwaitRequest(2)
	leaver.gone(t)
	close(speak)
	committed.check(t, p.Site, <-answered)
	committed.checkLog(t, p.Site, uri)
	p.wantState(t, effect.Committed, 1)
	if n := deliveries(up); n != 2 || conns.Load() != 1 {
		t.Errorf("%d deliveries over %d connections", n, conns.Load())
	}
}

// What is refused before the effect is looked at reserves nothing.
func TestRefusedCallsReserveNothing(t *testing.T) {
	arrived, speak := make(chan struct{}, 10), make(chan struct{})
	up := brokenup.TCP(t, func(c *brokenup.Conn) {
		if r, there := c.Read(); there {
			arrived <- struct{}{}
			<-speak
			c.Reply(ok.For(r))
		}
	})
	p := protect(t, refundTool+"max_body 5000\nresponse_buffer 5000\nmax_held 10000\ndeny other", proxy(up.Addr()))
	for _, c := range []struct {
		name string
		m    message
		code int
		http int
	}{
		{"early data", message{header: []string{"Early-Data: 1"}}, -41016, http.StatusTooEarly},
		{"a large body", message{params: `,"x":"` + large(6000) + `"`}, -32600, http.StatusRequestEntityTooLarge},
		{"another header", message{header: []string{"Mcp-Name: other"}}, -32020, http.StatusBadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.m.args = `{"payment_id":"txn_1"}`
			a := call(t, p.Site, c.m)
			if code, _ := codeOf(t, a.body); code != c.code || a.status != c.http {
				t.Errorf("answered %d %s", a.status, a.body)
			}
			p.wantState(t, effect.None, 0)
		})
	}
	t.Run("overload", func(t *testing.T) {
		answers := make(chan answer)
		for i := range 2 {
			m := message{args: fmt.Sprintf(`{"payment_id":"other_%d","x":%q}`, i, large(4000))}
			r := m.request(t.Context(), p.URL)
			go func() { answers <- send(incaddy.Client(t, false), r, m.uri) }()
			<-arrived
		}
		a := call(t, p.Site, message{args: fmt.Sprintf(`{"payment_id":"txn_1","x":%q}`, large(4000))})
		if code, _ := codeOf(t, a.body); code != -41015 || a.status != http.StatusServiceUnavailable {
			t.Errorf("answered %d %s", a.status, a.body)
		}
		p.wantState(t, effect.None, 0)
		close(speak)
		<-answers
		<-answers
	})
	call(t, p.Site, refund())
	p.wantState(t, effect.Committed, 1)
}

// A client that waits for the word to go on with its body has reserved nothing
// by then.
func TestEffectOfAClientThatExpectsContinue(t *testing.T) {
	up := brokenup.TCP(t, brokenup.Answer(ok))
	p := protect(t, refundTool, proxy(up.Addr()))
	m := refund()
	r := m.request(t.Context(), p.URL)
	body, _ := io.ReadAll(r.Body)
	for _, goesOn := range []bool{false, true} {
		conn, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nExpect: 100-continue\r\n", m.uri, len(body))
		r.Header.Write(conn)
		fmt.Fprint(conn, "\r\n")
		reader := bufio.NewReader(conn)
		if line, err := reader.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
			t.Fatalf("answered %q, %v", line, err)
		}
		p.wantState(t, effect.None, 0)
		if !goesOn {
			conn.Write(body[:20])
			conn.Close()
			p.Log.Access(t, m.uri)
			p.wantState(t, effect.None, 0)
			continue
		}
		conn.Write(body)
		reader.ReadString('\n')
		res, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		a := readAnswer(res, m.uri)
		if a.status != http.StatusOK || !strings.Contains(a.body, `"outcome":"committed"`) {
			t.Errorf("answered %d %s", a.status, a.body)
		}
		p.wantState(t, effect.Committed, 1)
		if got := up.Requests()[0].Header["Expect"]; got != nil {
			t.Errorf("Expect arrived as %q", got)
		}
	}
}

// A protected call over what is no HTTP/1: as little is claimed of it as of any
// other, and what may have happened is not repeated.
func TestEffectOverTransports(t *testing.T) {
	fcgi := []string{"transport fastcgi {\ndial_timeout 100ms\n}"}
	h3 := []string{transport(insecure, "versions 3")}
	noAnswer := func(c *brokenup.Conn) { c.ReadFastCGI() }
	for _, c := range []struct {
		name      string
		upstream  func(testing.TB) (string, *brokenup.Upstream)
		lines     []string
		state     effect.State
		delivered int
	}{
		{"FastCGI", tcp(fastCGI("Content-Type: application/json\r\n\r\n" + complete)), fcgi, effect.Committed, 1},
		{"FastCGI, no answer", tcp(noAnswer), fcgi, effect.Ambiguous, 1},
		{"FastCGI, no answer, tried again", tcp(noAnswer), append([]string{"lb_retries 3", "lb_retry_match {\nmethod POST\n}"}, fcgi...), effect.Ambiguous, 1},
		{"FastCGI, refused", down(brokenup.Refused), fcgi, effect.Ambiguous, 0},
		{"HTTP/3", overQUIC(ok), h3, effect.Committed, 1},
		{"HTTP/3, garbage", overQUIC(brokenup.JSON("<")), h3, effect.Ambiguous, 1},
		{"HTTP/3, a bad certificate", overQUIC(ok), []string{transport(secure, "versions 3")}, effect.Failed, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr, up := c.upstream(t)
			p := protect(t, refundTool, proxy(addr, c.lines...))
			call(t, p.Site, refund())
			p.wantState(t, c.state, 1)
			switch again := call(t, p.Site, refund()); c.state {
			case effect.Committed:
				again.replays(t, "1")
			case effect.Failed:
				p.wantState(t, effect.Failed, 2)
			default:
				again.refusedWith(t, effect.CodeAmbiguous)
			}
			if up != nil && deliveries(up) != c.delivered {
				t.Errorf("%d deliveries, want %d", deliveries(up), c.delivered)
			}
		})
	}
}
