package gateway

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/mcpheaders"
)

// publish makes the call visible in the access log and as placeholders. Both
// read it when they are asked, so that they show the outcome once there is one.
func (c *call) publish() {
	c.revision = c.shownRevision()
	ctx := c.request.Context()
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if ok && server.Logs != nil {
		extra := ctx.Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields)
		extra.Set(zap.Object("mcp", c))
	}
	c.setPlaceholders()
}

// setPlaceholders makes {http.mcp.*} known. For a request without a message they
// are all empty: one that is not known would be left as it is written.
func (c *call) setPlaceholders() {
	if repl, ok := c.request.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Map(c.placeholder)
	}
}

// shownRevision is the revision that the message is read by, or what was sent
// in its place if that is none that is known.
func (c *call) shownRevision() string {
	const versionHeader = "Mcp-Protocol-Version"
	sent := strings.Join(c.request.Header[versionHeader], ", ")
	for _, header := range c.admission.Forward {
		if header.Name == versionHeader {
			sent = header.Value
		}
	}
	if sent == "" {
		sent, _ = c.message.Params.ProtocolVersion.Text()
	}
	if _, known := mcpheaders.Known(sent); known || sent == "" {
		return c.admission.Revision.Name
	}
	return shorten(sent)
}

// MarshalLogObject writes the call into the access log.
func (c *call) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	for _, field := range [...]struct{ name, value string }{
		{"method", c.message.Method},
		{"name", c.name},
		{"revision", c.revision},
		{"id", string(c.message.ID)},
		{"outcome", c.outcomeWord()},
		{"observation", c.verdict.Observation},
		{"refusal", c.refusal},
	} {
		if field.value != "" {
			enc.AddString(field.name, shorten(field.value))
		}
	}
	if n := c.admission.UnverifiedParams; n > 0 {
		enc.AddInt("unverified_params", n)
	}
	return nil
}

// maxLogged is how much of a value that the client chose is logged, in bytes.
const maxLogged = 256

func shorten(s string) string {
	if len(s) <= maxLogged {
		return s
	}
	return strings.ToValidUTF8(s[:maxLogged], "") + "…"
}

const (
	placeholderPrefix = "http.mcp."
	argsPrefix        = "args."
	paramPrefix       = "param."
)

// placeholder resolves {http.mcp.*}. One that has no value yet, or none in
// this request, is empty.
func (c *call) placeholder(key string) (any, bool) {
	key, ok := strings.CutPrefix(key, placeholderPrefix)
	if !ok {
		return nil, false
	}
	if path, ok := strings.CutPrefix(key, argsPrefix); ok {
		return argumentValue(c.message.Argument(path)), true
	}
	if name, ok := strings.CutPrefix(key, paramPrefix); ok {
		return c.param(name), true
	}
	switch key {
	case "method":
		return c.message.Method, true
	case "name":
		return c.name, true
	case "revision":
		return c.revision, true
	case "id":
		return string(c.message.ID), true
	case "outcome":
		return c.outcomeWord(), true
	case "observation":
		return c.verdict.Observation, true
	case "refusal":
		return c.refusal, true
	}
	return nil, false
}

// param is the value of a parameter whose header was verified, else empty.
// Headers are one for names that differ in case.
func (c *call) param(name string) string {
	for _, p := range c.admission.Params {
		if strings.EqualFold(p.Name, name) {
			return p.Value
		}
	}
	return ""
}

// outcomeWord is the word for what is known of a tool call that has ended.
func (c *call) outcomeWord() string {
	if !c.ended {
		return ""
	}
	return c.verdict.Outcome.String()
}

// argumentValue is the value of an argument for Caddy: only strings, booleans
// and canonical integers have one.
func argumentValue(m jsonrpc.Member) any {
	switch m.Type {
	case jsonrpc.String:
		text, _ := m.Text()
		return text
	case jsonrpc.Bool:
		return string(m.Raw) == "true"
	case jsonrpc.Number:
		if !jsonrpc.CanonicalInteger(m.Raw) {
			return nil
		}
		n, err := strconv.ParseInt(string(m.Raw), 10, 64)
		if err != nil {
			return nil
		}
		return n
	}
	return nil
}

// clientIP is the client's address as Caddy determined it.
func clientIP(r *http.Request) string {
	ip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	return ip
}
