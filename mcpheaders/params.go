package mcpheaders

import (
	"slices"
	"strconv"
	"strings"

	"github.com/caddymcp/gateway/jsonrpc"
)

// ParamMode says what becomes of an Mcp-Param header that no binding of the
// tool explains: the tool's definition is not known, or it is and binds no such
// header, or the message calls no tool.
type ParamMode uint8

const (
	// Learn forwards it unjudged, as the specification asks of an intermediary
	// (Server Behavior for Custom Headers), and as unverified.
	Learn ParamMode = iota

	// Require refuses it. It protects against a client that lies before the
	// tool's definition was seen.
	Require

	// Off holds no Mcp-Param header against anything, whatever is bound.
	Off
)

// Param is a parameter whose header agrees with the body.
type Param struct {
	Name  string // as the tool's definition spells it
	Value string // decoded
}

// Bounds of the Mcp-Param headers of one request, checked before any is decoded
// (SEP-2243, Trusting Header Values). Copies count.
const (
	maxParams     = 2 * maxBindings
	maxParamBytes = 64 << 10 // of names and values
)

// collectParams reads the Mcp-Param headers, unless there are too many.
func (r *request) collectParams() {
	lines, size := 0, 0
	for name, sent := range r.header {
		if !strings.HasPrefix(name, paramPrefix) || len(sent) == 0 {
			continue
		}
		r.paramsSent++
		lines += len(sent)
		for _, line := range sent {
			size += len(name) + len(line)
		}
		if r.excess = r.policy.paramExcess(lines, size); r.excess == "" {
			r.addParam(name, sent)
		}
	}
	if r.excess != "" {
		r.params = nil
	}
	slices.SortFunc(r.params, func(a, b mirrored) int { return strings.Compare(a.name, b.name) })
}

func (r *request) addParam(name string, sent []string) {
	if r.params == nil {
		r.params = make([]mirrored, 0, 8) // most calls have fewer
	}
	param := mirrored{name: name}
	for _, line := range sent {
		param.add(line)
	}
	r.params = append(r.params, param)
}

// paramExcess is the reason to refuse this many headers of this size together,
// empty if there is none.
func (p *Policy) paramExcess(lines, size int) string {
	switch {
	case p.Params == Off:
		return ""
	case lines > maxParams:
		return "params_too_many"
	case size > maxParamBytes:
		return "params_too_large"
	}
	return ""
}

// readBound reads the values of the bindings, once for all of them and for rows
// 10 and 21.
func (r *request) readBound() {
	if r.bound == nil && r.bindings != nil && len(r.bindings.list) > 0 {
		r.bound, r.variant = r.msg.ArgumentsAt(r.bindings.paths)
	}
}

// exactArguments is row 10 for the members of arguments that lead to a bound
// parameter. A server that ignores case would read another value than the one
// that was checked.
func (r *request) exactArguments() *Refusal {
	r.readBound()
	if !r.variant.Found {
		return nil
	}
	return refuse("argument_case_variant", "the arguments have a member that is "+echo(r.variant.Exact)+" in another case, or continued after a NUL character; parsers disagree on which one counts")
}

// fewParams is row 21 before anything is decoded.
func (r *request) fewParams() *Refusal {
	switch r.excess {
	case "params_too_many":
		return refuse(r.excess, "more than "+strconv.Itoa(maxParams)+" Mcp-Param headers were sent; send fewer")
	case "params_too_large":
		return refuse(r.excess, "the Mcp-Param headers together are longer than "+strconv.Itoa(maxParamBytes)+" bytes; send shorter ones")
	}
	return nil
}

// paramsAgree is row 21. Bindings and headers are both in the order of the
// headers' names.
func (r *request) paramsAgree() *Refusal {
	r.readBound()
	sent := r.params
	for i := range r.bound {
		b := &r.bindings.list[i]
		for len(sent) > 0 && sent[0].name < b.Header {
			if refusal := r.unrecognized(&sent[0]); refusal != nil {
				return refusal
			}
			sent = sent[1:]
		}
		var header *mirrored
		if len(sent) > 0 && sent[0].name == b.Header {
			header, sent = &sent[0], sent[1:]
		}
		if refusal := r.paramAgrees(b, r.bound[i], header); refusal != nil {
			return refusal
		}
	}
	for i := range sent {
		if refusal := r.unrecognized(&sent[i]); refusal != nil {
			return refusal
		}
	}
	return nil
}

