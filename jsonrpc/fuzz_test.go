package jsonrpc

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// FuzzParse compares the pass with jsontext's own strict one, and everything that was read
// with what a decoder of the whole body reads.
func FuzzParse(f *testing.F) {
	for _, row := range readTable[hazard](f, "json-hazards.json") {
		if body := row.bytes(f); len(body) < 4096 {
			f.Add(body)
		}
	}
	f.Add([]byte(call400))
	f.Fuzz(func(t *testing.T, body []byte) {
		var m Message
		err := m.Parse(body)
		var e *Error
		errors.As(err, &e)
		if e != nil && (e.Problem == TooDeep || e.Problem == TooManyMembers) {
			return // jsontext has other limits
		}
		strict := readAll(body)
		refused := e != nil && (e.Problem == NotJSON || e.Problem == DuplicateName)
		if refused != (strict != nil) {
			t.Fatalf("%q: %v, but jsontext says %v", body, err, strict)
		}
		if refused {
			if duplicate := errors.Is(strict, jsontext.ErrDuplicateName); e.Problem == DuplicateName && !duplicate {
				t.Fatalf("%q: %v, but jsontext says %v", body, err, strict)
			}
			return
		}
		if e != nil && (e.Problem == Batch || e.Problem == NotObject) {
			return
		}
		message := members(t, body)
		params := members(t, message["params"])
		meta := members(t, params["_meta"])
		for _, row := range []struct {
			name string
			got  Member
			want json.RawMessage
		}{
			{"params", m.Params.Member, message["params"]},
			{"name", m.Params.Name, params["name"]},
			{"uri", m.Params.URI, params["uri"]},
			{"taskId", m.Params.TaskID, params["taskId"]},
			{"arguments", m.Params.Arguments, params["arguments"]},
			{"requestState", m.Params.RequestState, params["requestState"]},
			{"_meta", m.Params.Meta, params["_meta"]},
			{"protocolVersion", m.Params.ProtocolVersion, meta[versionMember]},
		} {
			if !bytes.Equal(row.got.Raw, row.want) || (row.got.Type == Absent) != (row.want == nil) {
				t.Errorf("%q: %s is %s, want %s", body, row.name, row.got.Raw, row.want)
			}
		}
		var method string
		json.Unmarshal(message["method"], &method)
		if m.Method != method {
			t.Errorf("%q: method %q, want %q", body, m.Method, method)
		}
		if m.ID != nil && !bytes.Equal(m.ID, message["id"]) {
			t.Errorf("%q: id %s, want %s", body, m.ID, message["id"])
		}
		if m.Kind != 0 && (m.ID == nil) != (message["id"] == nil) {
			t.Errorf("%q: id %q in an accepted message", body, m.ID)
		}
		m.NonInteger()
		if got := m.Argument("a.b"); got.Type != Absent && !json.Valid(got.Raw) {
			t.Errorf("%q: argument %q", body, got.Raw)
		}
	})
}

// readAll reads a text as jsontext does by default, which is strictly.
func readAll(text []byte, options ...jsontext.Options) error {
	d := jsontext.NewDecoder(bytes.NewReader(text), options...)
	if err := d.SkipValue(); err != nil {
		return err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return errors.Join(errors.New("trailing data"), err)
	}
	return nil
}

// members decodes an object, as far as it is one.
func members(t *testing.T, text []byte) map[string]json.RawMessage {
	t.Helper()
	var object map[string]json.RawMessage
	if len(text) > 0 && bytes.TrimLeft(text, " \t\r\n")[0] == '{' {
		if err := json.Unmarshal(text, &object); err != nil {
			t.Fatal(err)
		}
	}
	return object
}

