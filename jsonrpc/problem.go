package jsonrpc

import "strconv"

// Problem is why a request body is refused: rows 5 to 8 of the design's admission table.
type Problem uint8

// The problems, in the order in which they outrank each other.
const (
	NotJSON Problem = iota + 1 // row 5: not one strict JSON text (RFC 8259, I-JSON strings)
	TooDeep                    // row 5: nested deeper than MaxDepth

	DuplicateName  // row 6: an object with two members of one name
	TooManyMembers // row 6: an object with more than MaxMembers members, or with those around it more than MaxOpenMembers

	Batch // row 7: an array

	NotObject   // row 8: a scalar
	CaseVariant // row 8: a top-level member that is read by its exact name only, in another case or continued after a NUL character
	NotVersion2 // row 8: jsonrpc is absent or not the string "2.0"
	NoMethod    // row 8: none of method, result and error
	MixedKinds  // row 8: a method together with a result or an error
	BadMethod   // row 8: method is empty, no string, has a NUL character, or is a case variant of a known one
	BadID       // row 8: id is neither a string nor an integer literal
)

var problems = [...]struct{ name, text string }{
	NotJSON:        {"not_json", "not a JSON text"},
	TooDeep:        {"too_deep", "nested too deep"},
	DuplicateName:  {"duplicate_name", "duplicate member name"},
	TooManyMembers: {"too_many_members", "too many members in one object, or in objects inside one another"},
	Batch:          {"batch", "a batch"},
	NotObject:      {"not_object", "not an object"},
	CaseVariant:    {"case_variant", "a case variant of a JSON-RPC member"},
	NotVersion2:    {"not_version_2", "jsonrpc is not \"2.0\""},
	NoMethod:       {"no_method", "no method"},
	MixedKinds:     {"mixed_kinds", "a method together with a result or error"},
	BadMethod:      {"bad_method", "method is empty, no string, has a NUL character, or is a known one in another case"},
	BadID:          {"bad_id", "id is neither a string nor an integer"},
}

// String returns the problem's stable name in snake case, fit to label a metric.
func (p Problem) String() string {
	if int(p) >= len(problems) {
		return ""
	}
	return problems[p].name
}

// Error is why Parse refused a body. It never carries content of the body, which is the
// sender's to choose.
type Error struct {
	Problem Problem
	Offset  int64 // bytes of the body before the place where the problem was noticed
}

func (e *Error) Error() string {
	return problems[e.Problem].text + " at byte " + strconv.FormatInt(e.Offset, 10)
}
