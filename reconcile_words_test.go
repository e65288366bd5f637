package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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
