package clients

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/oauth2"

	"github.com/caddymcp/gateway/internal/e2etest"
)

// patience bounds every wait of these tests; one that meets it has failed.
const patience = 30 * time.Second

// A caller is a client of one of the SDKs that calls tools, whatever became of the calls before.
type caller interface {
	// call returns what the SDK tells its user. The user gives up when the context is done.
	call(ctx context.Context, tool string, args map[string]any) reply
}

// A reply is what an SDK tells its user of a call.
type reply struct {
	text    string         // of the result
	number  int            // of the structured result
	isError bool           // of the result
	word    map[string]any // the gateway's word on it, of a result or an error

	failure error // the SDK failed the call
	code    int   // of the JSON-RPC error
	data    map[string]any
}

// A connection is what a caller is made with.
type connection struct {
	endpoint, revision string

	user   string // sent in the header X-User
	login  bool   // with a token, and a new one after each 401
	answer string // to every question; "accept" if empty
}

// An sdk makes callers.
type sdk struct {
	name    string
	connect func(t *testing.T, c connection) caller

	// On the older revisions a client that gives up says so with notifications/cancelled only, and leaves its
	// connection open; and where a stream breaks it waits on until its user gives up.
	holdsOn bool
}

// forEachSDK runs a test with clients of each SDK.
func forEachSDK(t *testing.T, run func(t *testing.T, s sdk)) {
	t.Run("Go", func(t *testing.T) { run(t, sdk{name: "Go", connect: connectGo}) })
	t.Run("TypeScript", func(t *testing.T) { run(t, sdk{name: "TypeScript", connect: startNode(t).connect, holdsOn: true}) })
}

// forEachRevision runs a test with clients of each SDK on each revision.
func forEachRevision(t *testing.T, run func(t *testing.T, s sdk, revision string)) {
	forEachSDK(t, func(t *testing.T, s sdk) {
		for _, n := range negotiations {
			if n.asked == n.got {
				t.Run(n.got, func(t *testing.T) { run(t, s, n.got) })
			}
		}
	})
}

// forBothEras runs a test with clients of each SDK on the newest revision of each era.
func forBothEras(t *testing.T, run func(t *testing.T, s sdk, revision string)) {
	forEachSDK(t, func(t *testing.T, s sdk) {
		for _, revision := range []string{modern, "2025-11-25"} {
			t.Run(revision, func(t *testing.T) { run(t, s, revision) })
		}
	})
}

// A goCaller calls with the SDK for Go.
type goCaller struct{ session *mcp.ClientSession }

func connectGo(t *testing.T, c connection) caller {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "caller-test-go", Version: "1.0.0"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			if c.answer != "" && c.answer != "accept" {
				return &mcp.ElicitResult{Action: c.answer}, nil
			}
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"confirmed": true}}, nil
		},
	})
	http1 := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(http1.CloseIdleConnections)
	transport := &mcp.StreamableClientTransport{Endpoint: c.endpoint, HTTPClient: &http.Client{Transport: named{http1, c.user}}}
	if c.login {
		transport.OAuthHandler = &login{token: 1}
	}
	session, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: c.revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	if got := session.InitializeResult().ProtocolVersion; got != c.revision {
		t.Fatalf("negotiated %s, want %s", got, c.revision)
	}
	if _, err := session.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return goCaller{session}
}

func (c goCaller) call(ctx context.Context, tool string, args map[string]any) (r reply) {
	result, err := c.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		r.failure = err
		var rpc *jsonrpc.Error
		if errors.As(err, &rpc) {
			r.code = int(rpc.Code)
			_ = json.Unmarshal(rpc.Data, &r.data) // the test looks at what is there
			r.word, _ = r.data[outcomeMember].(map[string]any)
		}
		return r
	}
	r.isError = result.IsError
	structured, _ := result.StructuredContent.(map[string]any)
	number, _ := structured["number"].(float64)
	r.number = int(number)
	if len(result.Content) == 1 {
		if text, ok := result.Content[0].(*mcp.TextContent); ok {
			r.text = text.Text
		}
	}
	r.word, _ = result.Meta[outcomeMember].(map[string]any)
	return r
}

// named sends the name of a user with each request.
type named struct {
	http.RoundTripper
	user string
}

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	if n.user != "" {
		r = r.Clone(r.Context())
		r.Header.Set("X-User", n.user)
	}
	return n.RoundTripper.RoundTrip(r)
}

// login authenticates with the token of an ordinal, and the next one after a refusal.
type login struct {
	mu    sync.Mutex
	token int
}

