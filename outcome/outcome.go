// Package outcome says what is known about a tool call from what was observed
// of it: the outcome table of the design, and nothing else.
//
// The asymmetry is the product. FAILED is said only on proof that nothing
// happened or on the word of the protocol; everything after the first byte
// that is not a clear answer is AMBIGUOUS. The package is pure: a value in, a
// value out.
package outcome

// Outcome is what is known about a call. The zero value is Ambiguous, so that
// whatever nobody decided claims nothing.
type Outcome uint8

// The outcomes, as the design's table names them.
const (
	Ambiguous Outcome = iota // it may or may not have happened
	Failed                   // it is proven not to have happened
	Committed                // it happened
	Held                     // the tool waits for input before it goes on
	Deferred                 // accepted as a task, not finished
)

// String returns the lower-case word used in logs, metrics, placeholders and
// answers.
func (o Outcome) String() string {
	switch o {
	case Failed:
		return "failed"
	case Committed:
		return "committed"
	case Held:
		return "held"
	case Deferred:
		return "deferred"
	default:
		return "ambiguous"
	}
}

// Answer is what the client gets.
type Answer uint8

// The answers of the table's last column.
const (
	// Unknown is the gateway's error -41010, delivered with HTTP 200 so that
	// no load balancer or client middleware repeats the call by itself. It is
	// the zero value: an answer nobody chose must not pass for the upstream's.
	Unknown Answer = iota
	// NotSent is the gateway's error -41011 with HTTP 502: repeating is safe.
	NotSent
	// Upstream is the upstream's own answer, marked with the outcome.
	Upstream
	// Nothing is for a client that is gone.
	Nothing
)

// Stage is how far the exchange with the upstream came.
type Stage uint8

// The stages, from the least to the most that is known. The zero value is
// Sent: without proof a request counts as sent.
const (
	Sent           Stage = iota // the request may have been sent; no final response was read
	NeverConnected              // proven: not one byte of the request was written
	ClientGone                  // the client went away before an answer was read
	Cut                         // a response began and broke off
	Answered                    // a response was read to its end, or its final message was
)

// Message is the final message that was read from the response.
type Message uint8

// The kinds of final message.
const (
	None   Message = iota // no readable JSON-RPC response
	Result                // a response with a result
	Error                 // a response with an error
)

// ID is how the message's id compares with the request's.
type ID uint8

// The comparisons; an id is ours when value and JSON type are equal.
const (
	Other  ID = iota // another id, or one of another type
	Ours             // the request's id
	Absent           // no id, or null
)

// Observation is everything about one exchange that the table looks at.
type Observation struct {
	Stage Stage

	// The request.
	Modern  bool // the revision is 2026-07-28 or later
	Session bool // it carried Mcp-Session-Id

	// The response's head.
	Status    int  // final HTTP status; 0 if there was none
	Challenge bool // it carried WWW-Authenticate
	Encoded   bool // it had a Content-Encoding, which was not asked for
	Stream    bool // it was an event stream

	// The final message.
	Message       Message
	Doubtful      bool // none was read, but a laxer reader may find one
	ID            ID
	LaterEvent    bool   // another event that carried data came before it
	HasResultType bool   // result.resultType is present
	ResultType    string // result.resultType
	IsError       bool   // result.isError is true
	RequestState  bool   // result.requestState is a non-empty string
	TaskID        bool   // the result names a task
	Code          int64  // error.code

	// What the operator said of the tool.
	NotExecutedOnError bool // an isError result means that it did not run
	CodeIsAmbiguous    bool // Code was taken out of the closed set

	// Untraceable reports that a task which the call became would be settled by
	// nothing that can be learned of it: it has no id by which it is kept.
	Untraceable bool

	// Repeated reports that more than one attempt carried the request's body.
	Repeated bool

	// Substituted reports that the body was handed out, and that the response
	// is not, or not certainly, the word of whoever got it.
	Substituted bool

	// Continues reports that the call goes on with one that asked for input.
	Continues bool
}

// Verdict is what the table makes of an observation.
type Verdict struct {
	// Observation is the name of the row that decided, from a bounded set.
	Observation string
	Outcome     Outcome
	Answer      Answer
}

// Decide reads the table from the top; the first row that fits decides.
//
// The modifiers come after it. A task of which nothing will be learned is not
// waited for. The others only ever move an outcome away from Failed:
// where a second attempt carried the body, the refusal of one says nothing
// about the other, and neither does a refusal that somebody else wrote, nor the
// failure of a later leg about those before it: SDKs run a handler again from
// its top for each.
func Decide(o *Observation) Verdict {
	v := decide(o)
	if o.Untraceable {
		v = v.untraceable()
	}
	if o.Repeated || o.Substituted || o.Continues {
		return v.unproven()
	}
	return v
}

// unproven is the verdict without the claim that nothing happened.
func (v Verdict) unproven() Verdict {
	if v.Outcome == Failed {
		v.Outcome = Ambiguous
	}
	if v.Answer == NotSent {
		v.Answer = Unknown
	}
	return v
}

// untraceable is the verdict without the promise that more will be known.
func (v Verdict) untraceable() Verdict {
	if v.Outcome == Deferred {
		v.Outcome = Ambiguous
	}
	return v
}

func decide(o *Observation) Verdict {
	for i := range table {
		if table[i].fits(o) {
			return table[i].Verdict
		}
	}
	// Every stage has a row, as a test shows; the zero Verdict claims nothing.
	return Verdict{}
}
