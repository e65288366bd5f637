package mcpheaders

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caddymcp/gateway/jsonrpc"
)

// headerCase is one case of the files that headerCases reads.
type headerCase struct {
	Name       string      `json:"name"`
	Source     string      `json:"source"`
	Policy     casePolicy  `json:"policy"`
	Method     string      `json:"method"`
	Headers    [][2]string `json:"headers"`
	HeadersHex [][2]string `json:"headers_hex"`
	Trailers   [][2]string `json:"trailers"`
	Body       *string     `json:"body"`
	BodyHex    *string     `json:"body_hex"`
	BodyRepeat *repetition `json:"body_repeat"`
	Read       string      `json:"read"`

	// Of testdata/params.json.
	HeadersRepeat *struct {
		Name  string `json:"name"`
		Value string `json:"value"`
		Count int    `json:"count"`
		Times int    `json:"times"`
	} `json:"headers_repeat"`
	Schema     json.RawMessage `json:"schema"`
	Definition string          `json:"definition"`
	Declare    [][2]string     `json:"declare"`

	Want struct {
		Row    int             `json:"row"`
		Reason string          `json:"reason"`
		Status int             `json:"status"`
		Code   int             `json:"code"`
		Data   json.RawMessage `json:"data"`
		Also   int             `json:"also"`

		Admitted bool        `json:"admitted"`
		Revision string      `json:"revision"`
		Forward  [][2]string `json:"forward"`

		Params     [][2]string `json:"params"`
		Unverified *int        `json:"unverified"`
	} `json:"want"`
}

type casePolicy struct {
	Origins   []string `json:"origins"`
	Revisions []string `json:"revisions"`
	RawNames  bool     `json:"raw_names"`
	Tools     []string `json:"tools"`
	Params    string   `json:"params"`
	Numeric   string   `json:"numeric"`
}

type repetition struct {
	Open  string `json:"open"`
	Each  string `json:"each"`
	Count int    `json:"count"`
	Join  string `json:"join"`
	Close string `json:"close"`
}

func headerCases(tb testing.TB) []headerCase {
	tb.Helper()
	var all []headerCase
	for _, name := range []string{"headers.json", "params.json", "sep-2243.json"} {
		var file struct {
			About string       `json:"about"`
			Cases []headerCase `json:"cases"`
		}
		load(tb, name, &file)
		all = append(all, file.Cases...)
	}
	return all
}

// load reads a file of testdata, which must have no member that is unknown
// here: a misspelled one would test nothing.
func load(tb testing.TB, name string, into any) {
	tb.Helper()
	text, err := os.ReadFile("../testdata/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		tb.Fatalf("reading %s: %v", name, err)
	}
}

func (c *headerCase) policy() *Policy {
	p := &Policy{Origins: c.Policy.Origins, Revisions: c.Policy.Revisions, RawNames: c.Policy.RawNames, Tools: NewToolNames(c.Policy.Tools)}
	if p.Revisions == nil {
		p.Revisions = allRevisions()
	}
	p.Params = map[string]ParamMode{"require": Require, "off": Off}[c.Policy.Params]
	p.Numeric = map[string]NumericMatch{"lenient": Lenient}[c.Policy.Numeric]
	return p
}

func allRevisions() []string {
	var names []string
	for _, revision := range Revisions() {
		names = append(names, revision.Name)
	}
	return names
}

func (c *headerCase) header(tb testing.TB) http.Header {
	header := fields(c.Headers)
	for _, pair := range c.HeadersHex {
		header.Add(pair[0], string(unhex(tb, pair[1])))
	}
	if r := c.HeadersRepeat; r != nil {
		for i := range r.Count {
			header.Add(strings.Replace(r.Name, "%d", fmt.Sprint(i), 1), strings.Repeat(r.Value, r.Times))
		}
	}
	return header
}

func fields(pairs [][2]string) http.Header {
	header := http.Header{}
	for _, pair := range pairs {
		header.Add(pair[0], pair[1])
	}
	return header
}

