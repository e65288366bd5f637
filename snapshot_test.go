package gateway

import (
	"testing"

	"github.com/caddymcp/gateway/outcome"
)

// The rows are what the hooks, the error and the writer look like in each case
// that was measured with Caddy v2.11.9; the end-to-end tests produce them.
func TestStage(t *testing.T) {
	tests := []struct {
		name string
		s    snapshot
		want outcome.Stage
	}{
		// The order of the design.
		{"1: answered, whatever happened afterwards", snapshot{answered: true, gone: true, headerWritten: true, broken: true, failed: true}, outcome.Answered},
		{"2: client gone before a header", snapshot{gone: true, getConn: 1}, outcome.ClientGone},
		{"2: client gone after the header", snapshot{gone: true, headerWritten: true, broken: true, gotConn: 1}, outcome.ClientGone},
		{"2: client gone, although nothing was sent", snapshot{gone: true, failed: true, getConn: 1}, outcome.ClientGone},
		{"3: response", snapshot{headerWritten: true, gotConn: 1, wroteHeaders: 1, firstByte: 1}, outcome.Answered},
		{"3: response cut", snapshot{headerWritten: true, broken: true, gotConn: 1}, outcome.Cut},
		{"3: header written, then an error", snapshot{headerWritten: true, broken: true, failed: true, getConn: 1}, outcome.Cut},

		// Positive proof that nothing was written.
		{"4: refused, DNS, TLS: asked for a connection and never got one", snapshot{failed: true, getConn: 1, proxy: proxyReport{ran: true, selected: true}}, outcome.NeverConnected},
		{"4: the same after retries", snapshot{failed: true, getConn: 3, dialError: true, proxy: proxyReport{ran: true, selected: true, retried: true}}, outcome.NeverConnected},
		{"4: the same with the body buffered before", snapshot{failed: true, getConn: 1, bodyRead: true, proxy: proxyReport{ran: true, selected: true}}, outcome.NeverConnected},
		{"4: DialError of a transport without traces", snapshot{failed: true, dialError: true, proxy: proxyReport{ran: true, selected: true}}, outcome.NeverConnected},
		{"4: no upstream available", snapshot{failed: true, proxy: proxyReport{ran: true}}, outcome.NeverConnected},
		{"4: an inner handler refused", snapshot{failed: true}, outcome.NeverConnected},
		{"4: connected and closed at once, nothing written", snapshot{failed: true, getConn: 1, gotConn: 1, proxy: proxyReport{ran: true, selected: true}}, outcome.NeverConnected},
		{"4: every connection came late and was closed, whatever the transport believes", snapshot{failed: true, bodyRead: true, getConn: 1, gotConn: 1, unused: 1, dials: 1, wroteHeaders: 1, wroteRequest: 1, proxy: proxyReport{ran: true, selected: true}}, outcome.NeverConnected},
		{"4: the same, of which the proxy says nothing but that it was cancelled", snapshot{getConn: 1, gotConn: 1, unused: 1, wroteHeaders: 1}, outcome.NeverConnected},
		{"4: two connections came late", snapshot{failed: true, getConn: 2, gotConn: 2, unused: 2, wroteHeaders: 1}, outcome.NeverConnected},

		// No proof.
		{"5: a connection came late after one that was written to", snapshot{failed: true, getConn: 2, gotConn: 2, unused: 1, wroteHeaders: 1}, outcome.Sent},
		{"5: a connection came late beside a silent one", snapshot{failed: true, getConn: 1, gotConn: 1, unused: 1, silent: 1}, outcome.Sent},
		{"5: a connection came late, and somebody answered", snapshot{failed: true, getConn: 1, gotConn: 1, unused: 1, firstByte: 1}, outcome.Sent},
		{"5: a connection came late after an upstream had answered", snapshot{failed: true, getConn: 1, gotConn: 1, unused: 1, proxy: proxyReport{responded: true}}, outcome.Sent},
		{"5: a connection came late after a second delivery was stopped", snapshot{failed: true, getConn: 1, gotConn: 1, unused: 1, stopped: true}, outcome.Sent},
		{"5: a shared connection came late", snapshot{failed: true, getConn: 1, gotConn: 1, unsure: true}, outcome.Sent},
		{"5: DialError after a retry", snapshot{failed: true, dialError: true, proxy: proxyReport{ran: true, selected: true, retried: true}}, outcome.Sent},
		{"5: DialError with our body read", snapshot{failed: true, dialError: true, bodyRead: true, proxy: proxyReport{ran: true, selected: true}}, outcome.Sent},
		{"5: silence of a transport that ignores traces", snapshot{failed: true, proxy: proxyReport{ran: true, selected: true}}, outcome.Sent},
		{"5: no upstream available, but the body was read", snapshot{failed: true, bodyRead: true, proxy: proxyReport{ran: true}}, outcome.Sent},
		{"5: connected by a silent transport", snapshot{failed: true, silent: 1}, outcome.Sent},
		{"5: connected by a silent transport beside a connection that nothing was written to", snapshot{failed: true, getConn: 1, gotConn: 1, silent: 1}, outcome.Sent},
		{"5: connected by a silent transport before a dial failed", snapshot{failed: true, dialError: true, silent: 1}, outcome.Sent},
		{"3: a refusal that broke off", snapshot{headerWritten: true, refused: true, broken: true, failed: true}, outcome.Cut},
		{"3: a refusal behind a silent connection", snapshot{headerWritten: true, refused: true, silent: 1}, outcome.Answered},
		{"4: an inner handler refused by a response", snapshot{headerWritten: true, refused: true}, outcome.NeverConnected},
		{"3: an inner handler answered", snapshot{headerWritten: true}, outcome.Answered},
		{"3: a proxy's refusal", snapshot{headerWritten: true, refused: true, proxy: proxyReport{ran: true}}, outcome.Answered},
		{"3: a refusal by who read the body", snapshot{headerWritten: true, refused: true, bodyRead: true}, outcome.Answered},
		{"5: wrote headers", snapshot{failed: true, getConn: 1, gotConn: 1, wroteHeaders: 1}, outcome.Sent},
		{"5: wrote the request", snapshot{failed: true, getConn: 1, gotConn: 1, wroteRequest: 1}, outcome.Sent},
		{"5: answered before it was written", snapshot{failed: true, getConn: 1, gotConn: 1, firstByte: 1}, outcome.Sent},
		{"5: wrote headers without a connection that was seen", snapshot{failed: true, getConn: 1, wroteHeaders: 1}, outcome.Sent},
		{"5: connected by a transport whose hooks prove nothing", snapshot{failed: true, getConn: 1, gotConn: 1, unsure: true}, outcome.Sent},
		{"5: connected, and a deadline ended the wait", snapshot{failed: true, getConn: 1, gotConn: 1, deadline: true}, outcome.Sent},
		{"5: connected, and a panic ended the wait", snapshot{failed: true, panicked: true, getConn: 1, gotConn: 1}, outcome.Sent},
		{"5: asked for a connection, but a silent transport made one", snapshot{failed: true, getConn: 1, dials: 1}, outcome.Sent},
		{"5: asked for a connection, but an upstream had answered before", snapshot{failed: true, getConn: 1, proxy: proxyReport{responded: true}}, outcome.Sent},
		{"5: a second delivery was stopped", snapshot{failed: true, stopped: true, getConn: 2}, outcome.Sent},
		{"5: no error and no response", snapshot{getConn: 1}, outcome.Sent},
		{"5: a panic without a response", snapshot{broken: true, getConn: 1}, outcome.Sent},
		{"5: nothing at all", snapshot{}, outcome.Sent},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.s.stage(); got != tt.want {
				t.Errorf("got stage %d, want %d", got, tt.want)
			}
		})
	}
}

