package jsonrpc

import (
	"bytes"
	"crypto/sha256"
	"strconv"
)

// ResponseReader reads one message of the upstream that is pushed to it in pieces of any size
// while it is relayed. Its memory does not depend on the size of the message.
//
// It is strict about the grammar of JSON and about the members that decide the outcome, the
// watched ones. Duplicate names, surrogates, invalid UTF-8 and deep nesting elsewhere pass.
// The zero value is ready for the answer to a message without an id.
type ResponseReader struct {
	scanner
	id Member // the request's; a copy

	answer  Answer
	problem string                   // the first one
	row     int                      // of watched: the member whose value comes next
	seen    uint32                   // a bit for each row
	scopes  [maxScopes]responseScope // of the open levels
	head    [4]byte                  // the first bytes that are no white space
	heads   int                      // how many of them there are
	opened  bool                     // an object began
	isArray bool                     // the outermost one is an array

	place     place
	inOutcome bool // the value of OutcomeMember is an open object or array

	digest    textDigest // of result.requestState
	flatTask  string     // result.taskId, as Answer has it
	hasFlatID bool       // it is a non-empty string
}

// Answer is what was read of one message of the upstream. Of an unreadable one, only Kind,
// Problem and Doubtful are set.
type Answer struct {
	Kind     ResponseKind
	Problem  string // why the message is unreadable: one of a fixed set of texts
	Doubtful bool   // it is unreadable, but a laxer reader may find a response in it

	ID     IDMatch
	Method string // of Other; empty if longer than 256 bytes

	ResultType      string // empty if longer than 256 bytes
	HasResultType   bool
	IsError         bool
	HasRequestState bool // result.requestState is a non-empty string
	HasTaskID       bool // the result names a task, with a non-empty string: see TaskID

	// RequestState is the SHA-256 of the characters of result.requestState if there is one,
	// whatever its length and spelling. If it is not all characters (half a surrogate pair,
	// invalid UTF-8), nothing that Parse accepts has the same digest: clients repair such a text
	// in different ways, and what they send back is not what was given to them.
	RequestState [sha256.Size]byte

	// TaskID is where a CreateTaskResult has the id: in result.taskId if resultType is "task"
	// (io.modelcontextprotocol/tasks, "Task Creation"), otherwise in result.task.taskId (2025-11-25,
	// basic/utilities/tasks, "Creating Tasks"). In a result of any other type, taskId is a member
	// like any other. It is empty if longer than 256 bytes or not all characters.
	TaskID string

	// The value of a result's member result is the bytes [ResultStart, ResultEnd) of the message;
	// both are 0 for anything but a Result.
	ResultStart, ResultEnd int64

	Code int64 // error.code, or the nearest int64

	Splice Splice // where result._meta or error.data can gain a member
}

// ResponseKind is the kind of message the upstream sent.
type ResponseKind uint8

// The kinds of message the upstream sends.
const (
	Unreadable    ResponseKind = iota
	Result                     // a response with a result
	ErrorResponse              // a response with an error
	Other                      // a request or notification of the server: it has a method
)

// IDMatch is how the id of a response compares to the request's.
type IDMatch uint8

// The ids of responses.
const (
	IDAbsent IDMatch = iota
	IDNull
	IDOurs  // the same JSON type and the same value, whatever the spelling
	IDOther // any other
)

const (
	maxText = 256 // bytes of Method, ResultType and TaskID
	idSlack = 256 // bytes that a number may be longer than our id and still be recognized as it
)

// Reset prepares the reader for the answer to the message with the given id token, nil if it
// had none. The token is copied.
func (r *ResponseReader) Reset(id []byte) {
	r.scanner.reset()
	raw := r.id.Raw[:0]
	raw = append(raw, id...)
	*r = ResponseReader{scanner: r.scanner, id: Member{Raw: raw}, digest: r.digest}
	switch {
	case len(raw) == 0:
	case raw[0] == '"':
		r.id.Type = String
	default:
		r.id.Type = Number
	}
}

