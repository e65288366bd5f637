package gateway

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/caddymcp/gateway/effect"
)

// An answer is one word, whole, and everything else is unknown.
func TestReconcileWords(t *testing.T) {
	pad := strings.Repeat(" ", maxReconcileAnswer)
	for _, c := range []struct {
		name, answer, want string
	}{
		{"a word", "committed", wordCommitted},
		{"a line", " not_executed\r\n", wordNotExecuted},
		{"an object", `{"outcome":"not_executed","of":1}`, wordNotExecuted},
		{"as long as can be", "committed" + pad[len("committed"):], wordCommitted},
		{"too long", "committed" + pad + "not", wordUnknown},
		{"an object that is too long", `{"outcome":"committed"}` + pad + "not", wordUnknown},
		{"an object after a line break", "\n {\"outcome\":\"committed\"}\n", wordCommitted},
		{"no outcome", `{"outcome":null}`, wordUnknown},
		{"two outcomes", `{"outcome":"unknown","outcome":"not_executed"}`, wordUnknown},
		{"in another case", `{"Outcome":"committed"}`, wordUnknown},
		{"nothing", "", wordUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.answer) }))
			defer s.Close()
			r, err := newReconciler(&Reconcile{URL: s.URL})
			if err != nil {
				t.Fatal(err)
			}
			record := effect.Record{Key: effect.NewKey("", "refund", "txn_1")}
			if word, err := r.ask(t.Context(), &record); word != c.want {
				t.Errorf("read as %s, %v; want %s", word, err, c.want)
			}
		})
	}
}

// settling is a ledger that notes what is to be settled.
type settling struct {
	ledger
	resolution effect.Resolution
}

func (l *settling) Apply(_ context.Context, c effect.Command) (effect.Change, error) {
	l.resolution = c.(effect.Resolution)
	return effect.Change{}, nil
}

// The answer is about the record as it was when it was asked about: while it was
// waited for, the attempt may have gone on.
func TestReconcileJudgesWhatItAskedAbout(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, wordNotExecuted) }))
	defer s.Close()
	r, err := newReconciler(&Reconcile{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	l := new(settling)
	record := effect.Record{Key: effect.NewKey("", "refund", "txn_1"), Attempt: 3, Since: time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)}
	h := &Handler{logger: zap.NewNop(), ledger: l}
	h.settle(t.Context(), r, &record)
	if got := l.resolution; got.Key != record.Key || got.Attempt != 3 || !got.Since.Equal(record.Since) || got.Committed {
		t.Errorf("settled %+v", got)
	}
}
