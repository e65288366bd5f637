package mcpheaders

import "github.com/caddymcp/gateway/jsonrpc"

// Summary is what a message says of itself in its body, whatever the headers
// claim. It outlives the message, and is worth something only if Body refuses
// nothing.
type Summary struct {
	// Method is empty for a response.
	Method string

	// Name is what the message names: the tool, prompt, resource or task that
	// Mcp-Name mirrors (row 20). It is empty for methods that name nothing, and
	// where the body has no string in that place.
	Name string

	stated  bool     // _meta has a protocol version
	version Revision // that one; zero if it is none that is known
}

// Summarize reads what msg says of itself.
func Summarize(msg *jsonrpc.Message) Summary {
	s := Summary{Method: msg.Method}
	if source := sourceOf(msg.Method); source != nil {
		s.Name, _ = source.value(&msg.Params).Text()
	}
	s.stated = msg.Params.ProtocolVersion.Type != jsonrpc.Absent
	for _, known := range revisions {
		if isText(msg.Params.ProtocolVersion, known.Name) {
			s.version = known
		}
	}
	return s
}

// Revision returns the revision by which Message reads the message under this
// header, if the body bears that out. A modern revision must stand in the body,
// and what the body says must be what the header says; its absence says
// 2025-03-26 unless the body names a modern one. Only a legacy revision may
// stand in the header alone: its bodies name none.
func (s *Summary) Revision(header map[string][]string) (Revision, bool) {
	sent := collectVersion(header)
	if sent.differs {
		return Revision{}, false
	}
	settled := s.version
	if sent.sent {
		settled, _ = Known(sent.value)
	} else if !settled.Modern {
		settled, _ = Known(headerless)
	}
	borneOut := settled == s.version
	if !s.stated {
		borneOut = !settled.Modern
	}
	return settled, borneOut && settled != Revision{}
}
