package incaddy

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// patience bounds the wait for a log entry; a test that meets it has failed.
const patience = 20 * time.Second

// Entry is one line of Caddy's log.
type Entry struct {
	Level   string  `json:"level"`
	Logger  string  `json:"logger"`
	Message string  `json:"msg"`
	Status  int     `json:"status"`
	Size    int     `json:"size"`
	Seconds float64 `json:"duration"`
	Request struct {
		Method  string      `json:"method"`
		URI     string      `json:"uri"`
		Headers http.Header `json:"headers"`
	} `json:"request"`
	// MCP is the object that mcp_gateway adds to an access log entry.
	MCP *MCP `json:"mcp"`

	Line string `json:"-"` // the line itself
}

// MCP is what mcp_gateway logs of a request.
type MCP struct {
	Method      string `json:"method"`
	Name        string `json:"name"`
	Revision    string `json:"revision"`
	ID          string `json:"id"`
	Outcome     string `json:"outcome"`
	Observation string `json:"observation"`
	Refusal     string `json:"refusal"`
}

// Access reports whether the entry is one of the access log.
func (e *Entry) Access() bool { return strings.HasPrefix(e.Logger, "http.log.access") }

// Log is what a Site has logged so far.
type Log struct {
	mu      sync.Mutex
	added   *sync.Cond // on mu
	entries []Entry
}

func newLog() *Log {
	l := new(Log)
	l.added = sync.NewCond(&l.mu)
	return l
}

// Entries are all entries so far that match.
func (l *Log) Entries(match func(*Entry) bool) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []Entry
	for i := range l.entries {
		if match(&l.entries[i]) {
			found = append(found, l.entries[i])
		}
	}
	return found
}

// Await waits for an entry that matches. It is written after the client has
// its answer.
func (l *Log) Await(t testing.TB, what string, match func(*Entry) bool) Entry {
	t.Helper()
	var late bool
	alarm := time.AfterFunc(patience, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		late = true
		l.added.Broadcast()
	})
	defer alarm.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for next := 0; ; {
		for ; next < len(l.entries); next++ {
			if match(&l.entries[next]) {
				return l.entries[next]
			}
		}
		if late {
			t.Fatalf("waiting for a log entry of %s: none came", what)
		}
		l.added.Wait()
	}
}

// CallHeader names a request to Access where its URI does not.
const CallHeader = "X-Call"

// Access waits for the access log entry of the request whose URI ends in uri,
// or whose CallHeader is uri.
func (l *Log) Access(t testing.TB, uri string) Entry {
	t.Helper()
	return l.Await(t, uri, func(e *Entry) bool {
		return e.Access() && (strings.HasSuffix(e.Request.URI, uri) || e.Request.Headers.Get(CallHeader) == uri)
	})
}

func (l *Log) troubles() string {
	var b strings.Builder
	for _, e := range l.Entries(func(e *Entry) bool { return e.Level == "error" || e.Level == "warn" }) {
		b.WriteString(e.Line + "\n")
	}
	return b.String()
}

func (l *Log) add(lines []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(lines) {
		e := Entry{Line: string(bytes.TrimSpace(line))}
		// A field of another type than expected leaves the rest readable.
		json.Unmarshal(line, &e)
		l.entries = append(l.entries, e)
	}
	l.added.Broadcast()
}

// current is the log of the running site.
var current atomic.Pointer[Log]

func init() { caddy.RegisterModule(writer{}) }

// writer is a Caddy log writer that adds to the current Log.
type writer struct{}

func (writer) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "caddy.logging.writers.incaddy",
		New: func() caddy.Module { return new(writer) },
	}
}

func (writer) String() string    { return "incaddy" }
func (writer) WriterKey() string { return "incaddy" }

func (writer) OpenWriter() (io.WriteCloser, error) { return sink{}, nil }

// UnmarshalCaddyfile takes no arguments.
func (writer) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.ArgErr()
	}
	return nil
}

type sink struct{}

func (sink) Write(p []byte) (int, error) {
	if l := current.Load(); l != nil {
		l.add(p)
	}
	return len(p), nil
}

func (sink) Close() error { return nil }

// Interface guards
var (
	_ caddy.WriterOpener    = writer{}
	_ caddyfile.Unmarshaler = (*writer)(nil)
)
