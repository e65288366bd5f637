package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestLookup(t *testing.T) {
	l := new(ledger)
	l.commit("pay_1", 1250)
	srv := httptest.NewServer(newHandler(l))
	t.Cleanup(srv.Close)
	for _, c := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"namespace":"","key":["refund","pay_1"],"tool":"create_refund","attempt":1}`, 200, `{"outcome":"committed"}`},
		{`{"key":["refund","pay_2"]}`, 200, `{"outcome":"unknown"}`},
		{`{"key":["invoice","pay_1"]}`, 200, `{"outcome":"unknown"}`},
		{`{"key":["refund","pay_1","1250"]}`, 200, `{"outcome":"unknown"}`},
		{`{}`, 200, `{"outcome":"unknown"}`},
		{`{"key":"refund"}`, 400, ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/refunds/lookup", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || c.want != "" && string(body) != c.want {
			t.Errorf("%s: got %d %s (%v), want %d %s", c.body, resp.StatusCode, body, err, c.status, c.want)
		}
	}
}
