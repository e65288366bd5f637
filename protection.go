package gateway

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"
	"go.uber.org/zap"

	"github.com/caddymcp/gateway/effect"
)

// Protection is what applies to the tools that have an effect: no call of theirs
// that may have happened is made again.
type Protection struct {
	// Who a caller is, with placeholders, as in `{http.auth.user.id}`. Only the
	// caller of a call is given its answer again. A call for which it is empty is
	// refused with JSON-RPC error -41007. Default: callers are told apart by
	// `Authorization`, `Cookie`, the client certificate and the headers of
	// `caller`.
	Principal string `json:"principal,omitempty"`

	// For how long the upstream of a call whose client went away is still read,
	// to learn what became of it. Default: 1 minute.
	Drain caddy.Duration `json:"drain,omitempty"`

	// How many calls whose clients went away are still read at once. Past it a
	// client that goes away cancels its call. Default: 1000.
	MaxDrained int `json:"max_drained,omitempty"`

	// How long after the last sign of life of a call whose outcome is unknown
	// it can be settled as failed: before, the upstream may still be at work.
	// Default: twice drain, and 30 seconds.
	SettleAfter caddy.Duration `json:"settle_after,omitempty"`

	// For how long a call that repeats one which is still under way waits for
	// the outcome of that. Default: it is refused at once.
	Join caddy.Duration `json:"join,omitempty"`

	// How many calls wait in this way at once. Past it they are refused at
	// once. Default: 1000.
	MaxJoined int `json:"max_joined,omitempty"`

	// For how long a call waits for the input that its tool asked for.
	// Default: 5 minutes.
	ElicitationTimeout caddy.Duration `json:"elicitation_timeout,omitempty"`

	// How many times one call may be continued with such input. Default: 10,
	// as often as the SDKs' clients do by themselves.
	ElicitationRounds int `json:"elicitation_rounds,omitempty"`

	// For how long a call that became a task waits for the task's result.
	// Default: 24 hours.
	TaskTimeout caddy.Duration `json:"task_timeout,omitempty"`

	// Whether the arguments of calls are kept in the receipts. Default: they are
	// not.
	KeepArguments bool `json:"keep_arguments,omitempty"`

	// What is kept of answers, for clients that lost them.
	Replay *Replay `json:"replay,omitempty"`

	// For how long what happened, and what was proven not to have, is known.
	// What is unknown or under way is never forgotten. Default: 30 days.
	Retain caddy.Duration `json:"retain,omitempty"`
}

// Replay is what is kept of the answers of calls that happened. A caller that
// repeats its call is given the answer again.
type Replay struct {
	// Whether no answer is kept: a call that is repeated is told that it
	// happened.
	Off bool `json:"off,omitempty"`

	// The size up to which a result is kept, in bytes. Default: 65536 (64 KiB).
	MaxSize int64 `json:"max_size,omitempty"`

	// For how long it is kept. Default: 24 hours.
	For caddy.Duration `json:"for,omitempty"`
}

// The defaults.
const (
	defaultDrain              = time.Minute
	defaultMaxDrained         = 1000
	defaultMaxJoined          = 1000
	defaultElicitationTimeout = 5 * time.Minute
	defaultElicitationRounds  = 10 // as often as the SDKs' clients continue a call by themselves
	defaultTaskTimeout        = 24 * time.Hour
	defaultReplaySize         = 64 << 10
	defaultReplayFor          = 24 * time.Hour
	defaultRetain             = 30 * 24 * time.Hour
)

func (p *Protection) setDefaults() {
	setDefault(&p.Drain, caddy.Duration(defaultDrain))
	setDefault(&p.MaxDrained, defaultMaxDrained)
	setDefault(&p.SettleAfter, min(2*p.Drain+caddy.Duration(lease), caddy.Duration(maxDuration)))
	setDefault(&p.MaxJoined, defaultMaxJoined)
	setDefault(&p.ElicitationTimeout, caddy.Duration(defaultElicitationTimeout))
	setDefault(&p.ElicitationRounds, defaultElicitationRounds)
	setDefault(&p.TaskTimeout, caddy.Duration(defaultTaskTimeout))
	if p.Replay == nil {
		p.Replay = new(Replay)
	}
	if !p.Replay.Off {
		setDefault(&p.Replay.MaxSize, defaultReplaySize)
		setDefault(&p.Replay.For, caddy.Duration(defaultReplayFor))
	}
	setDefault(&p.Retain, caddy.Duration(defaultRetain))
}

