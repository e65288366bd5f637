package jsonrpc

import "strings"

// methods are the methods a client sends in any supported revision, so that their names need
// not be allocated for each message.
var methods = internTable(
	"initialize", "ping", "server/discover",
	"tools/list", "tools/call",
	"prompts/list", "prompts/get",
	"resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe",
	"completion/complete", "logging/setLevel", "subscriptions/listen",
	"tasks/list", "tasks/get", "tasks/result", "tasks/update", "tasks/cancel",
	"notifications/initialized", "notifications/cancelled", "notifications/progress",
	"notifications/roots/list_changed", "notifications/tasks/status",
)

func internTable(names ...string) map[string]string {
	table := make(map[string]string, len(names))
	for _, name := range names {
		table[name] = name
	}
	return table
}

func methodName(text []byte) string {
	if name, ok := methods[string(text)]; ok {
		return name
	}
	return string(text)
}

// isMethodVariant reports whether name is a case variant of one of these methods. A server that
// folds case would run it, and a tool with it, past everything that is configured for tools/call.
func isMethodVariant(name string) bool {
	if _, ok := methods[name]; ok {
		return false
	}
	for method := range methods {
		if strings.EqualFold(method, name) {
			return true
		}
	}
	return false
}
