package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/caddymcp/gateway/effect"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "mcp-gateway",
		Usage: "[effects|show|resolve|reopen|receipts]",
		Short: "Shows and settles the effects of MCP tool calls",
		Long: `
Shows which tools the running configuration protects and where their effects are
on record, and with a subcommand what is on record, and settles what nobody
knows.

It asks the admin endpoint of the Caddy that runs. Its address is that of the
--address flag, or that of the configuration in --config, or the default one.
Where the admin endpoint is off, name the ledger's file with --ledger: it can be
used while Caddy runs. Do so as the user that Caddy runs as.

  caddy mcp-gateway
  caddy mcp-gateway effects --state ambiguous
  caddy mcp-gateway show '["refund","txn_1"]'
  caddy mcp-gateway resolve '["refund","txn_1"]' committed --attempt 1 \
      --why "it is in the bank's list of 12 May"

All subcommands print for people, or with --json what the admin endpoint says.
`,
		CobraFunc: buildCommand,
	})
}

// buildCommand adds what `caddy mcp-gateway` is made of.
func buildCommand(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringP("config", "c", "", "Configuration file, to find the address of the admin endpoint in")
	flags.StringP("adapter", "a", "", "Name of config adapter to apply")
	flags.String("address", "", "Address of the admin endpoint, if different from config")
	flags.String("ledger", "", "The ledger's file, to use it without the admin endpoint")
	flags.Bool("json", false, "Print JSON")
	root.Args = cobra.NoArgs
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		return show(cmd, http.MethodGet, pathStatus, nil, nil, printStatus)
	}
	root.AddCommand(effectsCommand(), showCommand(), resolveCommand(), reopenCommand(), receiptsCommand())
}

func effectsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "effects [--state <state>] [--older-than <time>] [--limit <number>]",
		Short: "Lists effects, those first whose state began first",
		Long: `
Lists effects, those first whose state began first.

The states are executing, held and deferred, which end by themselves; committed,
which is that the effect happened; failed, which is that it is proven not to have
happened; and ambiguous, which is that nobody knows. An ambiguous effect waits
for a person who finds out: its calls are refused until it is resolved.
`,
		Example: `  caddy mcp-gateway effects --state ambiguous
  caddy mcp-gateway effects --state ambiguous --older-than 1h --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, http.MethodGet, pathEffects, queryOf(cmd, "state", "older-than", "limit"), nil, printEffects)
		},
	}
	cmd.Flags().String("state", "", "List effects in this state only")
	cmd.Flags().String("older-than", "", "List effects only that have been in their state for longer, as in 90s, 2h or 7d")
	addLimit(cmd)
	return cmd
}

func showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show <key> [--namespace <name>]",
		Short: "Shows one effect, with its receipts",
		Long: `
Shows what is on record of one effect, and the receipt of everything that
happened to it. The key is a JSON array, as it is listed, in quotes that keep the
shell from reading it. The stored result of a call is not shown.
`,
		Example: `  caddy mcp-gateway show '["refund","txn_1"]'
  caddy mcp-gateway show '["refund","txn_1"]' --namespace payments --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			query := queryOf(cmd, "namespace")
			query.Set("key", args[0])
			return show(cmd, http.MethodGet, pathEffect, query, nil, printEffect)
		},
	}
	addNamespace(cmd)
	return cmd
}

func resolveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resolve <key> committed|failed --attempt <number> --why <text> [--who <name>] [--namespace <name>]",
		Short: "Says of an ambiguous effect whether it happened",
		Long: `
Says of an ambiguous effect whether it happened: committed, and its calls are
refused as done; or failed, and the next call may execute it again. Look first
where it can be seen: what is resolved as failed and did happen happens twice.

It is judged by attempt, as it is listed: if another one has begun since, nothing
is resolved. As failed it can be resolved only a while after the attempt's last
sign of life, since the upstream may still be at work on it.

Who says so, and why, stays on record with the effect.
`,
		Example: `  caddy mcp-gateway resolve '["refund","txn_1"]' committed --attempt 1 --why "it is in the bank's list of 12 May"
  caddy mcp-gateway resolve '["refund","txn_2"]' failed --attempt 1 --who carol --why "the bank knows nothing of it" --namespace payments`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := verdictOf(cmd, args[0])
			if err != nil {
				return err
			}
			v.State = args[1]
			return show(cmd, http.MethodPost, pathResolve, nil, v, printSettled)
		},
	}
	addVerdict(cmd)
	return cmd
}

func reopenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reopen <key> --attempt <number> --why <text> [--who <name>] [--namespace <name>]",
		Short: "Says of a committed effect that it did not happen after all",
		Long: `
Says of a committed effect that it did not happen after all, or was undone: the
next call may execute it again. The stored result is dropped.

It is judged by attempt, as it is listed. Who says so, and why, stays on record
with the effect.
`,
		Example: `  caddy mcp-gateway reopen '["refund","txn_1"]' --attempt 1 --why "the bank sent it back on 14 May"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := verdictOf(cmd, args[0])
			if err != nil {
				return err
			}
			return show(cmd, http.MethodPost, pathReopen, nil, v, printSettled)
		},
	}
	addVerdict(cmd)
	return cmd
}

func receiptsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "receipts [--limit <number>]",
		Short: "Lists the last receipts, the newest first",
		Long: `
