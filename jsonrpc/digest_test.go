package jsonrpc

import (
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// stateDigest returns the digest of a requestState, pushed in pieces of the given size.
func stateDigest(t *testing.T, state string, size int) [sha256.Size]byte {
	t.Helper()
	var r ResponseReader
	r.Reset([]byte("1"))
	message := []byte(`{"jsonrpc":"2.0","id":1,"result":{"requestState" : "` + state + `"}}`)
	for piece := range slices.Chunk(message, size) {
		r.Write(piece)
	}
	a := r.Close()
	if !a.HasRequestState {
		t.Fatalf("%s: %+v", state, a)
	}
	return a.RequestState
}

func TestRequestStateDigest(t *testing.T) {
	for _, row := range []struct{ state, want string }{
		{`s`, "s"},
		{`\u0073`, "s"},
		{`a\/b/c`, "a/b/c"},
		{`\"\\\b\f\n\r\t\u0000`, "\"\\\b\f\n\r\t\x00"},
		{`\\u0073`, `\u0073`},
		{`é\u00e9\u00E9`, "ééé"},
		{`😀\ud83d\ude00\uD83D\uDE00`, "😀😀😀"},
		{`\ud800\udc00\udbff\udfff`, "\U00010000\U0010ffff"},
		{`\ufffd\uffff\ud7ff\ue000`, "\ufffd\uffff\ud7ff\ue000"},
		{strings.Repeat(`a\u00e9`, 50_000), strings.Repeat("aé", 50_000)},
		{strings.Repeat("a", 1<<20), strings.Repeat("a", 1<<20)},

		// What is not all characters has the digest of no text that is.
		{`\ud800`, "\xED\xA0\x80"},
		{`\ud800x`, "\xED\xA0\x80x"},
		{`\ud800\n`, "\xED\xA0\x80\n"},
		{`\ud800\u0041`, "\xED\xA0\x80A"},
		{`\ud800\ud83d\ude00`, "\xED\xA0\x80😀"},
		{`\udbff\udbff`, "\xED\xAF\xBF\xED\xAF\xBF"},
		{`\udc00\ud800`, "\xED\xB0\x80\xED\xA0\x80"},
		{`\udfff`, "\xED\xBF\xBF"},
		{"\xff", "\xff"},
		{"\xf0\x9f\\u0098\\u0080", "\xf0\x9f\u0098\u0080"},
		{"\xc3\\u00a9", "\xc3\u00a9"},
	} {
		want := sha256.Sum256([]byte(row.want))
		for _, size := range []int{1, 2, 3, 5, 7, 1000, 1 << 21} {
			if got := stateDigest(t, row.state, size); got != want {
				t.Errorf("%.40q in pieces of %d: not the digest of %.40q", row.state, size, row.want)
			}
		}
		if _, ok := unquote([]byte(`"` + row.state + `"`)); ok != utf8.ValidString(row.want) {
			t.Errorf("%.40q: the digest is that of a text that Parse accepts", row.state)
		}
	}
}

// What a message that broke off has of a requestState is not part of the next one.
func TestRequestStateAfterReset(t *testing.T) {
	for _, cut := range []string{`a`, `\`, `\u00`, `\ud83d`, `\ud83d\`} {
		var r ResponseReader
		r.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":{"requestState":"` + cut))
		r.Reset([]byte("1"))
		r.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":{"requestState":"\ude00u0061"}}`))
		if got := r.Close().RequestState; got != sha256.Sum256([]byte("\xED\xB8\x80u0061")) {
			t.Errorf("after %s: another digest", cut)
		}
	}
}

// A requestState costs memory for its digest once, however long it is and however often a reader
// reads one.
func TestRequestStateAllocations(t *testing.T) {
	message := []byte(`{"jsonrpc":"2.0","id":1,"result":{"requestState":"` + strings.Repeat(`a\u00e9\ud83d\ude00\n`, 10_000) + `"}}`)
	var r ResponseReader
	allocations := testing.AllocsPerRun(10, func() {
		r.Reset([]byte("1"))
		r.Write(message)
		r.Close()
	})
	if allocations > 2 {
		t.Errorf("%v allocations", allocations)
	}
}
