//go:build linux

package crash

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
)

// The header fields by which a call tells the upstream what to do with it.
const (
	serialHeader  = "X-Serial"  // names the call; nothing else does
	scriptHeader  = "X-Script"  // what the upstream does
	refusedHeader = "X-Refused" // the call does not come to the upstream
)

// The scripts of an upstream. All but declines act first.
const (
	answers  = "answers"
	streams  = "streams" // answers in an event stream
	dawdles  = "dawdles" // answers when others have come
	hangsUp  = "hangs up"
	tears    = "tears"    // hangs up amid its answer
	declines = "declines" // does nothing, and says so by isError
	waits    = "waits"    // answers when the test says so
)

// upstream is an MCP server that counts what it does.
type upstream struct {
	happened func() // is told of everything that happens
	arrived  chan string
	speak    chan struct{} // a script that waits goes on when it is closed

	mu       sync.Mutex
	saw      map[string]bool     // serials
	executed map[string][]string // serials, by payment
	dawdlers int
	dawdled  chan struct{}
}

func serve(t testing.TB, p *place) *upstream {
	t.Helper()
	u := &upstream{
		happened: func() {},
		arrived:  make(chan string, 1<<10),
		speak:    make(chan struct{}),
		saw:      make(map[string]bool), executed: make(map[string][]string),
		dawdled: make(chan struct{}),
	}
	ln, err := net.Listen("unix", p.upstream())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: u}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ln) })
	t.Cleanup(func() {
		server.Close()
		serving.Wait()
	})
	return u
}

// act does what a call asks for, and returns its result.
func (u *upstream) act(payment, serial string) (result string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.executed[payment] = append(u.executed[payment], serial)
	return fmt.Sprintf(`{"resultType":"complete","content":[],"structuredContent":{"serial":%q}}`, serial)
}

// executions returns the serials of the calls of a payment that were executed.
func (u *upstream) executions(payment string) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string(nil), u.executed[payment]...)
}

// has reports whether a call has come.
func (u *upstream) has(serial string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.saw[serial]
}

// maxDawdlers is how many calls wait for another one. The last is not one of
// them.
const maxDawdlers = 3

// dawdle waits until some more calls do.
func (u *upstream) dawdle(gone <-chan struct{}) {
	u.mu.Lock()
	all := u.dawdled
	if u.dawdlers++; u.dawdlers == maxDawdlers {
		close(all)
		u.dawdlers, u.dawdled = 0, make(chan struct{})
	}
	u.mu.Unlock()
	select {
	case <-all:
	case <-gone:
	}
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	serial, script := r.Header.Get(serialHeader), r.Header.Get(scriptHeader)
	u.mu.Lock()
	u.saw[serial] = true
	u.mu.Unlock()
	u.happened()
	var message struct {
		ID     json.RawMessage
		Params struct {
			Arguments struct {
				PaymentID string `json:"payment_id"`
			}
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
		return // Caddy was killed amid it
	}
	payment := message.Params.Arguments.PaymentID
	answer := func(result string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, message.ID, result)
	}
	const jsonType, streamType = "application/json", "text/event-stream"
	say := func(mediaType, text string) {
		w.Header().Set("Content-Type", mediaType)
		fmt.Fprint(w, text)
		_ = http.NewResponseController(w).Flush()
		u.happened()
	}
	if script == declines {
		say(jsonType, answer(`{"resultType":"complete","isError":true,"content":[]}`))
		return
	}
	text := answer(u.act(payment, serial))
	u.happened()
	switch script {
	case streams:
		say(streamType, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\n\n")
		say(streamType, "data: "+text+"\n\n")
	case dawdles:
		u.dawdle(r.Context().Done())
		say(jsonType, text)
	case hangsUp:
		panic(http.ErrAbortHandler)
	case tears:
		say(streamType, "data: "+text[:20])
		panic(http.ErrAbortHandler)
	case waits:
		u.arrived <- serial
		select {
		case <-u.speak:
		case <-r.Context().Done():
		}
		say(jsonType, text)
	default:
		say(jsonType, text)
	}
}
