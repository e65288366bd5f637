package effect

// The codes of the refusals that protect an effect. They are JSON-RPC errors
// delivered with HTTP 200, since only then do all clients show their callers
// the code and the data; only NotRecorded is a 503.
const (
	CodeDenied         = -41001 // the tool is not allowed here
	CodeInProgress     = -41004 // the effect is going on, or has happened
	CodeAmbiguous      = -41005 // whether the effect has happened is unknown
	CodeNoPrincipal    = -41007 // the configured principal is empty
	CodeNotInteger     = -41008 // a number in the arguments is no canonical integer
	CodeNoContinuation = -41009 // the requestState continues nothing that is held
	CodeNoKey          = -41013 // a part of the effect's key has no usable value
	CodeNotRecorded    = -41014 // the reservation could not be written
)

// Refusal is why a call has no effect to look up: its key or its fingerprint
// cannot be told.
type Refusal struct {
	Code        int
	Text        string // what is wrong and what to do; nothing in it is the sender's
	Placeholder string // of CodeNoKey: the part's
	Pointer     string // of CodeNotInteger: where the number stands in the arguments (RFC 6901); the sender's
}

func (r *Refusal) Error() string { return r.Text }
