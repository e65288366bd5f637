package gateway

import (
	"crypto/tls"
	"net/http/httptest"
	"testing"

	"github.com/caddymcp/gateway/jsonrpc"
)

func TestTooEarlyByTheHandshake(t *testing.T) {
	for _, tt := range []struct {
		name string
		tls  *tls.ConnectionState
		want bool
	}{
		{"no TLS", nil, false},
		{"handshake complete", &tls.ConnectionState{HandshakeComplete: true}, false},
		{"early data", &tls.ConnectionState{}, true},
	} {
		c := &call{request: httptest.NewRequest("POST", "/mcp", nil), parsed: true}
		c.request.TLS = tt.tls
		c.message.Kind, c.message.Method = jsonrpc.Request, "tools/call"
		if got := c.tooEarly() != nil; got != tt.want {
			t.Errorf("%s: refused %v", tt.name, got)
		}
	}
}
