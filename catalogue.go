package gateway

import (
	"bytes"
	"hash/maphash"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/maypok86/otter/v2"

	"github.com/caddymcp/gateway/mcpheaders"
)

// catalogue is what was learned of the tools behind the handlers of this
// process: which of their parameters are mirrored into headers. It outlives a
// configuration, so that a reload forgets nothing.
//
// What is learned is bounded by the size of what is kept. What does not fit is
// forgotten by how little it is used, and learned again from the next list.
type catalogue struct {
	views     *otter.Cache[viewKey, *view]
	endpoints *otter.Cache[endpointKey, *endpoint]
	seed      maphash.Seed
	learning  sync.Mutex // one page is learned at a time
}

// endpointKey is an MCP endpoint: what a handler's namespace, the host and the
// path of a request name.
type endpointKey struct{ namespace, host, path string }

// endpoint is what concerns all that was learned at an endpoint.
type endpoint struct {
	changed atomic.Int64 // when it last said that its tools have changed, in Unix nanoseconds
}

// viewKey is a view of an endpoint: the tools that one caller is shown, or
// those that a server says are public.
type viewKey struct {
	endpointKey
	caller callerID
}

// callerID tells callers apart by their credentials, of which it reveals
// nothing. The zero value stands for what is public.
type callerID struct {
	private bool
	digest  uint64
}

// view is what a caller was shown. It does not change.
type view struct {
	endpoint *endpoint
	tools    map[string]*definition
	pages    map[uint64]*page
	size     uint32
}

// definition is what is known of one tool.
type definition struct {
	bindings *mcpheaders.Bindings // nil if its definition is invalid: then it binds nothing
	page     *page
}

// page is one page of a list, which ages as a whole.
type page struct {
	lifetime time.Duration
	learned  atomic.Int64 // in Unix nanoseconds
	expires  atomic.Int64
}

// defaultLifetime is how long a definition is believed whose list gives no
// ttlMs, or 0. By the specification clients should then fetch the list whenever
// they need it; in fact they fetch it once and call for hours.
const defaultLifetime = time.Hour

// maxEndpoints is how many endpoints' changes are remembered: a host name is
// the client's to choose where a site serves all of them. What was learned at
// an endpoint that was forgotten is out of date.
const maxEndpoints = 10_000

// catalogues holds the catalogue of each size in use.
var catalogues = caddy.NewUsagePool()

// useCatalogue returns the catalogue of a size in bytes, which the caller must
// release.
func useCatalogue(size int64) (*catalogue, error) {
	pooled, _, err := catalogues.LoadOrNew(size, func() (caddy.Destructor, error) { return newCatalogue(size) })
	if err != nil {
		return nil, err
	}
	return pooled.(*catalogue), nil
}

func releaseCatalogue(size int64) error {
	_, err := catalogues.Delete(size)
	return err
}

func newCatalogue(size int64) (*catalogue, error) {
	here := func(task func()) { task() }
	views, err := otter.New(&otter.Options[viewKey, *view]{
		MaximumWeight: uint64(size), //nolint:gosec // a positive option
		Weigher:       func(_ viewKey, v *view) uint32 { return v.size },
		Executor:      here,
	})
	if err != nil {
		return nil, err
	}
	endpoints, err := otter.New(&otter.Options[endpointKey, *endpoint]{MaximumSize: maxEndpoints, Executor: here})
	if err != nil {
		return nil, err
	}
	return &catalogue{views: views, endpoints: endpoints, seed: maphash.MakeSeed()}, nil
}

// Destruct forgets everything, once no configuration uses the catalogue.
func (c *catalogue) Destruct() error {
	c.views.StopAllGoroutines()
	c.endpoints.StopAllGoroutines()
	return nil
}

// knowledge is what a catalogue says of one tool.
type knowledge struct {
	bindings *mcpheaders.Bindings // of a definition that is up to date; nil if there is none, or it binds nothing
	state    knowledgeState
	page     *page // that it is from
}

type knowledgeState uint8

const (
	unknown  knowledgeState = iota // no list showed the tool
	stale                          // one did, and says nothing any more
	learned                        // one did
	declared                       // the configuration says it
)

// knowledgeStates are the states' words in metrics.
var knowledgeStates = [...]string{unknown: "unknown", stale: "stale", learned: "learned", declared: "declared"}

// find returns what is known of a tool in the eyes of a caller: what a list
// said that was made for it comes before what is public.
func (c *catalogue) find(key viewKey, tool string, now time.Time) knowledge {
	if known := c.look(key, tool, now); known.state != unknown {
		return known
	}
	key.caller = callerID{}
	return c.look(key, tool, now)
}

func (c *catalogue) look(key viewKey, tool string, now time.Time) knowledge {
	v, ok := c.views.GetIfPresent(key)
	if !ok {
		return knowledge{}
	}
	d, ok := v.tools[tool]
	if !ok {
		return knowledge{}
	}
	current, _ := c.endpoints.GetIfPresent(key.endpointKey)
	if v.endpoint != current || !d.page.fresh(v.endpoint, now) {
		return knowledge{state: stale, page: d.page}
	}
	return knowledge{d.bindings, learned, d.page}
}

func (p *page) fresh(e *endpoint, now time.Time) bool {
	return now.UnixNano() < p.expires.Load() && p.learned.Load() > e.changed.Load()
}

