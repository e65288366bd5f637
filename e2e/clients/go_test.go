package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// outcomeMember is where the gateway puts its word on a call. Its presence proves that the gateway was in the path.
const outcomeMember = "io.github.caddymcp/outcome"

// A goClient takes the steps with the SDK for Go.
type goClient struct {
	endpoint    string
	negotiation negotiation
	client      *mcp.Client
	session     *mcp.ClientSession
	progress    chan float64
	listChanged chan struct{}
}

func newGoClient(t *testing.T, endpoint string, n negotiation) *goClient {
	c := &goClient{
		endpoint:    endpoint,
		negotiation: n,
		progress:    make(chan float64, 16),
		listChanged: make(chan struct{}, 16),
	}
	c.client = mcp.NewClient(&mcp.Implementation{Name: "clients-test-go", Version: "1.0.0"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			c.progress <- req.Params.Progress
		},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			c.listChanged <- struct{}{}
		},
	})
	t.Cleanup(func() {
		if c.session != nil {
			c.session.Close()
		}
	})
	return c
}

func (c *goClient) take(t *testing.T, step string) {
	if c.session == nil && step != "connect" {
		t.Fatal("not connected")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var err error
	switch step {
	case "connect":
		err = c.connect(ctx)
	case "list":
		err = c.list(ctx)
	case "call":
		err = c.call(ctx, "echo", map[string]any{"text": "zwölf", "region": "eu"}, "zwölf", "committed")
	case "parallel":
		err = c.parallel(ctx)
	case "toolError":
		err = c.call(ctx, "fail", map[string]any{}, "it did not work", "ambiguous")
	case "refusal":
		err = c.refusal(ctx)
	case "read":
		err = c.read(ctx)
	case "prompt":
		err = c.prompt(ctx)
	case "progress":
		err = c.count(ctx)
	case "elicit":
		err = c.call(ctx, "greet", map[string]any{}, "hello, Ada", "committed")
	case "cancel":
		err = c.cancel(ctx)
	case "notified":
		err = c.notified(ctx)
	case "close":
		err = c.session.Close()
	default:
		err = errors.New("the client does not know this step")
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (c *goClient) connect(ctx context.Context) error {
	session, err := c.client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: c.endpoint},
		&mcp.ClientSessionOptions{ProtocolVersion: c.negotiation.asked})
	if err != nil {
		return err
	}
	c.session = session
	if got := session.InitializeResult().ProtocolVersion; got != c.negotiation.got {
		return fmt.Errorf("negotiated %s", got)
	}
	if got, want := session.ID() != "", c.negotiation.got != modern; got != want {
		return fmt.Errorf("a session: %t, want %t", got, want)
	}
	return nil
}

func (c *goClient) list(ctx context.Context) error {
	res, err := c.session.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	var names []string
	for _, tool := range res.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	if want := []string{"count", "echo", "fail", "greet", "grow", "wait"}; !slices.Equal(names, want) {
		return fmt.Errorf("the tools are %v, want %v", names, want)
	}
	return nil
}

// call calls a tool and wants a text as its result, and the gateway's word on it.
func (c *goClient) call(ctx context.Context, name string, args map[string]any, wantText, wantOutcome string) error {
	params := &mcp.CallToolParams{Name: name, Arguments: args}
	params.SetProgressToken(name)
	res, err := c.session.CallTool(ctx, params)
	if err != nil {
		return err
	}
	if len(res.Content) != 1 {
		return fmt.Errorf("the result has %d contents, want 1", len(res.Content))
	}
	if text, ok := res.Content[0].(*mcp.TextContent); !ok || text.Text != wantText {
		return fmt.Errorf("the result is %+v, want %q", res.Content[0], wantText)
	}
	member, _ := res.Meta[outcomeMember].(map[string]any)
	if member["outcome"] != wantOutcome {
		return fmt.Errorf("the gateway's word on the result is %v in %v, want %s", member["outcome"], res.Meta, wantOutcome)
	}
	return nil
}

func (c *goClient) parallel(ctx context.Context) error {
	errs := make([]error, 8)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			text := fmt.Sprintf("text %d", i)
			errs[i] = c.call(ctx, "echo", map[string]any{"text": text}, text, "committed")
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *goClient) refusal(ctx context.Context) error {
	_, err := c.session.CallTool(ctx, &mcp.CallToolParams{Name: "missing", Arguments: map[string]any{}})
	var rpc *jsonrpc.Error
	if !errors.As(err, &rpc) || rpc.Code != jsonrpc.CodeInvalidParams {
		return fmt.Errorf("the error is %v, want code %d", err, jsonrpc.CodeInvalidParams)
	}
	var data map[string]struct{ Outcome string }
	if err := json.Unmarshal(rpc.Data, &data); err != nil || data[outcomeMember].Outcome != "failed" {
		return fmt.Errorf("the gateway's word on the error is not failed: data %s (%v)", rpc.Data, err)
	}
	return nil
}

func (c *goClient) read(ctx context.Context) error {
	res, err := c.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: "test://notes/one%20two"})
	if err != nil {
		return err
	}
	if len(res.Contents) != 1 || res.Contents[0].Text != "a note" {
		return fmt.Errorf("the contents are %+v", res.Contents)
	}
	return nil
}

func (c *goClient) prompt(ctx context.Context) error {
	res, err := c.session.GetPrompt(ctx, &mcp.GetPromptParams{Name: "ask", Arguments: map[string]string{"about": "lunch"}})
	if err != nil {
		return err
	}
	if len(res.Messages) != 1 {
		return fmt.Errorf("the prompt has %d messages, want 1", len(res.Messages))
	}
	if text, ok := res.Messages[0].Content.(*mcp.TextContent); !ok || text.Text != "What about lunch?" {
		return fmt.Errorf("the message is %+v", res.Messages[0].Content)
	}
	return nil
}

func (c *goClient) count(ctx context.Context) error {
	if err := c.call(ctx, "count", map[string]any{}, "counted", "committed"); err != nil {
		return err
	}
	for want := range 3 {
		select {
		case got := <-c.progress:
			if got != float64(want+1) {
				return fmt.Errorf("progress %v, want %d", got, want+1)
			}
		case <-ctx.Done():
			return fmt.Errorf("waiting for progress %d: %w", want+1, ctx.Err())
		}
	}
	return nil
}

// cancel cancels a call as soon as it is known to run.
func (c *goClient) cancel(ctx context.Context) error {
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- c.call(call, "wait", map[string]any{}, "", "")
	}()
	select {
	case <-c.progress:
		cancel()
	case err := <-done:
		return fmt.Errorf("the call ended before it was cancelled: %w", err)
	}
	if err := <-done; !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the call ended with %v, want it cancelled", err)
	}
	return nil
}

func (c *goClient) notified(ctx context.Context) error {
	if err := c.call(ctx, "grow", map[string]any{}, "grown", "committed"); err != nil {
		return err
	}
	select {
	case <-c.listChanged:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for notifications/tools/list_changed: %w", ctx.Err())
	}
}
