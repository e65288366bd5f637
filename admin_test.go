package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddymcp/gateway/internal/brokenup/incaddy"
)

// adminTest is a running configuration with a spied ledger and an admin
// endpoint.
type adminTest struct {
	*testing.T
	spy   *spy
	site  *incaddy.Site
	admin string
}

func newAdminTest(t *testing.T) *adminTest {
	t.Helper()
	a := &adminTest{T: t, spy: newSpy(t, t.Name())}
	a.spy.clock.Advance((time.Since(a.spy.clock.Now()) - time.Hour).Truncate(time.Microsecond)) // an hour ago
	cfg := incaddy.Config{
		Global: `mcp_gateway {` + "\n" + `ledger spy "` + t.Name() + `"` + "\n}",
		Site:   "handle /a/* {\nuri strip_prefix /a\nprotect {\nnamespace payments\ntools create_refund\nbare list_*\n}\n}\nprotect {\ntools send\n}",
	}
	a.admin = withAdmin(t, &cfg)
	a.site = incaddy.Run(t, cfg)
	return a
}

// ask asks the admin endpoint.
func (a *adminTest) ask(method, path, body string) (int, string) {
	a.Helper()
	request, err := http.NewRequestWithContext(context.Background(), method, "http://"+a.admin+"/mcp_gateway/"+path, strings.NewReader(body))
	if err != nil {
		a.Fatal(err)
	}
	response, err := incaddy.Client(a, false).Do(request)
	if err != nil {
		a.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		a.Fatal(err)
	}
	if got := response.Header.Get("Content-Type"); got != "application/json" {
		a.Errorf("%s %s came as %q", method, path, got)
	}
	return response.StatusCode, string(text)
}

// wants asks, wants an answer and decodes it.
func (a *adminTest) wants(method, path, body string, answer any) {
	a.Helper()
	status, text := a.ask(method, path, body)
	if status != http.StatusOK {
		a.Fatalf("%s %s %s: got %d %s", method, path, body, status, text)
	}
	if err := json.Unmarshal([]byte(text), answer); err != nil {
		a.Fatalf("%s %s: %v: %s", method, path, err, text)
	}
}

func (a *adminTest) call(path string) { a.Helper(); get(a.T, a.site.URL+path) }

func TestAdminEffects(t *testing.T) {
	a := newAdminTest(t)
	for i, path := range []string{"/a/1?outcome=ambiguous", "/a/2?outcome=committed", "/3?outcome=ambiguous", "/4"} {
		a.call(path)
		if i == 1 {
			a.spy.clock.Advance(30 * time.Minute)
		}
	}
	a.spy.clock.Advance(time.Minute) // a lease runs out
	for _, tt := range []struct {
		query string
		want  []string
		cut   bool
	}{
		{"", []string{`payments ["1"] ambiguous`, `payments ["2"] committed`, ` ["3"] ambiguous`, ` ["4"] ambiguous`}, false},
		{"?state=ambiguous", []string{`payments ["1"] ambiguous`, ` ["3"] ambiguous`, ` ["4"] ambiguous`}, false},
		{"?state=executing", nil, false},
		{"?state=committed&older_than=45m", []string{`payments ["2"] committed`}, false},
		{"?older_than=45m", []string{`payments ["1"] ambiguous`, `payments ["2"] committed`}, false},
		{"?older_than=2h", nil, false},
		{"?limit=2", []string{`payments ["1"] ambiguous`, `payments ["2"] committed`}, true},
		{"?limit=4", []string{`payments ["1"] ambiguous`, `payments ["2"] committed`, ` ["3"] ambiguous`, ` ["4"] ambiguous`}, false},
	} {
		var list struct {
			Effects []struct{ Namespace, Key, State string }
			Cut     bool
		}
		a.wants("GET", "effects"+tt.query, "", &list)
		var got []string
		for _, e := range list.Effects {
			got = append(got, e.Namespace+" "+e.Key+" "+e.State)
		}
		if !slices.Equal(got, tt.want) || list.Cut != tt.cut {
			t.Errorf("%q: got %q %t, want %q %t", tt.query, got, list.Cut, tt.want, tt.cut)
		}
	}
}

