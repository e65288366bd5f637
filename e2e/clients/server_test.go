package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A server is an MCP server with one feature for every step of the clients. It remembers what reached it.
type server struct {
	endpoint  string
	cancelled chan struct{} // receives when a call of the tool wait was cancelled
	release   chan struct{} // closed when a call of wait is to return by itself
	closing   chan struct{} // closed at the end of the test

	mu      sync.Mutex
	traffic []arrival
}

// An arrival is an HTTP request as it reached the server.
type arrival struct {
	httpMethod string
	rpcMethod  string // of the body; empty for a response and for a request without a body
	header     http.Header
}

// newServer starts a server for revision 2026-07-28 if stateless, or else for the revisions with sessions: the
// go-sdk serves no session of 2026-07-28 from a stateful handler.
func newServer(t *testing.T, stateless bool) *server {
	t.Helper()
	s := &server{cancelled: make(chan struct{}, 1), release: make(chan struct{}), closing: make(chan struct{})}
	s.serve(t, newFeatures(s), stateless)
	return s
}

func (s *server) serve(t *testing.T, features *mcp.Server, stateless bool) {
	sdk := mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return features },
		&mcp.StreamableHTTPOptions{Stateless: stateless, PropagateRequestCancellation: true},
	)
	srv := httptest.NewServer(s.remember(sdk))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(s.closing) })
	s.endpoint = srv.URL + "/mcp"
}

func (s *server) remember(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var message struct{ Method string }
		_ = json.Unmarshal(body, &message) // the SDK refuses what is no JSON
		s.mu.Lock()
		s.traffic = append(s.traffic, arrival{r.Method, message.Method, r.Header.Clone()})
		s.mu.Unlock()
		// The SDK takes an empty header for one that is missing.
		for name, values := range r.Header {
			if strings.HasPrefix(name, "Mcp-Param-") && values[0] == "" {
				r.Header[name] = []string{"=?base64??="}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// arrivals returns what reached the server with an HTTP method and, for a POST, a JSON-RPC method.
func (s *server) arrivals(httpMethod, rpcMethod string) []arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []arrival
	for _, a := range s.traffic {
		if a.httpMethod == httpMethod && a.rpcMethod == rpcMethod {
			found = append(found, a)
		}
	}
	return found
}

func newFeatures(s *server) *mcp.Server {
	m := mcp.NewServer(&mcp.Implementation{Name: "clients-test", Version: "1.0.0"}, nil)
	mcp.AddTool(m, &mcp.Tool{Name: "echo", InputSchema: echoSchema()}, echo)
	mcp.AddTool(m, &mcp.Tool{Name: "fail"}, fail)
	mcp.AddTool(m, &mcp.Tool{Name: "count"}, count)
	mcp.AddTool(m, &mcp.Tool{Name: "greet"}, greet)
	mcp.AddTool(m, &mcp.Tool{Name: "wait"}, s.wait)
	mcp.AddTool(m, &mcp.Tool{Name: "grow"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		mcp.AddTool(m, &mcp.Tool{Name: "grown"}, fail)
		return text("grown"), nil, nil
	})
	m.AddPrompt(&mcp.Prompt{Name: "ask", Arguments: []*mcp.PromptArgument{{Name: "about", Required: true}}},
		func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{
				{Role: "user", Content: &mcp.TextContent{Text: "What about " + req.Params.Arguments["about"] + "?"}},
			}}, nil
		})
	m.AddResource(&mcp.Resource{Name: "note", URI: "test://notes/one%20two"},
		func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
				{URI: req.Params.URI, MIMEType: "text/plain", Text: "a note"},
			}}, nil
		})
	return m
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// echoSchema mirrors the argument region into the header Mcp-Param-Region.
func echoSchema() *jsonschema.Schema {
	return &jsonschema.Schema{
		Type:     "object",
		Required: []string{"text"},
		Properties: map[string]*jsonschema.Schema{
			"text":   {Type: "string"},
			"region": {Type: "string", Extra: map[string]any{"x-mcp-header": "Region"}},
		},
	}
}

type echoArguments struct {
	Text   string `json:"text"`
	Region string `json:"region,omitempty"`
}

func echo(_ context.Context, _ *mcp.CallToolRequest, args echoArguments) (*mcp.CallToolResult, any, error) {
	return text(args.Text), nil, nil
}

func fail(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
	return nil, nil, errors.New("it did not work")
}

// count reports its progress three times.
func count(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	for i := range 3 {
		if err := progress(ctx, req, float64(i+1)); err != nil {
			return nil, nil, err
		}
	}
	return text("counted"), nil, nil
}

func progress(ctx context.Context, req *mcp.CallToolRequest, n float64) error {
	return req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: req.Params.GetProgressToken(), Progress: n, Total: 3,
	})
}

// greet asks the user for a name: with a result that requires input on 2026-07-28, with a request of its own, which
// the SDK makes of it, before.
func greet(_ context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	if answer, ok := req.Params.InputResponses["name"].(*mcp.ElicitResult); ok {
		return text(fmt.Sprintf("hello, %v", answer.Content["name"])), nil, nil
	}
	return &mcp.CallToolResult{
		RequestState: "asked",
		InputRequests: mcp.InputRequestMap{"name": &mcp.ElicitParams{
			Message: "What is your name?",
			RequestedSchema: &jsonschema.Schema{
				Type:       "object",
				Required:   []string{"name"},
				Properties: map[string]*jsonschema.Schema{"name": {Type: "string"}},
			},
		}},
	}, nil, nil
}

// wait reports progress once, so that the client knows that it runs, and returns when it is cancelled.
func (s *server) wait(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	if err := progress(ctx, req, 1); err != nil {
		return nil, nil, err
	}
	select {
	case <-ctx.Done():
		s.cancelled <- struct{}{}
		return nil, nil, ctx.Err()
	case <-s.release:
		return text("waited"), nil, ctx.Err()
	case <-s.closing:
		return nil, nil, errors.New("nobody cancelled the call")
	}
}
