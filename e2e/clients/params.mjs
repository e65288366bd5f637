// Calls tools with mirrored parameters, with the TypeScript SDK, after it listed them. Its arguments are the endpoint and
// a JSON array of {"name", "tool", "args"}. It writes one line of JSON for each: {"step": name, "error": text or null}.
import assert from "node:assert/strict";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [endpoint, calls] = process.argv.slice(2);
const client = new Client(
  { name: "params-test-typescript", version: "1.0.0" },
  { versionNegotiation: { mode: { pin: "2026-07-28" } } },
);
await client.connect(new StreamableHTTPClientTransport(new URL(endpoint)));
await client.listTools();
for (const call of JSON.parse(calls)) {
  let error = null;
  try {
    const result = await client.callTool({ name: call.tool, arguments: call.args });
    assert.equal(result.content[0].text, JSON.stringify(call.args));
  } catch (caught) {
    error = String(caught?.stack ?? caught);
  }
  console.log(JSON.stringify({ step: call.name, error }));
}
await client.close();