func TestAdminEffect(t *testing.T) {
	a := newAdminTest(t)
	a.call("/a/1?outcome=committed")
	status, text := a.ask("GET", `effect?namespace=payments&key=`+url.QueryEscape(`["1"]`), "")
	if status != 200 {
		t.Fatal(status, text)
	}
	var answer struct {
		Effect   map[string]any
		Receipts []map[string]any
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatal(err)
	}
	since := a.spy.clock.Now().Format(time.RFC3339Nano)
	for name, want := range map[string]any{
		"namespace": "payments", "key": `["1"]`, "state": "committed", "attempt": 1.0, "since": since, "active": since,
		"tool": "create_refund", "who": "alice", "revision": "2026-07-28", "upstream": "127.0.0.1:9000", "observation": "test",
		"answer_bytes": 22.0, "answer_until": a.spy.clock.Now().Add(time.Hour).Format(time.RFC3339Nano),
		"deadline": nil, "settle_at": nil, "caller": nil, "answer": nil,
	} {
		if answer.Effect[name] != want {
			t.Errorf("%s: got %v, want %v", name, answer.Effect[name], want)
		}
	}
	if strings.Contains(text, "secret") {
		t.Errorf("the stored result is shown: %s", text)
	}
	var trail []string
	for _, r := range answer.Receipts {
		trail = append(trail, fmt.Sprint(r["event"], " ", r["from"], " ", r["to"], " ", r["answer"]))
	}
	if want := []string{"call_same none executing forward", "outcome_committed executing committed recorded"}; !slices.Equal(trail, want) {
		t.Errorf("receipts: got %q, want %q", trail, want)
	}
	if arguments := fmt.Sprint(answer.Receipts[0]["arguments"]); arguments != "map[card:4000000000000002]" {
		t.Errorf("arguments: got %s", arguments)
	}

	// In a list, which does not read what is stored, nothing is said of its size.
	var list struct{ Effects []map[string]any }
	a.wants("GET", "effects", "", &list)
	if _, said := list.Effects[0]["answer_bytes"]; said || list.Effects[0]["answer_until"] == nil {
		t.Errorf("listed is %v", list.Effects[0])
	}

	// However it is spelled, it is the same key, and without its namespace it is none.
	a.wants("GET", `effect?namespace=payments&key=`+url.QueryEscape(` [ "\u0031" ]`), "", &answer)
	for _, query := range []string{`key=["1"]`, `namespace=payments&key=["2"]`} {
		if status, text := a.ask("GET", "effect?"+strings.ReplaceAll(query, `"`, "%22"), ""); status != 404 || !strings.Contains(text, `"error":"There is no such effect on record."`) {
			t.Errorf("%s: got %d %s", query, status, text)
		}
	}

	// What has run out is shown as what it is.
	a.call("/2")
	a.spy.clock.Advance(time.Minute)
	a.wants("GET", `effect?key=`+url.QueryEscape(`["2"]`), "", &answer)
	if answer.Effect["state"] != "ambiguous" || answer.Effect["settle_at"] == nil {
		t.Errorf("got %v", answer.Effect)
	}
}

