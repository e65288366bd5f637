package jsonrpc

// OutcomeMember is the one member that the gateway adds to a response, to result._meta or to
// error.data.
const OutcomeMember = "io.github.caddymcp/outcome"

// Splice is where a response can gain the member OutcomeMember while every other byte stays
// as it is. The zero Splice says that there is no place for it.
type Splice struct {
	start, end     int64  // what the text takes the place of; never at 0, where an object's brace stands
	prefix, suffix string // what the text has around the value
	comma          bool   // a member follows
}

// OK reports whether there is a place: the message is a result or an error, and its _meta or
// data is absent or is the only one and an object.
func (s Splice) OK() bool { return s.end != 0 }

// Edit returns the text to put in place of the bytes [start, end) of the message, so that
// result._meta or error.data gains the member OutcomeMember with the given value, a JSON text.
// One that is there already, from a gateway of the same kind further upstream, is replaced.
// An absent _meta or data is created. The text is appended to dst.
// Edit must not be called unless OK.
func (s Splice) Edit(dst, value []byte) (start, end int64, text []byte) {
	dst = append(dst, s.prefix...)
	dst = append(dst, value...)
	dst = append(dst, s.suffix...)
	if s.comma {
		dst = append(dst, ',')
	}
	return s.start, s.end, dst
}

// place is what the reader notes of the places where a member can be added.
type place struct {
	outer   site // result or error
	inner   site // its _meta or data
	outcome span // the value of the member OutcomeMember that inner has already
	unfit   bool // inner is no object, or one of the names in question stands there twice
}

// site is an object that can gain a first member.
type site struct {
	start  int64 // after its brace
	filled bool  // it has a member
}

// span is where a value stands in the message.
type span struct{ start, end int64 }

// What the outcome's value follows where it is added: as a member of an object that is there,
// or with the object.
const (
	addMember  = `"` + OutcomeMember + `":`
	createMeta = `"_meta":{` + addMember
	createData = `"data":{` + addMember
)

// splice says where the outcome goes. If inner is to be created, create is how its text begins.
func (p *place) splice(create string, hasInner, hasOutcome bool) Splice {
	switch {
	case p.unfit:
		return Splice{}
	case hasOutcome:
		return Splice{start: p.outcome.start, end: p.outcome.end}
	case hasInner:
		return p.inner.insert(addMember, "")
	default:
		return p.outer.insert(create, "}")
	}
}

// insert returns the splice that adds a first member, which is written between prefix and suffix.
func (s site) insert(prefix, suffix string) Splice {
	return Splice{s.start, s.start, prefix, suffix, s.filled}
}
