package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddymcp/gateway/mcpheaders"
)

func init() {
	caddy.RegisterModule(&Matcher{})
}

// Matcher matches MCP requests (Model Context Protocol, Streamable HTTP) by what
// their bodies say. It is for what stands outside of `mcp_gateway`, like
// `forward_auth` or `rate_limit` for some tools. A header is never believed.
//
// At least one of `tool`, `method` and `revision` is needed. Those that are
// given must all match; of the values of one, any may. Placeholders are not
// replaced.
//
// The body of a POST is read once, as strictly as `mcp_gateway` reads it
// (admission rows 4 to 10), and is there unchanged for the handlers. A body that
// is no MCP message, or that two parsers could read differently, does not match.
// One that cannot be read to its end is an error: HTTP 413, 408, 400, or 503
// past the 256 MiB that all matchers together may hold.
type Matcher struct {
	// Tools, of which one is called: a name, or the beginning of names followed
	// by `*`.
	Tool []string `json:"tool,omitempty"`

	// JSON-RPC methods, in the same form. A response has none.
	Method []string `json:"method,omitempty"`

	// Protocol revisions. A modern revision must stand in the body, and the
	// header must agree with it; a legacy one stands in the header, and a
	// request without either is of 2025-03-26.
	Revision []string `json:"revision,omitempty"`

	// The size up to which a body is read, in bytes. It should be that of the
	// handler. Default: 4194304 (4 MiB).
	MaxBody int64 `json:"max_body,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*Matcher) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.matchers.mcp",
		New: func() caddy.Module { return new(Matcher) },
	}
}

// Provision sets up m.
func (m *Matcher) Provision(ctx caddy.Context) error {
	setDefault(&m.MaxBody, defaultMaxBody)
	if err := registerMetrics(ctx.GetMetricsRegistry()); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// Validate ensures that m's configuration makes sense.
func (m *Matcher) Validate() error {
	if len(m.Tool)+len(m.Method)+len(m.Revision) == 0 {
		return errors.New("an mcp matcher needs at least one of tool, method and revision")
	}
	for _, list := range []struct {
		values []string
		check  func(string) error
	}{{m.Tool, checkToolPattern}, {m.Method, checkMethodPattern}, {m.Revision, checkRevision}} {
		for _, value := range list.values {
			if err := list.check(value); err != nil {
				return err
			}
		}
	}
	return checkMatcherBody(m.MaxBody)
}

func checkToolPattern(pattern string) error   { return checkPattern("tool", pattern) }
func checkMethodPattern(pattern string) error { return checkPattern("method", pattern) }

func checkMatcherBody(size int64) error {
	if most := matchersArriving.limit - matchersArriving.reserve; size >= most {
		return fmt.Errorf("max_body is %d: all mcp matchers together hold %d bytes of large bodies that are arriving, and such a one could never pass", size, most)
	}
	return checkSize("max_body", size)
}

// MatchWithError reports whether the body of r is a message that m describes.
// Only a POST carries one: the body of any other request is not touched.
func (m *Matcher) MatchWithError(r *http.Request) (bool, error) {
	if r.Method != http.MethodPost || r.Body == nil {
		return false, nil
	}
	summary, refusal := m.read(r)
	if refusal != nil {
		return false, caddyhttp.Error(refusal.Status, errors.New(refusal.Text))
	}
	return summary != nil && m.describes(summary, r.Header), nil
}

// read returns what the message says, or nil if the body is no strict message.
// Inside of mcp_gateway it asks the handler, since to read the body there would
// look like sending it.
func (m *Matcher) read(r *http.Request) (*mcpheaders.Summary, *mcpheaders.Refusal) {
	if c, ok := r.Context().Value(callKey{}).(*call); ok {
		if !c.strict {
			return nil, c.unread
		}
		return &c.summary, nil
	}
	ahead, refusal := readAheadOf(r, m.MaxBody)
	if refusal != nil || !ahead.strict {
		return nil, refusal
	}
	return &ahead.summary, nil
}

func (m *Matcher) describes(s *mcpheaders.Summary, header http.Header) bool {
	if len(m.Tool) > 0 && (s.Method != toolsCall || !matchesAny(m.Tool, s.Name)) {
		return false
	}
	if len(m.Method) > 0 && (s.Method == "" || !matchesAny(m.Method, s.Method)) {
		return false
	}
	if len(m.Revision) == 0 {
		return true
	}
	revision, ok := s.Revision(header)
	return ok && slices.Contains(m.Revision, revision.Name)
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		return isPrefix && strings.HasPrefix(name, prefix) || name == pattern
	})
}

// UnmarshalCaddyfile sets up the matcher from Caddyfile tokens. Syntax:
//
//	mcp {
//	    tool     <name>|<prefix>*...
//	    method   <name>|<prefix>*...
//	    revision <revision...>
//	    max_body <size>
//	}
//
// A single line can stand behind mcp, without a block. The lines tool, method
// and revision can be given several times, and so can the matcher in one set.
func (m *Matcher) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	for d.Next() { // the matcher's name, once for each time it is given
		if d.NextArg() {
			if err := m.unmarshalLine(d); err != nil {
				return err
			}
		}
		for d.NextBlock(0) {
			if err := m.unmarshalLine(d); err != nil {
				return err
			}
		}
	}
	if len(m.Tool)+len(m.Method)+len(m.Revision) == 0 {
		return d.Err("an mcp matcher needs at least one of tool, method and revision")
	}
	return nil
}

func (m *Matcher) unmarshalLine(d *caddyfile.Dispenser) error {
	switch option := d.Val(); option {
	case "tool":
		return listOption(d, &m.Tool, checkToolPattern)
	case "method":
		return listOption(d, &m.Method, checkMethodPattern)
	case "revision":
		return listOption(d, &m.Revision, checkRevision)
	case "max_body":
		if m.MaxBody != 0 {
			return d.Errf("%s is given twice", option)
		}
		if err := sizeOption(d, &m.MaxBody); err != nil {
			return err
		}
		if err := checkMatcherBody(m.MaxBody); err != nil {
			return d.WrapErr(err)
		}
		return nil
	default:
		return d.Errf("unrecognized line %q of an mcp matcher: it may have tool, method, revision and max_body", option)
	}
}

// Interface guards
var (
	_ caddy.Provisioner                 = (*Matcher)(nil)
	_ caddy.Validator                   = (*Matcher)(nil)
	_ caddyhttp.RequestMatcherWithError = (*Matcher)(nil)
	_ caddyfile.Unmarshaler             = (*Matcher)(nil)
)