func unhex(tb testing.TB, text string) []byte {
	tb.Helper()
	decoded, err := hex.DecodeString(text)
	if err != nil {
		tb.Fatal(err)
	}
	return decoded
}

func (c *headerCase) body(tb testing.TB) []byte {
	tb.Helper()
	switch {
	case c.BodyHex != nil:
		return unhex(tb, *c.BodyHex)
	case c.BodyRepeat != nil:
		return c.BodyRepeat.expand()
	case c.Body != nil:
		return []byte(*c.Body)
	}
	return nil
}

func (r *repetition) expand() []byte {
	units := make([]string, r.Count)
	for i := range units {
		units[i] = strings.Replace(r.Each, "%d", fmt.Sprint(i), 1)
	}
	return []byte(r.Open + strings.Join(units, r.Join) + r.Close)
}

// bindings are those of the tool that the case calls.
func (c *headerCase) bindings(tb testing.TB) *Bindings {
	tb.Helper()
	var bindings *Bindings
	var err error
	switch {
	case c.Schema != nil:
		bindings, err = ReadBindings(c.Schema)
	case c.Declare != nil:
		var declarations []Declaration
		for _, pair := range c.Declare {
			declarations = append(declarations, Declaration{pair[0], pair[1]})
		}
		bindings, err = NewBindings(declarations)
	}
	var invalid *InvalidDefinition
	if errors.As(err, &invalid) && invalid.Reason == c.Definition {
		return nil
	}
	if err != nil || c.Definition != "" {
		tb.Fatalf("the definition is %v, want %q", err, c.Definition)
	}
	return bindings
}

// run puts the case through everything that the gateway would.
func (c *headerCase) run(tb testing.TB) (Admission, *Refusal) {
	tb.Helper()
	policy, header := c.policy(), c.header(tb)
	if refusal := policy.Head(c.Method, header); refusal != nil {
		return Admission{}, refusal
	}
	switch {
	case c.Read == "too_large":
		return Admission{}, BodyTooLarge(4 << 20)
	case c.Read == "stalled":
		return Admission{}, BodyStalled()
	case c.Read == "broken":
		return Admission{}, BodyBroken()
	case c.Read != "":
		tb.Fatalf("read is %q", c.Read)
	case c.Method != "POST":
		return Admission{}, nil
	}
	var msg jsonrpc.Message
	err := msg.Parse(c.body(tb))
	return policy.Message(&msg, err, header, fields(c.Trailers), c.bindings(tb))
}

func TestHeaders(t *testing.T) {
	for _, c := range headerCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			admission, refusal := c.run(t)
			if c.Want.Admitted {
				c.checkAdmission(t, admission, refusal)
			} else {
				c.checkRefusal(t, refusal)
			}
		})
	}
}

func (c *headerCase) checkAdmission(t *testing.T, admission Admission, refusal *Refusal) {
	if refusal != nil {
		t.Fatalf("refused: row %d, %s: %s", refusal.Row, refusal.Reason, refusal.Text)
	}
	if admission.Revision.Name != c.Want.Revision {
		t.Errorf("revision %q, want %q", admission.Revision.Name, c.Want.Revision)
	}
	var forward [][2]string
	for _, header := range admission.Forward {
		forward = append(forward, [2]string{header.Name, header.Value})
	}
	if !slices.Equal(forward, c.Want.Forward) {
		t.Errorf("forwards %q, want %q", forward, c.Want.Forward)
	}
	var params [][2]string
	for _, param := range admission.Params {
		params = append(params, [2]string{param.Name, param.Value})
	}
	if !slices.Equal(params, c.Want.Params) {
		t.Errorf("verified %q, want %q", params, c.Want.Params)
	}
	if c.Want.Unverified != nil && admission.UnverifiedParams != *c.Want.Unverified {
		t.Errorf("%d unverified, want %d", admission.UnverifiedParams, *c.Want.Unverified)
	}
}

