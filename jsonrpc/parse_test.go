package jsonrpc

import (
	"errors"
	"strings"
	"testing"
)

// hazard is a row of json-hazards.json: a request body, and what row of the admission table
// refuses it. Without a problem, the body is accepted.
type hazard struct {
	Name    string
	Source  string
	Problem string
	ID      *string // the token that a refusal carries
	text
}

func TestHazards(t *testing.T) {
	for _, row := range readTable[hazard](t, "json-hazards.json") {
		t.Run(row.Name, func(t *testing.T) {
			body := row.bytes(t)
			var m Message
			err := m.Parse(body)

			if got := problemOf(t, err); got != row.Problem {
				t.Errorf("problem %q, want %q (%s)", got, row.Problem, row.Source)
			}
			switch {
			case row.ID == nil && m.ID != nil:
				t.Errorf("id %s, want none", m.ID)
			case row.ID != nil && (m.ID == nil || string(m.ID) != *row.ID):
				t.Errorf("id %q, want %q", m.ID, *row.ID)
			}
			if accepted := m.Kind != 0; accepted != (err == nil) {
				t.Errorf("kind %d with error %v", m.Kind, err)
			}
			if string(m.Body) != string(body) {
				t.Error("the body is not kept")
			}
		})
	}
}

// problemOf returns the name of an error's problem, and makes sure that it is in its body.
func problemOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v is no *Error", err)
	}
	return e.Problem.String()
}

// What is read must not depend on the body that the same pooled parser read before.
func TestParseForgetsTheBodyBefore(t *testing.T) {
	rows := readTable[hazard](t, "json-hazards.json")
	const body = `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1,"b":{"a":1}}}`
	for _, row := range rows {
		var before, m Message
		before.Parse(row.bytes(t))
		if err := m.Parse([]byte(body)); err != nil || m.Kind != Request || m.Method != "ping" || string(m.ID) != "1" {
			t.Fatalf("after %q: %v, %+v", row.Name, err, m)
		}
	}
}

func TestMessage(t *testing.T) {
	const body = ` {"params" : { "name":"n\u0061me" , "uri" :"file:///a","taskId":"t-1",
		"arguments": {"b":[1, 2]} ,"requestState" :"s\/1","_meta":{"io.modelcontextprotocol/protocolVersion": "2026-07-28","x":0}, "cursor":null},
		"id":"\u0031" ,"method":"tools/call" , "jsonrpc":"2.0"} `
	var m Message
	if err := m.Parse([]byte(body)); err != nil {
		t.Fatal(err)
	}
	if m.Kind != Request || m.Method != "tools/call" || string(m.ID) != `"\u0031"` {
		t.Errorf("kind %d, method %q, id %s", m.Kind, m.Method, m.ID)
	}
	for _, row := range []struct {
		name string
		got  Member
		typ  Type
		raw  string
	}{
		{"params", m.Params.Member, Object, body[strings.Index(body, `{ "name"`) : strings.Index(body, `"cursor":null}`)+len(`"cursor":null}`)]},
		{"name", m.Params.Name, String, `"n\u0061me"`},
		{"uri", m.Params.URI, String, `"file:///a"`},
		{"taskId", m.Params.TaskID, String, `"t-1"`},
		{"arguments", m.Params.Arguments, Object, `{"b":[1, 2]}`},
		{"requestState", m.Params.RequestState, String, `"s\/1"`},
		{"_meta", m.Params.Meta, Object, `{"io.modelcontextprotocol/protocolVersion": "2026-07-28","x":0}`},
		{"protocolVersion", m.Params.ProtocolVersion, String, `"2026-07-28"`},
	} {
		if row.got.Type != row.typ || string(row.got.Raw) != row.raw {
			t.Errorf("%s: type %d %s, want type %d %s", row.name, row.got.Type, row.got.Raw, row.typ, row.raw)
		}
		if cap(row.got.Raw) != len(row.got.Raw) {
			t.Errorf("%s: appending to it would change the body", row.name)
		}
	}
}

func TestTypes(t *testing.T) {
	for _, row := range []struct {
		raw  string
		want Type
	}{
		{"null", Null}, {"true", Bool}, {"false", Bool}, {"-1.5e3", Number}, {"0", Number},
		{`"x"`, String}, {"{}", Object}, {"[]", Array},
	} {
		var m Message
		if err := m.Parse([]byte(`{"jsonrpc":"2.0","method":"x/y","params":{"name":` + row.raw + `}}`)); err != nil {
			t.Fatal(err)
		}
		if m.Params.Name.Type != row.want || string(m.Params.Name.Raw) != row.raw {
			t.Errorf("%s: type %d %s, want %d", row.raw, m.Params.Name.Type, m.Params.Name.Raw, row.want)
		}
		if m.Params.URI.Type != Absent || m.Params.URI.Raw != nil {
			t.Errorf("%s: an absent member has type %d", row.raw, m.Params.URI.Type)
		}
	}
}

