package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"
	"golang.org/x/net/http/httpguts"

	"github.com/caddymcp/gateway/effect"
)

// Reconcile is whom the gateway asks whether an effect has happened of which
// the outcome is unknown.
//
// It is asked by a POST of a JSON object with the members `namespace`, `key` (an
// array of texts), `tool`, `fingerprint`, `attempt` and `since`, when a call
// meets the effect and from time to time. It answers with HTTP 200 and one of
// the words `committed`, `not_executed` and `unknown`, as text or as the member
// `outcome` of a JSON object. Anything else is unknown, and so is
// `not_executed` as long as the upstream may still be at work.
type Reconcile struct {
	// The URL. Global placeholders such as `{env.BOOKS_URL}` are replaced.
	URL string `json:"url"`

	// Headers of the request, as for its authentication. Global placeholders
	// such as `{file./run/secrets/token}` are replaced.
	Headers http.Header `json:"headers,omitempty"`

	// How long an answer is waited for. Default: 10 seconds.
	Timeout caddy.Duration `json:"timeout,omitempty"`
}

func (r *Reconcile) validate() error {
	if r.URL == "" {
		return errors.New("reconcile needs a URL")
	}
	if !strings.Contains(r.URL, "{") { // one with a placeholder can be read only at provision
		if err := checkURL(r.URL); err != nil {
			return err
		}
	}
	for name := range r.Headers {
		if err := checkHeaderName("reconcile_header", name); err != nil {
			return err
		}
	}
	if r.Timeout == 0 {
		return nil
	}
	return checkDuration("reconcile_timeout", time.Duration(r.Timeout))
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("reconcile: %q is no http or https URL", text)
	}
	return nil
}

// unmarshalReconcile reads one of the lines of reconcile.
func (t *Tool) unmarshalReconcile(d *caddyfile.Dispenser) error {
	if t.Reconcile == nil {
		t.Reconcile = new(Reconcile)
	}
	r := t.Reconcile
	switch d.Val() {
	case "reconcile":
		if r.URL != "" || !d.AllArgs(&r.URL) {
			return d.Errf("reconcile needs exactly one URL, once")
		}
	case "reconcile_header":
		var name, value string
		if !d.AllArgs(&name, &value) {
			return d.Errf("reconcile_header needs a name and a value")
		}
		if err := checkHeaderName("reconcile_header", name); err != nil {
			return d.WrapErr(err)
		}
		if r.Headers == nil {
			r.Headers = make(http.Header)
		}
		r.Headers.Add(name, value)
	case "reconcile_timeout":
		return durationOption(d, &r.Timeout)
	}
	return nil
}

const defaultReconcileTimeout = 10 * time.Second

// reconciler asks about the effects of one tool.
type reconciler struct {
	url     string
	who     string // as which it is on record
	header  http.Header
	timeout time.Duration
	client  *http.Client
}

// newReconciler replaces placeholders once, so that what is wrong with them is
// told when the configuration is loaded.
func newReconciler(r *Reconcile) (*reconciler, error) {
	repl := caddy.NewReplacer()
	address, err := repl.ReplaceOrErr(r.URL, true, true)
	if err != nil {
		return nil, fmt.Errorf("reconcile: replacing placeholders of %q: %w", r.URL, err)
	}
	if checkURL(address) != nil { // which names what may be a secret
		return nil, fmt.Errorf("reconcile: %q is no http or https URL once its placeholders are replaced", r.URL)
	}
	u, _ := url.Parse(address)
	header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/plain"}}
	for name, values := range r.Headers {
		header.Del(name)
		for _, value := range values {
			value, err := repl.ReplaceOrErr(value, true, true)
			if err != nil {
				return nil, fmt.Errorf("reconcile_header: replacing placeholders of %s: %w", name, err)
			}
			if !httpguts.ValidHeaderFieldValue(value) {
				return nil, fmt.Errorf("reconcile_header: the value of %s has bytes that no header can have, as a line's end", name)
			}
			header.Add(name, value)
		}
	}
	timeout := time.Duration(r.Timeout)
	setDefault(&timeout, defaultReconcileTimeout)
	return &reconciler{
		url: address, who: "reconcile " + u.Host, header: header, timeout: timeout,
		client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}, nil
}

// The words of a reconciler.
const (
	wordCommitted   = "committed"
	wordNotExecuted = "not_executed"
	wordUnknown     = "unknown"
)

// ask asks about one record, and returns one of the words.
func (r *reconciler) ask(ctx context.Context, record *effect.Record) (word string, err error) {
	question, _ := json.Marshal(struct { // none of its members can fail
		Namespace   string             `json:"namespace"`
		Key         jsontext.Value     `json:"key"`
		Tool        string             `json:"tool"`
		Fingerprint effect.Fingerprint `json:"fingerprint"`
		Attempt     int64              `json:"attempt"`
		Since       time.Time          `json:"since"`
	}{record.Key.Namespace, jsontext.Value(record.Key.Text), record.Tool, record.Fingerprint, record.Attempt, record.Since})
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(question))
	if err != nil {
		return wordUnknown, err
	}
	request.Header, request.Host = r.header, r.header.Get("Host")
	response, err := r.client.Do(request)
	if err != nil {
		return wordUnknown, errors.Unwrap(err) // without the URL, in which there may be a secret
	}
	defer response.Body.Close() //nolint:errcheck // nothing is left to do with it
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxReconcileAnswer+1))
	switch {
	case err != nil:
		return wordUnknown, err
	case response.StatusCode != http.StatusOK:
		return wordUnknown, fmt.Errorf("it answered with HTTP status %d", response.StatusCode)
	case len(answer) > maxReconcileAnswer: // what was not read could say something else
		return wordUnknown, errors.New("its answer is too long")
	}
	return readWord(answer)
}

