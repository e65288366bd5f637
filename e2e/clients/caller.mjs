// Clients written with the TypeScript SDK that do what they are told, one line of JSON for each command on standard input,
// and answer each with a line that carries its id: {"id", "result"}, or {"id", "failure", "code", "data"}.
import { createInterface } from "node:readline";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const clients = new Map();
const calls = new Map(); // by the id of the command

const commands = {
  async connect({ client: name, endpoint, revision, user, login, answer }) {
    const client = new Client(
      { name: "caller-test-typescript", version: "1.0.0" },
      {
        capabilities: { elicitation: {} },
        ...(revision >= "2026-07-28"
          ? { versionNegotiation: { mode: { pin: revision } } }
          : { versionNegotiation: { mode: "legacy" }, supportedProtocolVersions: [revision] }),
      },
    );
    client.setRequestHandler("elicitation/create", async () =>
      answer === "accept" ? { action: answer, content: { confirmed: true } } : { action: answer },
    );
    let token = 1;
    const authProvider = login ? { token: async () => `token ${token}`, onUnauthorized: async () => void token++ } : undefined;
    const requestInit = user ? { headers: { "x-user": user } } : undefined;
    await client.connect(new StreamableHTTPClientTransport(new URL(endpoint), { authProvider, requestInit }));
    clients.set(name, client);
    await client.listTools();
  },

  async call({ id, client, tool, arguments: args }) {
    const abort = new AbortController();
    calls.set(id, abort);
    try {
      return await clients.get(client).callTool({ name: tool, arguments: args }, { signal: abort.signal });
    } finally {
      calls.delete(id);
    }
  },

  async abort({ call }) {
    calls.get(call)?.abort("enough");
  },

  async close({ client }) {
    await clients.get(client).close();
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  const { id } = command;
  commands[command.do](command).then(
    (result) => console.log(JSON.stringify({ id, result: result ?? {} })),
    (error) => console.log(JSON.stringify({ id, failure: String(error), code: Number(error?.code) || 0, data: error?.data })),
  );
}
process.exit();