var _ auth.OAuthHandler = (*login)(nil)

func (l *login) TokenSource(context.Context) (oauth2.TokenSource, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return oauth2.StaticTokenSource(&oauth2.Token{AccessToken: fmt.Sprintf("token %d", l.token)}), nil
}

func (l *login) Authorize(_ context.Context, _ *http.Request, res *http.Response) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.token++
	return res.Body.Close()
}

// A nodeProcess runs clients of the TypeScript SDK.
type nodeProcess struct {
	in io.Writer

	mu       sync.Mutex
	commands int
	clients  int
	waiting  map[int]chan nodeReply
}

type nodeReply struct {
	ID     int
	Result struct {
		Content           []struct{ Text string }
		StructuredContent struct{ Number int }
		IsError           bool
		Meta              map[string]any `json:"_meta"`
	}
	Failure string
	Code    int
	Data    map[string]any
}

// startNode starts a process that ends with the test.
func startNode(t *testing.T) *nodeProcess {
	t.Helper()
	cmd := exec.Command(e2etest.Node(t, "."), "caller.mjs")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n := &nodeProcess{in: in, waiting: make(map[int]chan nodeReply)}
	var reading sync.WaitGroup
	reading.Go(func() { n.read(t, out) })
	t.Cleanup(func() {
		in.Close() // which ends it
		reading.Wait()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *nodeProcess) read(t *testing.T, out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var r nodeReply
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Errorf("the clients wrote %q: %v", lines.Text(), err)
			continue
		}
		n.mu.Lock()
		waiting := n.waiting[r.ID]
		delete(n.waiting, r.ID)
		n.mu.Unlock()
		if waiting != nil {
			waiting <- r
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, waiting := range n.waiting {
		waiting <- nodeReply{Failure: "the process of the clients has ended"}
	}
}

// send gives a command, and returns its id and where the answer comes.
func (n *nodeProcess) send(command map[string]any) (int, <-chan nodeReply, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.commands++
	id := n.commands
	answer := make(chan nodeReply, 1)
	n.waiting[id] = answer
	command["id"] = id
	line, err := json.Marshal(command)
	if err != nil {
		return 0, nil, err
	}
	_, err = n.in.Write(append(line, '\n'))
	return id, answer, err
}

// do gives a command and waits for the answer. If the context ends first, the
// command is aborted.
func (n *nodeProcess) do(ctx context.Context, command map[string]any) (r nodeReply) {
	id, answer, err := n.send(command)
	if err != nil {
		return nodeReply{Failure: err.Error()}
	}
	late := time.After(patience)
	for {
		select {
		case r := <-answer:
			return r
		case <-ctx.Done():
			ctx = context.Background()
			if _, _, err := n.send(map[string]any{"do": "abort", "call": id}); err != nil {
				return nodeReply{Failure: err.Error()}
			}
		case <-late:
			return nodeReply{Failure: "the client does not answer"}
		}
	}
}

// A nodeCaller calls with the SDK for TypeScript.
type nodeCaller struct {
	process *nodeProcess
	client  int
}

func (n *nodeProcess) connect(t *testing.T, c connection) caller {
	t.Helper()
	n.mu.Lock()
	n.clients++
	client := n.clients
	n.mu.Unlock()
	if c.answer == "" {
		c.answer = "accept"
	}
	r := n.do(t.Context(), map[string]any{"do": "connect", "client": client, "endpoint": c.endpoint, "revision": c.revision,
		"user": c.user, "login": c.login, "answer": c.answer})
	if r.Failure != "" {
		t.Fatal(r.Failure)
	}
	t.Cleanup(func() { n.do(context.Background(), map[string]any{"do": "close", "client": client}) })
	return nodeCaller{n, client}
}

func (c nodeCaller) call(ctx context.Context, tool string, args map[string]any) reply {
	answer := c.process.do(ctx, map[string]any{"do": "call", "client": c.client, "tool": tool, "arguments": args})
	r := reply{isError: answer.Result.IsError, number: answer.Result.StructuredContent.Number, code: answer.Code, data: answer.Data}
	if answer.Failure != "" {
		r.failure = errors.New(answer.Failure)
		r.word, _ = answer.Data[outcomeMember].(map[string]any)
		return r
	}
	if len(answer.Result.Content) == 1 {
		r.text = answer.Result.Content[0].Text
	}
	r.word, _ = answer.Result.Meta[outcomeMember].(map[string]any)
	return r
}