// renew notes that the page was seen.
func (p *page) renew(now time.Time) {
	p.learned.Store(now.UnixNano())
	p.expires.Store(now.Add(p.lifetime).UnixNano())
}

// distrust makes a page say nothing until it is seen again: its server refused
// a call that agreed with it.
func (p *page) distrust() { p.expires.Store(0) }

// changed notes that an endpoint said that its tools have changed.
func (c *catalogue) changed(key endpointKey, now time.Time) {
	c.endpoint(key).changed.Store(now.UnixNano())
}

// endpoint returns the endpoint's entry, which is made if it is new.
func (c *catalogue) endpoint(key endpointKey) *endpoint {
	e, _ := c.endpoints.ComputeIfAbsent(key, func() (*endpoint, bool) { return new(endpoint), false })
	return e
}

// lifetime is for how long a page is believed that gives this ttlMs.
func lifetime(ttl int64) time.Duration {
	const longest = 30 * 24 * time.Hour
	if ttl == 0 {
		return defaultLifetime
	}
	return time.Duration(min(ttl, longest.Milliseconds())) * time.Millisecond
}

// seenBefore renews a page that was learned before, and reports whether it was:
// most lists are the same again and again.
func (c *catalogue) seenBefore(key viewKey, digest uint64, now time.Time) bool {
	for _, caller := range [...]callerID{key.caller, {}} {
		key.caller = caller
		v, ok := c.views.GetIfPresent(key)
		if !ok || v.endpoint != c.endpoint(key.endpointKey) {
			continue
		}
		if p, ok := v.pages[digest]; ok {
			p.renew(now)
			return true
		}
	}
	return false
}

// learn takes in the definitions of a page that a caller was shown, or for all
// callers if it says that it is public.
func (c *catalogue) learn(key viewKey, digest uint64, definitions definitions, now time.Time) {
	if definitions.public {
		key.caller = callerID{}
	}
	p := &page{lifetime: lifetime(definitions.ttl)}
	p.renew(now)
	next := &view{tools: make(map[string]*definition, len(definitions.tools)), pages: map[uint64]*page{digest: p}}
	for name, bindings := range definitions.tools {
		next.tools[name] = &definition{bindings, p}
	}

	c.learning.Lock()
	defer c.learning.Unlock()
	next.endpoint = c.endpoint(key.endpointKey)
	if before, ok := c.views.GetIfPresent(key); ok && before.endpoint == next.endpoint {
		next.keep(before, now)
	}
	next.weigh()
	c.views.Set(key, next)
}

// maxTools is how many tools one caller's view has at most. A server of which
// it had more is forgotten but for the last page.
const maxTools = 20_000

// keep takes over what an earlier view says of other tools, and the pages that
// it is from, as far as that still counts.
func (v *view) keep(before *view, now time.Time) {
	if len(v.tools)+len(before.tools) > maxTools {
		return
	}
	inUse := make(map[*page]bool)
	for name, d := range before.tools {
		if v.tools[name] == nil && d.page.fresh(before.endpoint, now) {
			v.tools[name] = d
			inUse[d.page] = true
		}
	}
	for digest, p := range before.pages {
		if inUse[p] {
			v.pages[digest] = p
		}
	}
}

// weigh sets about how many bytes of memory the view takes.
func (v *view) weigh() {
	const perView, perPage, perTool, perBinding = 500, 100, 100, 200
	size := perView + perPage*len(v.pages)
	for name, d := range v.tools {
		size += perTool + len(name) + perBinding*d.bindings.Len()
	}
	v.size = uint32(size) //nolint:gosec // bounded by maxTools
}

// caller tells whose request it is by what authenticates it: Authorization,
// Cookie, the client certificate, and the headers that the operator names.
// Requests without any of them are of one caller.
func (c *catalogue) caller(r *http.Request, headers []string) callerID {
	var h maphash.Hash
	h.SetSeed(c.seed)
	add := func(name string) {
		for _, value := range r.Header[name] {
			_, _ = h.WriteString(value)
			_ = h.WriteByte(0)
		}
		_ = h.WriteByte(1)
	}
	add("Authorization")
	add("Cookie")
	for _, name := range headers {
		add(name)
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		_, _ = h.Write(r.TLS.PeerCertificates[0].Raw)
	}
	return callerID{private: true, digest: h.Sum64()}
}

// digest tells pages apart. The id of the request it answers, which changes
// from one list to the next, is left out where it is found at once: near the
// beginning or the end.
func (c *catalogue) digest(response, id []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	at := findID(response, id)
	if at < 0 {
		_, _ = h.Write(response)
		return h.Sum64()
	}
	_, _ = h.Write(response[:at])
	_ = h.WriteByte(0) // no JSON text has this byte: the place counts too
	_, _ = h.Write(response[at+len(id):])
	return h.Sum64()
}

// findID returns where the value of the member id stands in a response, if that
// is near its beginning or its end, or -1.
func findID(response, id []byte) int {
	const near = 128
	member := append([]byte(`"id":`), id...)
	head := response[:min(near, len(response))]
	if i := bytes.Index(head, member); i >= 0 {
		return i + len(`"id":`)
	}
	start := max(0, len(response)-near)
	if i := bytes.LastIndex(response[start:], member); i >= 0 {
		return start + i + len(`"id":`)
	}
	return -1
}