func (p *Protection) validate() error {
	if p.Principal != "" {
		if err := checkPrincipal(p.Principal); err != nil {
			return err
		}
	}
	for _, d := range []struct {
		option string
		value  caddy.Duration
	}{
		{"drain", p.Drain},
		{"settle_after", p.SettleAfter},
		{"elicitation_timeout", p.ElicitationTimeout},
		{"task_timeout", p.TaskTimeout},
		{"retain", p.Retain},
	} {
		if err := checkDuration(d.option, time.Duration(d.value)); err != nil {
			return err
		}
	}
	if p.Join != 0 {
		if err := checkDuration("join", time.Duration(p.Join)); err != nil {
			return err
		}
	}
	for _, n := range []struct {
		option string
		value  int
	}{
		{"max_drained", p.MaxDrained},
		{"max_joined", p.MaxJoined},
		{"elicitation_rounds", p.ElicitationRounds},
	} {
		if err := checkCount(n.option, n.value); err != nil {
			return err
		}
	}
	return p.Replay.validate()
}

func checkPrincipal(principal string) error {
	if _, after, ok := strings.Cut(principal, "{"); ok && strings.Contains(after, "}") {
		return nil
	}
	return fmt.Errorf("principal %q has no placeholder: every caller would be the same, and get the answers of the others", principal)
}

func (r *Replay) validate() error {
	switch {
	case r.Off && (r.MaxSize != 0 || r.For != 0):
		return fmt.Errorf("replay is off: it can have no max_size and no for")
	case r.Off:
		return nil
	}
	if err := checkSize("replay", r.MaxSize); err != nil {
		return err
	}
	return checkDuration("replay", time.Duration(r.For))
}

// maxDuration is the longest time that can be configured. Sums of a few times
// are far from an overflow.
const maxDuration = 100 * 365 * 24 * time.Hour

func checkDuration(option string, d time.Duration) error {
	if d >= time.Microsecond && d <= maxDuration {
		return nil
	}
	return fmt.Errorf("%s is %s: it must be a positive time, and not more than 100 years", option, d)
}

func checkCount(option string, n int) error {
	if n > 0 && n <= 1_000_000 {
		return nil
	}
	return fmt.Errorf("%s is %d: it must be from 1 to 1000000", option, n)
}

// checkEffects wants what a protected tool needs of the handler.
func (h *Handler) checkEffects() error {
	for _, t := range h.Tools {
		if len(t.Effect) > 0 && h.Enforce == off {
			return fmt.Errorf("tool %q has an effect and enforce is off: a call that may be read in two ways has no one key; set enforce on, or take the effect out", t.Pattern)
		}
	}
	return nil
}

// provisionEffects takes part in the ledger, if there is a tool to protect.
func (h *Handler) provisionEffects(ctx caddy.Context) error {
	var protected, bare []string
	for _, t := range h.Tools {
		if len(t.Effect) > 0 {
			protected = append(protected, t.Pattern)
		} else {
			bare = append(bare, t.Pattern)
		}
	}
	if protected == nil {
		if bare != nil {
			h.logger.Info(unprotected, zap.Any("tools", map[string][]string{h.Namespace: bare}))
		}
		return nil
	}
	app, err := ctx.App("mcp_gateway")
	if err != nil {
		return fmt.Errorf("opening the ledger of effects: %w", err)
	}
	if err := app.(*App).use(h.Namespace, protected, bare); err != nil {
		return err
	}
	h.ledger = app.(*App).ledger()
	reconciles := false
	for _, t := range h.Tools {
		if t.Reconcile == nil {
			continue
		}
		if h.tools.byPattern(t.Pattern).reconciler, err = newReconciler(t.Reconcile); err != nil {
			return fmt.Errorf("tool %q: %w", t.Pattern, err)
		}
		reconciles = true
	}
	if reconciles {
		app.(*App).whenStarted(func() { h.reconcileAlways(ctx) })
	}
	return nil
}

// perRequest is what no two requests have in common: with it in its key a tool
// would not be protected at all.
var perRequest = []string{"{" + placeholderPrefix + "id}", "{http.request.uuid}"}

