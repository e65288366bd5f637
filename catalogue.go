package gateway

import (
	"bytes"
	"hash/maphash"
	"math"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
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
	views    *otter.Cache[viewKey, *view]
	notices  *otter.Cache[viewKey, *notice]
	lists    *otter.Cache[uint64, *keptList] // by the digest of the page
	seed     maphash.Seed
	lessons  lessons
	memory   spare
	changing sync.Mutex // one view changes at a time
}

// viewKey is a view of an endpoint: the tools that one caller is shown, or
// those that a server says are public. Digests stand for what clients choose,
// which may be long.
type viewKey struct {
	endpoint uint64
	caller   uint64 // 0 is everybody: what is public
}

// public is the view of everybody.
func (k viewKey) public() viewKey { return viewKey{endpoint: k.endpoint} }

// notice is when a view was last said to have changed, in Unix nanoseconds.
type notice struct{ changed atomic.Int64 }

// view is what a caller was shown. It does not change.
type view struct {
	notice *notice
	tools  map[string]*definition
	pages  map[uint64]*page
	size   uint32
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

// maxNotices is how many views' changes are remembered. A view of which that is
// forgotten is out of date.
const maxNotices = 100_000

// echoTime is how long after a page was seen a notice to another caller is taken
// for one of the change that the page already has.
const echoTime = 10 * time.Second

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
	forLists := uint64(size) / 4 //nolint:gosec // a positive option
	views, err := otter.New(&otter.Options[viewKey, *view]{
		MaximumWeight: uint64(size) - forLists, //nolint:gosec // a positive option
		Weigher:       func(_ viewKey, v *view) uint32 { return v.size },
		Executor:      here,
	})
	if err != nil {
		return nil, err
	}
	notices, err := otter.New(&otter.Options[viewKey, *notice]{MaximumSize: maxNotices, Executor: here})
	if err != nil {
		return nil, err
	}
	lists, err := otter.New(&otter.Options[uint64, *keptList]{
		MaximumWeight: forLists,
		Weigher:       func(_ uint64, l *keptList) uint32 { return uint32(len(l.before) + len(l.after)) }, //nolint:gosec // bounded by maxList
		Executor:      here,
	})
	if err != nil {
		return nil, err
	}
	return &catalogue{views: views, notices: notices, lists: lists, seed: maphash.MakeSeed()}, nil
}

// Destruct forgets everything, once no configuration uses the catalogue.
func (c *catalogue) Destruct() error {
	c.views.StopAllGoroutines()
	c.notices.StopAllGoroutines()
	c.lists.StopAllGoroutines()
	return nil
}

// knowledge is what a catalogue says of one tool.
type knowledge struct {
	bindings *mcpheaders.Bindings // of a definition that is up to date; nil if there is none, or it binds nothing
	state    knowledgeState
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
	c.catchUp(key)
	if known := c.look(key, key, tool, now); known.state != unknown {
		return known
	}
	c.catchUp(key.public())
	return c.look(key.public(), key, tool, now)
}

// look returns what a view says of a tool to a caller. What the caller was told
// of changes counts for what is public, too.
func (c *catalogue) look(key, caller viewKey, tool string, now time.Time) knowledge {
	v, ok := c.views.GetIfPresent(key)
	if !ok {
		return knowledge{}
	}
	d, ok := v.tools[tool]
	if !ok {
		return knowledge{}
	}
	current, _ := c.notices.GetIfPresent(key)
	if v.notice != current || !d.page.fresh(v.notice, now) {
		return knowledge{state: stale}
	}
	if key != caller {
		if told, ok := c.notices.GetIfPresent(caller); ok && !d.page.fresh(told, now) {
			return knowledge{state: stale}
		}
	}
	return knowledge{d.bindings, learned}
}

func (p *page) fresh(n *notice, now time.Time) bool {
	return now.UnixNano() < p.expires.Load() && p.learned.Load() > n.changed.Load()
}

// renew notes that the page was seen.
func (p *page) renew(now time.Time) {
	p.learned.Store(now.UnixNano())
	p.expires.Store(now.Add(p.lifetime).UnixNano())
}

// changed notes that a caller was told that its tools have changed. What other
// callers were shown is theirs: they are told themselves, or go on with it.
func (c *catalogue) changed(key viewKey, now time.Time) {
	c.catchUp(key.public())
	c.noteChange(key, now)
}

func (c *catalogue) noteChange(key viewKey, now time.Time) {
	c.notice(key).note(now)
	c.notice(key.public()).note(now.Add(-echoTime))
}

// note notes a change, unless a later one is noted.
func (n *notice) note(at time.Time) {
	for before := n.changed.Load(); before < at.UnixNano() && !n.changed.CompareAndSwap(before, at.UnixNano()); {
		before = n.changed.Load()
	}
}

// notice returns the view's notice, which is made if it is new.
func (c *catalogue) notice(key viewKey) *notice {
	n, _ := c.notices.ComputeIfAbsent(key, func() (*notice, bool) { return new(notice), false })
	return n
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
	if p := c.seenPage(key, digest); p != nil {
		p.renew(now)
		return true
	}
	if p := c.seenPage(key.public(), digest); p != nil {
		p.renew(now)
		c.views.Invalidate(key) // what it was shown before
		return true
	}
	return false
}

func (c *catalogue) seenPage(key viewKey, digest uint64) *page {
	v, ok := c.views.GetIfPresent(key)
	if !ok || v.notice != c.notice(key) {
		return nil
	}
	return v.pages[digest]
}