// unrecognized judges a header that no binding explains. Nothing is wrong with
// it but that nobody knows what it should say.
func (r *request) unrecognized(header *mirrored) *Refusal {
	switch {
	case r.policy.Params != Require:
		return nil
	case r.bindings == nil && r.msg.Method == "tools/call":
		return refuse("param_unknown_tool", echo(header.name)+" was sent with a call of "+r.tool()+", whose definition is not known here, or out of date; call tools/list first")
	default:
		return refuse("param_not_bound", echo(header.name)+" was sent, and nothing that the message names has such a header; leave it out")
	}
}

// paramAgrees judges one binding: the value in the arguments and the header,
// nil if none was sent.
func (r *request) paramAgrees(b *Binding, value jsonrpc.Member, header *mirrored) *Refusal {
	if value.Type == jsonrpc.Absent || value.Type == jsonrpc.Null {
		if header != nil {
			return refuse("param_without_value", r.call(b)+" has no value for "+echo(b.Header)+" to mirror; leave the header out")
		}
		return nil
	}
	if header == nil {
		if b.Required && r.isModernRequest() {
			return r.paramMissing(b, value)
		}
		return nil
	}
	text, ok := decode(header.value)
	if !ok {
		return refuse("param_sentinel", r.call(b)+" is mirrored by "+echo(b.Header)+", which is not base64 of UTF-8 in its one canonical spelling; "+r.adviseParam(value))
	}
	if !agree(value, text, r.policy.Numeric) {
		return r.paramDiffers(b, value, text)
	}
	if r.policy.Numeric == Lenient && value.Type == jsonrpc.Number {
		text, _ = integerOf(text) // of all spellings the one that a handler may compare with
	}
	r.verify(Param{b.Name, text})
	return nil
}

// verify adds a parameter that agrees.
func (r *request) verify(param Param) {
	if r.verified == nil {
		r.verified = make([]Param, 0, len(r.params))
	}
	r.verified = append(r.verified, param)
}

// paramMissing refuses a call without the header of a value. A header that
// Caddy removes looks like one that was never sent, and no client can mend that.
func (r *request) paramMissing(b *Binding, value jsonrpc.Member) *Refusal {
	if _, ok := r.rendering(value); !ok {
		return r.paramUnrenderable(b)
	}
	if option, lost := b.Lost(); lost {
		return refuse("param_lost", r.call(b)+" has a value and no "+echo(b.Header)+", a header that Caddy removes unless its server lists it in "+option+"; send it, and tell the operator")
	}
	return refuse("param_missing", r.call(b)+" has a value and no "+echo(b.Header)+"; "+r.adviseParam(value))
}

// paramDiffers refuses a call whose header says something else.
func (r *request) paramDiffers(b *Binding, value jsonrpc.Member, text string) *Refusal {
	if _, ok := r.rendering(value); !ok {
		return r.paramUnrenderable(b)
	}
	return refuse("param_mismatch", r.call(b)+" is not what "+echo(b.Header)+" says, which is "+echo(text)+"; "+r.adviseParam(value))
}

func (r *request) paramUnrenderable(b *Binding) *Refusal {
	return refuse("param_unrenderable", r.call(b)+" has a value that "+echo(b.Header)+" cannot mirror; send a string, a boolean, or an integer of at most 2^53-1 in plain digits")
}

// rendering is the text of the header that mirrors value. What no header agrees
// with has none.
func (r *request) rendering(value jsonrpc.Member) (text string, ok bool) {
	if text, ok = value.Text(); ok {
		return text, true
	}
	text = string(value.Raw)
	if value.Type == jsonrpc.Number && r.policy.Numeric == Lenient {
		text = integerOfToken(text)
	}
	return text, agree(value, text, r.policy.Numeric)
}

// adviseParam names the header value that would agree, unless that is long.
func (r *request) adviseParam(value jsonrpc.Member) string {
	if text, ok := r.rendering(value); ok && len(encode(text)) <= echoLimit {
		return "send " + strconv.Quote(encode(text))
	}
	return "send the body's value in it"
}

// call names the tool and the parameter of a binding.
func (r *request) call(b *Binding) string {
	return "the call of " + r.tool() + ": " + echo(b.parameter())
}

// tool quotes the name of the tool that is called.
func (r *request) tool() string {
	name, _ := r.msg.Params.Name.Text()
	return echo(name)
}
