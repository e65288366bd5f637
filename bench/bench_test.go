package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	for _, row := range []struct {
		sorted []float64
		q      float64
		want   float64
	}{
		{[]float64{7}, 0.99, 7},
		{[]float64{1, 2, 3}, 0.5, 2},
		{[]float64{1, 2, 3, 4}, 0.5, 2.5},
		{[]float64{1, 2, 3, 4, 5}, 0.25, 2},
		{[]float64{0, 10}, 0.75, 7.5},
		{[]float64{1, 2, 3}, 1, 3},
	} {
		if got := quantile(row.sorted, row.q); got != row.want {
			t.Errorf("quantile(%v, %v) = %v, want %v", row.sorted, row.q, got, row.want)
		}
	}
}

// TestReport has a machine that gets slower from round to round: the ratios are those of the rounds.
func TestReport(t *testing.T) {
	plain, gateway := &variant{name: "plain"}, &variant{name: "gateway"}
	for _, slow := range []float64{1, 2, 4} {
		plain.samples = append(plain.samples, sample{rate: 1000 / slow, cpu: 100 * slow, allocs: 200, p50: slow, p99: 2 * slow})
		gateway.samples = append(gateway.samples, sample{rate: 980 / slow, cpu: 105 * slow, allocs: 250, p50: slow, p99: 3 * slow})
	}
	var out strings.Builder
	report(&out, []*variant{plain, gateway})
	for _, want := range []string{
		"plain        200.0 (150.0–300.0)       500 (375–750)             200.0",
		"gateway      210.0 (157.5–315.0)       490 (368–735)             250.0",
		"gateway      1.050 (1.050–1.050)       0.980 (0.980–0.980)       1.250             1.00      1.50",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in the report:\n%s", want, &out)
		}
	}
}

func TestCallBody(t *testing.T) {
	for _, size := range []int{400, 4096} {
		body, err := callBody(size)
		if err != nil || len(body) != size || !json.Valid(body) {
			t.Errorf("size %d: %d bytes, %v: %s", size, len(body), err, body)
		}
	}
	if _, err := callBody(100); err == nil {
		t.Error("a call of 100 bytes has no room for what it must say")
	}
}

// TestLoad compares what is counted here with what the upstream counts.
func TestLoad(t *testing.T) {
	up, err := startUpstream()
	if err != nil {
		t.Fatal(err)
	}
	defer up.close()
	body, err := callBody(400)
	if err != nil {
		t.Fatal(err)
	}
	var seen atomic.Int64
	counter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		up.server.Handler.ServeHTTP(w, r)
	}))
	defer counter.Close()

	const conns = 3
	clients, err := dial(t.Context(), counter.Listener.Addr().String(), conns, body, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(clients)
	latencies, took, err := load(clients, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(latencies); n < conns || int64(n) != seen.Load()-conns || took < time.Millisecond {
		t.Errorf("%d latencies in %v, and the upstream saw %d requests, %d of them before", n, took, seen.Load(), conns)
	}
	if answer := clients[0].answer; len(answer) != resultSize || !json.Valid(answer) {
		t.Errorf("answered with %d bytes: %s", len(answer), answer)
	}
}

// TestCallRefuses keeps refused calls from being measured as fast ones.
func TestCallRefuses(t *testing.T) {
	for _, row := range []struct{ answer, want string }{
		{"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", "502"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "without a Content-Length"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			buf.WriteString(row.answer)
			buf.Flush()
		}))
		_, err := dial(t.Context(), server.Listener.Addr().String(), 1, []byte("{}"), nil)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q: %v, want %q", row.answer, err, row.want)
		}
		server.Close()
	}
}

// TestCheck: an answer without the gateway's mark is not taken for the gateway's, nor one with it for plain Caddy's.
func TestCheck(t *testing.T) {
	body, err := callBody(400)
	if err != nil {
		t.Fatal(err)
	}
	for _, answer := range []string{`{}`, `{"` + outcomeMember + `":{}}`} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte(answer))
		}))
		c := &caddy{addr: server.Listener.Addr().String()}
		marked := bytes.Contains([]byte(answer), []byte(outcomeMember))
		plain, gateway := &variant{caddy: c}, &variant{caddy: c, directive: "mcp_gateway"}
		if err := check(t.Context(), plain, body); (err != nil) != marked {
			t.Errorf("plain, answered with %s: %v", answer, err)
		}
		if err := check(t.Context(), gateway, body); (err == nil) != marked {
			t.Errorf("gateway, answered with %s: %v", answer, err)
		}
		server.Close()
	}
}
