package effect

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/caddymcp/gateway/jsonrpc"
)

// Fingerprint is the SHA-256 of the canonical JSON (RFC 8785) of a tool's name
// and its arguments: ["create_refund",{"payment_id":"txn_1"}]. Neither the
// JSON-RPC id nor _meta is part of it. Arguments that are absent or null are
// those that are empty: admission has these three mean the same.
type Fingerprint [sha256.Size]byte

// Outline tells which of a call's arguments differ from another's, without
// their values: a JSON-RPC client is told what it changed. Of each argument it
// holds the name and 16 bits of a digest, from which a value of any substance
// cannot be guessed; once in 65,536 times a difference goes unnamed. A call
// with more than maxOutlined arguments, or with long names, has none.
type Outline map[string]uint16

// What an outline holds at most.
const (
	maxOutlined = 64
	maxNames    = 4096 // bytes
)

// Identify returns the fingerprint and the outline of a tool call that Parse
// has read.
//
// A number that is not the canonical spelling of an integer within ±(2^53-1)
// refuses the call, with CodeNotInteger: 0.1 and 0.10 are the same money, and
// would be two fingerprints.
func Identify(m *jsonrpc.Message) (f Fingerprint, o Outline, refusal *Refusal) {
	canonical(func(c *canonicalizer) {
		c.input(m)
		if c.inexact {
			refusal = notInteger(m)
			return
		}
		f = sha256.Sum256(c.out)
		o = c.outline(m.Params.Arguments)
	})
	return f, o, refusal
}

// AppendIdentified appends to dst what the fingerprint of m is the digest of.
func AppendIdentified(dst []byte, m *jsonrpc.Message) []byte {
	canonical(func(c *canonicalizer) {
		c.input(m)
		dst = append(dst, c.out...)
	})
	return dst
}

// input writes the canonical JSON of the tool's name and the arguments. What
// admission would have refused, but for "enforce off", is written as it is.
func (c *canonicalizer) input(m *jsonrpc.Message) {
	c.out = append(c.out, '[')
	c.member(m.Params.Name, "null")
	c.out = append(c.out, ',')
	c.member(m.Params.Arguments, "{}")
	c.out = append(c.out, ']')
}

// member writes a member's canonical form, or what stands for none.
func (c *canonicalizer) member(m jsonrpc.Member, none string) {
	if m.Type == jsonrpc.Absent || m.Type == jsonrpc.Null {
		c.out = append(c.out, none...)
		return
	}
	c.append(m.Raw)
}

func notInteger(m *jsonrpc.Message) *Refusal {
	_, pointer, _ := m.NonInteger()
	return &Refusal{
		Code:    CodeNotInteger,
		Text:    "A number in the arguments is no integer in its plain decimal form within ±(2^53-1), and this tool is protected: its value could be spelled in several ways. Nothing was forwarded; send it as an integer or a string.",
		Pointer: pointer,
	}
}

// outline returns the outline of the arguments, an object if there are any.
func (c *canonicalizer) outline(arguments jsonrpc.Member) Outline {
	if arguments.Type != jsonrpc.Object {
		return Outline{}
	}
	c.text, c.at = arguments.Raw, len("{")
	o, names := make(Outline), 0
	for c.space() != '}' {
		if c.text[c.at] == ',' {
			c.at++
			c.space()
		}
		name := string(c.unescaped(c.string()))
		c.space()
		c.at++ // the colon
		c.out = c.out[:0]
		c.value()
		digest := sha256.Sum256(c.out)
		o[name] = binary.BigEndian.Uint16(digest[:])
		if names += len(name); len(o) > maxOutlined || names > maxNames {
			return nil
		}
	}
	return o
}

// Differs returns the names of the arguments that the outlines do not have in
// common, in their order; nil also where one of the calls has no outline.
func (o Outline) Differs(other Outline) []string {
	if o == nil || other == nil {
		return nil
	}
	var names []string
	for name, digest := range o {
		if theirs, ok := other[name]; !ok || theirs != digest {
			names = append(names, name)
		}
	}
	for name := range other {
		if _, ok := o[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
