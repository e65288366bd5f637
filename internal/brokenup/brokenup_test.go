package brokenup

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

const body = `{"jsonrpc":"2.0","id":"a\u0062","method":"ping"}`

// post sends one request on a new connection and returns the status, what
// could be read of the answer, and the first error.
func post(u *Upstream) (int, string, error) {
	network, addr := "tcp", u.Addr()
	if path, ok := strings.CutPrefix(addr, "unix/"); ok {
		network, addr = "unix", path
	}
	tr := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}
	defer tr.CloseIdleConnections()
	scheme := "http"
	if u.tls != nil {
		scheme = "https"
	}
	// The reader's type is hidden from the client: it could otherwise send the
	// body again by itself.
	res, err := (&http.Client{Transport: tr}).Post(scheme+"://localhost/mcp", "application/json", io.MultiReader(strings.NewReader(body)))
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	return res.StatusCode, string(got), err
}

func TestScripts(t *testing.T) {
	answer := JSON(`{"id":$id}`)
	for _, tt := range []struct {
		name   string
		script Script
		status int    // 0: no response
		got    string // what was readable of the body
		broken bool   // reading it ended in an error
		bodies int    // how many whole bodies the upstream logged
	}{
		{"answers", Answer(answer), 200, `{"id":"a\u0062"}`, false, 1},
		{"answers with any status and header", Answer(answer.With(418, "X-A: b")), 418, `{"id":"a\u0062"}`, false, 1},
		{"answers in chunks", Answer(SSE("data: $id\n\n")), 200, "data: \"a\\u0062\"\n\n", false, 1},
		{"answers up to the end of the connection", Answer(Reply{Body: "x", Framing: Unsized}), 200, "x", false, 1},
		{"answers in turn", Each(JSON("1"), JSON("2")), 200, "1", false, 1},
		{"answers early", Early(answer.With(401)), 401, `{"id":$id}`, false, 1},
		{"cuts a sized body", Cut(answer, 3), 200, `{"i`, true, 1},
		{"cuts a chunked body", Cut(SSE("data: 1\n\n"), 7), 200, "data: 1", true, 1},
		{"closes after the header", CloseAfterHead, 0, "", true, -1},
		{"reads, then closes", ReadThenClose, 0, "", true, 1},
		{"reads, then resets", ReadThenReset, 0, "", true, 1},
		{"says garbage", Say("garbage\r\n\r\n"), 0, "", true, 1},
		{"says half a head", Say("HTTP/1.1 200 OK\r\nContent-Le"), 0, "", true, 1},
		{"closes unread", CloseUnread, 0, "", true, -1},
		{"closes at once", CloseAtOnce, 0, "", true, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := TCP(t, tt.script)
			status, got, err := post(u)
			if status != tt.status || got != tt.got || (err != nil) != tt.broken {
				t.Errorf("got %d %q %v", status, got, err)
			}
			u.AwaitEnd(1)
			if n := u.Count(body); tt.bodies >= 0 && n != tt.bodies {
				t.Errorf("%d bodies in the log %q", n, u.Received())
			}
		})
	}
}

func TestUnreadBytesAreLogged(t *testing.T) {
	u := TCP(t, CloseUnread)
	post(u)
	u.AwaitEnd(1)
	if got := string(u.Received()); !strings.HasPrefix(got, "POST /mcp") {
		t.Errorf("received %q", got)
	}
	if len(u.Requests()) != 0 {
		t.Error("a request that nobody read counts as arrived")
	}
}

func TestOtherTransports(t *testing.T) {
	answer := JSON("$id")
	for name, start := range map[string]func(testing.TB) *Upstream{
		"unix": func(t testing.TB) *Upstream { return Unix(t, Answer(answer)) },
		"tls":  func(t testing.TB) *Upstream { return TLS(t, Answer(answer)) },
		"h2": func(t testing.TB) *Upstream {
			return TLS(t, HTTP2(func(s *Stream) {
				if s.Wait() {
					s.Reply(answer)
				}
			}), "h2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := start(t)
			if _, got, err := post(u); err != nil || got != `"a\u0062"` {
				t.Errorf("got %q %v", got, err)
			}
			if r := u.AwaitRequest(1); r.Method != "POST" || r.Target != "/mcp" || u.Count(body) != 1 {
				t.Errorf("arrived %+v, received %q", r, u.Received())
			}
		})
	}
}