// Write reads the next piece of the message. It cannot fail: what is wrong with the message is
// told by Close. After an error in the JSON text it ignores its input.
func (r *ResponseReader) Write(p []byte) {
	if r.heads < len(r.head) {
		r.keepHead(p)
	}
	for len(p) > 0 && !r.Broken() {
		n, ev := r.scan(p)
		read := p[:n]
		p = p[n:]
		switch ev {
		case evNone:
			r.onCut(read)
		case evName:
			r.onName()
		case evValue:
			r.onValue(read)
		case evOpen:
			r.onOpen()
		case evClose:
			r.onClose()
		}
	}
}

// Broken reports whether it is already known that the message is no JSON text.
func (r *ResponseReader) Broken() bool {
	return r.state == broken
}

// Envelope reports whether the beginning that was read has the member of a JSON-RPC message that
// says so.
func (r *ResponseReader) Envelope() bool {
	return r.has(rowVersion)
}

// Close ends the message and returns what was read. The reader must be Reset before it reads
// another one.
func (r *ResponseReader) Close() Answer {
	if problem := r.unreadable(); problem != "" {
		return Answer{Problem: problem, Doubtful: r.doubtful()}
	}
	switch {
	case r.has(rowMethod):
		r.answer.Kind = Other
	case r.has(rowResult):
		r.answer.Kind = Result
		r.answer.Splice = r.place.splice(createMeta, r.has(rowMeta), r.has(rowOutcome))
		if r.hasFlatID && r.answer.ResultType == "task" {
			r.answer.HasTaskID, r.answer.TaskID = true, r.flatTask
		}
	default:
		r.answer.Kind = ErrorResponse
		r.answer.Splice = r.place.splice(createData, r.has(rowData), r.has(rowOutcome))
	}
	return r.answer
}

// unreadable returns why the message cannot be read as a JSON-RPC message, if so.
func (r *ResponseReader) unreadable() string {
	responds := r.has(rowResult) || r.has(rowError)
	switch {
	case r.Broken():
		return "not a JSON text"
	case r.state != atEnd:
		return "not a whole JSON object"
	case r.problem != "":
		return r.problem
	case !r.has(rowVersion):
		return "no jsonrpc"
	case r.has(rowMethod) && responds:
		return "a method together with a result or error"
	case r.has(rowResult) && r.has(rowError):
		return "both a result and an error"
	case !r.has(rowMethod) && !responds:
		return "neither a result nor an error"
	case r.has(rowError) && !r.has(rowCode):
		return "no code"
	}
	return ""
}

// doubtful reports whether an unreadable text may still be a response with a result to others:
// several texts in a row, a batch, an envelope with a member twice, another encoding. A whole
// object without a result is none, and neither is a text that never began as JSON.
func (r *ResponseReader) doubtful() bool {
	switch {
	case r.encoded():
		return true
	case !r.opened:
		return false
	}
	return r.Broken() || r.state != atEnd || r.isArray || r.has(rowResult)
}

// keepHead keeps the first bytes that are no white space.
func (r *ResponseReader) keepHead(p []byte) {
	for _, c := range p {
		if r.heads == len(r.head) {
			return
		}
		if r.heads > 0 || !isSpace(c) {
			r.head[r.heads] = c
			r.heads++
		}
	}
}

// encoded reports whether the text begins like JSON that is not in UTF-8 or has a byte order
// mark.
func (r *ResponseReader) encoded() bool {
	head := r.head[:r.heads]
	if after, ok := bytes.CutPrefix(head, []byte("\xEF\xBB\xBF")); ok {
		return len(after) == 0 || after[0] == '{' || after[0] == '[' || isSpace(after[0])
	}
	return len(head) > 0 && (head[0] == 0 || head[0] == 0xFE || head[0] == 0xFF)
}

func (r *ResponseReader) has(row int) bool {
	return r.seen&(1<<row) != 0
}

func (r *ResponseReader) fail(problem string) {
	if r.problem == "" {
		r.problem = problem
	}
}

// responseScope is what the members of an object are to the reader.
type responseScope uint8

const (
	inNothing  responseScope = iota
	inResponse               // those of the message itself
	inResult
	inTask
	inError
	inExtra // those of result._meta or error.data
)

// maxScopes is 1 + the depth of the innermost watched members.
const maxScopes = 4

// The rows of watched.
const (
	rowNone = iota
	rowVersion
	rowID
	rowMethod
	rowResult
	rowError
	rowResultType
	rowIsError
	rowRequestState
	rowTask
	rowTaskID
	rowFlatTaskID
	rowCode
	rowMeta
	rowData
	rowOutcome
)

