package examples

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// lie is a call whose header names another tool than its body.
const lie = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete_all","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`

// Whatever a server may take for its endpoint, no example hands it a request
// that was not checked, nor one for another resource than its blocks name.
func TestNothingPassesUnchecked(t *testing.T) {
	for _, name := range []string{"Caddyfile", "local.Caddyfile"} {
		t.Run(name, func(t *testing.T) {
			received := make(chan string, 1)
			up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { received <- r.RequestURI }))
			defer up.Close()
			t.Setenv("XDG_DATA_HOME", t.TempDir()) // for the ledger
			site := incaddy.Run(t, incaddy.Config{Site: siteBlock(t, name, strings.TrimPrefix(up.URL, "http://"))})
			for _, target := range []string{
				"/mcp", "/mcp?a=b", "/MCP", "//mcp", "/./mcp", "/a/../mcp", "/%6dcp",
				"/mcp/", "/mcp//", "/mcp;a=b", "/mcp;", "/mcp%2f", "/mcp%2F", "/mcp%3b", "/mcp%20", "/mcp.", "/mcp/.", "/mcp%2e", "/mcp/..;/mcp", "/mcp\\", "/mcp%5c", "/mcp%00",
				"/", "/sse", "/message", "/.well-known/..;/mcp", "/.well-known/oauth-protected-resource/../../mcp",
				"/.well-known/oauth-protected-resource/mcp", "http://" + site.Addr + "/mcp/",
				"/admin/..%2fmcp", "/admin/users/..%2f..%2fmcp", "/admin/%2e%2e/mcp", "/admin/../mcp?a=b",
				"/mcp/../.well-known/oauth-protected-resource", "/mcp/%2e%2e/.well-known/oauth-protected-resource/mcp",
				"/mcp/x/..%2f..%2f/.well-known/oauth-protected-resource", "/mcp/x/..%2f..%2f/.well-known/oauth-protected-resource/mcp",
			} {
				for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete, http.MethodOptions} {
					status := send(t, site.Addr, method, target, lie)
					select {
					case uri := <-received:
						if !isNamed(method, uri) {
							t.Errorf("%s %s reached the server as %s", method, target, uri)
						}
					default:
						if status < 400 || status > 499 {
							t.Errorf("%s %s: got %d", method, target, status)
						}
					}
				}
			}
			if status := send(t, site.Addr, http.MethodGet, "/mcp", ""); status != http.StatusOK || <-received != "/mcp" {
				t.Errorf("GET /mcp: got %d", status)
			}
		})
	}
}

// isNamed reports whether the examples route this to the server, of what is sent
// with a lie as its body.
func isNamed(method, uri string) bool {
	switch path, _, _ := strings.Cut(uri, "?"); path {
	case "/mcp":
		return method != http.MethodPost
	case "/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp":
		return method == http.MethodGet || method == http.MethodOptions
	}
	return false
}

// The metadata by which clients find the authorization server are not MCP.
func TestMetadataPass(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer up.Close()
	site := incaddy.Run(t, incaddy.Config{Site: siteBlock(t, "Caddyfile", strings.TrimPrefix(up.URL, "http://"))})
	for _, target := range []string{"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
			if status := send(t, site.Addr, method, target, ""); status != http.StatusOK {
				t.Errorf("%s %s: got %d", method, target, status)
			}
		}
	}
}

// siteBlock returns what stands in the site of an example, in front of the
// given server, less the lines that a test has of its own.
func siteBlock(t *testing.T, name, server string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(text), "\n\tlog\n")
	block, end := strings.CutSuffix(block, "}\n")
	if !ok || !end {
		t.Fatalf("%s has another form than this test knows", name)
	}
	return strings.NewReplacer("127.0.0.1:9000", server, "127.0.0.1:{$SERVER_PORT:9000}", server).Replace(block)
}

// send sends a request target just as it is written, and returns the status.
func send(t *testing.T, addr, method, target, body string) int {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Type: application/json\r\nMcp-Protocol-Version: 2026-07-28\r\n"+
		"Mcp-Method: tools/call\r\nMcp-Name: list_refunds\r\nContent-Length: %d\r\n\r\n%s", method, target, addr, len(body), body)
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	return response.StatusCode
}
