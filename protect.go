package gateway

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/jsonrpc"
)

// The reasons for which a protected call is refused before its record is looked
// at. After that the reason is the ledger's answer.
const (
	reasonNoPrincipal = "no_principal"
	reasonNoKey       = "no_key"
	reasonNotInteger  = "not_integer"
	reasonNotRecorded = "not_recorded"
)

// effectReasons is every reason for which a protected call is refused.
func effectReasons() []string {
	reasons := []string{reasonNoPrincipal, reasonNoKey, reasonNotInteger, reasonNotRecorded}
	for _, a := range effect.Answers() {
		if a.Code() != 0 {
			reasons = append(reasons, a.String())
		}
	}
	return reasons
}

// effectRefusal is the answer to a protected call that is not forwarded.
type effectRefusal struct {
	reason string
	status int // HTTP
	code   int
	text   string
	data   []byte // error.data, nil for none
}

// refuseEffect is a refusal as clients show it to their callers: with HTTP 200.
func refuseEffect(reason string, code int, text string, data []byte) *effectRefusal {
	return &effectRefusal{reason, http.StatusOK, code, text, data}
}

// reserve looks up the effect of a protected call and reserves its execution,
// the last of all gates. A call that does not get the reservation is answered
// here, and then done is true: with the answer of the earlier call, or with a
// refusal.
func (c *call) reserve(w http.ResponseWriter) (done bool, err error) {
	command, refusal := c.identify()
	if refusal != nil {
		return true, c.answerEffect(w, refusal)
	}
	release := c.h.ledger.acquire()
	change, begun, err := c.meet(command)
	switch {
	case err != nil:
		go giveUp(c.h.ledger, release, *command)
		if c.request.Context().Err() != nil {
			w.WriteHeader(statusClientGone) // for the access log
			return true, nil
		}
		c.h.logger.Error("a tool call could not be reserved, and was not forwarded", zap.Object("mcp", c), zap.Error(err))
		return true, c.answerEffect(w, notRecorded())
	case change.Answer == effect.Forward:
		c.reservation = &reservation{
			Reservation: change.After.Reservation(), later: change.After.Hold.Round > 0,
			ledger: c.h.ledger, release: release, log: c.h.logger, lease: c.h.lease,
		}
		c.reservation.hold(begun)
		return false, nil
	}
	release()
	if change.Answer == effect.Replay {
		return true, c.replay(w, &change)
	}
	return true, c.answerEffect(w, refuseEffect(change.Answer.String(), change.Answer.Code(), change.Answer.Advice(), change.AppendData(nil)))
}

// notRecorded is the refusal of a call whose reservation could not be written.
func notRecorded() *effectRefusal {
	return &effectRefusal{
		reasonNotRecorded, http.StatusServiceUnavailable, effect.CodeNotRecorded,
		"The call could not be put on record, so it was not forwarded: nothing has happened; it can be repeated.", nil,
	}
}

// identify tells which effect the call is of, and whose, or why it has none.
func (c *call) identify() (*effect.Call, *effectRefusal) {
	repl := c.request.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	command := &effect.Call{
		Tool: c.name,

		Rounds:      c.h.ElicitationRounds,
		Lease:       c.h.lease,
		SettleAfter: microseconds(c.h.SettleAfter),
		Retain:      microseconds(c.h.Retain),

		Revision: c.revision,
		Bytes:    int64(len(c.body)),
	}
	_, _ = rand.Read(command.Token[:]) // it never fails

	if len(c.name) > maxToolName {
		return nil, refuseEffect(reasonNoKey, effect.CodeNoKey,
			"The name of the tool is too long to be put on record. Nothing was forwarded; call a tool that the server has.", memberData("placeholder", "{http.mcp.name}"))
	}
	var refusal *effectRefusal
	if command.Who, command.Caller, refusal = c.caller(repl); refusal != nil {
		return nil, refusal
	}
	var unusable *effect.Refusal
	if command.Key, unusable = c.rule.effect.Key(c.h.Namespace, &c.message, repl.Get); unusable != nil {
		return nil, refuseEffect(reasonNoKey, unusable.Code, unusable.Text, memberData("placeholder", unusable.Placeholder))
	}
	if command.Fingerprint, command.Outline, unusable = effect.Identify(&c.message); unusable != nil {
		return nil, refuseEffect(reasonNotInteger, unusable.Code, unusable.Text, memberData("pointer", shorten(unusable.Pointer)))
	}
	if digest, ok := effect.DigestState(c.message.Params.RequestState); ok {
		command.RequestState = &digest
	}
	if c.h.KeepArguments {
		command.Arguments = c.message.Params.Arguments.Raw
	}
	return command, nil
}

// memberData is an error.data of one text.
func memberData(name, text string) []byte {
	data, _ := json.Marshal(map[string]string{name: text}) // it never fails
	return data
}

// maxToolName is the longest name of a tool that is protected, in bytes. With a
// pattern clients choose what follows it, and it stands in every record and
// receipt too.
const maxToolName = 1024

// maxPrincipal is the longest principal, in bytes: it stands in every record
// and receipt.
const maxPrincipal = 1024

