package gateway

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

var update = flag.Bool("update", false, "write the adapt goldens anew")

const separator = "----------\n"

// TestAdapt adapts every Caddyfile in testdata/adapt and compares the JSON with
// what stands below it. Every syntax form has one.
func TestAdapt(t *testing.T) {
	files, err := filepath.Glob("testdata/adapt/*.caddytest")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source, want, ok := bytes.Cut(text, []byte(separator))
			if !ok {
				t.Fatalf("no separator line in %s", file)
			}
			got := adapt(t, source)
			if *update {
				golden := append(append(bytes.Clone(source), separator...), got...)
				if err := os.WriteFile(file, golden, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if !bytes.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func adapt(t *testing.T, source []byte) []byte {
	t.Helper()
	js, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt(source, map[string]any{"filename": "Caddyfile"})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range warnings {
		t.Errorf("warning: %s", w)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, js, "", "\t"); err != nil {
		t.Fatal(err)
	}
	return append(b.Bytes(), '\n')
}

// Errors name the option, say what is right, and end with the file and line.
func TestCaddyfileErrors(t *testing.T) {
	tests := []struct{ block, want string }{
		{"enforce", "enforce needs exactly one word: on or off"},
		{"enforce maybe", `enforce is "maybe": it must be on or off`},
		{"enforce on off", "enforce needs exactly one word"},
		{"enforce on\nenforce off", "enforce is given twice"},
		{"max_body", "max_body needs exactly one size, as in 4MiB"},
		{"max_body 5parsecs", `parsing max_body "5parsecs"`},
		{"max_body 0", "max_body is 0: it must be a positive number of bytes"},
		{"max_body 16EiB", "parsing max_body"},
		{"max_body 9EiB", "it must be a positive number of bytes"},
		{"response_buffer -1", "parsing response_buffer"},
		{"max_held 0", "max_held is 0"},
		{"max_held 1MiB", "max_held is 1048576: it must be at least max_body and response_buffer together, 5242880"},
		{"max_body 300MiB", "max_held is 268435456: it must be at least"},
		{"max_held 10MiB\nresponse_buffer 8MiB", "max_held is 10485760: it must be at least"},
		{"origins", "origins needs at least one value"},
		{"origins https://a.example/path", `parsing origin "https://a.example/path"`},
		{"origins *", `parsing origin "*"`},
		{"revisions", "revisions needs at least one value"},
		{"revisions 2024-11-05", `revision "2024-11-05" is not known: the known ones are [2025-03-26`},
		{"numeric_match loose", `numeric_match is "loose": it must be canonical or lenient`},
		{"raw_names maybe", `raw_names is "maybe": it must be refuse or allow`},
		{"ambiguous_codes", "ambiguous_codes needs at least one value"},
		{"ambiguous_codes x", `parsing ambiguous_codes: "x" is not an integer`},
		{"ambiguous_codes -32603", "an error with code -32603 is ambiguous already"},
		{"tool", "tool needs exactly one name or pattern"},
		{"tool a b", "tool needs exactly one name or pattern"},
		{"tool a*b", "a star may stand only at the end"},
		{`tool ""`, "a tool needs a name or a pattern"},
		{"tool {env.TOOL}", `tool pattern "{env.TOOL}": placeholders are not replaced here`},
		{"tool a\ntool a", `tool "a" is configured twice`},
		{"tool a {\nnot_executed_on_error yes\n}", "not_executed_on_error takes no argument"},
		{"tool a {\nambiguous_codes 1\n}", "an error with code 1 is ambiguous already"},
		{"tool a {\ncolour x\n}", `unrecognized option "colour" of tool "a"`},
		{"tool a {\neffect\n}", "effect needs the parts of a key"},
		{"tool a {\neffect x\n}", `effect "x" has no placeholder: every call would be the same effect`},
		{"tool a {\neffect x-{http.mcp.args.id}\n}", "separate parts with spaces"},
		{"tool a {\neffect {http.mcp.param.Id}\n}", "use {http.mcp.args.PATH}"},
		{"tool a {\neffect refund {http.mcp.id}\n}", "effect: {http.mcp.id} is another one for each request, and a repeat would be another effect"},
		{"tool a {\neffect refund {http.request.uuid}\n}", "{http.request.uuid} is another one for each request"},
		{"tool a {\neffect {http.request.header.mcp-Param-Id}\n}", "use {http.mcp.args.PATH}"},
		{"tool a {\neffect {http.request.header.Mcp-Name}\n}", "use {http.mcp.args.PATH}"},
		{"tool a {\neffect {http.mcp.args.id}\neffect {http.mcp.args.id}\n}", "effect is given twice"},
		{"tool a {\ninput_required_is_uncommitted\n}", "input_required_is_uncommitted says something of an effect"},
		{"tool a {\ninput_required_is_uncommitted yes\n}", "input_required_is_uncommitted takes no argument"},
		{"tool a {\nreconcile http://x\n}", "reconcile asks about an effect"},
		{"tool a {\neffect {http.mcp.args.id}\nreconcile\n}", "reconcile needs exactly one URL"},
		{"tool a {\neffect {http.mcp.args.id}\nreconcile_timeout 1s\n}", "reconcile needs a URL"},
		{"tool a {\neffect {http.mcp.args.id}\nreconcile ftp://x\n}", `"ftp://x" is no http or https URL`},
		{"tool a {\nreconcile_header A\n}", "reconcile_header needs a name and a value"},
		{"tool a {\nreconcile_header \"A B\" c\n}", `"A B" is not the name of a header`},
		{"tool a {\nreconcile_timeout 0s\n}", "reconcile_timeout is 0s: it must be a positive time"},
		{"namespace {env.NS}", `namespace "{env.NS}": placeholders are not replaced here`},
		{"principal", "principal needs exactly one text"},
		{"principal \"\"", "principal needs exactly one text"},
		{"principal \"{http.auth.user.id\"", "every caller would be the same"},
		{"principal gateway", "every caller would be the same"},
		{"drain", "drain needs exactly one duration"},
		{"drain soon", `parsing drain "soon"`},
		{"drain 0s", "drain is 0s: it must be a positive time"},
		{"settle_after -1s", "settle_after is -1s"},
		{"join 200y", "parsing join"},
		{"retain 40000d", "retain is 960000h0m0s: it must be a positive time, and not more than 100 years"},
		{"elicitation_rounds", "elicitation_rounds needs exactly one number"},
		{"elicitation_rounds many", `parsing elicitation_rounds: "many" is not a number`},
		{"elicitation_rounds 0", "elicitation_rounds is 0: it must be from 1 to 1000000"},
		{"max_joined 1e3", `parsing max_joined: "1e3" is not a number`},
		{"keep_arguments yes", "keep_arguments takes no argument"},
		{"replay", "replay needs a size"},
		{"replay off 1h", "replay off takes no duration"},
		{"replay 1KiB off", "replay needs a size"},
		{"replay 1KiB 0s", "replay is 0s"},
		{"replay 0", "replay is 0: it must be a positive number of bytes"},
		{"caller X-User host", "caller: host is the same for all callers of a site"},
		{"join 1s\njoin 2s", "join is given twice"},
		{"deny", "deny needs at least one value"},
		{"deny a*b", `denied tool pattern "a*b": a star may stand only at the end`},
		{"deny a\ndeny b {env.TOOL}", `denied tool pattern "{env.TOOL}": placeholders are not replaced here`},
		{`deny ""`, "a denied tool needs a name or a pattern"},
		{"allow_only", "allow_only needs at least one value"},
		{"allow_only a *b", `allowed tool pattern "*b": a star may stand only at the end`},
		{"max_bodi 1", `unrecognized option "max_bodi"`},
	}
	for _, tt := range tests {
		t.Run(tt.block, func(t *testing.T) {
			source := "localhost {\nmcp_gateway /mcp {\n" + tt.block + "\n}\n}\n"
			_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(source), map[string]any{"filename": "Caddyfile"})
			if err == nil {
				t.Fatal("adapted without an error")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q, want it to contain %q", err, tt.want)
			}
			if !strings.Contains(err.Error(), "at Caddyfile:") {
				t.Errorf("got %q, want it to name the file and line", err)
			}
		})
	}
	t.Run("argument outside the block", func(t *testing.T) {
		_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte("localhost {\nmcp_gateway /mcp on\n}\n"), nil)
		if err == nil || !strings.Contains(err.Error(), `unexpected argument "on"`) {
			t.Errorf("got %v", err)
		}
	})
}

func TestGlobalOptionErrors(t *testing.T) {
	tests := []struct{ option, want string }{
		{"mcp_gateway on", `unexpected argument "on": the options stand in a block, at Caddyfile:2`},
		{"mcp_gateway {\nledgers sqlite\n}", `unrecognized option "ledgers", at Caddyfile:3`},
		{"mcp_gateway {\nledger\n}", "ledger needs the name of a store, as in: ledger sqlite, at Caddyfile:3"},
		{"mcp_gateway {\nledger paper\n}", "module not registered: mcp_gateway.ledgers.paper, at Caddyfile:3"},
		{"mcp_gateway {\nledger sqlite\nledger sqlite\n}", "ledger is given twice, at Caddyfile:4"},
		{"mcp_gateway {\nledger sqlite \"\"\n}", "the path of the ledger is empty, at Caddyfile:3"},
		{"mcp_gateway {\nledger sqlite a b\n}", `unexpected "b": ledger sqlite takes one path and no block, at Caddyfile:3`},
		{"mcp_gateway {\nledger sqlite a {\nmode\n}\n}", `unexpected "mode": ledger sqlite takes one path and no block, at Caddyfile:4`},
		{"mcp_gateway {\n}\nmcp_gateway {\n}", "the global option mcp_gateway is given twice, at Caddyfile:4"},
	}
	for _, tt := range tests {
		t.Run(tt.option, func(t *testing.T) {
			source := "{\n" + tt.option + "\n}\nlocalhost {\n}\n"
			_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(source), map[string]any{"filename": "Caddyfile"})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to contain %q", err, tt.want)
			}
		})
	}
}
