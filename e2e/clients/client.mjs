// An MCP client written with the TypeScript SDK that takes the steps named in clients_test.go. Its arguments are the
// endpoint, the revision that it asks for first, and the one that it is to end up with. It writes one line of JSON for
// each step: {"step": name, "error": text or null}.
import assert from "node:assert/strict";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [endpoint, asked, revision] = process.argv.slice(2);
const isModern = (revision) => revision >= "2026-07-28";
const modern = isModern(revision);
const OUTCOME = "io.github.caddymcp/outcome";

const listChanged = Promise.withResolvers();
const client = new Client(
  { name: "clients-test-typescript", version: "1.0.0" },
  {
    capabilities: { elicitation: {} },
    versionNegotiation: { mode: !isModern(asked) ? "legacy" : modern ? { pin: asked } : "auto" },
    // The handshake of the older era asks for the first of these.
    ...(isModern(asked) ? {} : { supportedProtocolVersions: [asked] }),
    listChanged: { tools: { autoRefresh: false, debounceMs: 0, onChanged: (error) => (error ? listChanged.reject(error) : listChanged.resolve()) } },
  },
);
client.setRequestHandler("elicitation/create", async () => ({ action: "accept", content: { name: "Ada" } }));
const transport = new StreamableHTTPClientTransport(new URL(endpoint));

function wantResult(result, text, outcome) {
  assert.equal(result.content[0].text, text);
  assert.equal(result._meta?.[OUTCOME]?.outcome, outcome, "the gateway's word on the result");
}

const steps = {
  async connect() {
    await client.connect(transport);
    assert.equal(client.getNegotiatedProtocolVersion(), revision);
    assert.equal(Boolean(transport.sessionId), !modern, "a session");
  },

  async list() {
    const { tools } = await client.listTools();
    assert.deepEqual(tools.map((tool) => tool.name).sort(), ["count", "echo", "fail", "greet", "grow", "wait"]);
  },

  async call() {
    wantResult(await client.callTool({ name: "echo", arguments: { text: "zwölf", region: "eu" } }), "zwölf", "committed");
  },

  async parallel() {
    const texts = Array.from({ length: 8 }, (_, i) => `text ${i}`);
    const results = await Promise.all(texts.map((text) => client.callTool({ name: "echo", arguments: { text } })));
    results.forEach((result, i) => wantResult(result, texts[i], "committed"));
  },

  async toolError() {
    const result = await client.callTool({ name: "fail", arguments: {} });
    assert.equal(result.isError, true);
    wantResult(result, "it did not work", "ambiguous");
  },

  async refusal() {
    await assert.rejects(client.callTool({ name: "missing", arguments: {} }), (error) => {
      assert.equal(error.code, -32602);
      assert.equal(error.data?.[OUTCOME]?.outcome, "failed", "the gateway's word on the error");
      return true;
    });
  },

  async read() {
    const { contents } = await client.readResource({ uri: "test://notes/one%20two" });
    assert.equal(contents[0].text, "a note");
  },

  async prompt() {
    const { messages } = await client.getPrompt({ name: "ask", arguments: { about: "lunch" } });
    assert.equal(messages[0].content.text, "What about lunch?");
  },

  async progress() {
    const seen = [];
    const result = await client.callTool({ name: "count", arguments: {} }, { onprogress: ({ progress }) => seen.push(progress) });
    assert.deepEqual(seen, [1, 2, 3]);
    wantResult(result, "counted", "committed");
  },

  async elicit() {
    wantResult(await client.callTool({ name: "greet", arguments: {} }), "hello, Ada", "committed");
  },

  async cancel() {
    const abort = new AbortController();
    const call = client.callTool({ name: "wait", arguments: {} }, { signal: abort.signal, onprogress: () => abort.abort("enough") });
    await assert.rejects(call, /enough/);
  },

  async notified() {
    wantResult(await client.callTool({ name: "grow", arguments: {} }), "grown", "committed");
    await listChanged.promise;
  },

  async close() {
    if (!modern) {
      await transport.terminateSession();
    }
    await client.close();
  },
};

for (const [step, take] of Object.entries(steps)) {
  let error = null;
  try {
    await take();
  } catch (caught) {
    error = String(caught?.stack ?? caught);
  }
  console.log(JSON.stringify({ step, error }));
}
