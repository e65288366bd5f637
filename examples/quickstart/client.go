package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// A call is a tools/call of revision 2026-07-28, made by hand so that its header can lie.
type call struct {
	header    string // the tool according to the header Mcp-Name
	tool      string // the tool according to the body
	arguments string // a JSON object
}

// body writes the call as a JSON-RPC request.
func (c call) body() string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
		c.tool, c.arguments)
}

// headers are those that the protocol demands.
func (c call) headers() [][2]string {
	return [][2]string{
		{"Content-Type", "application/json"},
		{"Accept", "application/json, text/event-stream"},
		{"MCP-Protocol-Version", "2026-07-28"},
		{"Mcp-Method", "tools/call"},
		{"Mcp-Name", c.header},
	}
}

// An answer is the HTTP status of a call with the JSON-RPC response in it.
type answer struct {
	status  int
	text    []byte // of the message
	Message struct {
		Result struct {
			Meta              outcomes `json:"_meta"`
			StructuredContent json.RawMessage
		}
		Error struct {
			Code    int
			Message string
			Data    struct {
				outcomes
				State string // of the effect, where that is why the call was refused
			}
		}
	}
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.text) }

// outcomes is the object in which the gateway says what is known of the call.
type outcomes struct {
	Outcome struct {
		Outcome  string
		Replayed bool // the answer is that of an earlier call
	} `json:"io.github.caddymcp/outcome"`
}

func (c call) send(ctx context.Context, endpoint string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(c.body()))
	if err != nil {
		return answer{}, err
	}
	for _, h := range c.headers() {
		req.Header.Set(h[0], h[1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode}
	if a.text, err = message(resp); err != nil {
		return a, err
	}
	if err := json.Unmarshal(a.text, &a.Message); err != nil {
		return a, fmt.Errorf("reading the answer %v: %w", a, err)
	}
	return a, nil
}

// message reads the message of a response: its whole body, or the data of its last event.
func message(resp *http.Response) ([]byte, error) {
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return io.ReadAll(resp.Body)
	}
	var last string
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			last = data
		}
	}
	return []byte(last), lines.Err()
}

// get returns the lines of a text that contain word.
func get(ctx context.Context, url, word string) ([]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return grep(string(text), word), err
}

func grep(text, word string) []string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}
