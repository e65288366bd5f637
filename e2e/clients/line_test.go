package clients

import (
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

	loses atomic.Bool   // the next answer to a call is read to its end, and lost
	cut   chan struct{} // cuts the connection of the call that is under way
}

func newLine(t *testing.T, gateway string) *line {
	t.Helper()
	target, err := url.Parse(gateway)
	if err != nil {
		t.Fatal(err)
	}
	l := &line{cut: make(chan struct{})}
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
		if q.Method == http.MethodPost {
			go func() {
				select {
				case <-l.cut:
					cancel()
				case <-ctx.Done():
				}
			}()
		}
		proxy.ServeHTTP(w, q.WithContext(ctx))
	}))
	t.Cleanup(srv.Close)
	l.url = srv.URL + target.Path
	return l
}
