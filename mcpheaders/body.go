package mcpheaders

import (
	"bytes"
	"strconv"

	"github.com/caddymcp/gateway/jsonrpc"
)

// BodyTooLarge is row 4 for a body of more than limit bytes.
func BodyTooLarge(limit int64) *Refusal {
	return ofBody("body_too_large", "the body is larger than "+strconv.FormatInt(limit, 10)+" bytes; the operator can raise max_body")
}

// BodyStalled is row 4 for a body that stopped arriving.
func BodyStalled() *Refusal {
	return ofBody("body_stalled", "the body stopped arriving; send it again, nothing was passed on")
}

// BodyBroken is row 4 for a body that ended before it was complete.
func BodyBroken() *Refusal {
	return ofBody("body_broken", "the body ended before it was complete; send it again, nothing was passed on")
}

// strictJSON is row 5.
func (r *request) strictJSON() *Refusal {
	switch problem := r.problem(); problem {
	case jsonrpc.NotJSON:
		return refuse(problem.String(), "the body is not one strict JSON text in UTF-8; send exactly one, with nothing before or after it")
	case jsonrpc.TooDeep:
		return refuse(problem.String(), "the body nests deeper than "+strconv.Itoa(jsonrpc.MaxDepth)+" levels; flatten it")
	}
	return nil
}

// uniqueNames is row 6. Of two members with one name some parsers take the
// first and some the last.
func (r *request) uniqueNames() *Refusal {
	switch problem := r.problem(); problem {
	case jsonrpc.DuplicateName:
		return refuse(problem.String(), "an object in the body has two members of one name, however they are escaped; keep one")
	case jsonrpc.TooManyMembers:
		return refuse(problem.String(), "an object in the body has more than "+strconv.Itoa(jsonrpc.MaxMembers)+" members, or with those around it more than "+strconv.Itoa(jsonrpc.MaxOpenMembers)+"; split it")
	}
	return nil
}

// notBatch is row 7. A batch has no single action to decide.
func (r *request) notBatch() *Refusal {
	if problem := r.problem(); problem == jsonrpc.Batch {
		return refuse(problem.String(), "the body is a JSON array; send each message on its own")
	}
	return nil
}

// jsonRPC is row 8, so far as it concerns the envelope. It answers for every
// problem that is left.
func (r *request) jsonRPC() *Refusal {
	switch problem := r.problem(); problem {
	case 0:
		return nil
	case jsonrpc.CaseVariant:
		return refuse(problem.String(), "a member of the body is spelled in another case than JSON-RPC spells it, or goes on after a NUL character; parsers disagree on what it means")
	case jsonrpc.NotVersion2:
		return refuse(problem.String(), `the body has no member jsonrpc that is exactly "2.0"; add it`)
	case jsonrpc.NoMethod:
		return refuse(problem.String(), "the body has no method and is no response either; add the method")
	case jsonrpc.MixedKinds:
		return refuse(problem.String(), "the body has a method and a result or error besides; send one message")
	case jsonrpc.BadMethod:
		return refuse(problem.String(), "the body's method is not a non-empty string without NUL characters, or it is spelled in another case than MCP spells it; name the method")
	case jsonrpc.BadID:
		return refuse(problem.String(), "the body's id is neither a string nor an integer; send one, or none for a notification")
	default: // NotObject, and whatever else jsonrpc learns to find
		return refuse(problem.String(), "the body is not a JSON-RPC 2.0 message; send a JSON object that is one")
	}
}

// exactParams is row 8 for the members of params that the gateway reads for
// this method. Some parsers, Go's among them, take Name for name.
func (r *request) exactParams() *Refusal {
	if r.isResponse() {
		return nil
	}
	params := &r.msg.Params
	var member string
	switch {
	case params.Variant("_meta"):
		member = "_meta"
	case params.Variant(metaVersionName):
		member = metaVersionName
	case r.source != nil && params.Variant(r.source.member):
		member = r.source.member
	case r.msg.Method == "tools/call" && params.Variant("arguments"):
		member = "arguments"
	case r.msg.Method == "tools/call" && params.Variant("requestState"):
		member = "requestState"
	default:
		return nil
	}
	return refuse("params_case_variant", "params has a member that is "+member+" in another case, or continued after a NUL character; parsers disagree on which one counts")
}

// metaVersionName is the member of _meta that names the revision.
const metaVersionName = "io.modelcontextprotocol/protocolVersion"

// callHasID is row 9. A call whose sender wants no answer can have no outcome.
func (r *request) callHasID() *Refusal {
	if r.msg.Method == "tools/call" && r.msg.Kind == jsonrpc.Notification {
		return refuse("call_without_id", "a tools/call without an id could not be answered; add an id")
	}
	return nil
}

// readableParams is row 10.
func (r *request) readableParams() *Refusal {
	params := &r.msg.Params
	if r.isResponse() || params.Type == jsonrpc.Absent && r.msg.Method != "tools/call" {
		return nil
	}
	if params.Type != jsonrpc.Absent && params.Type != jsonrpc.Object {
		return refuse("params_not_object", "params is not an object; send an object or leave it out")
	}
	if r.msg.Method != "tools/call" {
		return nil
	}
	if params.Name.Type != jsonrpc.String || isText(params.Name, "") {
		return refuse("tool_name_missing", "params.name is not a non-empty string; name the tool to call")
	}
	if bytes.IndexByte(characters(params.Name), 0) >= 0 {
		return refuse("tool_name_nul", "params.name has a NUL character, at which some servers end a name; rename the tool")
	}
	switch params.Arguments.Type {
	case jsonrpc.Object, jsonrpc.Null, jsonrpc.Absent:
	default:
		return refuse("arguments_not_object", "params.arguments is not an object; send an object or leave it out")
	}
	if tool, found := r.policy.Tools.lookalike(characters(params.Name)); found {
		return refuse("tool_name_lookalike", "the tool name looks like the configured "+echo(tool)+" and is another; call that, or rename the tool")
	}
	return nil
}