// template is the key template of a tool's effect, nil if it has none.
func (t *Tool) template() (*effect.Template, error) {
	if len(t.Effect) == 0 {
		if t.InputRequiredIsUncommitted {
			return nil, fmt.Errorf("tool %q: input_required_is_uncommitted says something of an effect, which the tool does not have", t.Pattern)
		}
		return nil, nil
	}
	for _, part := range t.Effect {
		switch {
		case strings.Contains(part, "{"+placeholderPrefix+paramPrefix), strings.Contains(strings.ToLower(part), "{http.request.header.mcp-"):
			// The text of a header is not the one text of the value that it mirrors.
			return nil, fmt.Errorf("tool %q: effect: %s may be another text for each spelling of one value: use {%s%sPATH}", t.Pattern, part, placeholderPrefix, argsPrefix)
		case slices.Contains(perRequest, part):
			return nil, fmt.Errorf("tool %q: effect: %s is another one for each request, and a repeat would be another effect", t.Pattern, part)
		}
	}
	template, err := effect.ParseTemplate(t.Effect)
	if err != nil {
		return nil, fmt.Errorf("tool %q: %w", t.Pattern, err)
	}
	return template, nil
}

// checkReconcile wants an effect to ask about.
func (t *Tool) checkReconcile() error {
	switch {
	case t.Reconcile == nil:
		return nil
	case len(t.Effect) == 0:
		return fmt.Errorf("tool %q: reconcile asks about an effect, which the tool does not have", t.Pattern)
	}
	if err := t.Reconcile.validate(); err != nil {
		return fmt.Errorf("tool %q: %w", t.Pattern, err)
	}
	return nil
}

// unmarshalOption reads an option of Protection, or reports that it is none.
func (p *Protection) unmarshalOption(d *caddyfile.Dispenser, option string) (known bool, err error) {
	switch option {
	case "principal":
		if !d.AllArgs(&p.Principal) || p.Principal == "" {
			return true, d.Errf("principal needs exactly one text, as in {http.auth.user.id}")
		}
		if err := checkPrincipal(p.Principal); err != nil {
			return true, d.WrapErr(err)
		}
		return true, nil
	case "drain":
		return true, durationOption(d, &p.Drain)
	case "max_drained":
		return true, countOption(d, &p.MaxDrained)
	case "settle_after":
		return true, durationOption(d, &p.SettleAfter)
	case "join":
		return true, durationOption(d, &p.Join)
	case "max_joined":
		return true, countOption(d, &p.MaxJoined)
	case "elicitation_timeout":
		return true, durationOption(d, &p.ElicitationTimeout)
	case "elicitation_rounds":
		return true, countOption(d, &p.ElicitationRounds)
	case "task_timeout":
		return true, durationOption(d, &p.TaskTimeout)
	case "keep_arguments":
		p.KeepArguments = true
		return true, noArgument(d)
	case "replay":
		return true, p.unmarshalReplay(d)
	case "retain":
		return true, durationOption(d, &p.Retain)
	}
	return false, nil
}

// unmarshalReplay reads `replay off` or `replay <size> [<duration>]`.
func (p *Protection) unmarshalReplay(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) == 0 || len(args) > 2 || slices.Contains(args[1:], off) {
		return d.Errf("replay needs a size, and may have a duration, as in: replay 64KiB 24h; or the word off")
	}
	p.Replay = new(Replay)
	if args[0] == off {
		p.Replay.Off = true
		if len(args) > 1 {
			return d.Errf("replay off takes no duration")
		}
		return nil
	}
	size, err := humanize.ParseBytes(args[0])
	if err != nil {
		return d.Errf("parsing replay %q: %v", args[0], err)
	}
	p.Replay.MaxSize = int64(size) //nolint:gosec // an overflow is negative, and refused below
	if err := checkSize("replay", p.Replay.MaxSize); err != nil {
		return d.WrapErr(err)
	}
	if len(args) > 1 {
		return parseDuration(d, "replay", args[1], &p.Replay.For)
	}
	return nil
}

func durationOption(d *caddyfile.Dispenser, value *caddy.Duration) error {
	var text string
	option := d.Val()
	if !d.AllArgs(&text) {
		return d.Errf("%s needs exactly one duration, as in 30s", option)
	}
	return parseDuration(d, option, text, value)
}

func parseDuration(d *caddyfile.Dispenser, option, text string, value *caddy.Duration) error {
	duration, err := caddy.ParseDuration(text)
	if err != nil {
		return d.Errf("parsing %s %q: %v", option, text, err)
	}
	if err := checkDuration(option, duration); err != nil {
		return d.WrapErr(err)
	}
	*value = caddy.Duration(duration)
	return nil
}

func countOption(d *caddyfile.Dispenser, value *int) error {
	var text string
	option := d.Val()
	if !d.AllArgs(&text) {
		return d.Errf("%s needs exactly one number", option)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return d.Errf("parsing %s: %q is not a number", option, text)
	}
	*value = n
	if err := checkCount(option, n); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

func noArgument(d *caddyfile.Dispenser) error {
	option := d.Val()
	if d.NextArg() {
		return d.Errf("%s takes no argument", option)
	}
	return nil
}