func TestSubstituted(t *testing.T) {
	refused := responseHead{status: 401, challenge: true}
	told := proxyReport{ran: true, selected: true, responded: true, status: 401, challenge: true, delivered: true}
	with := func(change func(*proxyReport)) proxyReport {
		p := told
		change(&p)
		return p
	}
	for _, tt := range []struct {
		name string
		s    snapshot
		head responseHead
		want bool
	}{
		{"the upstream's own", snapshot{bodyRead: true, proxy: told}, refused, false},
		{"no response", snapshot{bodyRead: true}, responseHead{}, false},
		{"nobody had the body", snapshot{}, refused, false},
		{"who had what is unknown, after an answer of forward_auth", snapshot{proxy: with(func(p *proxyReport) { p.status = 200 })}, refused, true},
		{"two asked for the body", snapshot{bodyRead: true, bodyReread: true, proxy: told}, refused, true},
		{"a silent connection beside one that is not done", snapshot{bodyRead: true, getConn: 1, gotConn: 1, silent: 1, proxy: told}, refused, true},
		{"a silent connection beside one that is done", snapshot{bodyRead: true, getConn: 1, gotConn: 1, wroteRequest: 1, silent: 1, proxy: told}, refused, false},
		{"a silent transport's own", snapshot{bodyRead: true, silent: 1, proxy: told}, refused, false},
		{"tried again after a failed dial", snapshot{bodyRead: true, getConn: 2, gotConn: 1, wroteRequest: 1, proxy: with(func(p *proxyReport) { p.retried = true })}, refused, false},
		{"tried again over two connections", snapshot{bodyRead: true, getConn: 2, gotConn: 2, wroteRequest: 2, proxy: with(func(p *proxyReport) { p.retried = true })}, refused, true},
		{"tried again by a silent transport", snapshot{bodyRead: true, proxy: with(func(p *proxyReport) { p.retried = true })}, refused, true},
		{"intercepted", snapshot{bodyRead: true, proxy: with(func(p *proxyReport) { p.intercepted = true })}, refused, true},
		{"a body of somebody else's", snapshot{gotConn: 1, proxy: with(func(p *proxyReport) { p.status = 503 })}, refused, true},
		{"no proxy answered", snapshot{bodyRead: true, proxy: proxyReport{ran: true, selected: true, status: 401, delivered: true}}, responseHead{status: 401}, true},
		{"another status", snapshot{bodyRead: true, proxy: with(func(p *proxyReport) { p.status = 503 })}, refused, true},
		{"a challenge that was added to a 401", snapshot{bodyRead: true, proxy: with(func(p *proxyReport) { p.challenge = false })}, refused, false},
		{"a challenge that was added to a 403", snapshot{bodyRead: true, proxy: with(func(p *proxyReport) { p.status, p.challenge = 403, false })}, responseHead{status: 403, challenge: true}, true},
		{"a challenge that was taken away", snapshot{bodyRead: true, proxy: told}, responseHead{status: 401}, false},
		{"the upstream's answer was not delivered", snapshot{bodyRead: true, proxy: with(func(p *proxyReport) { p.delivered = false })}, refused, true},
		{"it broke off after its last byte", snapshot{bodyRead: true, panicked: true, proxy: with(func(p *proxyReport) { p.delivered = false })}, refused, false},
		{"a stream, before its end", snapshot{bodyRead: true, proxy: with(func(p *proxyReport) { p.status, p.events, p.delivered = 200, true, false })}, responseHead{status: 200, stream: true}, false},
		{"a stream in place of something else", snapshot{bodyRead: true, proxy: with(func(p *proxyReport) { p.status = 200 })}, responseHead{status: 200, stream: true}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.s.substituted(tt.head); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
