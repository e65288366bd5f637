package mcpheaders

import "github.com/caddymcp/gateway/jsonrpc"

// Name returns what the message names according to its body: the tool, prompt,
// resource or task that Mcp-Name mirrors (row 20). It is empty for methods that
// name nothing, and where the body has no string in that place.
func Name(msg *jsonrpc.Message) string {
	source := sourceOf(msg.Method)
	if source == nil {
		return ""
	}
	name, _ := source.value(&msg.Params).Text()
	return name
}