// caller tells whose call it is: the principal, if one is configured, or else a
// digest of what authenticates the caller. The ledger's secret keys it, so that
// nobody can find a token from a record.
func (c *call) caller(repl *caddy.Replacer) (who, caller string, refusal *effectRefusal) {
	if c.h.Principal != "" {
		who, caller, err := resolvePrincipal(repl, c.h.Principal)
		if err != nil {
			return "", "", refuseEffect(reasonNoPrincipal, effect.CodeNoPrincipal,
				"It is not known who makes this call, so it was not forwarded: sign in, and call again.", nil)
		}
		return who, caller, nil
	}
	ctx, cancel := context.WithTimeout(c.request.Context(), reserveTime)
	defer cancel()
	secret, err := c.h.ledger.Secret(ctx)
	if err != nil {
		c.h.logger.Error("the ledger of effects does not answer: a tool call was not forwarded", zap.Object("mcp", c), zap.Error(err))
		return "", "", notRecorded()
	}
	return "", "digest " + hex.EncodeToString(digestCaller(secret, c.request, c.h.Caller)), nil
}

var errNoPrincipal = errors.New("a principal has no usable value")

// resolvePrincipal returns the principal as it is shown, and as it is compared:
// of several values each by itself, since acme and eu:ann make the text that
// acme:eu and ann make.
func resolvePrincipal(repl *caddy.Replacer, principal string) (who, caller string, err error) {
	var values []string
	who, err = repl.ReplaceFunc(principal, func(_ string, value any) (any, error) {
		text := caddy.ToString(value)
		if text == "" || !utf8.ValidString(text) {
			return nil, errNoPrincipal
		}
		values = append(values, text)
		return text, nil
	})
	switch {
	case err != nil, who == "", len(who) > maxPrincipal:
		return "", "", errNoPrincipal
	case len(values) > 1:
		return who, "principals " + effect.NewKey("", values...).Text, nil
	}
	return who, "principal " + who, nil
}

// digestCaller digests what authenticates the caller of r. Each list of values
// goes in with its length, and each value with its own.
func digestCaller(secret effect.Secret, r *http.Request, headers []string) []byte {
	h := hmac.New(sha256.New, secret[:])
	add := func(values ...string) {
		text := binary.AppendUvarint(nil, uint64(len(values)))
		for _, value := range values {
			text = binary.AppendUvarint(text, uint64(len(value)))
			text = append(text, value...)
		}
		_, _ = h.Write(text)
	}
	add(r.Header["Authorization"]...)
	add(r.Header["Cookie"]...)
	for _, name := range headers {
		add(r.Header[name]...)
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		add(string(r.TLS.PeerCertificates[0].Raw))
	}
	return h.Sum(nil)
}

// meet has the call meet the record of its effect. One that repeats a call
// which is still under way waits for the outcome of that, if it may; if nobody
// knows the outcome it is asked for, once. It returns when the ledger was last
// asked, too.
func (c *call) meet(command *effect.Call) (change effect.Change, begun time.Time, err error) {
	ctx := c.request.Context()
	var over <-chan time.Time // of the wait, once it has begun
	reconciled := false
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		begun = time.Now()
		if change, err = c.apply(command); err != nil {
			return change, begun, err
		}
		switch {
		case change.Answer == effect.Unknown && c.h.reconcilerOf(&change.After) != nil && !reconciled:
			c.h.reconcile(ctx, c.h.reconcilerOf(&change.After), &change.After)
			reconciled = true
			continue
		case !joins(&change) || c.h.Join == 0:
			return change, begun, nil
		case over == nil:
			if !c.h.joined.enter() {
				return change, begun, nil
			}
			defer c.h.joined.leave()
			over = time.After(time.Duration(c.h.Join))
		}
		select {
		case <-ctx.Done():
			return change, begun, ctx.Err()
		case <-over:
			return change, begun, nil
		case <-time.After(pause):
		}
	}
}

// apply asks the ledger for the reservation of the call.
func (c *call) apply(command *effect.Call) (effect.Change, error) {
	ctx, cancel := context.WithTimeout(c.request.Context(), reserveTime)
	defer cancel()
	return c.h.ledger.Apply(ctx, *command)
}

// How long a call that waits for another one pauses until it asks again, which
// another process may have to answer.
const (
	minPause = 10 * time.Millisecond
	maxPause = 250 * time.Millisecond
)

// joins reports whether a call was refused that is the same as one which is
// under way, of the same caller.
func joins(change *effect.Change) bool {
	return change.Answer == effect.InProgress && change.Event == effect.CallSame
}

// answerEffect refuses a protected call.
func (c *call) answerEffect(w http.ResponseWriter, refusal *effectRefusal) error {
	c.refusal = refusal.reason
	countEffectRefusal(refusal.reason)
	if entry := c.h.logger.Check(zap.InfoLevel, "refused"); entry != nil {
		entry.Write(zap.String("refusal", refusal.reason), zap.Object("mcp", c), zap.String("remote_ip", clientIP(c.request)))
	}
	if refusal.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	return c.writeError(w, refusal.status, jsonrpc.AppendError(nil, c.message.ID, refusal.code, refusal.text, refusal.data))
}
