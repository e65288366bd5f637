package mcpheaders

import (
	"slices"
	"strings"
)

// origin is row 1. A browser sends Origin with every POST, other clients do
// not: only a page can be tricked, and only its browser knows which page it is
// (specification, Security & Endpoint).
func (r *request) origin() *Refusal {
	sent := r.header["Origin"]
	if len(sent) == 0 {
		return nil
	}
	origin := sent[0]
	for _, other := range sent[1:] {
		if !sameOrigin(other, origin) {
			return refuse("origin_repeated", "several different Origin headers were sent; a request has one origin")
		}
	}
	if origin == "null" {
		return refuse("origin_null", "the origin null is never allowed, since any sandboxed page has it; serve the page from an origin of its own")
	}
	if !r.policy.allowsOrigin(origin) {
		return refuse("origin_not_allowed", "the origin "+echo(origin)+" is not allowed; the operator can add it to origins")
	}
	return nil
}

// AllowedOrigin returns the origin that was sent, as it was, if row 1 allows it.
// The header has canonical names.
func (p *Policy) AllowedOrigin(header map[string][]string) (origin string, ok bool) {
	sent := header["Origin"]
	if len(sent) == 0 || (&request{policy: p, header: header}).origin() != nil {
		return "", false
	}
	return sent[0], true
}

func (p *Policy) allowsOrigin(origin string) bool {
	if slices.Contains(p.Origins, origin) {
		return true
	}
	parsed, err := ParseOrigin(origin)
	return err == nil && slices.Contains(p.Origins, parsed)
}

func sameOrigin(a, b string) bool {
	if a == b {
		return true
	}
	parsedA, errA := ParseOrigin(a)
	parsedB, errB := ParseOrigin(b)
	return errA == nil && errB == nil && parsedA == parsedB
}

// httpMethodKnown is row 2.
func (r *request) httpMethodKnown() *Refusal {
	switch r.httpMethod {
	case "POST", "GET", "DELETE", "OPTIONS":
		return nil
	}
	return refuse("http_method", "the HTTP method "+echo(r.httpMethod)+" has no meaning here; send a message with POST")
}

// contentType is row 3. An upstream that decodes another charset or coding than
// the gateway reads another message.
func (r *request) contentType() *Refusal {
	if r.httpMethod != "POST" {
		return nil
	}
	if len(r.header["Content-Encoding"]) > 0 {
		return refuse("content_encoding", "a Content-Encoding was sent, and only the message as it is can be checked; send it without")
	}
	sent := r.header["Content-Type"]
	switch {
	case len(sent) == 0:
		return refuse("content_type_missing", "no Content-Type was sent; send Content-Type: application/json")
	case len(sent) > 1:
		return refuse("content_type_repeated", "several Content-Type headers were sent; send one, application/json")
	case !isJSON(sent[0]):
		return refuse("content_type", "the Content-Type "+echo(sent[0])+" is not application/json in UTF-8; send Content-Type: application/json")
	}
	return nil
}

// isJSON reports whether a media type is application/json with no parameter
// but charset=utf-8. It does not unescape: no spelling of utf-8 needs that.
func isJSON(mediaType string) bool {
	mediaType, parameters, _ := strings.Cut(mediaType, ";")
	if lower(trim(mediaType)) != "application/json" {
		return false
	}
	for parameter := range strings.SplitSeq(parameters, ";") {
		switch lower(trim(parameter)) {
		case "", "charset=utf-8", `charset="utf-8"`:
		default:
			return false
		}
	}
	return true
}
