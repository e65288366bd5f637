package gateway

import (
	"crypto/tls"
	"net/http/httptest"
	"testing"
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
		c := &call{request: httptest.NewRequest("POST", "/mcp", nil)}
		c.request.TLS = tt.tls
		c.message.ID, c.message.Method = []byte("1"), "tools/call"
		if got := c.tooEarly() != nil; got != tt.want {
			t.Errorf("%s: refused %v", tt.name, got)
		}
	}
}