Lists the receipts of what happened last, the newest first: of each change of an
effect's state, and of outcomes that came too late to be one.
`,
		Example: `  caddy mcp-gateway receipts --limit 20`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, http.MethodGet, pathReceipts, queryOf(cmd, "limit"), nil, printReceipts)
		},
	}
	addLimit(cmd)
	return cmd
}

func addNamespace(cmd *cobra.Command) {
	cmd.Flags().String("namespace", "", "The namespace of the effect")
}

func addLimit(cmd *cobra.Command) {
	cmd.Flags().Int("limit", defaultLimit, "How many to list")
}

func addVerdict(cmd *cobra.Command) {
	addNamespace(cmd)
	cmd.Flags().Int64("attempt", 0, "The attempt that was judged")
	cmd.Flags().String("who", "", "Who says so (default: this user at this host)")
	cmd.Flags().String("why", "", "What was seen, and where")
	for _, name := range []string{"attempt", "why"} {
		_ = cmd.MarkFlagRequired(name) // it is there
	}
}

// queryOf returns the flags that are given.
func queryOf(cmd *cobra.Command, names ...string) url.Values {
	query := make(url.Values)
	for _, name := range names {
		if flag := cmd.Flags().Lookup(name); flag.Changed {
			query.Set(strings.ReplaceAll(name, "-", "_"), flag.Value.String())
		}
	}
	return query
}

// verdictOf returns what the flags say of a key.
func verdictOf(cmd *cobra.Command, key string) (*verdict, error) {
	flags := cmd.Flags()
	namespace, _ := flags.GetString("namespace") // these are there
	attempt, _ := flags.GetInt64("attempt")
	who, _ := flags.GetString("who")
	why, _ := flags.GetString("why")
	if who == "" {
		u, err := user.Current()
		if err != nil {
			return nil, fmt.Errorf("finding out who says so: %w: name somebody with --who", err)
		}
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("finding out who says so: %w: name somebody with --who", err)
		}
		who = u.Username + "@" + host
	}
	text, err := jsontext.AppendQuote(nil, key)
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	return &verdict{Namespace: namespace, Key: text, Attempt: attempt, Who: who, Why: why}, nil
}

// show asks an endpoint and prints its answer.
func show[T any](cmd *cobra.Command, method, path string, query url.Values, v *verdict, printAnswer func(*printout, *T)) error {
	answer, err := ask(cmd, method, path, query, v)
	if err != nil {
		return err
	}
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		_, err = cmd.OutOrStdout().Write(answer)
		return err
	}
	view := new(T)
	if err := json.Unmarshal(answer, view); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	p := newPrintout()
	printAnswer(p, view)
	_, err = cmd.OutOrStdout().Write(p.bytes())
	return err
}

// ask asks an endpoint, of the Caddy that runs or of a ledger's file.
func ask(cmd *cobra.Command, method, path string, query url.Values, v *verdict) ([]byte, error) {
	var body []byte
	if v != nil {
		var err error
		if body, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	if ledger, _ := cmd.Flags().GetString("ledger"); ledger != "" {
		return askFile(cmd.Context(), ledger, path, query, body)
	}
	address, _ := cmd.Flags().GetString("address")
	config, _ := cmd.Flags().GetString("config")
	adapter, _ := cmd.Flags().GetString("adapter")
	address, err := caddycmd.DetermineAdminAPIAddress(address, nil, config, adapter)
	if err != nil {
		return nil, fmt.Errorf("finding the address of the admin endpoint: %w", err)
	}
	response, err := caddycmd.AdminAPIRequest(address, method, path+"?"+query.Encode(), nil, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("asking the admin endpoint %s: %w", address, err)
	}
	defer func() { _ = response.Body.Close() }()
	return io.ReadAll(response.Body)
}

// askFile asks an endpoint of a ledger's file, as the admin endpoint would.
func askFile(ctx context.Context, file, path string, query url.Values, body []byte) ([]byte, error) {
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("opening the ledger: %w", err) // which would be made
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	store := &SQLiteLedger{path: file}
	ledger, err := store.Open(ctx, func(int) {})
	if err != nil {
		return nil, err
	}
	var answer any
	for _, e := range endpoints {
		if e.path == path {
			answer, err = e.ask(ctx, &desk{ledger: ledger, store: store}, query, body)
		}
	}
	if err = errors.Join(err, ledger.Close()); err != nil {
		return nil, err
	}
	return encode(answer), nil
}

// printout is what a command prints: tables, whose columns end with a tab.
type printout struct {
	text  bytes.Buffer
	table *tabwriter.Writer
}

func newPrintout() *printout {
	p := new(printout)
	p.table = tabwriter.NewWriter(&p.text, 0, 0, 2, ' ', 0)
	return p
}

// line adds a line. Nothing is written yet that could fail.
func (p *printout) line(format string, values ...any) {
	_, _ = fmt.Fprintf(p.table, format+"\n", values...)
}

// end ends a table: what follows is aligned anew.
func (p *printout) end() { _ = p.table.Flush() }

func (p *printout) bytes() []byte {
	p.end()
	return p.text.Bytes()
}

func printStatus(p *printout, s *statusView) {
	p.line("Ledger:\t%s, for %s", printable(s.Ledger), s.For)
	for _, tools := range s.Tools {
		name := tools.Namespace
		if name == "" {
			name = "(no name)"
		}
		p.line("Namespace:\t%s", printable(name))
		p.line("  protected:\t%s", printable(strings.Join(tools.Protected, ", ")))
		if len(tools.WithoutEffect) > 0 {
			p.line("  without an effect:\t%s", printable(strings.Join(tools.WithoutEffect, ", ")))
		}
	}
	p.line("Effects:\t")
	for _, state := range effect.States()[1:] { // none is no state of a record
		oldest := ""
		if state == effect.Ambiguous && s.Oldest != nil {
			oldest = ", the oldest since " + when(*s.Oldest)
		}
		p.line("  %s:\t%d%s", state, s.Count[state.String()], oldest)
	}
}

func printEffects(p *printout, list *effectsView) {
	if len(list.Effects) == 0 {
		return
	}
	p.line("STATE\tATTEMPT\tSINCE\tTOOL\tNAMESPACE\tKEY")
	for _, e := range list.Effects {
		p.line("%s\t%d\t%s\t%s\t%s\t%s", e.State, e.Attempt, when(e.Since), printable(e.Tool), printable(e.Namespace), printable(e.Key))
	}
	if list.Cut {
		p.end()
		p.line("There are more: name a state or an age, or a greater --limit.")
	}
}

func printEffect(p *printout, answer *effectAndReceipts) {
	e := answer.Effect
	text := func(name, value string) {
		if value != "" {
			p.line("%s:\t%s", name, printable(value))
		}
	}
	text("Namespace", e.Namespace)
	text("Key", e.Key)
	p.line("State:\t%s since %s", e.State, when(e.Since))
	p.line("Attempt:\t%d, last active %s", e.Attempt, when(e.Active))
	if e.Deadline != nil {
		p.line("Deadline:\t%s", when(*e.Deadline))
	}
	if e.SettleAt != nil {
		p.line("Resolve:\tas committed now, as failed from %s", when(*e.SettleAt))
	}
	text("Tool", e.Tool)
	text("Who", e.Who)
	text("Upstream", e.Upstream)
	text("Revision", e.Revision)
	text("Observation", e.Observation)
	text("Task", e.Task)
	text("Fingerprint", e.Fingerprint)
	if e.AnswerUntil != nil {
		p.line("Stored result:\t%d bytes until %s", e.AnswerBytes, when(*e.AnswerUntil))
	}
	p.line("")
	p.end()
	p.line("AT\tATTEMPT\tEVENT\tSTATE\tOBSERVATION\tWHO\tWHY")
	for _, r := range answer.Receipts {
		p.line("%s\t%d\t%s\t%s\t%s\t%s\t%s", r.At.Format(time.RFC3339), r.Attempt, r.Event, r.change(), printable(r.Observation), printable(r.Who), printable(r.Why))
	}
}

func printReceipts(p *printout, list *receiptsView) {
	if len(list.Receipts) == 0 {
		return
	}
	p.line("AT\tATTEMPT\tEVENT\tSTATE\tTOOL\tWHO\tNAMESPACE\tKEY")
	for _, r := range list.Receipts {
		p.line("%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s", when(r.At), r.Attempt, r.Event, r.change(), printable(r.Tool), printable(r.Who), printable(r.Namespace), printable(r.Key))
	}
}

func printSettled(p *printout, e *effectView) {
	key := effect.Key{Namespace: e.Namespace, Text: e.Key}
	p.line("%s: attempt %d is %s", printable(key.String()), e.Attempt, e.State)
}

// change is the change of a state that a receipt is of. What came too late has
// made none.
func (r *receiptView) change() string {
	switch {
	case r.From != r.To:
		return r.From + " > " + r.To
	case r.Answer == effect.Stale.String() || r.Answer == effect.Alarm.String():
		return r.To + " (" + r.Answer + ")"
	}
	return r.To
}

// when is a time, and how long ago it is or how long until then.
func when(t time.Time) string {
	age := time.Since(t)
	if age < 0 {
		return fmt.Sprintf("%s (in %s)", t.Format(time.RFC3339), short(-age))
	}
	return fmt.Sprintf("%s (%s ago)", t.Format(time.RFC3339), short(age))
}

// short is a time in the two greatest of its units.
func short(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
