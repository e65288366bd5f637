package mcpheaders

import (
	"net/http"
	"testing"

	"github.com/caddymcp/gateway/jsonrpc"
)

// TestName pins what a message names according to its body.
func TestName(t *testing.T) {
	for _, test := range []struct{ method, params, want string }{
		{"tools/call", `{"name":"echo","uri":"u","taskId":"t"}`, "echo"},
		{"prompts/get", `{"name":"ech\u006f"}`, "echo"},
		{"resources/subscribe", `{"name":"echo","uri":"u","taskId":"t"}`, "u"},
		{"tasks/cancel", `{"name":"echo","uri":"u","taskId":"t"}`, "t"},
		{"tools/list", `{"name":"echo"}`, ""},
		{"resources/read", `{"uri":1}`, ""},
		{"resources/read", `{}`, ""},
	} {
		var msg jsonrpc.Message
		if err := msg.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + test.method + `","params":` + test.params + `}`)); err != nil {
			t.Fatal(err)
		}
		if got := Summarize(&msg).Name; got != test.want {
			t.Errorf("%s %s names %q, want %q", test.method, test.params, got, test.want)
		}
	}
}

// What a body alone is refused for is what Message refuses it for, with no tool
// configured; and a revision that is matched is the one it was admitted by.
func TestSummaryAgreesWithMessage(t *testing.T) {
	refused, matched := 0, 0
	for _, c := range headerCases(t) {
		var msg jsonrpc.Message
		err := msg.Parse(c.body(t))
		header := c.header(t)
		plain := &Policy{Revisions: allRevisions(), RawNames: true}
		got := plain.Body(&msg, err)
		admission, want := plain.Message(&msg, err, header, nil, nil)
		if want != nil && want.Row > 10 {
			want = nil
		}
		switch {
		case (got == nil) != (want == nil) || got != nil && got.Reason != want.Reason:
			t.Errorf("%s: got %v, want %v", c.Name, got, want)
		case got != nil:
			refused++
			continue
		}
		summary := Summarize(&msg)
		if revision, ok := summary.Revision(header); ok {
			matched++
			if revision != admission.Revision {
				t.Errorf("%s: got %s, admitted by %s", c.Name, revision.Name, admission.Revision.Name)
			}
		}
	}
	if refused < 20 || matched < 20 {
		t.Errorf("of the cases %d are refused by their body, and %d have a revision: too few to tell", refused, matched)
	}
}

// A modern revision must stand in the body, and header and body must agree.
func TestSummaryRevision(t *testing.T) {
	for _, tt := range []struct {
		name, method, meta string // empty: none
		header             []string
		want               string // empty: none
	}{
		{"modern, both", "tools/call", `"2026-07-28"`, []string{"2026-07-28"}, "2026-07-28"},
		{"modern, equal copies", "tools/call", `"2026-07-28"`, []string{"2026-07-28, 2026-07-28", " 2026-07-28"}, "2026-07-28"},
		{"modern, no header", "tools/call", `"2026-07-28"`, nil, "2026-07-28"},
		{"modern, escaped", "tools/call", `"2026\u002d07-28"`, []string{"2026-07-28"}, "2026-07-28"},
		{"modern, only the header", "tools/call", "", []string{"2026-07-28"}, ""},
		{"modern notification, only the header", "notifications/cancelled", "", []string{"2026-07-28"}, ""},
		{"modern, the header says legacy", "tools/call", `"2026-07-28"`, []string{"2025-11-25"}, ""},
		{"modern, the header is empty", "tools/call", `"2026-07-28"`, []string{""}, ""},
		{"modern, two headers", "tools/call", `"2026-07-28"`, []string{"2026-07-28", "2025-11-25"}, ""},
		{"legacy, only the header", "tools/call", "", []string{"2025-11-25"}, "2025-11-25"},
		{"legacy, both", "tools/call", `"2025-11-25"`, []string{"2025-11-25"}, "2025-11-25"},
		{"legacy, the header says modern", "tools/call", `"2025-11-25"`, []string{"2026-07-28"}, ""},
		{"legacy, two headers", "tools/call", "", []string{"2025-06-18", "2025-11-25"}, ""},
		{"neither", "tools/call", "", nil, "2025-03-26"},
		{"the headerless one, in the body", "tools/call", `"2025-03-26"`, nil, "2025-03-26"},
		{"legacy, only the body", "tools/call", `"2025-11-25"`, nil, ""},
		{"unknown, both", "tools/call", `"2024-11-05"`, []string{"2024-11-05"}, ""},
		{"unknown, only the header", "tools/call", "", []string{"2024-11-05"}, ""},
		{"unknown, only the body", "tools/call", `"2027-01-01"`, nil, ""},
		{"an empty header", "tools/call", "", []string{""}, ""},
		{"no string", "tools/call", `20260728`, []string{"2026-07-28"}, ""},
		{"no string, legacy", "tools/call", `null`, []string{"2025-11-25"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			meta := "{}"
			if tt.meta != "" {
				meta = `{"` + metaVersionName + `":` + tt.meta + "}"
			}
			var msg jsonrpc.Message
			if err := msg.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + tt.method + `","params":{"name":"a","_meta":` + meta + `}}`)); err != nil {
				t.Fatal(err)
			}
			summary := Summarize(&msg)
			header := http.Header{versionHeader: tt.header}
			if revision, ok := summary.Revision(header); ok != (tt.want != "") || ok && revision.Name != tt.want {
				t.Errorf("got %s, %v, want %q", revision.Name, ok, tt.want)
			}
		})
	}
}