func TestKinds(t *testing.T) {
	for _, row := range []struct {
		body   string
		kind   Kind
		method string
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, Request, "tools/call"},
		{`{"jsonrpc":"2.0","id":"","method":"vendor/new"}`, Request, "vendor/new"},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled"}`, Notification, "notifications/cancelled"},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, Response, ""},
		{`{"jsonrpc":"2.0","id":1,"error":{}}`, Response, ""},
		{`{"jsonrpc":"2.0","result":{}}`, Response, ""},
	} {
		var m Message
		if err := m.Parse([]byte(row.body)); err != nil || m.Kind != row.kind || m.Method != row.method {
			t.Errorf("%s: kind %d, method %q, error %v", row.body, m.Kind, m.Method, err)
		}
	}
}

// Members of the same names elsewhere are not those of params.
func TestMembersElsewhere(t *testing.T) {
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"x","name":"a","uri":"b","taskId":"t","arguments":{},"requestState":"s","_meta":{"io.modelcontextprotocol/protocolVersion":"1"}}`,
		`{"jsonrpc":"2.0","method":"x","params":{"x":{"name":"a","uri":"b","taskId":"t","arguments":{},"requestState":"s","_meta":{"io.modelcontextprotocol/protocolVersion":"1"}}}}`,
		`{"jsonrpc":"2.0","method":"x","params":[{"name":"a","uri":"b","taskId":"t","arguments":{},"requestState":"s","_meta":{"io.modelcontextprotocol/protocolVersion":"1"}}]}`,
		`{"jsonrpc":"2.0","method":"x","result2":{"name":"a"},"params":{"io.modelcontextprotocol/protocolVersion":"1"}}`,
	} {
		var m Message
		if err := m.Parse([]byte(body)); err != nil {
			t.Fatal(err)
		}
		p := m.Params
		for _, member := range []Member{p.Name, p.URI, p.TaskID, p.Arguments, p.RequestState, p.Meta, p.ProtocolVersion} {
			if member.Type != Absent {
				t.Errorf("%s: read %s", body, member.Raw)
			}
		}
	}
}

// What a gateway that only reports sees of a body that has an offence against row 6 is the
// last of two duplicates, and nothing of the first.
func TestDuplicatesLastWins(t *testing.T) {
	var m Message
	err := m.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call",` +
		`"params":{"name":"a","URI":1,"_meta":{"io.modelcontextprotocol/protocolVersion":"x"}},"params":{"uri":"u","_meta":{"io.modelcontextprotocol/protocolVersion":"y"},"_meta":{}}}`))
	if problemOf(t, err) != "duplicate_name" {
		t.Fatal(err)
	}
	if m.Method != "tools/call" || string(m.Params.URI.Raw) != `"u"` {
		t.Errorf("method %q, uri %s", m.Method, m.Params.URI.Raw)
	}
	if m.Params.Name.Type != Absent || m.Params.ProtocolVersion.Type != Absent || m.Params.Variant("uri") {
		t.Errorf("the first params shine through: %+v", m.Params)
	}
}

// After an offence against row 5 nothing that was read can be trusted.
func TestNotJSONLeavesNothing(t *testing.T) {
	m := Message{Kind: Request, ID: []byte("9"), Method: "old"}
	body := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}`)
	if err := m.Parse(body); problemOf(t, err) != "not_json" {
		t.Fatal(err)
	}
	if m.Kind != 0 || m.ID != nil || m.Method != "" || m.Params.Type != Absent || m.Params.Name.Type != Absent {
		t.Errorf("%+v", m)
	}
}

func TestVariant(t *testing.T) {
	all := []string{"name", "uri", "taskId", "arguments", "requestState", "_meta", versionMember}
	for _, row := range []struct {
		params string
		want   string
	}{
		{`{"name":"a","uri":"b","taskId":"c","arguments":{},"requestState":"s","_meta":{"io.modelcontextprotocol/protocolVersion":"1"}}`, ""},
		{`{"Name":1}`, "name"},
		{`{"name":"ok","NAME":"evil"}`, "name"},
		{`{"n\u0041me":1}`, "name"},
		{`{"URI":1}`, "uri"},
		{`{"uRi":1}`, "uri"},
		{`{"taskid":1}`, "taskId"},
		{`{"taſkId":1}`, "taskId"},
		{`{"tasKId":1}`, "taskId"}, // U+212A, the Kelvin sign
		{`{"argumentſ":{}}`, "arguments"},
		{`{"RequestState":"s"}`, "requestState"},
		{`{"requestState":"s","requestſtate":"t"}`, "requestState"},
		{`{"requestState\u0000":"s"}`, "requestState"},
		{`{"_META":{}}`, "_meta"},
		{`{"_meta":{"IO.modelcontextprotocol/protocolVersion":"1"}}`, versionMember},
		{`{"_meta":{"io.modelcontextprotocol/protocolversion":"1"}}`, versionMember},
		{`{"IO.modelcontextprotocol/protocolVersion":"1"}`, ""},
		{`{"_meta":{"Name":1}}`, ""},
		{`{"arguments":{"Name":1}}`, ""},
		{`{"_META":{"IO.modelcontextprotocol/protocolVersion":"1"}}`, "_meta"},
		{`{"nаme":1}`, ""}, // U+0430, a Cyrillic letter that only looks the same
		{`{"name ":1,"nam":2,"names":3}`, ""},
	} {
		var m Message
		if err := m.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"x","params":` + row.params + `}`)); err != nil {
			t.Fatalf("%s: %v", row.params, err)
		}
		for _, name := range all {
			if got := m.Params.Variant(name); got != (name == row.want) {
				t.Errorf("%s: Variant(%q) is %v", row.params, name, got)
			}
		}
		if m.Params.Variant("cursor") {
			t.Errorf("%s: Variant of a member that is not read", row.params)
		}
	}
}

