package effect

import (
	"encoding/json"
	"testing"

	"github.com/caddymcp/gateway/jsonrpc"
)

// answered returns the digest that a hold has of the requestState of an answer, a JSON string.
func answered(state []byte) (StateDigest, bool) {
	var r jsonrpc.ResponseReader
	r.Reset([]byte("1"))
	for _, piece := range [][]byte{[]byte(`{"jsonrpc":"2.0","id":1,"result":{"requestState":`), state[:len(state)/2], state[len(state)/2:], []byte(`}}`)} {
		r.Write(piece)
	}
	a := r.Close()
	return a.RequestState, a.HasRequestState
}

// requested returns the digest of the requestState that a call gives back, a JSON value. It
// reports false if the call is refused.
func requested(t *testing.T, state []byte) (StateDigest, bool) {
	t.Helper()
	var m jsonrpc.Message
	body := append([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","requestState":`), state...)
	if m.Parse(append(body, `}}`...)) != nil {
		return StateDigest{}, false
	}
	digest, present := DigestState(m.Params.RequestState)
	if !present {
		t.Fatalf("%s: no requestState", state)
	}
	return digest, true
}

// A call continues what an answer held if the two states have the same characters, however each
// is spelled.
func TestDigestOfAnswerAndCall(t *testing.T) {
	for _, row := range []struct {
		answer, call string
		same         bool
	}{
		{`"s/1"`, `"\u0073\/1"`, true},
		{`"\u0073\/1"`, `"s/1"`, true},
		{`"\ud83d\ude00é\n"`, `"😀\u00e9\u000a"`, true},
		{`"\ufffd"`, `"` + "\ufffd" + `"`, true},
		{`"s"`, `"S"`, false},
		{`"1"`, `1`, false},
		{`"null"`, `null`, false},
		{`"not a string\u00001"`, `1`, false},

		// What clients make of a text that is not all characters.
		{`"\ud800"`, `"\ufffd"`, false},
		{`"\ud800"`, `"\ufffd\ufffd\ufffd"`, false},
		{`"\ud800"`, `"?"`, false},
		{`"\ud800"`, `""`, false},
		{"\"a\xff\"", `"a\ufffd"`, false},
		{"\"a\xff\"", `"aÿ"`, false},
	} {
		held, ok := answered([]byte(row.answer))
		if !ok {
			t.Fatalf("%s: no requestState", row.answer)
		}
		if given, ok := requested(t, []byte(row.call)); !ok || given.equal(held) != row.same {
			t.Errorf("%q continues %q: %v, %v", row.call, row.answer, ok, given.equal(held))
		}
	}
}

// FuzzDigestState holds the digest of a state in an answer against those of states in calls.
func FuzzDigestState(f *testing.F) {
	f.Add([]byte(`"\ud83d\ude00\u00e9\/"`), []byte(`"😀é/"`))
	f.Add([]byte(`"\ud83d\ud83d\ude00"`), []byte(`"\ud83d"`))
	f.Add([]byte("\"\xff\\n\""), []byte(`null`))
	f.Fuzz(func(t *testing.T, answer, call []byte) {
		if !json.Valid(answer) || !json.Valid(call) {
			return
		}
		held, ok := answered(answer)
		if !ok {
			return
		}
		if same, ok := requested(t, answer); ok && !same.equal(held) {
			t.Errorf("%q does not continue itself", answer)
		}
		given, ok := requested(t, call)
		if !ok {
			return
		}
		want, whole := text(answer)
		got, isText := text(call)
		if given.equal(held) != (whole && isText && want == got) {
			t.Errorf("%q continues %q: %v", call, answer, given.equal(held))
		}
	})
}

// text returns the characters of a JSON string; false if it is none or not all characters.
func text(raw []byte) (string, bool) {
	var m jsonrpc.Message
	body := append([]byte(`{"jsonrpc":"2.0","method":"x","params":{"requestState":`), raw...)
	if m.Parse(append(body, `}}`...)) != nil {
		return "", false
	}
	return m.Params.RequestState.Text()
}