// typeSet is a set of Types.
type typeSet uint8

func types(list ...Type) (set typeSet) {
	for _, t := range list {
		set |= 1 << t
	}
	return set
}

// anyType is the set of all types.
var anyType = types(Null, Bool, Number, String, Object, Array)

// watched are the members that are read. Those with types decide the outcome: such a member
// must be unique in its object and of one of the types. Those without only decide where a
// member can be added.
var watched = [...]struct {
	in    responseScope
	name  string
	types typeSet
	text  int           // characters of a scalar to keep
	opens responseScope // what the members are, if it is an object
}{
	rowVersion: {in: inResponse, name: "jsonrpc", types: types(String), text: len("2.0")},
	rowID:      {in: inResponse, name: "id", types: types(String, Number, Null)},
	rowMethod:  {in: inResponse, name: "method", types: types(String), text: maxText},
	rowResult:  {in: inResponse, name: "result", types: types(Object), opens: inResult},
	rowError:   {in: inResponse, name: "error", types: types(Object), opens: inError},

	rowResultType:   {in: inResult, name: "resultType", types: types(String), text: maxText},
	rowIsError:      {in: inResult, name: "isError", types: types(Bool)},
	rowRequestState: {in: inResult, name: "requestState", types: types(String), text: 1},
	rowTask:         {in: inResult, name: "task", types: types(Object), opens: inTask},
	rowTaskID:       {in: inTask, name: "taskId", types: types(String), text: maxText},
	rowFlatTaskID:   {in: inResult, name: "taskId", types: anyType, text: maxText}, // in other results it may be anything
	rowCode:         {in: inError, name: "code", types: types(Number), text: len("-9223372036854775808")},

	rowMeta:    {in: inResult, name: "_meta", opens: inExtra},
	rowData:    {in: inError, name: "data", opens: inExtra},
	rowOutcome: {in: inExtra, name: OutcomeMember},
}

// onName finds out which member comes.
func (r *ResponseReader) onName() {
	r.row = rowNone
	if r.depth >= maxScopes || r.scopes[r.depth] == inNothing {
		return
	}
	scope := r.scopes[r.depth]
	switch scope {
	case inResult, inError:
		r.place.outer.filled = true
	case inExtra:
		r.place.inner.filled = true
	}
	r.row = r.find(scope)
	if r.row == rowNone {
		return
	}
	w := &watched[r.row]
	switch {
	case !r.has(r.row):
		r.seen |= 1 << r.row
	case w.types != 0:
		r.fail("duplicate " + w.name)
	default:
		r.place.unfit = true
	}
	r.want = spelled(w.text)
	if r.row == rowID {
		r.want = spelled(len(r.id.Raw)) + idSlack
	}
}

// spelled returns the most bytes that the token of a string of that many bytes can have.
func spelled(text int) int {
	return len(`""`) + len(`\u0000`)*text
}

// find returns the row of the member of the scope that token names.
func (r *ResponseReader) find(scope responseScope) int {
	name, ok := r.text()
	if !ok {
		return rowNone
	}
	for row := range watched {
		if w := &watched[row]; w.in == scope && w.name == string(name) {
			return row
		}
	}
	return rowNone
}

// text returns the characters of the name or string that was read, if it was kept as a whole.
func (r *ResponseReader) text() ([]byte, bool) {
	if r.cut {
		return nil, false
	}
	return unquote(r.token)
}

// named returns the row of the member whose value was read or begins; none if it is of the
// wrong type.
func (r *ResponseReader) named() int {
	row := r.row
	r.row = rowNone
	if set := watched[row].types; set != 0 && set&(1<<r.typ) == 0 {
		r.fail(watched[row].name + " is of the wrong type")
		return rowNone
	}
	return row
}

// onOpen notes an object or array that begins.
func (r *ResponseReader) onOpen() {
	row := r.named()
	r.opened = r.opened || r.typ == Object
	scope := inNothing
	switch {
	case r.depth == 1 && r.typ == Object:
		scope = inResponse
	case r.depth == 1:
		r.isArray = true
		r.fail("not an object")
	case r.typ == Object:
		scope = watched[row].opens
	}
	if r.depth < maxScopes {
		r.scopes[r.depth] = scope
	}
	switch {
	case scope == inResult || scope == inError:
		r.place.outer = site{start: r.offset}
		if scope == inResult {
			r.answer.ResultStart = r.start
		}
	case scope == inExtra:
		r.place.inner = site{start: r.offset}
	case row == rowMeta || row == rowData:
		r.place.unfit = true
	case row == rowOutcome:
		r.place.outcome.start = r.start
		r.inOutcome = true
	}
}

