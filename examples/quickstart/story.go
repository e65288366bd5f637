package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// tell tells the story, and fails where it goes otherwise than told.
func tell(ctx context.Context, s *stack) error {
	for _, chapter := range []func(context.Context, *stack) error{honestCall, lyingHeader, lostAnswer, repeats, settling, operator} {
		if err := chapter(ctx, s); err != nil {
			return err
		}
	}
	fmt.Printf("\n%s everything went as told\n", green("✓"))
	return nil
}

func honestCall(ctx context.Context, s *stack) error {
	title("1  An honest call")
	a, err := send(ctx, s, call{header: "create_refund", tool: "create_refund", arguments: `{"payment_id":"pay_1","amount":1250}`})
	if err != nil {
		return err
	}
	if a.status != 200 || a.Message.Result.Meta.Outcome.Outcome != "committed" {
		return fmt.Errorf("the honest call was answered with %v, want a result marked committed", a)
	}
	return wantRefunds(ctx, s, "pay_1")
}

func lyingHeader(ctx context.Context, s *stack) error {
	title("2  A header that lies: whoever routes on it lets a refund pass for a list")
	a, err := send(ctx, s, call{header: "list_refunds", tool: "create_refund", arguments: `{"payment_id":"pay_2","amount":990000}`})
	if err != nil {
		return err
	}
	if a.status != 400 || a.Message.Error.Code != -32020 {
		return fmt.Errorf("the lie was answered with %v, want 400 and -32020", a)
	}
	// Of a call that was forwarded the gateway would tell the outcome.
	if a.Message.Error.Data.Outcome.Outcome != "" {
		return fmt.Errorf("the lie was answered with %v: it was forwarded, and refused by the server", a)
	}
	said("the server never saw it")
	return wantRefunds(ctx, s, "pay_1")
}

func lostAnswer(ctx context.Context, s *stack) error {
	title("3  A lost answer: the server makes the refund, then the connection breaks")
	a, err := send(ctx, s, lost)
	if err != nil {
		return err
	}
	if a.status != 200 || a.Message.Error.Code != -41010 || a.Message.Error.Data.Outcome.Outcome != "ambiguous" {
		return fmt.Errorf("the call whose answer was lost was answered with %v, want 200, -41010 and ambiguous", a)
	}
	fmt.Println("     A plain proxy answers 502, which is repeated by itself in many places: refunded twice.")
	fmt.Println("     This client knows that it does not know, looks first, and finds that the refund did happen:")
	return wantRefunds(ctx, s, "pay_1", "pay_3")
}

// lost is the call whose answer is lost.
var lost = call{header: "create_refund", tool: "create_refund", arguments: `{"payment_id":"pay_3","amount":4200,"lose_answer":true}`}

func repeats(ctx context.Context, s *stack) error {
	title("4  Both refunds once more: what happened is answered again, what is unknown is refused")
	a, err := send(ctx, s, call{header: "create_refund", tool: "create_refund", arguments: `{"payment_id":"pay_1","amount":1250}`})
	if err != nil {
		return err
	}
	if o := a.Message.Result.Meta.Outcome; a.status != 200 || o.Outcome != "committed" || !o.Replayed {
		return fmt.Errorf("the repeat of the honest call was answered with %v, want its result, marked replayed", a)
	}
	if a, err = send(ctx, s, lost); err != nil {
		return err
	}
	if a.status != 200 || a.Message.Error.Code != -41005 || a.Message.Error.Data.State != "ambiguous" {
		return fmt.Errorf("the repeat of the call whose answer was lost was answered with %v, want 200, -41005 and ambiguous", a)
	}
	said("the server saw neither")
	return wantRefunds(ctx, s, "pay_1", "pay_3")
}

func settling(ctx context.Context, s *stack) error {
	title("5  Somebody has looked, and says so")
	const key = `["refund","pay_3"]`
	for _, args := range [][]string{
		{"effects", "--state", "ambiguous"},
		{"resolve", key, "committed", "--attempt", "1", "--who", "ann", "--why", "list_refunds has it"},
	} {
		fmt.Printf("   $ caddy mcp-gateway %s\n", shellWords(args))
		out, err := s.gateway(ctx, args...)
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			fmt.Print("     " + line)
		}
		if !strings.Contains(out, key) {
			return fmt.Errorf("caddy mcp-gateway %s says nothing of %s:\n%s", args[0], key, out)
		}
	}
	a, err := send(ctx, s, lost)
	if err != nil {
		return err
	}
	if a.status != 200 || a.Message.Error.Code != -41004 || a.Message.Error.Data.State != "committed" {
		return fmt.Errorf("the repeat of what was settled was answered with %v, want 200, -41004 and committed", a)
	}
	return wantRefunds(ctx, s, "pay_1", "pay_3")
}

// shellWords writes arguments, which have no quotes of their own but in keys, for a shell.
func shellWords(args []string) string {
	words := slices.Clone(args)
	for i, arg := range words {
		if strings.ContainsAny(arg, ` "`) {
			words[i] = "'" + arg + "'"
		}
	}
	return strings.Join(words, " ")
}