func TestAdminResolve(t *testing.T) {
	a := newAdminTest(t)
	a.call("/a/1?outcome=ambiguous")
	at := a.spy.clock.Now()
	settleAt := at.Add(150 * time.Second)
	verdict := func(more string) string {
		return `{"namespace":"payments","key":["1"],"who":"carol","why":"looked at the books",` + more + `}`
	}
	refuses := func(status int, path, body, want string) {
		t.Helper()
		got, text := a.ask("POST", path, body)
		var problem struct{ Error string }
		if err := json.Unmarshal([]byte(text), &problem); err != nil || got != status || problem.Error != want {
			t.Errorf("%s %s: got %d %q %v, want %d %q", path, body, got, problem.Error, err, status, want)
		}
	}
	var answer map[string]any

	refuses(409, "resolve", verdict(`"attempt":1,"state":"failed"`),
		"The upstream may still be at work on this attempt: it can be resolved as failed only later. That is from "+settleAt.Format(time.RFC3339)+" on.")
	refuses(409, "resolve", verdict(`"attempt":2,"state":"committed"`),
		"The record is of another attempt than the one that was judged: look at it again. It is of attempt 1.")
	refuses(409, "reopen", verdict(`"attempt":1`),
		"The effect is not committed: only a committed one can be reopened. It is ambiguous since "+at.Format(time.RFC3339)+".")
	refuses(404, "resolve", strings.Replace(verdict(`"attempt":1,"state":"committed"`), "payments", "mail", 1), "There is no such effect on record.")

	a.spy.clock.Advance(150 * time.Second)
	a.wants("POST", "resolve", verdict(`"attempt":1,"state":"failed"`), &answer)
	if answer["state"] != "failed" || answer["key"] != `["1"]` {
		t.Errorf("got %v", answer)
	}
	refuses(409, "resolve", verdict(`"attempt":1,"state":"failed"`),
		"The effect is not ambiguous: only an ambiguous one can be resolved. It is failed since "+a.spy.clock.Now().Format(time.RFC3339)+".")

	a.call("/a/1?outcome=ambiguous")
	// Committed it can be at once, and a key may stand in a string.
	a.wants("POST", "resolve", strings.Replace(verdict(`"attempt":2,"state":"committed"`), `["1"]`, `"[\"1\"]"`, 1), &answer)
	a.wants("POST", "reopen", verdict(`"attempt":2`), &answer)
	if answer["state"] != "failed" {
		t.Errorf("got %v", answer)
	}

	var list struct {
		Receipts []struct{ Event, Who, Why, To string }
	}
	a.wants("GET", "receipts?limit=2", "", &list)
	if got := fmt.Sprint(list.Receipts); got != "[{reopen carol looked at the books failed} {resolve_committed carol looked at the books committed}]" {
		t.Errorf("got %s", got)
	}
}

func TestAdminBadRequests(t *testing.T) {
	a := newAdminTest(t)
	long := strings.Repeat("x", maxWhy+1)
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "effects", "", 405, "the method is POST: it must be GET"},
		{"GET", "resolve", "", 405, "the method is GET: it must be POST"},
		{"GET", "effects?stat=ambiguous", "", 400, `the parameter "stat" is not known here: the known ones are [state older_than limit]`},
		{"GET", "effects?state=lost", "", 400, `state is "lost": it must be one of [executing held deferred committed failed ambiguous]`},
		{"GET", "effects?state=none", "", 400, `state is "none"`},
		{"GET", "effects?older_than=long", "", 400, `older_than is "long": it must be a time such as 90s, 2h or 7d`},
		{"GET", "effects?older_than=-1h", "", 400, `older_than is "-1h"`},
		{"GET", "effects?limit=0", "", 400, `limit is "0": it must be a number from 1 to 1000`},
		{"GET", "receipts?limit=1001", "", 400, `limit is "1001"`},
		{"GET", "effect", "", 400, `key is "": it must be a JSON array of strings, as it is printed: ["refund","txn_1"]`},
		{"GET", "effect?key=refund", "", 400, `key is "refund"`},
		{"GET", "effect?key=[]", "", 400, `key is "[]"`},
		{"GET", "effect?key=[1]", "", 400, `key is "[1]"`},
		{"GET", "effect?key=[null]", "", 400, `key is "[null]"`},
		{"GET", "effect?key=[%22%5cud800%22]", "", 400, `key is "[\"\\ud800\"]"`},
		{"POST", "resolve", "", 400, "reading the body: "},
		{"POST", "resolve", `{"key":["1"],"attempt":1,"state":"committed","who":"c","why":"w","force":true}`, 400, "reading the body: "},
		{"POST", "resolve", `{"attempt":1,"state":"committed","who":"c","why":"w"}`, 400, `key is ""`},
		{"POST", "resolve", `{"key":{},"attempt":1,"state":"committed","who":"c","why":"w"}`, 400, `key is "{}"`},
		{"POST", "resolve", `{"key":["1"],"state":"committed","who":"c","why":"w"}`, 400, "attempt is 0: name the attempt that was judged, as it is listed"},
		{"POST", "resolve", `{"key":["1"],"attempt":1,"who":"c","why":"w"}`, 400, `state is "": it must be committed or failed`},
		{"POST", "resolve", `{"key":["1"],"attempt":1,"state":"ambiguous","who":"c","why":"w"}`, 400, `state is "ambiguous"`},
		{"POST", "resolve", `{"key":["1"],"attempt":1,"state":"committed","who":" ","why":"w"}`, 400, "who is missing: it stays on record with the effect"},
		{"POST", "resolve", `{"key":["1"],"attempt":1,"state":"committed","who":"c"}`, 400, "why is missing"},
		{"POST", "resolve", `{"key":["1"],"attempt":1,"state":"committed","who":"` + long[:maxWho+1] + `","why":"w"}`, 400, "who has 257 bytes: it can have 256"},
		{"POST", "reopen", `{"key":["1"],"attempt":1,"who":"c","why":"` + long + `"}`, 400, "why has 4097 bytes: it can have 4096"},
		{"POST", "reopen", `{"key":["1"],"attempt":1,"state":"failed","who":"c","why":"w"}`, 400, `state is "failed": what is reopened has failed, and no state is named`},
		{"POST", "reopen", `"` + strings.Repeat("x", maxVerdict) + `"`, 400, "reading the body: "},
	} {
		status, text := a.ask(tt.method, tt.path, tt.body)
		var problem struct{ Error string }
		if err := json.Unmarshal([]byte(text), &problem); err != nil || status != tt.status || !strings.HasPrefix(problem.Error, tt.want) {
			t.Errorf("%s %s %.80s: got %d %q, want %d %q", tt.method, tt.path, tt.body, status, problem.Error, tt.status, tt.want)
		}
	}
}

