// Package incaddy runs a Caddyfile in the test's own process, on a free
// loopback port and without the admin endpoint, and keeps its logs.
//
// Caddy has one running configuration per process, so tests that use this
// package run one after the other.
package incaddy

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	// What the Caddyfiles of tests are made of.
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyevents"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/standard"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
	_ "github.com/caddyserver/caddy/v2/modules/logging"
)

// Config is what differs from test to test.
type Config struct {
	Global  string // lines of the global options block
	Servers string // lines of its servers block
	Site    string // lines of the site's block
	Also    string // further sites
	Port    string // of the site; a free one if empty

	// NoAccessLog leaves out the access log, which wraps the response in a
	// writer that keeps flushes from going through before the header.
	NoAccessLog bool
}

// Site is a running configuration.
type Site struct {
	Addr string // "127.0.0.1:port"
	URL  string // "http://" + Addr
	Log  *Log
}

// Run loads the configuration and stops it when the test ends.
func Run(t testing.TB, cfg Config) *Site {
	t.Helper()
	site, err := load(t, cfg)
	if err != nil {
		t.Fatalf("loading the configuration: %v\n%s", err, cfg.Site)
	}
	t.Cleanup(func() {
		site.Stop(t)
		if t.Failed() {
			t.Logf("errors and warnings logged:\n%s", site.Log.troubles())
		}
	})
	return site
}

// Stop ends the configuration before the test does: the requests in flight are
// waited for, and what they log is there. A second call does nothing.
func (s *Site) Stop(t testing.TB) {
	t.Helper()
	if err := caddy.Stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
}

// Refused returns the error with which the configuration is not loaded, or
// fails the test.
func Refused(t testing.TB, cfg Config) error {
	t.Helper()
	_, err := load(t, cfg)
	if err == nil {
		caddy.Stop()
		t.Fatalf("the configuration was loaded:\n%s", cfg.Site)
	}
	return err
}

func load(t testing.TB, cfg Config) (*Site, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	if cfg.Port != "" {
		addr = net.JoinHostPort("127.0.0.1", cfg.Port)
	}
	if os.Getenv("XDG_DATA_HOME") == "" {
		t.Setenv("XDG_DATA_HOME", t.TempDir()) // nothing of a test is kept where a person's own Caddy keeps it
	}
	_, port, _ := net.SplitHostPort(addr)
	accessLog := "log {\noutput incaddy\nformat json\n}"
	if cfg.NoAccessLog {
		accessLog = ""
	}
	js, err := Adapt(fmt.Sprintf(`{
	admin off
	auto_https off
	persist_config off
	storage file_system %q
	grace_period 10s
	log default {
		output incaddy
		format json
	}
	servers {
		%s
	}
	%s
}
http://:%s {
	bind 127.0.0.1
	%s
	%s
}
%s
`, t.TempDir(), cfg.Servers, cfg.Global, port, accessLog, cfg.Site, cfg.Also))
	if err != nil {
		return nil, err
	}
	site := &Site{Addr: addr, URL: "http://" + addr, Log: newLog()}
	current.Store(site.Log)
	if err := caddy.Load(js, true); err != nil {
		return nil, err
	}
	return site, nil
}

// Adapt turns a Caddyfile into Caddy's JSON.
func Adapt(caddyfile string) ([]byte, error) {
	js, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return nil, fmt.Errorf("adapting: %w", err)
	}
	for _, w := range warnings {
		// The text above is not laid out as `caddy fmt` would; nothing else is
		// worth a warning.
		if !strings.Contains(w.Message, "not formatted") {
			return nil, fmt.Errorf("adapting: %s", w.Message)
		}
	}
	return js, nil
}

func freeAddr() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

// Client is an HTTP client that keeps nothing from the test's view: it follows
// no redirect, unpacks no body and reuses connections only if asked to.
func Client(t testing.TB, keepAlive bool) *http.Client {
	t.Helper()
	tr := &http.Transport{DisableCompression: true, DisableKeepAlives: !keepAlive}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{
		Transport:     tr,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