// operator shows what whoever runs the gateway sees. Logs and metrics are written beside the answers, so they may
// come a moment later.
func operator(ctx context.Context, s *stack) error {
	title("What the operator sees")
	var counted, logged []string
	err := poll(ctx, func() error {
		lines, err := get(ctx, s.metrics, "caddy_mcp_gateway_")
		if err != nil {
			return err
		}
		counted = grep(strings.Join(lines, "\n"), "s_total{")
		logged = grep(s.caddy.log(), `"logger":"http.log.access"`)
		for _, want := range []string{`outcome="committed"} 6`, `outcome="ambiguous"} 1`, `enforced="true",refusal="name_mismatch"} 1`,
			`effect_refusals_total{refusal="ambiguous"} 1`, `effect_refusals_total{refusal="committed"} 1`} {
			if len(grep(strings.Join(counted, "\n"), want)) != 1 {
				return fmt.Errorf("the metrics are\n%s\nwant one line with %s", strings.Join(counted, "\n"), want)
			}
		}
		if n := len(grep(strings.Join(logged, "\n"), `"outcome":"ambiguous"`)); n != 1 {
			return fmt.Errorf("%d lines of the access log say ambiguous, want 1", n)
		}
		return nil
	})
	if err != nil {
		return err
	}

	fmt.Println(dim("   metrics, at " + s.metrics))
	for _, line := range counted {
		if !strings.HasSuffix(line, " 0") {
			fmt.Println("   " + line)
		}
	}
	fmt.Println(dim("   access log, what is new in it"))
	for _, line := range logged {
		var entry struct {
			Status int
			MCP    json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			return fmt.Errorf("reading the access log: %w", err)
		}
		if strings.Contains(string(entry.MCP), "create_refund") {
			fmt.Printf("   \"status\":%d,\"mcp\":%s\n", entry.Status, entry.MCP)
		}
	}
	return nil
}

// wantRefunds asks the server, through the gateway, for its refunds, and wants those of the given payments.
func wantRefunds(ctx context.Context, s *stack, payments ...string) error {
	a, err := call{header: "list_refunds", tool: "list_refunds", arguments: `{}`}.send(ctx, s.endpoint)
	if err != nil {
		return err
	}
	var list struct {
		Refunds []struct {
			PaymentID string `json:"payment_id"`
		}
	}
	if err := json.Unmarshal(a.Message.Result.StructuredContent, &list); err != nil {
		return fmt.Errorf("reading the refunds: %w", err)
	}
	var got []string
	for _, r := range list.Refunds {
		got = append(got, r.PaymentID)
	}
	if strings.Join(got, " ") != strings.Join(payments, " ") {
		return fmt.Errorf("the server has refunded %q, want %q", got, payments)
	}
	said("list_refunds: %s", strings.Join(got, ", "))
	return nil
}

// send sends a call and shows both directions.
func send(ctx context.Context, s *stack, c call) (answer, error) {
	header := c.header
	if c.header != c.tool {
		header = red(c.header)
	}
	fmt.Printf("   → Mcp-Name: %s   body: %s %s\n", header, c.tool, c.arguments)
	a, err := c.send(ctx, s.endpoint)
	if err != nil {
		return a, fmt.Errorf("calling %s: %w", c.tool, err)
	}
	switch e := a.Message.Error; {
	case e.Data.Outcome.Outcome != "":
		fmt.Printf("   ← %d  %d  outcome: %s\n     %s\n", a.status, e.Code, yellow(e.Data.Outcome.Outcome), dim(e.Message))
	case e.Data.State != "":
		fmt.Printf("   ← %d  %d  the effect: %s\n     %s\n", a.status, e.Code, yellow(e.Data.State), dim(e.Message))
	case e.Code != 0:
		fmt.Printf("   ← %s  %d\n     %s\n", red(fmt.Sprint(a.status)), e.Code, dim(e.Message))
	default:
		result := a.Message.Result
		outcome := green(result.Meta.Outcome.Outcome)
		if result.Meta.Outcome.Replayed {
			outcome += ", replayed"
		}
		fmt.Printf("   ← %d  %s  outcome: %s\n", a.status, result.StructuredContent, outcome)
	}
	return a, nil
}

// tellHowToPlay prints the call whose answer is lost, for a shell.
func tellHowToPlay(s *stack) {
	c := call{header: "create_refund", tool: "create_refund", arguments: `{"payment_id":"pay_4","amount":100,"lose_answer":true}`}
	title("Your turn")
	fmt.Printf("   curl -i %s", s.endpoint)
	for _, h := range c.headers() {
		fmt.Printf(" \\\n     -H '%s: %s'", h[0], h[1])
	}
	fmt.Printf(" \\\n     -d '%s'\n\n%s\n", c.body(), dim("   Ctrl-C ends it."))
}

func title(text string) { fmt.Printf("\n%s\n", bold(text)) }

func said(format string, args ...any) {
	fmt.Printf("   %s %s\n", green("✓"), fmt.Sprintf(format, args...))
}

func bold(s string) string   { return style("1", s) }
func dim(s string) string    { return style("2", s) }
func red(s string) string    { return style("31", s) }
func green(s string) string  { return style("32", s) }
func yellow(s string) string { return style("33", s) }

// style styles a text for a terminal, and leaves it as it is for anything else.
func style(code, s string) string {
	if !colors {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

var colors = os.Getenv("NO_COLOR") == "" && isTerminal(os.Stdout)

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
