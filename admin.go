package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

func init() {
	caddy.RegisterModule(adminAPI{})
}

// adminAPI lets operators see and settle effects through Caddy's admin
// endpoint. Endpoints are below `/mcp_gateway/`:
//
// Endpoint | Description
// ---------|------------
// `GET status` | The ledger, the tools that are protected and those that are not, and how many effects are in each state
// `GET effects?state=&older_than=&limit=` | Effects, those first whose state began first
// `GET effect?namespace=&key=` | One effect, with its receipts
// `GET receipts?limit=` | The last receipts, the newest first
// `POST resolve` | Says of an ambiguous effect whether it happened: `namespace`, `key`, `attempt`, `state` (`committed` or `failed`), `who` and `why`
// `POST reopen` | Says of a committed effect that it did not happen after all: `namespace`, `key`, `attempt`, `who` and `why`
//
// A `key` is a JSON array of strings, as it is printed: `["refund","txn_1"]`.
type adminAPI struct{}

// CaddyModule returns the Caddy module information.
func (adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.mcp_gateway",
		New: func() caddy.Module { return new(adminAPI) },
	}
}

// endpoint is what is asked of a desk with one method and path. The answer is
// to be encoded as JSON.
type endpoint struct {
	method, path string
	ask          func(ctx context.Context, d *desk, query url.Values, body []byte) (any, error)
}

// The paths of the endpoints.
const (
	pathStatus   = "/mcp_gateway/status"
	pathEffects  = "/mcp_gateway/effects"
	pathEffect   = "/mcp_gateway/effect"
	pathReceipts = "/mcp_gateway/receipts"
	pathResolve  = "/mcp_gateway/resolve"
	pathReopen   = "/mcp_gateway/reopen"
)

var endpoints = []endpoint{
	{http.MethodGet, pathStatus, reading((*desk).status)},
	{http.MethodGet, pathEffects, reading((*desk).effects, "state", "older_than", "limit")},
	{http.MethodGet, pathEffect, reading((*desk).effect, "namespace", "key")},
	{http.MethodGet, pathReceipts, reading((*desk).receipts, "limit")},
	{http.MethodPost, pathResolve, judging((*desk).resolve)},
	{http.MethodPost, pathReopen, judging((*desk).reopen)},
}

// reading makes an endpoint of what reads the query, and the parameters that it
// knows. One that is misspelled would silently select everything.
func reading[T any](ask func(*desk, context.Context, url.Values) (T, error), known ...string) func(context.Context, *desk, url.Values, []byte) (any, error) {
	return func(ctx context.Context, d *desk, query url.Values, _ []byte) (any, error) {
		for name := range query {
			if !slices.Contains(known, name) {
				return nil, refused(http.StatusBadRequest, "the parameter %q is not known here: the known ones are %v", name, known)
			}
		}
		return ask(d, ctx, query)
	}
}

// judging makes an endpoint of what reads a verdict from the body.
func judging(ask func(*desk, context.Context, *verdict) (*effectView, error)) func(context.Context, *desk, url.Values, []byte) (any, error) {
	return func(ctx context.Context, d *desk, _ url.Values, body []byte) (any, error) {
		v := new(verdict)
		if err := json.Unmarshal(body, v, json.RejectUnknownMembers(true)); err != nil {
			return nil, refused(http.StatusBadRequest, "reading the body: %w", err)
		}
		return ask(d, ctx, v)
	}
}

// Routes returns the routes of the endpoints.
func (adminAPI) Routes() []caddy.AdminRoute {
	routes := make([]caddy.AdminRoute, len(endpoints))
	for i, e := range endpoints {
		routes[i] = caddy.AdminRoute{Pattern: e.path, Handler: caddy.AdminHandlerFunc(e.serve)}
	}
	return routes
}

// maxVerdict is the size up to which a body is read.
const maxVerdict = 64 << 10

func (e *endpoint) serve(w http.ResponseWriter, r *http.Request) error {
	if r.Method != e.method {
		w.Header().Set("Allow", e.method)
		return refused(http.StatusMethodNotAllowed, "the method is %s: it must be %s", r.Method, e.method)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxVerdict))
	if err != nil {
		return refused(http.StatusBadRequest, "reading the body: %w", err)
	}
	app := running.newest()
	if app == nil {
		return refused(http.StatusServiceUnavailable, "the configuration that runs has no ledger: none of its tools has an effect")
	}
	shared := app.ledger()
	defer shared.acquire()()
	ledger, err := shared.opened(r.Context())
	if err != nil {
		return refused(http.StatusServiceUnavailable, "%w", err)
	}
	answer, err := e.ask(r.Context(), &desk{ledger, app.store, app.uses}, r.URL.Query(), body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, err = w.Write(encode(answer))
	return err
}

// encode encodes an answer, for machines and for people.
func encode(answer any) []byte {
	var b bytes.Buffer
	// Nothing in an answer can fail, but for writing it; the name of a file may be
	// any bytes.
	_ = json.MarshalWrite(&b, answer, jsontext.WithIndent("  "), json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	return append(b.Bytes(), '\n')
}

// refused is the error of a request that is answered with an HTTP status.
func refused(status int, format string, values ...any) error {
	return caddy.APIError{HTTPStatus: status, Err: fmt.Errorf(format, values...)}
}

// ledgerError is the error of a request for which the ledger had no answer.
func ledgerError(err error) error {
	return caddy.APIError{HTTPStatus: http.StatusServiceUnavailable, Err: fmt.Errorf("asking the ledger: %w", err)}
}

// Interface guards
var _ caddy.AdminRouter = adminAPI{}
