package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddymcp/gateway/effect"
)

// desk is where operators ask about the effects of a ledger and settle them.
// Its errors are of type caddy.APIError.
type desk struct {
	ledger effect.Ledger
	store  LedgerStore
	uses   []ledgerUse // none where a ledger is used without a configuration
}

// What can be listed at once.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// What a person may say. It stays on record for as long as the effect does.
const (
	maxWho = 256
	maxWhy = 4096
)

// statusView is what is protected, and what is on record.
type statusView struct {
	Ledger string           `json:"ledger"`
	For    string           `json:"for"` // one host, or several
	Tools  []toolsView      `json:"tools,omitempty"`
	Count  map[string]int64 `json:"effects"` // by state
	Oldest *time.Time       `json:"oldest_ambiguous,omitempty"`
}

// toolsView is the tools of one namespace.
type toolsView struct {
	Namespace     string   `json:"namespace"`
	Protected     []string `json:"protected"`
	WithoutEffect []string `json:"without_effect,omitempty"`
}

// effectView is a record as operators see it: without the caller and the
// stored result, which are nobody's but the caller's.
type effectView struct {
	Namespace   string     `json:"namespace"`
	Key         string     `json:"key"`
	State       string     `json:"state"`
	Attempt     int64      `json:"attempt"`
	Since       time.Time  `json:"since"`  // when the state began
	Active      time.Time  `json:"active"` // the attempt's last sign of life
	Deadline    *time.Time `json:"deadline,omitempty"`
	SettleAt    *time.Time `json:"settle_at,omitempty"` // from when on an ambiguous one can be resolved as failed
	Tool        string     `json:"tool"`
	Fingerprint string     `json:"fingerprint"`
	Who         string     `json:"who,omitempty"`
	Revision    string     `json:"revision,omitempty"`
	Upstream    string     `json:"upstream,omitempty"`
	Observation string     `json:"observation,omitempty"`
	Task        string     `json:"task,omitempty"`
	Round       int        `json:"round,omitzero"` // how many times the attempt has asked for input
	AnswerBytes int        `json:"answer_bytes,omitzero"`
	AnswerUntil *time.Time `json:"answer_until,omitempty"`
}