func TestHTTP2Faults(t *testing.T) {
	for name, fault := range map[string]func(*Stream){
		"reset":  func(s *Stream) { s.Wait(); s.Reset(http2.ErrCodeInternal) },
		"goaway": func(s *Stream) { s.Wait(); s.GoAway(0) },
		"kill":   func(s *Stream) { s.Wait(); s.Kill() },
		"cut":    func(s *Stream) { s.Wait(); s.Head(SSE(""), false); s.Data("data: 1\n\n", false); s.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			u := TLS(t, HTTP2(fault), "h2")
			if _, got, err := post(u); err == nil {
				t.Errorf("got %q", got)
			}
			if n := u.Count(body); n != 1 {
				t.Errorf("%d bodies arrived", n)
			}
		})
	}
}

// A connection preface and a TLS handshake are no bytes of a request.
func TestNoRequestBytes(t *testing.T) {
	t.Run("handshake offered to a plaintext upstream", func(t *testing.T) {
		u := TCP(t, CloseInHandshake)
		conn, err := tls.Dial("tcp", u.Addr(), &tls.Config{InsecureSkipVerify: true})
		if err == nil {
			conn.Close()
			t.Fatal("the handshake succeeded")
		}
		u.AwaitEnd(1)
		if got := u.Received(); len(got) != 0 {
			t.Errorf("received %q", got)
		}
	})
	for name, script := range map[string]Script{"preface": HTTP2(func(*Stream) {}), "preface to a server that does not know it": Mute} {
		t.Run(name, func(t *testing.T) { testPreface(t, TCP(t, script)) })
	}
}

func testPreface(t *testing.T, u *Upstream) {
	conn, err := net.Dial("tcp", u.Addr())
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, http2.ClientPreface)
	http2.NewFramer(conn, nil).WriteSettings()
	conn.Close()
	u.AwaitEnd(1)
	if got := u.Received(); len(got) != 0 {
		t.Errorf("received %q", got)
	}
}

func TestUnreachable(t *testing.T) {
	dial := func(network, addr string, timeout time.Duration) error {
		conn, err := net.DialTimeout(network, addr, timeout)
		if err == nil {
			conn.Close()
		}
		return err
	}
	t.Run("refused", func(t *testing.T) {
		if err := dial("tcp", Refused(t), patience); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
	})
	t.Run("full", func(t *testing.T) {
		var timeout net.Error
		if err := dial("tcp", NewFull(t).Addr, 50*time.Millisecond); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Error(err)
		}
	})
	t.Run("reset while connecting", func(t *testing.T) {
		full := NewFull(t)
		refused := make(chan error)
		go func() { refused <- dial("tcp", full.Addr, patience) }()
		full.AwaitDial()
		full.Refuse()
		if err := <-refused; !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error(err)
		}
	})
	t.Run("full after one connection", func(t *testing.T) {
		u, full := AcceptsOne(t, Answer(JSON("1")))
		if _, got, err := post(u); err != nil || got != "1" {
			t.Errorf("got %q %v", got, err)
		}
		full.Await()
		if err := dial("tcp", full.Addr, 50*time.Millisecond); err == nil {
			t.Error("a second connection was made")
		}
	})
	t.Run("missing socket", func(t *testing.T) {
		if err := dial("unix", strings.TrimPrefix(MissingSocket(t), "unix/"), patience); !errors.Is(err, syscall.ENOENT) {
			t.Error(err)
		}
	})
	t.Run("no names", func(t *testing.T) {
		server := NoNames(t)
		r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server)
		}}
		var dns *net.DNSError
		if _, err := r.LookupHost(t.Context(), "nowhere.example.com."); !errors.As(err, &dns) || !dns.IsNotFound {
			t.Error(err)
		}
	})
}

// A reused connection breaks on its second request, before or after it was
// read.
func TestStale(t *testing.T) {
	for name, tt := range map[string]struct {
		then    Script
		arrived int
	}{
		"before reading": {CloseUnread, 1},
		"after reading":  {ReadThenClose, 2},
	} {
		t.Run(name, func(t *testing.T) {
			u := TCP(t, Stale(JSON("1"), tt.then))
			conn, err := net.Dial("tcp", u.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			in := bufio.NewReader(conn)
			io.WriteString(conn, "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
			res, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, res.Body)
			io.WriteString(conn, "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
			if _, err := http.ReadResponse(in, nil); err == nil {
				t.Error("the second request was answered")
			}
			u.AwaitEnd(1)
			if n := len(u.Requests()); n != tt.arrived {
				t.Errorf("%d requests arrived", n)
			}
		})
	}
}
