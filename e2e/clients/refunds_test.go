package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/sqlite"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// refunds is a server whose tools refund payments, and the gateway before it that sees to it that each is refunded once.
type refunds struct {
	*server
	features *mcp.Server
	url      string // of the gateway
	ledger   effect.Ledger

	running chan string   // receives the payment whose refund waits
	release chan struct{} // lets one that waits go on, or ends a silence
	lost    chan struct{} // receives when an answer was lost that its client does not know of

	mu       sync.Mutex
	executed map[string]int // by payment
	faults   map[string]fault
}

// A fault is what happens to a call instead of its answer.
type fault func(r *refunds, w http.ResponseWriter, q *http.Request, next http.Handler)

// refundTools protects them.
const refundTools = `tool create_refund {
	effect refund {http.mcp.args.payment_id}
}
tool confirm_refund {
	effect refund {http.mcp.args.payment_id}
}
tool doubt_refund {
	effect refund {http.mcp.args.payment_id}
}
`

// newRefunds starts a server for the era of a revision, and the gateway with further options.
func newRefunds(t *testing.T, revision, options string) *refunds {
	t.Helper()
	features := mcp.NewServer(&mcp.Implementation{Name: "refunds", Version: "1.0.0"}, nil)
	r := &refunds{
		server:   &server{closing: make(chan struct{})},
		features: features,
		running:  make(chan string, 16),
		release:  make(chan struct{}),
		lost:     make(chan struct{}, 1),
		executed: make(map[string]int),
		faults:   make(map[string]fault),
	}
	mcp.AddTool(features, &mcp.Tool{Name: "create_refund"}, r.create)
	mcp.AddTool(features, &mcp.Tool{Name: "confirm_refund"}, r.confirm)
	mcp.AddTool(features, &mcp.Tool{Name: "doubt_refund"}, r.doubt)
	sdk := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return features }, &mcp.StreamableHTTPOptions{
		Stateless: revision == modern, PropagateRequestCancellation: true,
		EventStore: mcp.NewMemoryEventStore(nil), // its events have ids, for clients to go on with a stream that broke
	})
	srv := httptest.NewServer(r.remember(r.fail(sdk)))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(r.closing) })

	path := filepath.Join(t.TempDir(), "effects.db")
	site := incaddy.Run(t, incaddy.Config{
		Global: fmt.Sprintf("mcp_gateway {\nledger sqlite %q\n}", path),
		Site: fmt.Sprintf("mcp_gateway /mcp {\n%s\n%s\n}\nreverse_proxy %s {\nheader_up Host {upstream_hostport}\n}",
			refundTools, options, srv.Listener.Addr()),
	})
	r.url = site.URL + "/mcp"
	ledger, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ledger.Close(); err != nil {
			t.Error(err)
		}
	})
	r.ledger = ledger
	return r
}

type refundArguments struct {
	PaymentID string `json:"payment_id"`
	Wait      bool   `json:"wait,omitempty"` // to be released
}

// created is the structured result of create_refund. Clients check it against the schema that they were told.
type created struct {
	Number int `json:"number"`
}

// create refunds a payment, as often as it is called.
func (r *refunds) create(_ context.Context, _ *mcp.CallToolRequest, args refundArguments) (*mcp.CallToolResult, created, error) {
	if args.Wait {
		r.running <- args.PaymentID
		select {
		case <-r.release:
		case <-r.closing:
			return nil, created{}, errors.New("nobody released the refund")
		}
	}
	n := r.refund(args.PaymentID)
	return refunded(n, args.PaymentID), created{n}, nil
}

func (r *refunds) refund(payment string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.executed[payment]++
	return r.executed[payment]
}

func refunded(n int, payment string) *mcp.CallToolResult {
	return text(fmt.Sprintf("refund %d of %s", n, payment))
}

// confirm refunds a payment if the user confirms it.
func (r *refunds) confirm(_ context.Context, q *mcp.CallToolRequest, args refundArguments) (*mcp.CallToolResult, any, error) {
	if answer, ok := q.Params.InputResponses["confirm"].(*mcp.ElicitResult); ok {
		if answer.Action != "accept" {
			return text("not refunded: " + answer.Action), nil, nil
		}
		return refunded(r.refund(args.PaymentID), args.PaymentID), nil, nil
	}
	return ask("asked about " + args.PaymentID), nil, nil
}

// doubt asks again, whatever the user says.
func (r *refunds) doubt(_ context.Context, q *mcp.CallToolRequest, _ refundArguments) (*mcp.CallToolResult, any, error) {
	return ask(q.Params.RequestState + "?"), nil, nil
}

func ask(state string) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		RequestState: state,
		InputRequests: mcp.InputRequestMap{"confirm": &mcp.ElicitParams{
			Message: "Refund it?",
			RequestedSchema: &jsonschema.Schema{
				Type:       "object",
				Properties: map[string]*jsonschema.Schema{"confirmed": {Type: "boolean"}},
			},
		}},
	}
}

