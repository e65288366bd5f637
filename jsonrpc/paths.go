package jsonrpc

import "bytes"

// Paths are places inside params.arguments, each a chain of member names, made ready to be read
// in one walk. They are only read, and so safe for concurrent use.
type Paths struct {
	root pathNode
	size int
}

// pathNode is one object on the way to a place.
type pathNode struct {
	name     []byte // the member of its parent that it is
	slot     int    // which path ends here, -1 if none
	children []pathNode
}

// NewPaths prepares paths, of which no two may be equal. A name is any text, a dot in it
// nothing special.
func NewPaths(paths [][]string) *Paths {
	p := &Paths{pathNode{slot: -1}, len(paths)}
	for slot, path := range paths {
		node := &p.root
		for _, name := range path {
			node = node.child([]byte(name))
		}
		node.slot = slot
	}
	return p
}

// child returns the node of a member, which is added if it is new.
func (n *pathNode) child(name []byte) *pathNode {
	if found := n.find(name); found != nil {
		return found
	}
	n.children = append(n.children, pathNode{name: name, slot: -1})
	return &n.children[len(n.children)-1]
}

func (n *pathNode) find(name []byte) *pathNode {
	for i := range n.children {
		if bytes.Equal(n.children[i].name, name) {
			return &n.children[i]
		}
	}
	return nil
}

// variant returns the name on a path that the given one, which is on none, equals but for case.
func (n *pathNode) variant(name []byte) (exact []byte, found bool) {
	for i := range n.children {
		if alike(n.children[i].name, name) {
			return n.children[i].name, true
		}
	}
	return nil, false
}

// Variant is a member of the arguments whose name equals one on a path under simple case
// folding, and none byte for byte. A parser that ignores case would take it for that one.
type Variant struct {
	Found bool
	Exact string // the name on the path
}

// ArgumentsAt returns the values inside params.arguments at each of the paths, in their order,
// absent where there is none, and the first case variant of a member on one of them. Parse must
// have returned nil.
func (m *Message) ArgumentsAt(paths *Paths) ([]Member, Variant) {
	r := pathReader{values: make([]Member, paths.size)}
	if m.Params.Arguments.Type == Object {
		r.text = m.Params.Arguments.Raw
		r.object(&paths.root)
	}
	return r.values, r.variant
}

// pathReader is one walk over the arguments.
type pathReader struct {
	cursor
	values  []Member
	variant Variant
}

// object reads the object at the cursor, whose members are the node's children.
func (r *pathReader) object(node *pathNode) {
	r.take()
	for r.space() != '}' {
		if r.text[r.at] == ',' {
			r.take()
			continue
		}
		child := r.member(node)
		r.space()
		r.take() // the colon
		r.space()
		r.child(child)
	}
	r.take()
}

// child reads the value at the cursor, that of a node or of a member on no path.
func (r *pathReader) child(node *pathNode) {
	start := r.at
	if node != nil && len(node.children) > 0 && r.text[start] == '{' {
		r.object(node)
	} else {
		r.value()
	}
	if node != nil && node.slot >= 0 {
		r.values[node.slot] = r.since(start)
	}
}

// member reads the name at the cursor and returns the child that it names, if one.
func (r *pathReader) member(node *pathNode) *pathNode {
	raw := r.string()
	name := raw[1 : len(raw)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		name, _ = unquote(raw)
	}
	if child := node.find(name); child != nil {
		return child
	}
	if !r.variant.Found {
		if exact, found := node.variant(name); found {
			r.variant = Variant{true, string(exact)}
		}
	}
	return nil
}