// learn takes in the definitions of a page that a caller was shown, or for all
// callers if it says that it is public.
func (c *catalogue) learn(key viewKey, digest uint64, definitions definitions, now time.Time) {
	p := &page{lifetime: lifetime(definitions.ttl)}
	p.renew(now)
	next := &view{tools: make(map[string]*definition, len(definitions.tools)), pages: map[uint64]*page{digest: p}}
	for name, bindings := range definitions.tools {
		next.tools[name] = &definition{bindings, p}
	}

	c.changing.Lock()
	defer c.changing.Unlock()
	if definitions.public {
		c.views.Invalidate(key) // what it was shown before
		key = key.public()
	}
	c.replace(key, next, now)
}

// doubt makes the definition of a tool say nothing any more to a caller, whose
// call agreed with it and was refused for its headers, until it is shown a list
// again. Others are not concerned: a caller can provoke such a refusal.
func (c *catalogue) doubt(key viewKey, tool string, now time.Time) {
	c.catchUp(key)
	c.changing.Lock()
	defer c.changing.Unlock()
	expired := new(page)
	next := &view{tools: map[string]*definition{tool: {page: expired}}, pages: make(map[uint64]*page)}
	c.replace(key, next, now)
}

// replace puts a view in the place of an earlier one, of which it takes over
// what it says nothing of.
func (c *catalogue) replace(key viewKey, next *view, now time.Time) {
	next.notice = c.notice(key)
	if before, ok := c.views.GetIfPresent(key); ok && before.notice == next.notice {
		next.keep(before, now)
	}
	next.weigh()
	c.views.Set(key, next)
}

// maxTools is how many tools one caller's view has at most. A server of which
// it had more is forgotten but for the last page.
const maxTools = 20_000

// keep takes over what an earlier view says of other tools, as far as that
// still counts, and the pages that it is from. A page of which a tool is known
// otherwise by now is not taken over: if it is seen again it is to be learned
// again.
func (v *view) keep(before *view, now time.Time) {
	if len(v.tools)+len(before.tools) > maxTools {
		return
	}
	whole := make(map[*page]bool)
	for _, p := range before.pages {
		whole[p] = p.fresh(before.notice, now)
	}
	for name, d := range before.tools {
		switch {
		case v.tools[name] != nil:
			whole[d.page] = false
		case d.page.fresh(before.notice, now):
			v.tools[name] = d
		}
	}
	for digest, p := range before.pages {
		if _, seen := v.pages[digest]; whole[p] && !seen {
			v.pages[digest] = p
		}
	}
}

// weigh sets about how many bytes of memory the view takes.
func (v *view) weigh() {
	const perView, perPage, perTool = 500, 100, 100
	size := perView + perPage*len(v.pages)
	for name, d := range v.tools {
		size += perTool + len(name) + d.bindings.Size()
	}
	v.size = uint32(min(size, math.MaxUint32)) //nolint:gosec // bounded here
}

// endpoint is an MCP endpoint as clients know it: a handler's namespace, the
// port that was connected to, the host, and the path and query of a request
// before anything rewrote them. The host is the client's to choose where a site takes
// any, and the port is not: so no site can be told of another's tools.
func (c *catalogue) endpoint(r *http.Request, namespace string) uint64 {
	ctx, target := r.Context(), r.URL
	if original, ok := ctx.Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok {
		target = original.URL // of the rest of it, Caddy keeps little
	}
	h := c.hash()
	h.add(namespace)
	h.add(strings.ToLower(r.Host))
	h.add(target.Path)
	h.add(target.RawQuery)
	if addr, ok := ctx.Value(http.LocalAddrContextKey).(interface{ AddrPort() netip.AddrPort }); ok {
		port := addr.AddrPort().Port()
		_ = h.WriteByte(byte(port >> 8))
		_ = h.WriteByte(byte(port))
	}
	return h.Sum64()
}

// caller tells whose request it is by what authenticates it: Authorization,
// Cookie, the client certificate, and the headers that the operator names.
// Requests without any of them are of one caller.
func (c *catalogue) caller(r *http.Request, headers []string) uint64 {
	h := c.hash()
	h.addAll(r.Header["Authorization"])
	h.addAll(r.Header["Cookie"])
	for _, name := range headers {
		h.addAll(r.Header[name])
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		_, _ = h.Write(r.TLS.PeerCertificates[0].Raw)
	}
	return max(h.Sum64(), 1) // 0 is everybody
}

// keyedHash tells texts apart whose hashes nobody outside can find: its key is
// the process's own.
type keyedHash struct{ maphash.Hash }

func (c *catalogue) hash() *keyedHash {
	h := new(keyedHash)
	h.SetSeed(c.seed)
	return h
}

// add adds one text, with its end.
func (h *keyedHash) add(text string) {
	_, _ = h.WriteString(text)
	_ = h.WriteByte(0)
}

// addAll adds a list of texts, with its end.
func (h *keyedHash) addAll(texts []string) {
	for _, text := range texts {
		h.add(text)
	}
	_ = h.WriteByte(1)
}

// digest tells pages apart. The id of the request it answers, which changes
// from one list to the next, is left out where it is found at once: near the
// beginning or the end.
func (c *catalogue) digest(response, id []byte) uint64 {
	h := c.hash()
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
	head, tail := response[:min(near, len(response))], max(0, len(response)-near)
	for _, name := range [...]string{`"id":`, `"id": `} {
		member := append([]byte(name), id...)
		if i := bytes.Index(head, member); i >= 0 {
			return i + len(name)
		}
		if i := bytes.LastIndex(response[tail:], member); i >= 0 {
			return tail + i + len(name)
		}
	}
	return -1
}
