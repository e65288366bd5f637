package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"golang.org/x/net/http/httpguts"

	"github.com/caddymcp/gateway/mcpheaders"
	"github.com/caddymcp/gateway/outcome"
)

// Validate ensures that h's configuration makes sense.
func (h *Handler) Validate() error {
	words := []struct {
		option, value string
		allowed       []string
	}{
		{"enforce", h.Enforce, []string{on, off}},
		{"numeric_match", h.NumericMatch, []string{canonical, lenient}},
		{"raw_names", h.RawNames, []string{refuse, allow}},
		{"param_headers", h.ParamHeaders, []string{learn, require, off}},
	}
	for _, w := range words {
		if err := checkWord(w.option, w.value, w.allowed); err != nil {
			return err
		}
	}
	sizes := []struct {
		option string
		value  int64
	}{
		{"max_body", h.MaxBody},
		{"response_buffer", h.ResponseBuffer},
		{"max_held", h.MaxHeld},
		{"max_learned", h.MaxLearned},
	}
	for _, s := range sizes {
		if err := checkSize(s.option, s.value); err != nil {
			return err
		}
	}
	if err := h.checkMaxHeld(); err != nil {
		return err
	}
	for _, o := range h.Origins {
		if _, err := parseOrigin(o); err != nil {
			return err
		}
	}
	for _, r := range h.Revisions {
		if err := checkRevision(r); err != nil {
			return err
		}
	}
	if err := checkNamespace(h.Namespace); err != nil {
		return err
	}
	for _, name := range h.Caller {
		if err := checkCaller(name); err != nil {
			return err
		}
	}
	for _, c := range h.AmbiguousCodes {
		if err := checkAmbiguousCode(c); err != nil {
			return err
		}
	}
	for _, pattern := range h.Deny {
		if err := checkDeny(pattern); err != nil {
			return err
		}
	}
	for _, pattern := range h.AllowOnly {
		if err := checkAllowOnly(pattern); err != nil {
			return err
		}
	}
	if err := checkTools(h.Tools); err != nil {
		return err
	}
	if err := h.checkEffects(); err != nil {
		return err
	}
	return h.Protection.validate()
}

// checkMaxHeld holds the sizes against each other, once they are all set.
func (h *Handler) checkMaxHeld() error {
	if least := h.MaxBody + h.ResponseBuffer; h.MaxHeld < least {
		return fmt.Errorf("max_held is %d: it must be at least max_body and response_buffer together, %d, or one large call could never pass", h.MaxHeld, least)
	}
	return nil
}

// The checks below are those of single values. The Caddyfile runs them where
// it reads the value, so that its errors name the line.

func checkWord(option, value string, allowed []string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s is %q: it must be %s", option, value, strings.Join(allowed, " or "))
}

// maxSize is the largest size that can be configured, in bytes: 1 TiB. Sums of
// a few sizes are far from an overflow.
const maxSize = 1 << 40

func checkSize(option string, value int64) error {
	if value > 0 && value <= maxSize {
		return nil
	}
	return fmt.Errorf("%s is %d: it must be a positive number of bytes, and not more than 1TiB", option, value)
}

// parseOrigin replaces the global placeholders of one origin and reads it.
func parseOrigin(s string) (string, error) {
	replaced, err := caddy.NewReplacer().ReplaceOrErr(s, true, true)
	if err != nil {
		return "", fmt.Errorf("origins: replacing placeholders of origin %q: %w", s, err)
	}
	origin, err := mcpheaders.ParseOrigin(replaced)
	if err != nil {
		return "", fmt.Errorf("origins: parsing origin %q: %w", replaced, err)
	}
	return origin, nil
}

func checkRevision(name string) error {
	if _, ok := mcpheaders.Known(name); ok {
		return nil
	}
	var known []string
	for _, r := range mcpheaders.Revisions() {
		known = append(known, r.Name)
	}
	return fmt.Errorf("revision %q is not known: the known ones are %v", name, known)
}

// checkCaller wants a header that a request can be told by: Host is none among
// the fields that a handler sees.
func checkCaller(name string) error {
	if strings.EqualFold(name, "Host") {
		return fmt.Errorf("caller: %s is the same for all callers of a site, and no header of a request here: use principal with {http.request.host}", name)
	}
	return checkHeaderName("caller", name)
}

func checkHeaderName(option, name string) error {
	if httpguts.ValidHeaderFieldName(name) {
		return nil
	}
	return fmt.Errorf("%s: %q is not the name of a header", option, name)
}

// checkNamespace refuses what looks like a placeholder: as it stands it would be one
// name for all who use it, whatever its value.
func checkNamespace(name string) error {
	if strings.ContainsRune(name, '{') {
		return fmt.Errorf("namespace %q: placeholders are not replaced here; a Caddyfile replaces {$NAME}", name)
	}
	return nil
}

func checkDeny(pattern string) error      { return checkPattern("denied tool", pattern) }
func checkAllowOnly(pattern string) error { return checkPattern("allowed tool", pattern) }

func checkAmbiguousCode(code int64) error {
	if outcome.BeforeDispatch(code) {
		return nil
	}
	return fmt.Errorf("ambiguous_codes: an error with code %d is ambiguous already: only -32700, -32600, -32601, -32602, -32020, -32021 and -32022 are not", code)
}
