package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// runCommand runs `caddy mcp-gateway` and returns what it prints.
func runCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := &cobra.Command{Use: "mcp-gateway", SilenceUsage: true} // as Caddy is
	buildCommand(cmd)
	var out, problems bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&problems)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// printed runs a command that must not fail and returns what it prints, with
// one time for all and without the blanks at the ends of lines.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	out, err := runCommand(t, args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	var b strings.Builder
	for line := range strings.Lines(times.ReplaceAllString(out, someTime)) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

// someTime is TIME in what is wanted.
const someTime = "2026-07-28T00:00:00Z"

func wantText(t *testing.T, got, want string) {
	t.Helper()
	if want = strings.ReplaceAll(want, "TIME", someTime); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What people read.
func TestCommandOutput(t *testing.T) {
	a := newAdminTest(t)
	at := "--address=" + a.admin
	if got := printed(t, "effects", at); got != "" {
		t.Errorf("of no effects: %q", got)
	}
	if got := printed(t, "receipts", at); got != "" {
		t.Errorf("of no receipts: %q", got)
	}
	a.call("/a/1?outcome=ambiguous")
	a.call("/a/2?outcome=committed")
	a.call("/3")

	wantText(t, printed(t, at), `Ledger:               spy TestCommandOutput, for several hosts
Namespace:            (no name)
  protected:          send
Namespace:            payments
  protected:          create_refund
  without an effect:  list_*
Effects:
  executing:          1
  held:               0
  deferred:           0
  committed:          1
  failed:             0
  ambiguous:          1, the oldest since TIME (1h0m ago)
`)
	wantText(t, printed(t, "effects", at), `STATE      ATTEMPT  SINCE                            TOOL           NAMESPACE  KEY
executing  1        TIME (1h0m ago)  create_refund             ["3"]
ambiguous  1        TIME (1h0m ago)  create_refund  payments   ["1"]
committed  1        TIME (1h0m ago)  create_refund  payments   ["2"]
`)
	wantText(t, printed(t, "effects", at, "--state=ambiguous", "--older-than=1m", "--limit=1"), `STATE      ATTEMPT  SINCE                            TOOL           NAMESPACE  KEY
ambiguous  1        TIME (1h0m ago)  create_refund  payments   ["1"]
`)
	if got := printed(t, "effects", at, "--limit=1"); !strings.HasSuffix(got, "\nThere are more: name a state or an age, or a greater --limit.\n") {
		t.Errorf("a list that is cut: %s", got)
	}
	shown := printed(t, "show", at, `["1"]`, "--namespace=payments")
	wantText(t, regexp.MustCompile(`57m\d+s`).ReplaceAllString(shown, "57m"), `Namespace:    payments
Key:          ["1"]
State:        ambiguous since TIME (1h0m ago)
Attempt:      1, last active TIME (1h0m ago)
Resolve:      as committed now, as failed from TIME (57m ago)
Tool:         create_refund
Who:          alice
Upstream:     127.0.0.1:9000
Revision:     2026-07-28
Observation:  test
Fingerprint:  0000000000000000000000000000000000000000000000000000000000000000

AT                    ATTEMPT  EVENT              STATE                  OBSERVATION  WHO    WHY
TIME  1        call_same          none > executing                    alice
TIME  1        outcome_ambiguous  executing > ambiguous  test         alice
`)
	if got := printed(t, "show", at, `["2"]`, "--namespace=payments"); !strings.Contains(got, "Stored result:  22 bytes until TIME"[:30]) {
		t.Errorf("got %s", got)
	}
	if got := printed(t, "show", at, `["3"]`); !strings.Contains(got, "\nDeadline:     ") {
		t.Errorf("got %s", got)
	}

	verdict := []string{at, "--namespace=payments", "--attempt=1", "--who=carol", "--why=looked at the books"}
	wantText(t, printed(t, append(verdict, "resolve", `["1"]`, "committed")...), "payments [\"1\"]: attempt 1 is committed\n")
	wantText(t, printed(t, append(verdict, "reopen", `["1"]`)...), "payments [\"1\"]: attempt 1 is failed\n")
	wantText(t, printed(t, "receipts", at, "--limit=3"), `AT                               ATTEMPT  EVENT              STATE                  TOOL           WHO    NAMESPACE  KEY
TIME (1h0m ago)  1        reopen             committed > failed     create_refund  carol  payments   ["1"]
TIME (1h0m ago)  1        resolve_committed  ambiguous > committed  create_refund  carol  payments   ["1"]
TIME (1h0m ago)  1        call_same          none > executing       create_refund  alice             ["3"]
`)
}

// With --json a command prints what the admin endpoint says, and nothing of it
// is lost on the way. It finds the endpoint in a configuration, too.
func TestCommandJSON(t *testing.T) {
	a := newAdminTest(t)
	a.call("/a/1?outcome=committed")
	for _, tt := range []struct{ endpoint, command string }{
		{"status", ""},
		{"effects?state=committed", "effects --state committed"},
		{"effect?namespace=payments&key=[%221%22]", `show ["1"] --namespace payments`},
		{"receipts?limit=1", "receipts --limit 1"},
	} {
		_, want := a.ask("GET", tt.endpoint, "")
		got, err := runCommand(t, append(strings.Fields(tt.command), "--json", "--address", a.admin)...)
		if err != nil || got != want || !json.Valid([]byte(got)) {
			t.Errorf("%s: got %s, %v, want %s", tt.command, got, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "Caddyfile")
	if err := os.WriteFile(file, []byte("{\n\tadmin "+a.admin+"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := printed(t, "effects", "--config", file); !strings.Contains(got, `["1"]`) {
		t.Errorf("got %s", got)
	}
}

// A ledger's file can be used without the admin endpoint, also while Caddy
// runs, and says the same.
func TestCommandOnFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "effects.db")
	cfg := incaddy.Config{Global: "mcp_gateway {\nledger sqlite " + file + "\n}", Site: "protect {\ntools create_refund\n}"}
	admin := withAdmin(t, &cfg)
	site := incaddy.Run(t, cfg)
	for _, path := range []string{"/1?outcome=ambiguous", "/2?outcome=committed"} {
		get(t, site.URL+path)
	}
	same := func(args ...string) string {
		t.Helper()
		over, err := runCommand(t, append(args, "--json", "--address", admin)...)
		if err != nil {
			t.Fatal(err)
		}
		direct, err := runCommand(t, append(args, "--json", "--ledger", file)...)
		if err != nil {
			t.Fatal(err)
		}
		if over != direct {
			t.Errorf("%q: the admin endpoint says %s, the file %s", args, over, direct)
		}
		return direct
	}
	same("effects")
	same("show", `["2"]`)
	same("receipts")
	if out, err := runCommand(t, "resolve", `["1"]`, "failed", "--attempt=1", "--why=w", "--ledger", file); err == nil || out != "" || !strings.Contains(err.Error(), "it can be resolved as failed only later. That is from 20") {
		t.Errorf("got %q, %v", out, err)
	}
	wantText(t, printed(t, "resolve", `["1"]`, "committed", "--attempt=1", "--why=w", "--ledger", file), "[\"1\"]: attempt 1 is committed\n")
	if got := same("receipts", "--limit=1"); !strings.Contains(got, `"event": "resolve_committed"`) || !strings.Contains(got, `"who": "`) {
		t.Errorf("got %s", got)
	}
	if got := get(t, site.URL+"/1"); got != "committed committed" { // Caddy knows of it
		t.Error(got)
	}
	if got := printed(t, "--ledger", file); !strings.HasPrefix(got, "Ledger:       "+file+", for one host\nEffects:\n") {
		t.Errorf("got %s", got)
	}
	site.Stop(t)
	if got := printed(t, "effects", "--ledger", file); !strings.Contains(got, `["2"]`) {
		t.Errorf("without Caddy: %s", got)
	}
}

// A name that is not UTF-8 is shown as well as can be.
func TestCommandOnFileWithAnyName(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("names of files are UTF-8")
	}
	file := filepath.Join(t.TempDir(), "\xff.db")
	ledger, err := (&SQLiteLedger{path: file}).Open(t.Context(), func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := ledger.Close(); err != nil {
		t.Fatal(err)
	}
	if got := printed(t, "--ledger", file); !strings.Contains(got, "\ufffd.db, for one host") {
		t.Errorf("got %q", got)
	}
}

// What fails prints nothing but the error, and makes nothing.
func TestCommandErrors(t *testing.T) {
	a := newAdminTest(t)
	at := "--address=" + a.admin
	dir := t.TempDir()
	missing := filepath.Join(dir, "effects.db")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"show", `["1"]`, at}, "There is no such effect on record."},
		{[]string{"resolve", `["1"]`, "committed", "--attempt=1", "--why=w", at}, "There is no such effect on record."},
		{[]string{"reopen", `["1"]`, "--attempt=1", "--why=w", at}, "There is no such effect on record."},
		{[]string{"show", "1", at}, "it must be a JSON array of strings"},
		{[]string{"show", at}, "accepts 1 arg(s)"},
		{[]string{"resolve", `["1"]`, at}, "accepts 2 arg(s)"},
		{[]string{"resolve", `["1"]`, "committed", at}, `required flag(s) "attempt", "why" not set`},
		{[]string{"resolve", `["1"]`, "done", "--attempt=1", "--why=w", at}, "it must be committed or failed"},
		{[]string{"resolve", "[\"\xff\"]", "committed", "--attempt=1", "--why=w", at}, "reading the key: "},
		{[]string{"lost", at}, `unknown command "lost"`},
		{[]string{"effects", "--state=lost", at}, "it must be one of [executing "},
		{[]string{"effects", "--ledger", missing}, missing + ": no such file or directory"},
		{[]string{"effects", "--ledger", dir}, "opening the ledger " + dir},
		{[]string{"show", `["1"]`, "--address=127.0.0.1:1"}, "asking the admin endpoint 127.0.0.1:1: "},
		{[]string{"show", `["1"]`, "--config", missing}, "finding the address of the admin endpoint: "},
	} {
		out, err := runCommand(t, tt.args...)
		if err == nil || !strings.Contains(err.Error(), tt.want) || out != "" {
			t.Errorf("%q: got %q, %v, want %q", tt.args, out, err, tt.want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("something was made: %v, %v", entries, err)
	}
}

// What callers choose does nothing to a terminal.
func TestPrintable(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`["refund","txn_1"]`, `["refund","txn_1"]`},
		{"Überweisung 統一", "Überweisung 統一"},
		{"a\x1b[2Jb", `a\u001b[2Jb`},
		{"a\u009bb\u202ec", `a\u009bb\u202ec`},
		{"a\nb\tc", `a\u000ab\u0009c`},
		{"\U000e0001", `\udb40\udc01`},
	} {
		if got := printable(tt.text); got != tt.want {
			t.Errorf("%q: got %s, want %s", tt.text, got, tt.want)
		}
	}
	p := newPrintout()
	bad := "\x1b]0;\u009b"
	effects := &effectView{Namespace: bad, Key: bad, Tool: bad, Who: bad, Upstream: bad, Observation: bad, Task: bad, Revision: bad}
	receipt := receiptView{Namespace: bad, Key: bad, Tool: bad, Who: bad, Why: bad, Observation: bad}
	printEffects(p, &effectsView{Effects: []*effectView{effects}})
	printEffect(p, &effectAndReceipts{effects, []receiptView{receipt}})
	printReceipts(p, &receiptsView{[]receiptView{receipt}})
	printSettled(p, effects)
	printStatus(p, &statusView{Ledger: bad, Tools: []toolsView{{bad, []string{bad}, []string{bad}}}})
	if text := string(p.bytes()); strings.ContainsAny(text, "\x1b\u009b") {
		t.Errorf("printed raw: %q", text)
	}
}