// FuzzResponse compares the scanner with jsontext's lenient reading, and what is read in
// pieces with what is read at once.
func FuzzResponse(f *testing.F) {
	for i, row := range readTable[response](f, "responses.json") {
		if message := row.bytes(f); len(message) < 4096 {
			f.Add(message, row.requestID(), uint16(i), uint16(i/2))
		}
	}
	f.Fuzz(func(t *testing.T, message, id []byte, a, b uint16) {
		if readAll(id) != nil || len(id) == 0 || !strings.ContainsRune(`"-0123456789`, rune(id[0])) {
			id = nil
		}
		whole := pushed(id, message)

		lenient := readAll(message, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
		if deep := lenient != nil && strings.Contains(lenient.Error(), "depth"); !deep {
			notJSON := whole.Problem == "not a JSON text" || whole.Problem == "not a whole JSON object"
			scalar := len(bytes.TrimLeft(message, " \t\r\n")) > 0 && bytes.TrimLeft(message, " \t\r\n")[0] != '{'
			if notJSON != (lenient != nil) && !(scalar && whole.Kind == Unreadable) {
				t.Fatalf("%q: %+v, but jsontext says %v", message, whole, lenient)
			}
		}

		cuts := []int{int(a) % (len(message) + 1), int(b) % (len(message) + 1)}
		slices.Sort(cuts)
		if pieces := pushed(id, message, cuts...); pieces != whole {
			t.Fatalf("%q cut at %v: %+v, want %+v", message, cuts, pieces, whole)
		}
		if whole.Kind == Result || whole.Kind == ErrorResponse {
			checkAnswer(t, message, whole)
		}
	})
}

// checkAnswer compares what was read of a response with what a decoder reads.
func checkAnswer(t *testing.T, message []byte, a Answer) {
	t.Helper()
	var want struct {
		Result struct {
			ResultType   *string         `json:"resultType"`
			IsError      bool            `json:"isError"`
			RequestState json.RawMessage `json:"requestState"`
			TaskID       json.RawMessage `json:"taskId"`
			Task         struct {
				TaskID json.RawMessage `json:"taskId"`
			} `json:"task"`
		} `json:"result"`
	}
	if hasVariants(message) || json.Unmarshal(message, &want) != nil {
		return // encoding/json ignores case, and has a depth limit of its own
	}
	r := want.Result
	taskID := r.Task.TaskID
	if a.ResultType == "task" && len(r.TaskID) > 2 && r.TaskID[0] == '"' {
		taskID = r.TaskID
	}
	if a.HasResultType != (r.ResultType != nil) || a.IsError != r.IsError || a.HasRequestState != (len(r.RequestState) > 2) || a.HasTaskID != (len(taskID) > 2) {
		t.Errorf("%q: %+v, want %+v", message, a, r)
	}
	if a.HasTaskID {
		if text, ok := unquote(taskID); ok && len(text) <= maxText && a.TaskID != string(text) {
			t.Errorf("%q: task %q, want %q", message, a.TaskID, text)
		}
	}
	if a.HasRequestState {
		text, ok := unquote(r.RequestState)
		if (a.RequestState == sha256.Sum256(text)) != ok {
			t.Errorf("%q: another digest than that of %q, which is all characters: %v", message, text, ok)
		}
	}
	checkResult(t, message, a)
}

// hasVariants reports whether some string of a message could be a watched name but for case.
func hasVariants(message []byte) bool {
	d := jsontext.NewDecoder(bytes.NewReader(message), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return false
		}
		if token.Kind() != jsontext.KindString {
			continue
		}
		for _, w := range watched {
			if name := token.String(); name != w.name && strings.EqualFold(name, w.name) {
				return true
			}
		}
	}
}

// FuzzSplice adds the outcome to messages and compares all that was there before.
func FuzzSplice(f *testing.F) {
	for _, row := range readTable[response](f, "responses.json") {
		if message := row.bytes(f); len(message) < 4096 {
			f.Add(message)
		}
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		a := pushed([]byte("1"), message)
		if !a.Splice.OK() {
			return
		}
		checkSplice(t, message, a)
	})
}

