//go:build linux

package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/caddymcp/gateway/effect"
)

// The gateway's own error codes that are no refusals of the ledger's.
const (
	codeUnknown = -41010
	codeNotSent = -41011
)

var serials atomic.Int64

// call is a call of the refund of a payment.
type call struct {
	payment string
	script  string
	refused bool // it does not come to the upstream
	serial  string
}

func newCall(payment, script string) call {
	return call{payment: payment, script: script, serial: fmt.Sprint(serials.Add(1))}
}

func (c call) request(ctx context.Context, url string) *http.Request {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":"create_refund","arguments":{"payment_id":%q},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, c.serial, c.payment)
	// The reader's type is hidden, so that the client cannot send it twice.
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, io.MultiReader(strings.NewReader(body)))
	if err != nil {
		panic(err)
	}
	r.ContentLength = int64(len(body))
	for _, h := range [][2]string{
		{"Content-Type", "application/json"},
		{"Accept", "application/json, text/event-stream"},
		{"MCP-Protocol-Version", "2026-07-28"},
		{"Mcp-Method", "tools/call"},
		{"Mcp-Name", "create_refund"},
		{"Authorization", "Bearer alice"},
		{serialHeader, c.serial},
		{scriptHeader, c.script},
	} {
		r.Header.Set(h[0], h[1])
	}
	if c.refused {
		r.Header.Set(refusedHeader, "1")
	}
	return r
}

// mark is what the gateway adds to an answer.
type mark struct {
	Outcome     string
	Observation string
	Recorded    *bool
	Replayed    bool
}

// answer is what a client got.
type answer struct {
	err    error // there is none
	status int
	header http.Header
	text   string

	ID     string
	Result *struct {
		IsError           bool
		StructuredContent struct{ Serial string }
		Meta              map[string]mark `json:"_meta"`
	}
	Error *struct {
		Code int
		Data struct {
			Outcome mark `json:"io.github.caddymcp/outcome"`
			State   string
			Attempt int64
		}
	}
}

func (a *answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("%d %s", a.status, a.text)
}

// mark returns what the gateway says of the call.
func (a *answer) mark() mark {
	switch {
	case a.Result != nil:
		return a.Result.Meta["io.github.caddymcp/outcome"]
	case a.Error != nil:
		return a.Error.Data.Outcome
	}
	return mark{}
}

// code is the code of an error, 0 for a result.
func (a *answer) code() int {
	if a.Error == nil {
		return 0
	}
	return a.Error.Code
}

// committed returns the serial of the execution that the answer says happened
// and is on record, empty for none.
func (a *answer) committed() (serial string) {
	m := a.mark()
	if a.Result == nil || m.Outcome != "committed" || m.Recorded != nil && !*m.Recorded {
		return ""
	}
	return a.Result.StructuredContent.Serial
}

// replayed returns the serial of the execution whose answer this is again.
func (a *answer) replayed() (serial string) {
	if !a.mark().Replayed {
		return ""
	}
	return a.committed()
}

// refusedFor reports whether the ledger refused the call with a state.
func (a *answer) refusedFor(code int, s effect.State) bool {
	return a.code() == code && a.Error.Data.State == s.String()
}

// send sends a call and reads the whole answer.
func (c call) send(ctx context.Context, client *http.Client, url string) (a answer) {
	response, err := client.Do(c.request(ctx, url))
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	a.status, a.header = response.StatusCode, response.Header
	text, err := io.ReadAll(response.Body)
	a.text = string(text)
	message := a.text
	if strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream") {
		// A final message counts although the stream did not end.
		if message = lastData(a.text); strings.Contains(message, `"id"`) {
			err = nil
		}
	}
	if err != nil {
		return answer{err: err}
	}
	if err := json.Unmarshal([]byte(message), &a); err != nil {
		return answer{err: fmt.Errorf("reading %d %q: %w", a.status, a.text, err)}
	}
	if a.ID != c.serial {
		return answer{err: fmt.Errorf("the id is not that of call %s: %s", c.serial, a.text)}
	}
	return a
}

// to sends a call to a Caddy.
func (c call) to(p *process) answer {
	return c.send(context.Background(), p.client, "http://caddy/mcp")
}

// lastData returns the data of the last whole event of a stream.
func lastData(stream string) (last string) {
	for event := range strings.SplitAfterSeq(stream, "\n\n") {
		if _, data, ok := strings.Cut("\n"+event, "\ndata: "); ok && strings.HasSuffix(data, "\n\n") {
			last = strings.TrimSpace(data)
		}
	}
	return last
}
