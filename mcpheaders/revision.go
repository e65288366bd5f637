package mcpheaders

import "slices"

// Revision is one published revision of the protocol.
type Revision struct {
	// Name is its date, as MCP-Protocol-Version spells it.
	Name string

	// Modern says that every request carries its own metadata: _meta with the
	// revision, and the mirrored headers. The 2025 revisions are legacy.
	Modern bool
}

// revisions are the known revisions, oldest first. 2024-11-05 is not among
// them: it had another transport.
var revisions = []Revision{
	{"2025-03-26", false},
	{"2025-06-18", false},
	{"2025-11-25", false},
	{"2026-07-28", true},
}

// headerless is the revision of a message without MCP-Protocol-Version
// (specification, Protocol Version Header): its clients did not know the header.
const headerless = "2025-03-26"

// Revisions returns every known revision, oldest first: the default of the
// revisions option.
func Revisions() []Revision { return slices.Clone(revisions) }

// Known finds a revision by its exact name.
func Known(name string) (Revision, bool) {
	for _, known := range revisions {
		if known.Name == name {
			return known, true
		}
	}
	return Revision{}, false
}
