// Package effect keeps a tool call that may have happened from being made
// again: the keys of effects, the fingerprints of their arguments, the state
// machine of an effect, and the Ledger that holds their records.
//
// The invariant: within the time that records are retained, the executions of
// one key are at most 1 + the proofs on record that an earlier one did not
// happen. No clock is trusted for it: time only ever turns what is going on
// into what is unknown, and neither lets another call through. The one
// exception is an operator's word that a tool which asks for input has not
// acted yet.
//
// The package is pure: it opens nothing and reads no clock. All that a store
// decides it asks Step, so that every store behaves alike.
package effect

import (
	"crypto/sha256"
	"strings"
)

// Key names one effect in a ledger.
type Key struct {
	Namespace string // tells apart the upstreams that share a ledger
	Text      string // the resolved parts as a canonical JSON array: ["refund","txn_1"]
}

// NewKey returns the key of resolved parts, each valid UTF-8. No two lists of
// parts have the same text: joined to one string, acme:evil and p1 would be
// acme and evil:p1.
func NewKey(namespace string, parts ...string) Key {
	var text []byte
	text = append(text, '[')
	for i, part := range parts {
		if i > 0 {
			text = append(text, ',')
		}
		text = appendString(text, part)
	}
	return Key{namespace, string(append(text, ']'))}
}

// String returns the key for a person: the namespace, if there is one, and the
// text.
func (k Key) String() string { return strings.TrimLeft(k.Namespace+" "+k.Text, " ") }

// Digest returns the SHA-256 of the namespace and the text, for where a key
// must be short or must not be read.
func (k Key) Digest() [sha256.Size]byte {
	return sha256.Sum256([]byte(NewKey("", k.Namespace, k.Text).Text))
}