// maxReconcileAnswer is how long an answer may be, in bytes.
const maxReconcileAnswer = 64 << 10

// readWord reads an answer.
func readWord(answer []byte) (word string, err error) {
	text := string(bytes.TrimSpace(answer))
	if strings.HasPrefix(text, "{") {
		var object map[string]jsontext.Value // it has each name once, and in its case
		if err := json.Unmarshal(answer, &object); err != nil || json.Unmarshal(object["outcome"], &text) != nil {
			return wordUnknown, errors.New("it answered with a JSON object without a readable outcome")
		}
	}
	switch text {
	case wordCommitted, wordNotExecuted, wordUnknown:
		return text, nil
	}
	return wordUnknown, errors.New("it answered none of committed, not_executed and unknown")
}

// reconciling keeps the questions about one effect from being asked by every
// call that meets it.
type reconciling struct {
	mu      sync.Mutex
	running map[effect.Key]chan struct{} // closed when the answer is on record
}

// reconcilerOf returns whom to ask about a record, nil for nobody. Only who knows
// of the tool that was called can say what became of it: one that shares its key
// may be looked up elsewhere, where the effect could never be found.
func (h *Handler) reconcilerOf(record *effect.Record) *reconciler {
	return h.tools.find(record.Tool).reconciler
}

// reconcile asks about an ambiguous record and puts the answer on record, or
// waits for somebody else who does.
func (h *Handler) reconcile(ctx context.Context, r *reconciler, record *effect.Record) {
	key := record.Key
	h.asking.mu.Lock()
	other, running := h.asking.running[key]
	done := make(chan struct{})
	if !running {
		if h.asking.running == nil {
			h.asking.running = make(map[effect.Key]chan struct{})
		}
		h.asking.running[key] = done
	}
	h.asking.mu.Unlock()
	if running {
		select {
		case <-other:
		case <-ctx.Done():
		}
		return
	}
	defer func() {
		h.asking.mu.Lock()
		defer h.asking.mu.Unlock()
		delete(h.asking.running, key)
		close(done)
	}()
	defer h.ledger.acquire()()
	h.settle(ctx, r, record)
}

// settle asks about a record and puts the answer on record. That it did not
// happen counts only if it was asked when the upstream could not be at work any
// more: an answer says nothing of what happened after the question.
func (h *Handler) settle(ctx context.Context, r *reconciler, record *effect.Record) {
	early := time.Now().Before(record.SettleAt())
	word, err := r.ask(ctx, record)
	if err != nil {
		h.logger.Warn("reconciling an effect: no usable answer", zap.String("tool", record.Tool), zap.Error(err))
	}
	if word == wordUnknown || word == wordNotExecuted && early {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reserveTime)
	defer cancel()
	_, err = h.ledger.Apply(ctx, effect.Resolution{
		Key: record.Key, Attempt: record.Attempt, Since: record.Since, Committed: word == wordCommitted,
		Who: r.who, Why: "it answered " + word,
	})
	if err != nil {
		h.logger.Error("reconciling an effect: the answer could not be recorded", zap.String("tool", record.Tool), zap.Error(err))
	}
}

// The pauses between the questions about one effect that nobody calls for.
const (
	minReconcilePause = 10 * time.Second
	maxReconcilePause = time.Hour
)

// maxReconciled is how many ambiguous effects are looked at in one round.
const maxReconciled = 10_000

// reconcileAlways asks about the ambiguous effects of h's tools, each again
// after a pause that doubles, until ctx is done.
func (h *Handler) reconcileAlways(ctx context.Context) {
	type plan struct {
		attempt int64
		next    time.Time
		pause   time.Duration
	}
	plans := make(map[effect.Key]plan)
	ticker := time.NewTicker(minReconcilePause)
	defer ticker.Stop()
	for {
		records, err := h.ledger.List(ctx, effect.Filter{State: effect.Ambiguous, Limit: maxReconciled})
		if err != nil && ctx.Err() == nil {
			h.logger.Warn("listing the effects to reconcile", zap.Error(err))
		}
		planned := make(map[effect.Key]plan, len(plans))
		for i := range records {
			record := &records[i]
			r := h.reconcilerOf(record)
			if record.Key.Namespace != h.Namespace || r == nil {
				continue
			}
			p := plans[record.Key]
			if p.attempt != record.Attempt {
				p = plan{attempt: record.Attempt, pause: minReconcilePause}
			}
			if now := time.Now(); !now.Before(p.next) {
				h.reconcile(ctx, r, record)
				p.next, p.pause = time.Now().Add(p.pause), min(2*p.pause, maxReconcilePause)
			}
			planned[record.Key] = p
		}
		plans = planned
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