func TestShort(t *testing.T) {
	for _, tt := range []struct {
		d    time.Duration
		want string
	}{
		{0, "0s"}, {59 * time.Second, "59s"}, {90 * time.Second, "1m30s"}, {time.Hour - 1, "59m59s"},
		{25*time.Hour - time.Minute, "1d0h"}, {50 * time.Hour, "2d2h"}, {90 * time.Minute, "1h30m"},
	} {
		if got := short(tt.d); got != tt.want {
			t.Errorf("%v: got %s, want %s", tt.d, got, tt.want)
		}
	}
}

// What came too late is told apart from what changed a state.
func TestReceiptChange(t *testing.T) {
	for _, tt := range []struct {
		r    receiptView
		want string
	}{
		{receiptView{From: "executing", To: "committed", Answer: "recorded"}, "executing > committed"},
		{receiptView{From: "failed", To: "failed", Answer: "alarm"}, "failed (alarm)"},
		{receiptView{From: "failed", To: "failed", Answer: "stale"}, "failed (stale)"},
		{receiptView{From: "failed", To: "failed", Answer: "recorded"}, "failed"},
	} {
		if got := tt.r.change(); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

// asCaddy makes this test binary the caddy command.
const asCaddy = "MCP_GATEWAY_TEST_AS_CADDY"

func TestMain(m *testing.M) {
	if os.Getenv(asCaddy) != "" {
		caddycmd.Main()
		return
	}
	os.Exit(m.Run())
}

// caddyProcess is the caddy command with arguments.
func caddyProcess(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCaddy+"=1")
	return cmd
}

// Validation provisions all modules, and leaves the ledger's place as it is.
func TestValidateMakesNoLedger(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_DATA_HOME", filepath.Join(dir, "data"))
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	for _, option := range []string{"", "mcp_gateway {\nledger sqlite " + dir + "/effects.db\n}\n"} {
		file := filepath.Join(dir, "Caddyfile")
		if err := os.WriteFile(file, []byte("{\nadmin off\nauto_https off\n"+option+"}\nhttp://127.0.0.1:0 {\nprotect {\ntools a\n}\n}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := caddyProcess(t, "validate", "--config", file).CombinedOutput(); err != nil || !strings.Contains(string(out), "Valid configuration") {
			t.Errorf("got %s, %v", out, err)
		}
	}
	if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.Contains(path, "effects.db") || strings.HasSuffix(path, "mcp_gateway") {
			t.Errorf("%s was made", path)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// The command is one of Caddy's, in a process of its own.
func TestCommandOfCaddy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "effects.db")
	store := &SQLiteLedger{path: file}
	ledger, err := store.Open(t.Context(), func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Apply(t.Context(), testCall(effect.NewKey("payments", "refund", "txn_1"))); err != nil {
		t.Fatal(err)
	}
	caddy := func(args ...string) (string, error) {
		out, err := caddyProcess(t, append([]string{"mcp-gateway"}, args...)...).Output()
		return string(out), err
	}
	// This process has it open.
	if out, err := caddy("effects", "--ledger", file); err != nil || !strings.Contains(out, `create_refund  payments   ["refund","txn_1"]`) {
		t.Errorf("got %s, %v", out, err)
	}
	for _, args := range [][]string{{"show", `["refund","txn_2"]`, "--ledger", file}, {"show", "--ledger", file}, {"lost"}} {
		var failed *exec.ExitError
		if out, err := caddy(args...); out != "" || !errors.As(err, &failed) || failed.ExitCode() == 0 || len(failed.Stderr) == 0 {
			t.Errorf("%q: got %q, %v", args, out, err)
		}
	}
	if out, err := caddy("resolve", "--help"); err != nil || !strings.Contains(out, "Look first") || !strings.Contains(out, "--attempt") {
		t.Errorf("got %s, %v", out, err)
	}
	if err := ledger.Close(); err != nil {
		t.Error(err)
	}
}