func (c *headerCase) checkRefusal(t *testing.T, refusal *Refusal) {
	if refusal == nil {
		t.Fatalf("admitted, want row %d, %s", c.Want.Row, c.Want.Reason)
	}
	type answer struct {
		row    int
		reason string
		status int
		code   int
	}
	got := answer{refusal.Row, refusal.Reason, refusal.Status, refusal.Code}
	want := answer{c.Want.Row, c.Want.Reason, c.Want.Status, c.Want.Code}
	if got != want {
		t.Errorf("refused with %+v (%s), want %+v", got, refusal.Text, want)
	}
	var wantData bytes.Buffer
	if c.Want.Data != nil {
		if err := json.Compact(&wantData, c.Want.Data); err != nil {
			t.Fatal(err)
		}
	}
	if data := refusal.AppendData(nil); string(data) != wantData.String() {
		t.Errorf("data %s, want %s", data, &wantData)
	}
}

// TestLaterRowWouldRefuse shows that a case about the order is one: the later
// row refuses the request too when it is asked alone.
func TestLaterRowWouldRefuse(t *testing.T) {
	for _, c := range headerCases(t) {
		if c.Want.Also == 0 {
			continue
		}
		var msg jsonrpc.Message
		err := msg.Parse(c.body(t))
		r := &request{policy: c.policy(), httpMethod: c.Method, header: c.header(t), trailer: fields(c.Trailers), msg: &msg, parseErr: err, bindings: c.bindings(t)}
		r.read()
		if refusal := climb(c.Want.Also, c.Want.Also, r); refusal == nil {
			t.Errorf("%s: row %d has nothing against it", c.Name, c.Want.Also)
		}
	}
}

// TestOrder shows that every two neighbouring rows that can refuse one request
// have a case about which of them answers.
func TestOrder(t *testing.T) {
	cases := map[string]headerCase{}
	for _, c := range headerCases(t) {
		cases[c.Name] = c
	}
	apart := map[[2]int]string{
		{4, 5}:   "a body that could not be read is not parsed",
		{14, 15}: "one needs the version header, the other its absence",
		{17, 18}: "one is about requests, the other about responses",
	}
	var rows []int
	for _, rung := range ladder {
		rows = append(rows, rung.row)
	}
	if !slices.IsSorted(rows) {
		t.Errorf("the rungs are out of order: %v", rows)
	}
	rows = slices.Compact(rows)
	for i := range len(rows) - 1 {
		pair := [2]int{rows[i], rows[i+1]}
		if apart[pair] != "" {
			continue
		}
		name := fmt.Sprintf("order: %d before %d", pair[0], pair[1])
		if c, found := cases[name]; !found || c.Want.Row != pair[0] {
			t.Errorf("no case %q refused by row %d", name, pair[0])
		}
	}
}

// TestReasons shows that the reasons are closed, told apart, and each pinned by
// a case: a guard that a later one makes up for would otherwise go unmissed.
func TestReasons(t *testing.T) {
	reasons := Reasons()
	if sorted := slices.Sorted(slices.Values(reasons)); len(slices.Compact(sorted)) != len(reasons) {
		t.Errorf("a reason stands twice in %q", reasons)
	}
	texts := map[string]string{} // by reason
	for _, c := range headerCases(t) {
		_, refusal := c.run(t)
		if refusal == nil {
			continue
		}
		if !slices.Contains(rungOf(t, refusal.Reason).reasons, refusal.Reason) || rungOf(t, refusal.Reason).row != refusal.Row {
			t.Errorf("%s: row %d gives %s, which is not its own", c.Name, refusal.Row, refusal.Reason)
		}
		for other, text := range texts {
			if other != refusal.Reason && text == refusal.Text {
				t.Errorf("%s and %s say the same: %s", other, refusal.Reason, text)
			}
		}
		texts[refusal.Reason] = refusal.Text
	}
	for _, reason := range reasons {
		if texts[reason] == "" {
			t.Errorf("no case is refused with %s", reason)
		}
	}
	if got := slices.Sorted(maps.Keys(texts)); !slices.Equal(got, slices.Sorted(slices.Values(reasons))) {
		t.Errorf("reasons given: %q", got)
	}
}

