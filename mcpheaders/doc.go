// Package mcpheaders decides which requests of MCP's Streamable HTTP transport
// are admitted: it holds the headers that mirror the JSON-RPC message against
// the message itself. The headers are checked; the body is believed.
//
// The order in which a request is judged, and what it is refused with, is one
// table in ladder.go: the admission table of the design, row by row. The rows
// are found in
//
//   - http.go: rows 1 to 3, which need no body (Policy.Head);
//   - body.go: rows 4 to 10, which read the body (Policy.Message from row 5 on);
//   - mirrored.go: rows 11 to 20, which hold the headers against the body;
//   - params.go: row 21, which holds Mcp-Param headers against the arguments by
//     the bindings of the tool (bindings.go), read from its schema (schema.go).
//
// Everything here is a pure function of its arguments: bytes and headers in,
// values out.
package mcpheaders
