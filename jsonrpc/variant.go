package jsonrpc

import "bytes"

// variantSet is the set of those members of Params of which a case variant was seen.
type variantSet uint8

// The names a case variant of which is told apart from an unknown member.
var (
	messageNames = byteStrings("jsonrpc", "id", "method", "params", "result", "error")
	paramsNames  = byteStrings("name", "uri", "taskId", "arguments", "requestState", "_meta")
	metaNames    = byteStrings(versionMember)
)

func byteStrings(names ...string) [][]byte {
	list := make([][]byte, len(names))
	for i, name := range names {
		list[i] = []byte(name)
	}
	return list
}

// foldedIndex returns the index of the name that the given one equals or is a case variant of,
// or -1.
func foldedIndex(names [][]byte, name []byte) int {
	for i, n := range names {
		if alike(n, name) {
			return i
		}
	}
	return -1
}

// alike reports whether two names are one under simple case folding, to a parser for which a
// name ends at a NUL character. Such a name, too, is called a case variant.
func alike(a, b []byte) bool { return bytes.EqualFold(beforeNUL(a), beforeNUL(b)) }

func beforeNUL(name []byte) []byte {
	before, _, _ := bytes.Cut(name, []byte{0})
	return before
}

// add notes a member of params or of its _meta that is not read, if it is a case variant.
func (s *variantSet) add(in scope, name []byte) {
	switch in {
	case inParams:
		if i := foldedIndex(paramsNames, name); i >= 0 {
			*s |= 1 << i
		}
	case inMeta:
		if foldedIndex(metaNames, name) >= 0 {
			*s |= 1 << len(paramsNames)
		}
	}
}

func (s variantSet) has(name string) bool {
	for i, n := range paramsNames {
		if string(n) == name {
			return s&(1<<i) != 0
		}
	}
	return name == versionMember && s&(1<<len(paramsNames)) != 0
}
