package gateway

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/dustin/go-humanize"
	"go.uber.org/zap"
)

const directive = "mcp_gateway"

func init() {
	httpcaddyfile.RegisterDirective(directive, parseCaddyfile)
	// Before invoke, and not just before reverse_proxy: so it also wraps
	// handle blocks, while forward_auth, rate_limit and encode of the site
	// stay outside.
	httpcaddyfile.RegisterDirectiveOrder(directive, httpcaddyfile.Before, "invoke")
	httpcaddyfile.RegisterGlobalOption(directive, parseGlobalOption)
}

// parseGlobalOption makes the app of the global option.
func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		d.Next()
		return nil, d.Errf("the global option mcp_gateway is given twice")
	}
	a := new(App)
	if err := a.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: directive, Value: caddyconfig.JSON(a, nil)}, nil
}

// UnmarshalCaddyfile sets up the app from Caddyfile tokens. Syntax:
//
//	{
//	    mcp_gateway {
//	        ledger <store> ...
//	    }
//	}
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the option's name
	if d.NextArg() {
		return d.Errf("unexpected argument %q: the options stand in a block", d.Val())
	}
	for d.NextBlock(0) {
		if d.Val() != "ledger" {
			return d.Errf("unrecognized option %q", d.Val())
		}
		if a.LedgerRaw != nil {
			return d.Errf("ledger is given twice")
		}
		if !d.NextArg() {
			return d.Errf("ledger needs the name of a store, as in: ledger sqlite")
		}
		store := d.Val()
		module, err := caddyfile.UnmarshalModule(d, "mcp_gateway.ledgers."+store)
		if err != nil {
			return err
		}
		a.LedgerRaw = caddyconfig.JSONModuleObject(module, "store", store, nil)
	}
	return nil
}

// UnmarshalCaddyfile sets up the store from Caddyfile tokens. Syntax:
//
//	ledger sqlite [<path>]
func (s *SQLiteLedger) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the store's name
	if d.NextArg() {
		s.Path = d.Val()
		if s.Path == "" {
			return d.Errf("the path of the ledger is empty")
		}
	}
	if d.NextArg() || d.NextBlock(d.Nesting()) {
		return d.Errf("unexpected %q: ledger sqlite takes one path and no block", d.Val())
	}
	return nil
}

// parseCaddyfile makes the directive's route. It does what Caddy does for any
// handler directive, and warns where it stands in a site's block without a
// matcher: everything else on the host, like OAuth endpoints, is not MCP.
func parseCaddyfile(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	if !h.Next() {
		return nil, h.ArgErr()
	}
	place := fmt.Sprintf("%s:%d", h.File(), h.Line())
	hasMatcher := h.CountRemainingArgs() > 0
	matchers, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	if !hasMatcher && inSiteBlock(h) {
		caddy.Log().Named("http.handlers."+directive).Warn(
			"the directive takes every request of the site for MCP; put it in a block that names the endpoint's path, as in: handle /mcp { ... }",
			zap.String("at", place))
	}
	handler := new(Handler)
	if err := handler.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	return h.NewRoute(matchers, handler), nil
}

