package outcome

import "net/http"

// row is one line of the design's outcome table.
type row struct {
	Verdict
	fits func(*Observation) bool
}

// table is the design's outcome table in its order. Where one line of the
// design holds several conditions that are told apart in metrics, each has a
// row here. Exactly four observations are Failed; a test pins them.
var table = []row{
	{Verdict{"never_connected", Failed, NotSent}, neverConnected},
	{Verdict{"result_despite_refusal", Ambiguous, Upstream}, resultDespiteRefusal},
	{Verdict{"http_refusal", Failed, Upstream}, httpRefusal},
	{Verdict{"complete", Committed, Upstream}, complete},
	{Verdict{"tool_error_not_executed", Failed, Upstream}, toolErrorNotExecuted},
	{Verdict{"tool_error", Ambiguous, Upstream}, toolError},
	{Verdict{"input_required", Held, Upstream}, inputRequiredWithState},
	{Verdict{"input_required_without_state", Ambiguous, Upstream}, inputRequired},
	{Verdict{"task", Deferred, Upstream}, task},
	{Verdict{"complete_legacy", Committed, Upstream}, completeLegacy},
	{Verdict{"unknown_result_type", Ambiguous, Upstream}, anyResult},
	{Verdict{"error_before_dispatch", Failed, Upstream}, errorBeforeDispatch},
	{Verdict{"error", Ambiguous, Upstream}, anyError},
	{Verdict{"redirect", Ambiguous, Upstream}, redirect},
	{Verdict{"error_without_id", Ambiguous, Upstream}, errorWithoutID},
	{Verdict{"encoded", Ambiguous, Upstream}, encoded},
	{Verdict{"sent", Ambiguous, Unknown}, sent},
	{Verdict{"response_cut", Ambiguous, Unknown}, responseCut},
	{Verdict{"result_under_error_status", Ambiguous, Unknown}, resultUnderErrorStatus},
	{Verdict{"wrong_id", Ambiguous, Unknown}, wrongID},
	{Verdict{"stream_ended", Ambiguous, Unknown}, streamEnded},
	{Verdict{"unreadable", Ambiguous, Unknown}, unreadable},
	{Verdict{"http_status", Ambiguous, Unknown}, httpStatus},
	{Verdict{"client_gone", Ambiguous, Nothing}, clientGone},
}

// Names returns the observations' names in the table's order: the bounded set
// of labels that metrics use.
func Names() []string {
	names := make([]string, len(table))
	for i := range table {
		names[i] = table[i].Observation
	}
	return names
}

// Verdicts returns every verdict that Decide can give for a stage of this
// package, so that metrics can begin with all of them at zero.
func Verdicts() []Verdict {
	verdicts := make([]Verdict, 0, len(table))
	for i := range table {
		verdicts = append(verdicts, table[i].Verdict)
		for _, modified := range [...]Verdict{table[i].unproven(), table[i].untraceable()} {
			if modified != table[i].Verdict {
				verdicts = append(verdicts, modified)
			}
		}
	}
	return verdicts
}

// beforeDispatch is the closed set of codes that the specification defines as
// sent before a request is dispatched (JSON-RPC 2.0 section 5.1; MCP
// 2026-07-28, basic/index "Error Codes"). An operator can take codes out of
// it, nothing adds one. That a server sends them only then is its word: a
// declared limit.
var beforeDispatch = [...]int64{
	-32700, // parse error
	-32600, // invalid request
	-32601, // method not found
	-32602, // invalid params
	-32020, // header mismatch
	-32021, // missing required client capability
	-32022, // unsupported protocol version
}

// BeforeDispatch reports whether code belongs to the closed set.
func BeforeDispatch(code int64) bool {
	for _, c := range beforeDispatch {
		if c == code {
			return true
		}
	}
	return false
}

func neverConnected(o *Observation) bool { return o.Stage == NeverConnected }

// The status says no and the body says yes, or may say so to a laxer reader:
// neither is believed.
func resultDespiteRefusal(o *Observation) bool {
	if refuses(o) && (o.Message == Result || o.Doubtful) {
		return true
	}
	return ours(o, Result) && (o.Status == http.StatusForbidden || o.Status == http.StatusNotFound)
}