func TestAdminStatus(t *testing.T) {
	a := newAdminTest(t)
	a.call("/a/1?outcome=ambiguous")
	var status struct {
		Ledger string
		For    string
		Tools  []struct {
			Namespace     string
			Protected     []string
			WithoutEffect []string `json:"without_effect"`
		}
		Effects map[string]int
		Oldest  time.Time `json:"oldest_ambiguous"`
	}
	a.wants("GET", "status", "", &status)
	if got := fmt.Sprint(status); got != "{spy "+t.Name()+" several hosts [{ [send] []} {payments [create_refund] [list_*]}] map[ambiguous:1 committed:0 deferred:0 executing:0 failed:0 held:0] "+a.spy.clock.Now().String()+"}" {
		t.Errorf("got %s", got)
	}
}

// What the ledger cannot answer is not taken for an answer.
func TestAdminWithoutLedger(t *testing.T) {
	a := newAdminTest(t)
	a.call("/a/1?outcome=ambiguous")
	a.spy.failing(errors.New("the disk is full"))
	status, text := a.ask("POST", "resolve", `{"namespace":"payments","key":["1"],"attempt":1,"state":"committed","who":"c","why":"w"}`)
	if status != 503 || !strings.Contains(text, "asking the ledger: the disk is full") {
		t.Errorf("got %d %s", status, text)
	}
	// What is on record can be read all the same.
	var list struct{ Effects []struct{ State string } }
	a.wants("GET", "effects", "", &list)
	if fmt.Sprint(list.Effects) != "[{ambiguous}]" {
		t.Errorf("got %v", list.Effects)
	}
	var answer effectAndReceipts
	a.wants("GET", `effect?namespace=payments&key=[%221%22]`, "", &answer)

	cfg := incaddy.Config{Global: "admin " + a.admin}
	incaddy.Run(t, cfg)
	status, text = a.ask("GET", "effects", "")
	if status != 503 || !strings.Contains(text, "the configuration that runs has no ledger: none of its tools has an effect") {
		t.Errorf("got %d %s", status, text)
	}
}

// A key that is printed is read as the same.
func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{`["refund","txn_1"]`, `["a:b","\u0000\ud83d\ude00"]`, `[""]`, `["a",]`, `[["a"]]`, "[\"\xff\"]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := parseKey("n", text)
		if err != nil {
			return
		}
		again, err := parseKey("n", key.Text)
		if err != nil || again != key {
			t.Errorf("%q is %v, and that is %v, %v", text, key, again, err)
		}
		if again, err := parseKey("n", printable(key.Text)); err != nil || again != key {
			t.Errorf("%v, as it is printed, is %v, %v", key, again, err)
		}
	})
}