// executions is how often a payment was refunded.
func (r *refunds) executions(payment string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.executed[payment]
}

// fault has a fault happen to the next call about a payment.
func (r *refunds) fault(payment string, f fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults[payment] = f
}

// fail has the faults happen.
func (r *refunds) fail(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		q.Body = io.NopCloser(bytes.NewReader(body))
		var message struct {
			Params struct{ Arguments refundArguments }
		}
		_ = json.Unmarshal(body, &message) // the SDK refuses what is no JSON
		payment := message.Params.Arguments.PaymentID
		r.mu.Lock()
		fault := r.faults[payment]
		delete(r.faults, payment)
		r.mu.Unlock()
		if fault == nil {
			next.ServeHTTP(w, q)
			return
		}
		fault(r, w, q, next)
	})
}

// commitThen lets the tool act, and does something else with the connection than to answer.
func commitThen(lose func(r *refunds, conn *net.TCPConn, answer []byte)) fault {
	return func(r *refunds, w http.ResponseWriter, q *http.Request, next http.Handler) {
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, q)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		lose(r, conn.(*net.TCPConn), answer.Body.Bytes())
	}
}

// refuse answers without the tool.
func refuse(status int, header http.Header, body string) fault {
	return func(_ *refunds, w http.ResponseWriter, q *http.Request, _ http.Handler) {
		var message struct{ ID json.RawMessage }
		_ = json.NewDecoder(q.Body).Decode(&message)
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		fmt.Fprint(w, string(bytes.ReplaceAll([]byte(body), []byte("$id"), message.ID)))
	}
}

const (
	streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	jsonHead   = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)

// losses are the ways in which the answer to a call that acted does not come back.
var losses = []struct {
	name   string
	silent bool // until the client gives up
	fault  fault
}{
	{name: "before the head", fault: commitThen(func(*refunds, *net.TCPConn, []byte) {})},
	{name: "reset", fault: commitThen(func(_ *refunds, conn *net.TCPConn, _ []byte) { _ = conn.SetLinger(0) })},
	{name: "after the head", fault: commitThen(func(_ *refunds, conn *net.TCPConn, _ []byte) { _, _ = io.WriteString(conn, streamHead) })},
	{name: "after the head of JSON", fault: commitThen(func(_ *refunds, conn *net.TCPConn, answer []byte) {
		fmt.Fprintf(conn, jsonHead, len(answer))
	})},
	{name: "mid stream", fault: commitThen(func(_ *refunds, conn *net.TCPConn, answer []byte) {
		half := answer[:len(answer)/2]
		fmt.Fprintf(conn, "%s%x\r\n%s\r\n", streamHead, len(half), half)
	})},
	{name: "mid stream, by reset", fault: commitThen(func(_ *refunds, conn *net.TCPConn, answer []byte) {
		fmt.Fprintf(conn, "%s%x\r\n%s", streamHead, len(answer), answer[:len(answer)/2])
		_ = conn.SetLinger(0)
	})},
	{name: "silence", silent: true, fault: commitThen(hold)},
	{name: "silence after the head", silent: true, fault: commitThen(func(r *refunds, conn *net.TCPConn, answer []byte) {
		_, _ = io.WriteString(conn, streamHead)
		hold(r, conn, answer)
	})},
}

// hold says nothing until the gateway gives up, or the silence is ended.
func hold(r *refunds, conn *net.TCPConn, _ []byte) {
	r.lost <- struct{}{}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, conn)
	}()
	select {
	case <-closed:
	case <-r.release:
	case <-r.closing:
	}
}

func refundKey(payment string) effect.Key { return effect.NewKey("", "refund", payment) }

// record is what the ledger says of a payment.
func (r *refunds) record(t *testing.T, payment string) (effect.Record, []effect.Receipt) {
	t.Helper()
	record, receipts, err := r.ledger.Load(t.Context(), refundKey(payment))
	if err != nil {
		t.Fatal(err)
	}
	return record, receipts
}

// want checks how often a payment was refunded, and what the ledger says of it.
func (r *refunds) want(t *testing.T, payment string, executions int, state effect.State, attempt int64) {
	t.Helper()
	if n := r.executions(payment); n != executions {
		t.Errorf("%d executions, want %d", n, executions)
	}
	if record, receipts := r.record(t, payment); record.State != state || record.Attempt != attempt {
		t.Errorf("the record is %s, attempt %d; want %s, %d\n%+v", record.State, record.Attempt, state, attempt, receipts)
	}
}

// resolve settles the first attempt for a payment.
func (r *refunds) resolve(t *testing.T, payment string, committed bool) {
	t.Helper()
	change, err := r.ledger.Apply(t.Context(), effect.Resolution{
		Key: refundKey(payment), Attempt: 1, Committed: committed, Who: "ann", Why: "looked at the books",
	})
	if err != nil || change.Answer != effect.Settled {
		t.Fatalf("resolving: %s, %v", change.Answer, err)
	}
}