// onClose notes the end of an object or array.
func (r *ResponseReader) onClose() {
	if r.inOutcome && r.depth == maxScopes-1 {
		r.place.outcome.end = r.offset
		r.inOutcome = false
	}
	if r.depth == 1 && r.scopes[r.depth+1] == inResult {
		r.answer.ResultEnd = r.offset
	}
}

// onCut takes what the piece that ends has of a value that goes on.
func (r *ResponseReader) onCut(read []byte) {
	if r.row == rowRequestState && r.inToken() {
		r.digestState(read)
	}
}

// digestState digests what was read of the value of requestState, without its quotes.
func (r *ResponseReader) digestState(read []byte) {
	begin, end := r.start+1-(r.offset-int64(len(read))), len(read)
	if begin > 0 {
		r.digest.reset()
	}
	if !r.inToken() {
		end--
	}
	r.digest.write(read[max(begin, 0):end])
}

// onValue notes a scalar, which ends with what was read.
func (r *ResponseReader) onValue(read []byte) {
	if r.depth == 0 {
		r.fail("not an object")
	}
	switch r.named() {
	case rowVersion:
		if text, ok := r.text(); !ok || string(text) != "2.0" {
			r.fail("jsonrpc is not 2.0")
		}
	case rowID:
		r.answer.ID = r.matchID()
	case rowMethod:
		r.answer.Method = r.shortText()
	case rowResultType:
		r.answer.ResultType, r.answer.HasResultType = r.shortText(), true
	case rowIsError:
		r.answer.IsError = r.token[0] == 't'
	case rowRequestState:
		if r.nonEmpty() {
			r.digestState(read)
			r.answer.HasRequestState, r.answer.RequestState = true, r.digest.sum()
		}
	case rowTaskID:
		r.answer.HasTaskID, r.answer.TaskID = r.nonEmpty(), r.shortText()
	case rowFlatTaskID:
		if r.typ == String {
			r.hasFlatID, r.flatTask = r.nonEmpty(), r.shortText()
		}
	case rowCode:
		r.answer.Code = r.code()
	case rowMeta, rowData:
		r.place.unfit = true
	case rowOutcome:
		r.place.outcome = span{r.start, r.offset}
	}
}

// matchID compares the id that was read to the request's.
func (r *ResponseReader) matchID() IDMatch {
	switch {
	case r.typ == Null, r.isServerError():
		return IDNull
	case r.typ != r.id.Type || r.cut:
		return IDOther
	case r.typ == Number && EqualNumbers(r.token, r.id.Raw):
		return IDOurs
	case r.typ == String && equalStrings(r.token, r.id.Raw):
		return IDOurs
	}
	return IDOther
}

// isServerError reports whether the id that was read is the one that the Python SDK gives errors
// of its transport in place of null.
func (r *ResponseReader) isServerError() bool {
	const id = `"server-error"`
	return !r.cut && string(r.token) == id && string(r.id.Raw) != id
}

// equalStrings reports whether two JSON strings have the same characters.
func equalStrings(a, b []byte) bool {
	x, okX := unquote(a)
	y, okY := unquote(b)
	return okX && okY && bytes.Equal(x, y)
}

// nonEmpty reports whether the string that was read has characters.
func (r *ResponseReader) nonEmpty() bool { return len(r.token) > len(`""`) }

// shortText returns the string that was read, if it has at most maxText bytes.
func (r *ResponseReader) shortText() string {
	text, ok := r.text()
	switch {
	case !ok || len(text) > maxText:
		return ""
	case string(text) == "complete": // the usual one, without an allocation
		return "complete"
	}
	return string(text)
}

// code returns the integer that was read, or the nearest int64.
func (r *ResponseReader) code() int64 {
	if !r.integer {
		r.fail("code is no integer")
	}
	code, _ := strconv.ParseInt(string(r.token), 10, 64)
	return code
}
