package gateway

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/caddymcp/gateway/jsonrpc"
	"github.com/caddymcp/gateway/mcpheaders"
)

// learns reports whether lists of tools are read.
func (h *Handler) learns() bool { return h.policy.Params != mcpheaders.Off }

// bindings returns the bindings of the tool that is called, nil if they are not
// known: what the configuration declares wins over what was learned.
func (c *call) bindings() *mcpheaders.Bindings {
	if c.message.Method != toolsCall || !c.h.learns() {
		return nil
	}
	if c.rule.bindings != nil {
		c.known = knowledge{bindings: c.rule.bindings, state: declared}
	} else {
		c.known = c.h.catalogue.find(c.viewKey(), c.name, time.Now())
	}
	lookupSeries[c.known.state].Inc()
	return c.known.bindings
}

// viewKey is the view of the request's caller.
func (c *call) viewKey() viewKey {
	catalogue := c.h.catalogue
	return viewKey{catalogue.endpoint(c.request, c.h.Namespace), catalogue.caller(c.request, c.h.Caller)}
}

// take learns a list, unless it is known.
func (c *catalogue) take(l *lesson) {
	digest := c.digest(l.text, l.id)
	if c.seenBefore(l.key, digest, l.at) {
		countPage(pageSeen)
		return
	}
	if l.event && !c.hear(l) {
		return
	}
	list, err := jsonrpc.ReadToolsPage(l.text)
	switch {
	case errors.Is(err, jsonrpc.ErrNoTools):
		countPage(pageNoTools) // an error, most often
		return
	case err != nil:
		countPage(pageUnreadable)
		if !errors.Is(err, jsonrpc.ErrNoJSON) { // which no client goes by either
			c.noteChange(l.key, l.at)
		}
		l.h.logger.Warn("a tools/list result could not be read: its tools' parameters are not verified",
			zap.String("revision", l.revision), zap.String("id", shorten(string(l.id))), zap.Error(err))
		return
	}
	countPage(pageLearned)
	d := readDefinitions(list)
	d.faults = append(d.faults, lostHeaders(d, l.server)...)
	c.learn(l.key, digest, d, l.at)
	c.keepList(digest, l.text, l.id)
	l.report(d)
}

// hear takes in the message of an event, and reports whether it is a list.
func (c *catalogue) hear(l *lesson) bool {
	reader := readers.Get().(*jsonrpc.ResponseReader)
	defer readers.Put(reader)
	reader.Reset(l.id)
	reader.Write(l.text)
	message := reader.Close()
	if tellsOfChange(&message) || message.Doubtful {
		c.noteChange(l.key, l.at)
	}
	return answersRequest(&message)
}

// toolsChanged notes that the caller was told that its tools have changed.
func (c *call) toolsChanged() {
	if c.h.learns() {
		c.h.catalogue.changed(c.viewKey(), time.Now())
	}
}

// refusedHeaders notes that the server refused the headers of a call that was
// admitted: what was learned of the tool may be out of date.
func (c *call) refusedHeaders() {
	if c.known.state == learned {
		c.h.catalogue.doubt(c.viewKey(), c.name, time.Now())
	}
}

// maxReported is how many faults of one page are logged.
const maxReported = 20

// report logs and counts what is wrong with the definitions of a page.
func (l *lesson) report(d definitions) {
	faulty := make(map[string]bool)
	for i, f := range d.faults {
		faulty[f.tool] = true
		countDefinitions(f.reason, 1)
		if i < maxReported {
			l.h.logger.Warn("a tool's mirrored parameters cannot be verified",
				zap.String("tool", shorten(f.tool)),
				zap.String("reason", f.reason),
				zap.String("detail", f.detail),
				zap.Int("faults_of_the_page", len(d.faults)))
		}
	}
	countDefinitions(validDefinition, len(d.tools)-len(faulty))
}

// lostHeaders finds the parameters whose headers Caddy removes before any
// handler runs.
func lostHeaders(d definitions, server *caddyhttp.Server) []fault {
	if server == nil {
		return nil
	}
	var faults []fault
	for tool, bindings := range d.tools {
		for _, b := range bindings.All() {
			option, odd := b.Lost()
			switch {
			case odd && !keeps(server, b.Header):
				faults = append(faults, fault{tool, faultHeaderLost,
					"Caddy removes the header " + shorten(b.Header) + "; list it in " + option + " of the server's options to keep it"})
			case !odd && isShadowed(server, b.Header):
				faults = append(faults, fault{tool, faultHeaderLost,
					"Caddy removes the header " + shorten(b.Header) + ", since expected_underscore_headers or expected_dot_headers of the server's options list another spelling of it"})
			}
		}
	}
	return faults
}

// keeps reports whether a server is configured to keep a header that Caddy
// removes for its name. An entry may end in a star; one with both characters
// must be there in full.
func keeps(server *caddyhttp.Server, header string) bool {
	both := strings.Contains(header, "_") && strings.Contains(header, ".")
	return slices.ContainsFunc(slices.Concat(server.ExpectedUnderscoreHeaders, server.ExpectedDotHeaders), func(entry string) bool {
		prefix, isPrefix := strings.CutSuffix(entry, "*")
		if isPrefix {
			return !both && strings.HasPrefix(header, http.CanonicalHeaderKey(prefix))
		}
		return http.CanonicalHeaderKey(entry) == header
	})
}

// isShadowed reports whether Caddy removes a header since a server is configured
// to keep one whose name has "_" or "." in the place of hyphens.
func isShadowed(server *caddyhttp.Server, header string) bool {
	shadows := func(entries []string, separator string) bool {
		return slices.ContainsFunc(entries, func(entry string) bool {
			prefix, isPrefix := strings.CutSuffix(entry, "*")
			name := http.CanonicalHeaderKey(strings.ReplaceAll(prefix, separator, "-"))
			return name == header || isPrefix && strings.HasPrefix(header, name)
		})
	}
	return shadows(server.ExpectedUnderscoreHeaders, "_") || shadows(server.ExpectedDotHeaders, ".")
}