// A body in a coding that was not asked for may hold anything.
func httpRefusal(o *Observation) bool { return refuses(o) && !o.Encoded }

// These refusals are made before a request is dispatched: authentication and
// scope (basic/authorization "Error Handling"), and the session that is gone
// (2025-11-25 transports "Session Management", item 3). A 403 or 404 of any
// other kind may come from the tool.
func refuses(o *Observation) bool {
	if o.Stage != Answered {
		return false
	}
	switch o.Status {
	case http.StatusUnauthorized:
		return true
	case http.StatusForbidden:
		return o.Challenge
	case http.StatusNotFound:
		return !o.Modern && o.Session
	}
	return false
}

func complete(o *Observation) bool {
	return accepted(o) && o.HasResultType && o.ResultType == "complete" && !o.IsError
}

// The operator asserted something about the tool's errors, not about answers
// whose kind nobody knows.
func toolErrorNotExecuted(o *Observation) bool {
	return toolError(o) && o.NotExecutedOnError && (o.HasResultType && o.ResultType == "complete" || legacyResult(o))
}

func toolError(o *Observation) bool { return accepted(o) && o.IsError }

func inputRequiredWithState(o *Observation) bool { return inputRequired(o) && o.RequestState }

func inputRequired(o *Observation) bool { return accepted(o) && o.ResultType == "input_required" }

func task(o *Observation) bool {
	return accepted(o) && (o.ResultType == "task" || legacyResult(o) && o.TaskID)
}

func completeLegacy(o *Observation) bool { return accepted(o) && legacyResult(o) }

// On a modern revision an absent resultType is malformed, and a malformed
// answer about a consequential call is an unknown outcome, not a success.
func anyResult(o *Observation) bool { return accepted(o) }

// The error must be all that was answered: after another event the request had
// been dispatched. Without an id it is ours only where the status, too, says
// that the request was refused.
func errorBeforeDispatch(o *Observation) bool {
	if o.LaterEvent || o.CodeIsAmbiguous || !BeforeDispatch(o.Code) {
		return false
	}
	return ours(o, Error) && !rulesOutAnID(o.Code) || anonymousError(o)
}

// rulesOutAnID: a server that could not parse the request, or saw no request in
// it, does not know its id, and admission lets neither pass. Under the id of the
// call these codes come from behind the dispatch: the Python SDK answers -32600
// when a running tool asks its client for something that cannot be asked.
func rulesOutAnID(code int64) bool { return code == -32700 || code == -32600 }

func anyError(o *Observation) bool { return ours(o, Error) }

func redirect(o *Observation) bool {
	return o.Stage == Answered && o.Status >= 300 && o.Status < 400
}

// A legacy server's 400 must reach dual-era clients as it is, or they cannot
// fall back.
func errorWithoutID(o *Observation) bool { return anonymousError(o) }

func encoded(o *Observation) bool { return o.Stage == Answered && o.Encoded }

// Neither a response nor a proof: a timeout, a reset, a protocol error.
func sent(o *Observation) bool { return o.Stage == Sent }

func responseCut(o *Observation) bool { return o.Stage == Cut && !o.Stream }

func resultUnderErrorStatus(o *Observation) bool { return ours(o, Result) }

func wrongID(o *Observation) bool { return o.Stage == Answered && o.Message != None }

func streamEnded(o *Observation) bool {
	return o.Stream && (o.Stage == Answered || o.Stage == Cut)
}

func unreadable(o *Observation) bool { return o.Stage == Answered && success(o) }

func httpStatus(o *Observation) bool { return o.Stage == Answered }

func clientGone(o *Observation) bool { return o.Stage == ClientGone }

func ours(o *Observation, m Message) bool {
	return o.Stage == Answered && o.Message == m && o.ID == Ours
}

// accepted: a result with our id under a status that does not contradict it.
func accepted(o *Observation) bool { return ours(o, Result) && success(o) }

func success(o *Observation) bool { return o.Status >= 200 && o.Status < 300 }

func legacyResult(o *Observation) bool { return !o.Modern && !o.HasResultType }

// anonymousError: an error that names no request, under a status that says
// that the request was refused.
func anonymousError(o *Observation) bool {
	return o.Stage == Answered && o.Message == Error && o.ID == Absent && o.Status >= 400 && o.Status < 500
}