func checkSplice(t *testing.T, message []byte, a Answer) {
	t.Helper()
	const value = `{"state":"AMBIGUOUS","n":[1,{}]}`
	start, end, _ := a.Splice.Edit(nil, []byte(value))
	if start < 0 || end < start || end > int64(len(message)) {
		t.Fatalf("%q: [%d,%d)", message, start, end)
	}
	spliced := []byte(edited(message, a.Splice, value))

	// What is read stays the same, but for the places.
	again := pushed([]byte("1"), spliced)
	if !again.Splice.OK() {
		t.Fatalf("%q: no place for an outcome in %q", message, spliced)
	}
	second := []byte(edited(spliced, again.Splice, value))
	if !bytes.Equal(second, spliced) {
		t.Errorf("%q: adding the outcome twice makes %q", message, second)
	}
	checkResult(t, spliced, again)
	if before, after := a.apart(), again.apart(); before != after {
		t.Errorf("%q: read %+v after the outcome was added, %+v before", message, after, before)
	}

	// Decoded, the message differs in the outcome only.
	var old, edited map[string]any
	if json.Unmarshal(message, &old) != nil {
		return // too deep for encoding/json
	}
	if err := json.Unmarshal(spliced, &edited); err != nil {
		t.Fatalf("%q: %v", spliced, err)
	}
	outer, inner := "result", "_meta"
	if a.Kind == ErrorResponse {
		outer, inner = "error", "data"
	}
	var outcome any
	json.Unmarshal([]byte(value), &outcome)
	host := edited[outer].(map[string]any)[inner].(map[string]any)
	if !reflect.DeepEqual(host[OutcomeMember], outcome) {
		t.Errorf("%q: outcome %v", spliced, host[OutcomeMember])
	}
	delete(host, OutcomeMember)
	oldHost, existed := old[outer].(map[string]any)[inner].(map[string]any)
	delete(oldHost, OutcomeMember)
	if !existed {
		delete(edited[outer].(map[string]any), inner)
	}
	if !reflect.DeepEqual(old, edited) {
		t.Errorf("%q became %q", message, spliced)
	}
}

// FuzzEqualNumbers compares with rational numbers, as far as those can be expanded.
func FuzzEqualNumbers(f *testing.F) {
	for _, pair := range [][2]string{
		{"2000", "2e3"}, {"0", "-0.0e5"}, {"1.50", "15e-1"}, {"-0.001", "-1e-3"}, {"100", "1e02"}, {"9007199254740993", "9007199254740992"},
		{"1e99999999999999999999", "10e99999999999999999998"},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		got := EqualNumbers([]byte(a), []byte(b))
		if got != EqualNumbers([]byte(b), []byte(a)) {
			t.Fatalf("%q, %q: not symmetric", a, b)
		}
		x, okX := rational(a)
		y, okY := rational(b)
		if okX && okY && got != (x.Cmp(y) == 0) {
			t.Errorf("%q, %q: %v", a, b, got)
		}
		if okX && CanonicalInteger([]byte(a)) != (x.IsInt() && x.Num().IsInt64() && x.Num().String() == a && x.Num().CmpAbs(big.NewInt(maxSafeInteger)) <= 0) {
			t.Errorf("CanonicalInteger(%q) is %v", a, CanonicalInteger([]byte(a)))
		}
	})
}

// rational returns the value of a JSON number with a small exponent.
func rational(token string) (*big.Rat, bool) {
	if !json.Valid([]byte(token)) || !strings.ContainsAny(token[:1], "-0123456789") || strings.ContainsAny(token, " \t\r\n") {
		return nil, false
	}
	if _, exponent, ok := strings.Cut(strings.ToLower(token), "e"); ok && len(strings.TrimLeft(exponent, "+-0")) > 3 {
		return nil, false
	}
	return new(big.Rat).SetString(token)
}
