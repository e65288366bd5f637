package clients

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
)

// A line lies between a client and the gateway, and can be cut.
type line struct {
	url string

	loses atomic.Bool                        // the next answer to a call is read to its end, and lost
	call  atomic.Pointer[context.CancelFunc] // ends the last call that came
}

// cut cuts the connection of the call that is under way.
func (l *line) cut() { (*l.call.Load())() }

func newLine(t *testing.T, gateway string) *line {
	t.Helper()
	target, err := url.Parse(gateway)
	if err != nil {
		t.Fatal(err)
	}
	l := new(line)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host },
		ModifyResponse: func(res *http.Response) error {
			if res.Request.Method != http.MethodPost || !l.loses.CompareAndSwap(true, false) {
				return nil
			}
			_, err := io.Copy(io.Discard, res.Body)
			return errors.Join(errors.New("the answer is lost"), err)
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		ctx, cancel := context.WithCancel(q.Context())
		defer cancel()
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return // the client is gone
		}
		if q.Body = io.NopCloser(bytes.NewReader(body)); bytes.Contains(body, []byte(`"tools/call"`)) {
			l.call.Store(&cancel)
		}
		proxy.ServeHTTP(w, q.WithContext(ctx))
	}))
	t.Cleanup(srv.Close)
	l.url = srv.URL + target.Path
	return l
}
