// Command refunds is a small MCP server that gives money back, for trying out mcp_gateway.
//
// It serves the tools create_refund and list_refunds over Streamable HTTP at /mcp and keeps its refunds in memory.
// It deliberately has no protection of its own: it does not notice when the same refund is asked for twice, and
// it can be told to lose an answer after the refund was made. At /refunds/lookup it says whether a refund was made.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9000", "`address` to serve on")
	flag.Parse()

	log.Printf("refunds: serving http://%s/mcp", *listen)
	log.Fatal(http.ListenAndServe(*listen, newHandler(new(ledger))))
}

// newHandler serves the refunds of l as an MCP server at /mcp, and looks them up beside it. It speaks revision 2026-07-28, and the 2025
// revisions without sessions.
func newHandler(l *ledger) http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: "refunds", Version: "1.0.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{
		Name:        "create_refund",
		Description: "Gives the customer of a payment money back.",
	}, l.createRefund)
	mcp.AddTool(s, &mcp.Tool{
		Name:        "list_refunds",
		Description: "Lists the refunds made so far, oldest first.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
	}, l.listRefunds)

	sdk := mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: true},
	)
	mux := http.NewServeMux()
	mux.Handle("/mcp", losingResponses(sdk))
	mux.HandleFunc("POST /refunds/lookup", l.lookup)
	return mux
}

type refund struct {
	ID        string `json:"id"`
	PaymentID string `json:"payment_id"`
	Amount    int    `json:"amount"`
}

// A ledger holds the refunds that were made.
type ledger struct {
	mu      sync.Mutex
	refunds []refund
}

type createRefundArguments struct {
	PaymentID  string `json:"payment_id" jsonschema:"the payment to refund"`
	Amount     int    `json:"amount" jsonschema:"in cents"`
	LoseAnswer bool   `json:"lose_answer,omitempty" jsonschema:"make the refund, then drop the connection instead of answering"`
}

func (l *ledger) createRefund(ctx context.Context, _ *mcp.CallToolRequest, args createRefundArguments) (*mcp.CallToolResult, refund, error) {
	if args.Amount <= 0 {
		return nil, refund{}, fmt.Errorf("amount must be positive, got %d", args.Amount)
	}
	r := l.commit(args.PaymentID, args.Amount)
	if args.LoseAnswer {
		loseResponse(ctx)
	}
	return nil, r, nil
}

// commit makes a refund. From here on the money is gone, whether or not anybody hears of it.
func (l *ledger) commit(paymentID string, amount int) refund {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := refund{ID: fmt.Sprintf("re_%d", len(l.refunds)+1), PaymentID: paymentID, Amount: amount}
	l.refunds = append(l.refunds, r)
	log.Printf("refunds: %s committed, %d cents of %s", r.ID, r.Amount, r.PaymentID)
	return r
}

type listRefundsArguments struct{}

type listRefundsResult struct {
	Refunds []refund `json:"refunds"`
}

func (l *ledger) listRefunds(context.Context, *mcp.CallToolRequest, listRefundsArguments) (*mcp.CallToolResult, listRefundsResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return nil, listRefundsResult{Refunds: append([]refund{}, l.refunds...)}, nil
}

type responseKey struct{}

// losingResponses lets a tool lose the response to its call: the connection is then dropped before a byte of it
// was written, as by a crash, a deployment or a broken network.
func losingResponses(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rw := &response{ResponseWriter: w}
		next.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), responseKey{}, rw)))
		if rw.lost.Load() {
			panic(http.ErrAbortHandler)
		}
	})
}

// A response writes nothing any more once it is lost.
type response struct {
	http.ResponseWriter
	lost atomic.Bool
}

func loseResponse(ctx context.Context) {
	ctx.Value(responseKey{}).(*response).lost.Store(true)
}

func (w *response) WriteHeader(status int) {
	if !w.lost.Load() {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *response) Write(b []byte) (int, error) {
	if w.lost.Load() {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// FlushError implements what http.ResponseController asks for; the SDK flushes every event of a stream.
func (w *response) FlushError() error {
	if w.lost.Load() {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}
