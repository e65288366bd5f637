package gateway

import (
	"github.com/caddyserver/caddy/v2"
)

// proxyReport is what the reverse_proxy that ran last beneath tells by its
// placeholders. The zero value says that none ran.
type proxyReport struct {
	ran       bool
	selected  bool // it selected an upstream
	retried   bool // it made more than one attempt
	responded bool // an upstream answered it
	status    int  // with this status
	challenge bool // and WWW-Authenticate
	events    bool // as an event stream
	delivered bool // that answer is what it wrote, to the end

	intercepted bool // an intercept handler wrote something in place of a response
}

// The placeholders of reverse_proxy. One that ran has set the first or the
// second.
const (
	proxyRetries   = "http.reverse_proxy.retries"          // set at its end
	proxyUpstream  = "http.reverse_proxy.upstream.address" // set when one is selected
	proxyLatency   = "http.reverse_proxy.upstream.latency" // set by an answer, as are the next three
	proxyStatus    = "http.reverse_proxy.status_code"
	proxyChallenge = "http.reverse_proxy.header.Www-Authenticate"
	proxyType      = "http.reverse_proxy.header.Content-Type"
	proxyDelivered = "http.reverse_proxy.upstream.duration" // set when the answer is written
)

// interceptStatus is set by an intercept handler that takes a response over.
const interceptStatus = "http.intercept.status_code"

func readProxyReport(repl *caddy.Replacer) (p proxyReport) {
	_, p.selected = repl.Get(proxyUpstream)
	retries, ended := repl.Get(proxyRetries)
	p.ran = ended
	p.retried = ended && retries != 0
	_, p.intercepted = repl.Get(interceptStatus)
	if _, p.responded = repl.Get(proxyLatency); p.responded {
		status, _ := repl.Get(proxyStatus)
		p.status, _ = status.(int)
		_, p.challenge = repl.Get(proxyChallenge)
		mediaType, _ := repl.GetString(proxyType)
		p.events = isEventStreamType(mediaType)
		_, p.delivered = repl.Get(proxyDelivered)
	}
	return p
}

// clearProxyReport clears what a reverse_proxy further out (forward_auth) left
// in the placeholders, and returns it.
func clearProxyReport(repl *caddy.Replacer) (before map[string]any) {
	_, selected := repl.Get(proxyUpstream)
	_, ended := repl.Get(proxyRetries)
	if !selected && !ended {
		return nil
	}
	before = make(map[string]any)
	for _, key := range [...]string{proxyRetries, proxyUpstream, proxyLatency, proxyStatus, proxyChallenge, proxyType, proxyDelivered} {
		if value, ok := repl.Get(key); ok {
			before[key] = value
			repl.Delete(key)
		}
	}
	return before
}

// restoreProxyReport puts back what was cleared, where no proxy beneath has
// set its own.
func restoreProxyReport(repl *caddy.Replacer, before map[string]any) {
	for key, value := range before {
		if _, ok := repl.Get(key); !ok {
			repl.Set(key, value)
		}
	}
}