// inSiteBlock reports whether the directive stands in a site's own block, and
// not in a handle, route or the like, whose matcher it cannot see. The state of
// a block goes down to the blocks in it, and never up: only in the site's own
// block it is the state of all.
func inSiteBlock(h httpcaddyfile.Helper) bool {
	const probe = directive + ".probe"
	h.State[probe] = true
	defer delete(h.State, probe)
	return h.BlockState[probe] != nil
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens. Syntax:
//
//	mcp_gateway [<matcher>] {
//	    enforce         on|off
//	    max_body        <size>
//	    origins         <origin...>
//	    revisions       <revision...>
//	    numeric_match   canonical|lenient
//	    raw_names       refuse|allow
//	    response_buffer <size>
//	    max_held        <size>
//	    ambiguous_codes <code...>
//	    param_headers   learn|require|off
//	    namespace       <name>
//	    caller          <header...>
//	    max_learned     <size>
//	    deny            <name>|<prefix>*...
//	    allow_only      <name>|<prefix>*...
//
//	    principal           <text>
//	    drain               <duration>
//	    max_drained         <number>
//	    settle_after        <duration>
//	    join                <duration>
//	    max_joined          <number>
//	    elicitation_timeout <duration>
//	    elicitation_rounds  <number>
//	    task_timeout        <duration>
//	    keep_arguments
//	    replay              off|<size> [<duration>]
//	    retain              <duration>
//
//	    tool <name>|<prefix>* {
//	        effect            <part...>
//	        reconcile         <url>
//	        reconcile_header  <name> <value>
//	        reconcile_timeout <duration>
//	        input_required_is_uncommitted
//	        not_executed_on_error
//	        ambiguous_codes <code...>
//	        param           <name> <path>
//	    }
//	}
//
// Sizes have units as in 4MiB. The options origins, revisions, ambiguous_codes,
// caller, deny, allow_only and tool can be given several times, and so can param.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive's name
	if d.NextArg() {
		return d.Errf("unexpected argument %q: the options stand in a block", d.Val())
	}
	var seen []string
	for d.NextBlock(0) {
		option := d.Val()
		switch option {
		case "origins", "revisions", "ambiguous_codes", "caller", "deny", "allow_only", "tool":
		default:
			if slices.Contains(seen, option) {
				return d.Errf("%s is given twice", option)
			}
			seen = append(seen, option)
		}
		if err := h.unmarshalOption(d, option); err != nil {
			return err
		}
	}
	sizes := Handler{MaxBody: h.MaxBody, ResponseBuffer: h.ResponseBuffer, MaxHeld: h.MaxHeld}
	sizes.setDefaults() // which the adapted configuration leaves out
	if err := sizes.checkMaxHeld(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

func (h *Handler) unmarshalOption(d *caddyfile.Dispenser, option string) error {
	switch option {
	case "enforce":
		return wordOption(d, &h.Enforce, on, off)
	case "max_body":
		return sizeOption(d, &h.MaxBody)
	case "origins":
		return listOption(d, &h.Origins, func(s string) error {
			// One with a placeholder can be read only at provision.
			if strings.Contains(s, "{") {
				return nil
			}
			_, err := parseOrigin(s)
			return err
		})
	case "revisions":
		return listOption(d, &h.Revisions, checkRevision)
	case "numeric_match":
		return wordOption(d, &h.NumericMatch, canonical, lenient)
	case "raw_names":
		return wordOption(d, &h.RawNames, refuse, allow)
	case "response_buffer":
		return sizeOption(d, &h.ResponseBuffer)
	case "param_headers":
		return wordOption(d, &h.ParamHeaders, learn, require, off)
	case "namespace":
		if !d.AllArgs(&h.Namespace) {
			return d.Errf("namespace needs exactly one name")
		}
		if err := checkNamespace(h.Namespace); err != nil {
			return d.WrapErr(err)
		}
		return nil
	case "caller":
		return listOption(d, &h.Caller, checkCaller)
	case "max_learned":
		return sizeOption(d, &h.MaxLearned)
	case "max_held":
		return sizeOption(d, &h.MaxHeld)
	case "ambiguous_codes":
		return codesOption(d, &h.AmbiguousCodes)
	case "deny":
		return listOption(d, &h.Deny, checkDeny)
	case "allow_only":
		return listOption(d, &h.AllowOnly, checkAllowOnly)
	case "tool":
		return h.unmarshalTool(d)
	}
	if known, err := h.Protection.unmarshalOption(d, option); known {
		return err
	}
	return d.Errf("unrecognized option %q", option)
}

// unmarshalTool reads one tool block.
func (h *Handler) unmarshalTool(d *caddyfile.Dispenser) error {
	var t Tool
	if !d.AllArgs(&t.Pattern) {
		return d.Errf("tool needs exactly one name or pattern")
	}
	if err := checkTools(append(slices.Clone(h.Tools), t)); err != nil {
		return d.WrapErr(err)
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		switch d.Val() {
		case "effect":
			if t.Effect != nil {
				return d.Errf("effect is given twice: put its parts into one line")
			}
			if t.Effect = d.RemainingArgs(); len(t.Effect) == 0 {
				return d.Errf("effect needs the parts of a key, as in: effect refund {http.mcp.args.payment_id}")
			}
			if _, err := t.template(); err != nil {
				return d.WrapErr(err)
			}
		case "reconcile", "reconcile_header", "reconcile_timeout":
			if err := t.unmarshalReconcile(d); err != nil {
				return err
			}
		case "input_required_is_uncommitted":
			if err := noArgument(d); err != nil {
				return err
			}
			t.InputRequiredIsUncommitted = true
		case "not_executed_on_error":
			if err := noArgument(d); err != nil {
				return err
			}
			t.NotExecutedOnError = true
		case "ambiguous_codes":
			if err := codesOption(d, &t.AmbiguousCodes); err != nil {
				return err
			}
		case "param":
			var p Param
			if !d.AllArgs(&p.Name, &p.Path) {
				return d.Errf("param needs the name of a header after Mcp-Param- and the path of an argument, as in: param Region region")
			}
			t.Params = append(t.Params, p)
			if _, err := t.bindings(); err != nil {
				return d.WrapErr(err)
			}
		default:
			return d.Errf("unrecognized option %q of tool %q", d.Val(), t.Pattern)
		}
	}
	if err := checkTools([]Tool{t}); err != nil {
		return d.WrapErr(err)
	}
	h.Tools = append(h.Tools, t)
	return nil
}

func wordOption(d *caddyfile.Dispenser, value *string, allowed ...string) error {
	option := d.Val()
	if !d.AllArgs(value) {
		return d.Errf("%s needs exactly one word: %s", option, strings.Join(allowed, " or "))
	}
	if err := checkWord(option, *value, allowed); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

func sizeOption(d *caddyfile.Dispenser, value *int64) error {
	var text string
	option := d.Val()
	if !d.AllArgs(&text) {
		return d.Errf("%s needs exactly one size, as in 4MiB", option)
	}
	size, err := humanize.ParseBytes(text)
	if err != nil {
		return d.Errf("parsing %s %q: %v", option, text, err)
	}
	*value = int64(size) //nolint:gosec // an overflow is negative, and refused below
	if err := checkSize(option, *value); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

func listOption(d *caddyfile.Dispenser, values *[]string, check func(string) error) error {
	option := d.Val()
	args := d.RemainingArgs()
	if len(args) == 0 {
		return d.Errf("%s needs at least one value", option)
	}
	for _, arg := range args {
		if err := check(arg); err != nil {
			return d.WrapErr(err)
		}
	}
	*values = append(*values, args...)
	return nil
}

func codesOption(d *caddyfile.Dispenser, codes *[]int64) error {
	var texts []string
	check := func(text string) error {
		code, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("parsing ambiguous_codes: %q is not an integer", text)
		}
		return checkAmbiguousCode(code)
	}
	if err := listOption(d, &texts, check); err != nil {
		return err
	}
	for _, text := range texts {
		code, _ := strconv.ParseInt(text, 10, 64) // was checked
		*codes = append(*codes, code)
	}
	return nil
}

// Interface guards
var (
	_ caddyfile.Unmarshaler = (*Handler)(nil)
	_ caddyfile.Unmarshaler = (*App)(nil)
	_ caddyfile.Unmarshaler = (*SQLiteLedger)(nil)
)
