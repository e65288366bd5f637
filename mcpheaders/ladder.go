package mcpheaders

import (
	"slices"

	"github.com/caddymcp/gateway/jsonrpc"
)

// rung is one line of the admission table: what a request is refused with when
// check finds something.
type rung struct {
	row    int
	status int
	code   int
	check  func(*request) *Refusal // nil in row 4: whoever reads the body notices

	// reasons are the Reasons that check gives. The set is closed, so that a
	// metric may use it as a label.
	reasons []string
}

// ladder is the admission table of the design, in its order: the first rung
// that refuses answers.
var ladder = []rung{
	{1, 403, invalidRequest, (*request).origin, []string{"origin_repeated", "origin_null", "origin_not_allowed"}},
	{2, 405, invalidRequest, (*request).httpMethodKnown, []string{"http_method"}},
	{3, 415, invalidRequest, (*request).contentType, []string{"content_encoding", "content_type_missing", "content_type_repeated", "content_type"}},
	{4, 413, invalidRequest, nil, []string{"body_too_large"}},
	{4, 408, invalidRequest, nil, []string{"body_stalled"}},
	{4, 400, invalidRequest, nil, []string{"body_broken"}},
	{5, 400, parseError, (*request).strictJSON, problems(jsonrpc.NotJSON, jsonrpc.TooDeep)},
	{6, 400, invalidRequest, (*request).uniqueNames, problems(jsonrpc.DuplicateName, jsonrpc.TooManyMembers)},
	{7, 400, invalidRequest, (*request).notBatch, problems(jsonrpc.Batch)},
	{8, 400, invalidRequest, (*request).jsonRPC, problems(jsonrpc.NotObject, jsonrpc.CaseVariant, jsonrpc.NotVersion2, jsonrpc.NoMethod, jsonrpc.MixedKinds, jsonrpc.BadMethod, jsonrpc.BadID)},
	{8, 400, invalidRequest, (*request).exactParams, []string{"params_case_variant"}},
	{9, 400, invalidRequest, (*request).callHasID, []string{"call_without_id"}},
	{10, 400, invalidParams, (*request).readableParams, []string{"params_not_object", "tool_name_missing", "tool_name_nul", "arguments_not_object", "tool_name_lookalike"}},
	{10, 400, invalidParams, (*request).exactArguments, []string{"argument_case_variant"}},
	{11, 400, headerMismatch, (*request).hopByHop, []string{"connection_header", "trailer"}},
	{12, 400, headerMismatch, (*request).oneValue, []string{"header_repeated"}},
	{13, 400, headerMismatch, (*request).plainBytes, []string{"header_bytes", "raw_name_mismatch"}},
	{14, 400, headerMismatch, (*request).versionsAgree, []string{"version_mismatch"}},
	{15, 400, headerMismatch, (*request).versionSent, []string{"version_missing_modern", "version_missing"}},
	{16, 400, unsupportedProtocolVersion, (*request).revisionAccepted, []string{"revision_unsupported"}},
	{17, 400, invalidParams, (*request).metaVersion, []string{"meta_version_missing", "meta_version_type"}},
	{18, 400, invalidRequest, (*request).notResponse, []string{"response_modern"}},
	{19, 400, headerMismatch, (*request).methodAgrees, []string{"method_missing", "method_of_response", "method_mismatch"}},
	{20, 400, headerMismatch, (*request).nameAgrees, []string{"name_missing", "name_sentinel", "name_without_source", "name_mismatch"}},
	{21, 400, headerMismatch, (*request).fewParams, []string{"params_too_many", "params_too_large"}},
	{21, 400, headerMismatch, (*request).paramsAgree, []string{"param_missing", "param_lost", "param_without_value", "param_sentinel", "param_unrenderable", "param_mismatch", "param_unknown_tool", "param_not_bound"}},
}

// climb asks the rungs of the rows first to last in turn and returns the first
// refusal.
func climb(first, last int, r *request) *Refusal {
	for i := range ladder {
		rung := &ladder[i]
		if rung.row < first || rung.row > last || rung.check == nil {
			continue
		}
		if refusal := rung.check(r); refusal != nil {
			return rung.complete(refusal)
		}
	}
	return nil
}

// complete adds what the table says to what the check said.
func (g *rung) complete(refusal *Refusal) *Refusal {
	refusal.Row, refusal.Status, refusal.Code = g.row, g.status, g.code
	return refusal
}

// Reasons returns every Reason a Refusal can have, in the order of the
// admission table.
func Reasons() []string {
	var all []string
	for _, rung := range ladder {
		all = append(all, rung.reasons...)
	}
	return all
}

// problems are the Reasons of what jsonrpc finds: its own names.
func problems(found ...jsonrpc.Problem) []string {
	var names []string
	for _, problem := range found {
		names = append(names, problem.String())
	}
	return names
}

// ofBody completes a refusal of row 4.
func ofBody(reason, text string) *Refusal {
	i := slices.IndexFunc(ladder, func(g rung) bool { return slices.Contains(g.reasons, reason) })
	return ladder[i].complete(refuse(reason, text))
}