func TestText(t *testing.T) {
	for _, row := range []struct {
		member Member
		want   string
		ok     bool
	}{
		{Member{String, []byte(`"plain"`)}, "plain", true},
		{Member{String, []byte(`""`)}, "", true},
		{Member{String, []byte(`"\u00e9\n\ud83d\ude00\/"`)}, "é\n😀/", true},
		{Member{Number, []byte(`1`)}, "", false},
		{Member{Null, []byte(`null`)}, "", false},
		{Member{}, "", false},
	} {
		if got, ok := row.member.Text(); got != row.want || ok != row.ok {
			t.Errorf("%s: %q, %v", row.member.Raw, got, ok)
		}
	}
}

func TestErrorOffsets(t *testing.T) {
	for _, row := range []struct {
		name, body string
		want       string
	}{
		{"not_json", `{"a":1,}`, "not a JSON text at byte 6"},
		{"empty", ``, "not a JSON text at byte 0"},
		{"trailing data", `{} {}`, "not a JSON text at byte 2"},
		{"trailing garbage", `{} x`, "not a JSON text at byte 3"},
		{"too_deep", `{"a":` + strings.Repeat("[", 128) + strings.Repeat("]", 128) + `}`, "nested too deep at byte 132"},
		{"duplicate_name", `{"a":1, "a":2,"a":3}`, "duplicate member name at byte 11"},
		{"batch", ` []`, "a batch at byte 1"},
		{"not_object", "\n\t\r 1", "not an object at byte 4"},
		{"case_variant", `{"jsonrpc":"2.0","Method":"x","ID":1}`, "a case variant of a JSON-RPC member at byte 25"},
		{"not_version_2", ` {}`, `jsonrpc is not "2.0" at byte 1`},
	} {
		var m Message
		if err := m.Parse([]byte(row.body)); err == nil || err.Error() != row.want {
			t.Errorf("%s: %v, want %s", row.name, err, row.want)
		}
	}
}

// A sender must not get text of its choice into a log or an answer by way of an error.
func TestErrorsCarryNoContent(t *testing.T) {
	const secret = "hunter2"
	for _, body := range []string{
		`{"hunter2":1,"hunter2":2}`, `{"a":hunter2}`, `{"a":{"hunter2":[nul]}}`, `{"hunter2":"` + "\xff" + `"}`, `hunter2`,
		`{"jsonrpc":"hunter2"}`, `["hunter2"]`, `{"jsonrpc":"2.0","method":{"hunter2":1}}`, `{"jsonrpc":"2.0","method":"hunter2","id":{"hunter2":1}}`,
		`{"hunter2":` + strings.Repeat(`{"hunter2":`, 200), `{"jsonrpc":"2.0","method":"hunter2","METHOD":1}`,
	} {
		var m Message
		err := m.Parse([]byte(body))
		if err == nil {
			t.Errorf("%s: accepted", body)
			continue
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if strings.Contains(e.Error(), secret) {
				t.Errorf("%s: %v", body, e)
			}
		}
	}
}

// Each problem has a name of its own, and no other number has one.
func TestProblemNames(t *testing.T) {
	seen := map[string]bool{}
	for p := NotJSON; p <= BadID; p++ {
		if name := p.String(); name == "" || seen[name] || problems[p].text == "" {
			t.Errorf("problem %d is called %q", p, name)
		} else {
			seen[name] = true
		}
	}
	if Problem(0).String() != "" || (BadID+1).String() != "" || Problem(255).String() != "" {
		t.Error("a number that is no problem has a name")
	}
}

// The hazards have a row for each problem, so that no guard can be removed unnoticed.
func TestHazardsCoverAllProblems(t *testing.T) {
	missing := map[string]bool{}
	for p := NotJSON; p <= BadID; p++ {
		missing[p.String()] = true
	}
	rows := readTable[hazard](t, "json-hazards.json")
	for _, row := range rows {
		delete(missing, row.Problem)
		if row.Source == "" {
			t.Errorf("%s has no source", row.Name)
		}
	}
	if len(missing) > 0 || len(rows) < 70 {
		t.Errorf("%d rows, none for %v", len(rows), missing)
	}
}

// Parse allocates nothing but what the pool has lost.
func TestParseAllocations(t *testing.T) {
	body := []byte(call400)
	var m Message
	m.Parse(body)
	if allocs := testing.AllocsPerRun(1000, func() { m.Parse(body) }); allocs > 4 {
		t.Errorf("%v allocations per message", allocs)
	}
}