func viewEffect(r *effect.Record) *effectView {
	v := &effectView{
		Namespace: r.Key.Namespace, Key: r.Key.Text, State: r.State.String(), Attempt: r.Attempt,
		Since: r.Since, Active: r.Active, Deadline: timeOrNil(r.Deadline),
		Tool: r.Tool, Fingerprint: r.Fingerprint.String(), Who: r.Who, Revision: r.Revision,
		Upstream: r.Upstream, Observation: r.Observation, Task: r.TaskID, Round: r.Hold.Round,
		AnswerBytes: len(r.Answer), AnswerUntil: timeOrNil(r.AnswerUntil),
	}
	if r.State == effect.Ambiguous {
		v.SettleAt = new(r.SettleAt())
	}
	return v
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// receiptView is a receipt as operators see it.
type receiptView struct {
	Namespace   string         `json:"namespace"`
	Key         string         `json:"key"`
	At          time.Time      `json:"at"`
	Attempt     int64          `json:"attempt"`
	Event       string         `json:"event"`
	Answer      string         `json:"answer"`
	From        string         `json:"from"`
	To          string         `json:"to"`
	Who         string         `json:"who,omitempty"`
	Why         string         `json:"why,omitempty"`
	Tool        string         `json:"tool,omitempty"`
	Fingerprint string         `json:"fingerprint"`
	Observation string         `json:"observation,omitempty"`
	Revision    string         `json:"revision,omitempty"`
	Upstream    string         `json:"upstream,omitempty"`
	Bytes       int64          `json:"bytes"`
	Arguments   jsontext.Value `json:"arguments,omitempty"` // only where the operator keeps them
}

func viewReceipts(receipts []effect.Receipt) []receiptView {
	views := make([]receiptView, len(receipts))
	for i, r := range receipts {
		views[i] = receiptView{
			Namespace: r.Key.Namespace, Key: r.Key.Text, At: r.At, Attempt: r.Attempt,
			Event: r.Event.String(), Answer: r.Answer.String(), From: r.From.String(), To: r.To.String(),
			Who: r.Who, Why: r.Why, Tool: r.Tool, Fingerprint: r.Fingerprint.String(), Observation: r.Observation,
			Revision: r.Revision, Upstream: r.Upstream, Bytes: r.Bytes, Arguments: r.Arguments,
		}
	}
	return views
}

// status answers what is protected, and counts what is on record.
func (d *desk) status(ctx context.Context, _ url.Values) (*statusView, error) {
	d.sweep(ctx)
	census, err := d.ledger.Census(ctx)
	if err != nil {
		return nil, ledgerError(err)
	}
	v := &statusView{Ledger: d.store.Place(), For: hosts(d.store), Count: make(map[string]int64), Oldest: timeOrNil(census.Oldest)}
	for _, state := range effect.States()[1:] { // none is no state of a record
		v.Count[state.String()] = census.Records[state]
	}
	for _, u := range d.uses {
		v.Tools = append(v.Tools, toolsView{u.namespace, u.protected, u.bare})
	}
	slices.SortFunc(v.Tools, func(a, b toolsView) int { return strings.Compare(a.Namespace, b.Namespace) })
	return v, nil
}

// sweep makes what has run out count, before it is listed or counted. If it
// fails, what is on record can still be read.
func (d *desk) sweep(ctx context.Context) { _, _ = effect.Sweep(ctx, d.ledger) }

// effectsView is the answer to a list. There are more where it is cut.
type effectsView struct {
	Effects []*effectView `json:"effects"`
	Cut     bool          `json:"cut"`
}

// effects lists records by state and age.
func (d *desk) effects(ctx context.Context, query url.Values) (*effectsView, error) {
	limit, err := limitOf(query)
	if err != nil {
		return nil, err
	}
	filter := effect.Filter{Limit: limit + 1}
	if word := query.Get("state"); word != "" {
		if err := filter.State.UnmarshalText([]byte(word)); err != nil || filter.State == effect.None {
			return nil, refused(http.StatusBadRequest, "state is %q: it must be one of %v", word, effect.States()[1:])
		}
	}
	if text := query.Get("older_than"); text != "" {
		age, err := caddy.ParseDuration(text)
		if err != nil || age < 0 {
			return nil, refused(http.StatusBadRequest, "older_than is %q: it must be a time such as 90s, 2h or 7d", text)
		}
		filter.Before = time.Now().Add(-age)
	}
	d.sweep(ctx)
	records, err := d.ledger.List(ctx, filter)
	if err != nil {
		return nil, ledgerError(err)
	}
	v := &effectsView{Effects: []*effectView{}, Cut: len(records) > limit}
	for i := range records[:min(limit, len(records))] {
		v.Effects = append(v.Effects, viewEffect(&records[i]))
	}
	return v, nil
}

func limitOf(query url.Values) (int, error) {
	text := query.Get("limit")
	if text == "" {
		return defaultLimit, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > maxLimit {
		return 0, refused(http.StatusBadRequest, "limit is %q: it must be a number from 1 to %d", text, maxLimit)
	}
	return limit, nil
}

// effectAndReceipts is all that is on record of one effect, receipts in the
// order of what happened.
type effectAndReceipts struct {
	Effect   *effectView   `json:"effect"`
	Receipts []receiptView `json:"receipts"`
}

// effect answers what is on record of one effect.
func (d *desk) effect(ctx context.Context, query url.Values) (*effectAndReceipts, error) {
	key, err := parseKey(query.Get("namespace"), query.Get("key"))
	if err != nil {
		return nil, refused(http.StatusBadRequest, "%w", err)
	}
	_, _ = d.ledger.Apply(ctx, effect.Sweeping{Key: key}) // as for sweep
	record, receipts, err := d.ledger.Load(ctx, key)
	switch {
	case err != nil:
		return nil, ledgerError(err)
	case record.State == effect.None:
		return nil, refused(http.StatusNotFound, "%s", effect.NoEffect.Advice())
	}
	return &effectAndReceipts{viewEffect(&record), viewReceipts(receipts)}, nil
}

// receiptsView is the answer to a question for receipts.
type receiptsView struct {
	Receipts []receiptView `json:"receipts"`
}

// receipts answers with the last ones.
func (d *desk) receipts(ctx context.Context, query url.Values) (*receiptsView, error) {
	limit, err := limitOf(query)
	if err != nil {
		return nil, err
	}
	receipts, err := d.ledger.Receipts(ctx, limit)
	if err != nil {
		return nil, ledgerError(err)
	}
	return &receiptsView{viewReceipts(receipts)}, nil
}

// parseKey reads a key as it is printed. However its strings are escaped, it
// is the key that they make.
func parseKey(namespace, text string) (effect.Key, error) {
	var parts []string
	if err := json.Unmarshal([]byte(text), &parts); err != nil || len(parts) == 0 || slices.Contains(parts, "") {
		return effect.Key{}, fmt.Errorf(`key is %q: it must be a JSON array of strings, as it is printed: ["refund","txn_1"]`, text)
	}
	return effect.NewKey(namespace, parts...), nil
}

// verdict is what a person says of an effect, having looked where it can be
// seen whether it happened.
type verdict struct {
	Namespace string         `json:"namespace,omitempty"`
	Key       jsontext.Value `json:"key"`             // the array, or a string with it
	Attempt   int64          `json:"attempt"`         // that was judged
	State     string         `json:"state,omitempty"` // to resolve: committed or failed
	Who       string         `json:"who"`
	Why       string         `json:"why"`
}

// check returns the key, or says what is wrong with the verdict.
func (v *verdict) check() (effect.Key, error) {
	text := string(v.Key)
	if v.Key.Kind() == '"' {
		_ = json.Unmarshal(v.Key, &text) // it is a string
	}
	key, err := parseKey(v.Namespace, text)
	switch {
	case err != nil:
		return effect.Key{}, refused(http.StatusBadRequest, "%w", err)
	case v.Attempt < 1:
		return effect.Key{}, refused(http.StatusBadRequest, "attempt is %d: name the attempt that was judged, as it is listed", v.Attempt)
	}
	for _, text := range []struct {
		name, value string
		limit       int
	}{{"who", v.Who, maxWho}, {"why", v.Why, maxWhy}} {
		switch {
		case strings.TrimSpace(text.value) == "":
			return effect.Key{}, refused(http.StatusBadRequest, "%s is missing: it stays on record with the effect", text.name)
		case len(text.value) > text.limit:
			return effect.Key{}, refused(http.StatusBadRequest, "%s has %d bytes: it can have %d", text.name, len(text.value), text.limit)
		}
	}
	return key, nil
}

// resolve settles an ambiguous effect.
func (d *desk) resolve(ctx context.Context, v *verdict) (*effectView, error) {
	key, err := v.check()
	if err != nil {
		return nil, err
	}
	if v.State != effect.Committed.String() && v.State != effect.Failed.String() {
		return nil, refused(http.StatusBadRequest, "state is %q: it must be committed or failed", v.State)
	}
	return d.settle(ctx, effect.Resolution{
		Key: key, Attempt: v.Attempt, Committed: v.State == effect.Committed.String(), Who: v.Who, Why: v.Why,
	})
}

// reopen takes back that an effect happened.
func (d *desk) reopen(ctx context.Context, v *verdict) (*effectView, error) {
	key, err := v.check()
	if err != nil {
		return nil, err
	}
	if v.State != "" {
		return nil, refused(http.StatusBadRequest, "state is %q: what is reopened has failed, and no state is named", v.State)
	}
	return d.settle(ctx, effect.Reopening{Key: key, Attempt: v.Attempt, Who: v.Who, Why: v.Why})
}

func (d *desk) settle(ctx context.Context, c effect.Command) (*effectView, error) {
	change, err := d.ledger.Apply(ctx, c)
	if err != nil {
		return nil, ledgerError(err)
	}
	r, advice := &change.After, change.Answer.Advice()
	switch change.Answer {
	case effect.Settled:
		return viewEffect(r), nil
	case effect.NoEffect:
		return nil, refused(http.StatusNotFound, "%s", advice)
	case effect.TooEarly:
		return nil, refused(http.StatusConflict, "%s That is from %s on.", advice, r.SettleAt().Format(time.RFC3339))
	case effect.OtherAttempt:
		return nil, refused(http.StatusConflict, "%s It is of attempt %d.", advice, r.Attempt)
	default:
		return nil, refused(http.StatusConflict, "%s It is %s since %s.", advice, r.State, r.Since.Format(time.RFC3339))
	}
}