func rungOf(t *testing.T, reason string) rung {
	t.Helper()
	for _, rung := range ladder {
		if slices.Contains(rung.reasons, reason) {
			return rung
		}
	}
	t.Fatalf("no rung has the reason %s", reason)
	return rung{}
}

// TestForeignParseError shows that an error that jsonrpc does not know is not
// taken for success.
func TestForeignParseError(t *testing.T) {
	_, refusal := (&Policy{Revisions: allRevisions()}).Message(&jsonrpc.Message{}, errors.New("lost"), nil, nil, nil)
	if refusal == nil || refusal.Row != 5 {
		t.Errorf("refusal %+v, want row 5", refusal)
	}
}

// TestBestReading pins what a refused message is known to be, for an operator
// who does not enforce.
func TestBestReading(t *testing.T) {
	const modern, v = "2026-07-28", "Mcp-Protocol-Version"
	withMeta := func(version string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"` + metaVersionName + `":"` + version + `"}}}`
	}
	for _, test := range []struct {
		name     string
		header   http.Header
		body     string
		revision string
		forward  []HeaderValue
	}{
		{"no JSON", http.Header{v: {"2025-11-25"}}, "{", "2025-11-25", []HeaderValue{{v, "2025-11-25"}}},
		{"mismatch: the header", http.Header{v: {"2025-11-25"}}, withMeta(modern), "2025-11-25", []HeaderValue{{v, "2025-11-25"}}},
		{"modern body without a header", nil, withMeta(modern), modern, nil},
		{"unknown revision in _meta alone", nil, withMeta("2027-01-01"), modern, nil},
		{"unknown revision", http.Header{v: {"2027-01-01"}}, withMeta("2027-01-01"), modern, []HeaderValue{{v, "2027-01-01"}}},
		{"empty revision", http.Header{v: {","}}, `{"jsonrpc":"2.0","id":1,"method":"m"}`, modern, []HeaderValue{{v, ""}}},
		{"several values are not forwarded", http.Header{v: {"2025-11-25", modern}, "Mcp-Name": {"a", "b"}, "Mcp-Method": {"m"}}, withMeta(modern), "2025-11-25", []HeaderValue{{"Mcp-Method", "m"}}},
		{"legacy revision that is not accepted", http.Header{v: {"2025-03-26"}}, `{"jsonrpc":"2.0","id":1,"method":"m"}`, "2025-03-26", []HeaderValue{{v, "2025-03-26"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var msg jsonrpc.Message
			err := msg.Parse([]byte(test.body))
			policy := &Policy{Revisions: []string{"2025-06-18"}}
			admission, refusal := policy.Message(&msg, err, test.header, nil, nil)
			if refusal == nil {
				t.Fatal("admitted")
			}
			if admission.Revision.Name != test.revision {
				t.Errorf("revision %q, want %q", admission.Revision.Name, test.revision)
			}
			if !slices.Equal(admission.Forward, test.forward) {
				t.Errorf("forwards %q, want %q", admission.Forward, test.forward)
			}
		})
	}
}

// TestNothingIsModified shows that the request is only read.
func TestNothingIsModified(t *testing.T) {
	for _, c := range headerCases(t) {
		header, before := c.header(t), c.header(t)
		trailer, trailerBefore := fields(c.Trailers), fields(c.Trailers)
		var msg jsonrpc.Message
		body := c.body(t)
		err := msg.Parse(body)
		policy := c.policy()
		policy.Head(c.Method, header)
		policy.Message(&msg, err, header, trailer, c.bindings(t))
		same := func(a, b http.Header) bool { return maps.EqualFunc(a, b, slices.Equal) }
		if !same(header, before) || !same(trailer, trailerBefore) || !bytes.Equal(body, c.body(t)) {
			t.Errorf("%s: the request was changed", c.Name)
		}
	}
}
