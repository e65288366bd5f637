package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// lookup is what mcp_gateway asks with its option reconcile: whether an effect happened whose answer was lost. Of the
// question this server needs the key alone, as the option effect makes it: ["refund","pay_1"].
func (l *ledger) lookup(w http.ResponseWriter, r *http.Request) {
	var question struct{ Key []string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&question); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"outcome":%q}`, l.find(question.Key))
}

// find answers committed for what is in the books. For what is not, books that nothing is ever lost from would prove
// not_executed; these are empty again after each start, so they prove nothing.
func (l *ledger) find(key []string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(key) == 2 && key[0] == "refund" &&
		slices.ContainsFunc(l.refunds, func(r refund) bool { return r.PaymentID == key[1] }) {
		return "committed"
	}
	return "unknown"
}
