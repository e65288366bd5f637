package gateway

import "testing"

func TestToolTable(t *testing.T) {
	table := newToolTable([]Tool{
		{Pattern: "refund", NotExecutedOnError: true},
		{Pattern: "refund*", AmbiguousCodes: []int64{-32602}},
		{Pattern: "refund_all*", NotExecutedOnError: true},
		{Pattern: "*", AmbiguousCodes: []int64{-32601}},
	}, []int64{-32021})
	tests := []struct {
		tool        string
		notExecuted bool
		ambiguous   int64
	}{
		{"refund", true, -32021},
		{"refund_one", false, -32602},
		{"refund_all", true, -32021},
		{"refund_all_now", true, -32021},
		{"Refund", false, -32601},
		{"", false, -32601},
	}
	for _, tt := range tests {
		rule := table.find(tt.tool)
		if rule.notExecutedOnError != tt.notExecuted || !rule.isAmbiguous(tt.ambiguous) || !rule.isAmbiguous(-32021) {
			t.Errorf("%q: got %+v", tt.tool, *rule)
		}
	}
	for code, want := range map[int64]bool{-32602: false, -32601: false, -32021: true} {
		if got := table.find("refund").isAmbiguous(code); got != want {
			t.Errorf("refund: %d is ambiguous: %v; a tool has its own block's codes and the handler's alone", code, got)
		}
	}
	none := newToolTable(nil, []int64{-32021})
	if rule := none.find("x"); rule.notExecutedOnError || !rule.isAmbiguous(-32021) {
		t.Errorf("a tool without a block: got %+v, want the handler's lines", *rule)
	}
}
