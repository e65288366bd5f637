package gateway

import (
	"errors"

	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/mcpheaders"
)

// definitions are those of one page of a tools/list result.
type definitions struct {
	tools  map[string]*mcpheaders.Bindings // nil for a definition that is invalid
	public bool
	ttl    int64 // ms
	faults []fault
}

// fault is what is wrong with a tool's definition.
type fault struct {
	tool   string
	reason string // of a closed set: a metric label
	detail string
}

// The reasons of a fault that are not mcpheaders'.
const (
	faultToolRepeated = "tool_repeated"
	faultHeaderLost   = "header_lost"
)

// readDefinitions reads the definitions of a page. A tool that has two binds
// nothing: nobody knows by which one the server runs it.
func readDefinitions(list jsonrpc.ToolsPage) definitions {
	d := definitions{
		tools:  make(map[string]*mcpheaders.Bindings, len(list.Tools)),
		public: list.Public,
		ttl:    list.TTL,
	}
	for _, tool := range list.Tools {
		if _, repeated := d.tools[tool.Name]; repeated {
			d.tools[tool.Name] = nil
			d.faults = append(d.faults, fault{tool.Name, faultToolRepeated, "the list has two tools of this name"})
			continue
		}
		bindings, err := mcpheaders.ReadBindings(tool.InputSchema)
		d.tools[tool.Name] = bindings
		if invalid, ok := errors.AsType[*mcpheaders.InvalidDefinition](err); ok {
			d.faults = append(d.faults, fault{tool.Name, invalid.Reason, invalid.Error()})
		}
	}
	return d
}

// definitionFaults is every reason of a fault.
func definitionFaults() []string {
	return append(mcpheaders.DefinitionReasons(), faultToolRepeated, faultHeaderLost)
}
