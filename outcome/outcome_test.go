package outcome

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
)

// tableCase is one row of testdata/outcome.json.
type tableCase struct {
	Name        string          `json:"name"`
	Source      string          `json:"source"`
	Observation json.RawMessage `json:"observation"`
	Want        struct {
		Observation string `json:"observation"`
		Outcome     string `json:"outcome"`
		Answer      string `json:"answer"`
	} `json:"want"`
}

func loadCases(t *testing.T) []tableCase {
	t.Helper()
	text, err := os.ReadFile("../testdata/outcome.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []tableCase `json:"cases"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return file.Cases
}

func (c *tableCase) observation(t *testing.T) Observation {
	t.Helper()
	var in struct {
		Observation
		Stage   string
		Message string
		ID      string
	}
	if err := json.Unmarshal(c.Observation, &in); err != nil {
		t.Fatal(err)
	}
	o := in.Observation
	o.Stage = map[string]Stage{"sent": Sent, "never_connected": NeverConnected, "client_gone": ClientGone, "cut": Cut, "answered": Answered}[in.Stage]
	o.Message = map[string]Message{"": None, "result": Result, "error": Error}[in.Message]
	o.ID = map[string]ID{"": Other, "other": Other, "ours": Ours, "absent": Absent}[in.ID]
	return o
}

var answerNames = map[Answer]string{Unknown: "-41010", NotSent: "-41011", Upstream: "upstream", Nothing: "nothing"}

func TestDecide(t *testing.T) {
	for _, c := range loadCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			o := c.observation(t)
			got := Decide(&o)
			if got.Observation != c.Want.Observation || got.Outcome.String() != c.Want.Outcome || answerNames[got.Answer] != c.Want.Answer {
				t.Errorf("got %s, %s, %s; want %s, %s, %s", got.Observation, got.Outcome, answerNames[got.Answer],
					c.Want.Observation, c.Want.Outcome, c.Want.Answer)
			}
		})
	}
}

// Every row of the table decides at least one case of the data: a row that
// none reaches would be documentation, not a rule.
func TestEveryRowIsReached(t *testing.T) {
	reached := make(map[string]bool)
	for _, c := range loadCases(t) {
		reached[c.Want.Observation] = true
	}
	for _, name := range Names() {
		if !reached[name] {
			t.Errorf("no case in testdata/outcome.json is decided by %q", name)
		}
	}
}

// TestOnlyFourObservationsAreFailed pins the asymmetry that this product
// exists for: how many kinds of observation are Failed, which they are, and
// that what can be observed after the request was sent is all Ambiguous.
func TestOnlyFourObservationsAreFailed(t *testing.T) {
	var failed []string
	for _, row := range table {
		if row.Outcome == Failed {
			failed = append(failed, row.Observation)
		}
	}
	want := []string{"never_connected", "http_refusal", "tool_error_not_executed", "error_before_dispatch"}
	if !slices.Equal(failed, want) {
		t.Errorf("the Failed observations are %v, want exactly %v", failed, want)
	}

	afterDispatch := []string{
		"result_despite_refusal", "tool_error", "input_required_without_state", "unknown_result_type", "error", "redirect",
		"error_without_id", "encoded", "sent", "response_cut", "result_under_error_status", "wrong_id", "stream_ended",
		"unreadable", "http_status", "client_gone",
	}
	for _, name := range afterDispatch {
		i := slices.IndexFunc(table, func(r row) bool { return r.Observation == name })
		if i < 0 {
			t.Errorf("the table has no row %q", name)
		} else if table[i].Outcome != Ambiguous {
			t.Errorf("%s is %s, want ambiguous", name, table[i].Outcome)
		}
	}
	if got, want := len(table), len(want)+len(afterDispatch)+len([]string{"complete", "input_required", "task", "complete_legacy"}); got != want {
		t.Errorf("the table has %d rows, %d are accounted for here", got, want)
	}
}

// all calls f with every observation there is, over one value of each kind
// that the table tells apart.
func all(f func(Observation)) {
	bools := []bool{false, true}
	for _, stage := range []Stage{Sent, NeverConnected, ClientGone, Cut, Answered} {
		for _, status := range []int{0, 101, 200, 202, 302, 400, 401, 403, 404, 429, 500, 503} {
			for _, message := range []Message{None, Result, Error} {
				for _, id := range []ID{Other, Ours, Absent} {
					resultTypes, codes := []string{""}, []int64{0}
					switch message {
					case Result:
						resultTypes = []string{"", "complete", "input_required", "task", "else"}
					case Error:
						codes = []int64{-32600, -32602, -32603}
					}
					for _, resultType := range resultTypes {
						for _, code := range codes {
							for bits := range 1 << 11 {
								bit := func(i int) bool { return bools[bits>>i&1] }
								f(Observation{
									Stage: stage, Status: status, Message: message, ID: id,
									ResultType: resultType, HasResultType: resultType != "", Code: code,
									Modern: bit(0), Session: bit(1), Challenge: bit(2), Encoded: bit(3), Stream: bit(4),
									LaterEvent: bit(5), IsError: bit(6), RequestState: bit(7), TaskID: bit(8), NotExecutedOnError: bit(9), Doubtful: bit(10),
								})
							}
						}
					}
				}
			}
		}
	}
}

// Whatever is observed, a row decides, and what it says keeps the promises of
// the design's text.
func TestEveryObservationHasAnAnswer(t *testing.T) {
	check := func(ok bool, o Observation, v Verdict, promise string) {
		if !ok {
			t.Fatalf("%s: %+v is %+v", promise, o, v)
		}
	}
	all(func(o Observation) {
		v := Decide(&o)
		check(v.Observation != "", o, v, "every observation has a row")
		if v.Outcome == Failed {
			proven := o.Stage == NeverConnected
			refused := o.Stage == Answered && o.Status >= 400
			told := o.Stage == Answered && (o.Message == Error && BeforeDispatch(o.Code) && (o.ID == Absent || o.Code != -32600) || o.NotExecutedOnError && o.IsError)
			check(proven || refused || told, o, v, "failed is said on proof or on the word of the protocol or the operator")
		}
		if v.Outcome == Committed || v.Outcome == Held || v.Outcome == Deferred {
			check(o.Stage == Answered && o.Message == Result && o.ID == Ours && o.Status/100 == 2, o, v, "only a result of ours under success is more than ambiguous")
		}
		check((v.Answer == NotSent) == (o.Stage == NeverConnected), o, v, "-41011 is for what was never sent")
		check((v.Answer == Nothing) == (o.Stage == ClientGone), o, v, "only a client that is gone gets nothing")
		if v.Answer == Upstream {
			check(o.Stage == Answered, o, v, "an answer that is passed on was read to its end")
		}

		o.Repeated = true
		repeated := Decide(&o)
		check(repeated.Outcome != Failed, o, repeated, "a second delivery moves an outcome away from failed")
		check(repeated.Answer != NotSent, o, repeated, "what was delivered twice was sent")
		if v.Outcome != Failed {
			check(repeated == v, o, repeated, "a second delivery changes nothing else")
		}
		o.Repeated = false

		o.Substituted = true
		substituted := Decide(&o)
		check(substituted.Outcome != Failed, o, substituted, "the word of somebody else moves an outcome away from failed")
		if v.Outcome != Failed {
			check(substituted == v, o, substituted, "the word of somebody else changes nothing else")
		}
		o.Substituted = false

		o.Continues = true
		later := Decide(&o)
		check(later.Outcome != Failed, o, later, "failed is impossible on a later leg")
		check(later.Answer != NotSent, o, later, "what an earlier leg sent was sent")
		if v.Outcome != Failed {
			check(later == v, o, later, "that a call goes on changes nothing else")
		}
		o.Continues = false

		o.CodeIsAmbiguous = true
		check(Decide(&o).Outcome != Failed || v.Outcome == Failed, o, v, "ambiguous_codes adds nothing to the closed set")
	})
}

// Verdicts lists what Decide says, and nothing else.
func TestVerdicts(t *testing.T) {
	said := make(map[Verdict]bool)
	all(func(o Observation) {
		said[Decide(&o)] = true
		o.Repeated = true
		said[Decide(&o)] = true
		o.Repeated, o.Untraceable = false, true
		v := Decide(&o)
		said[v] = true
		if v.Outcome == Deferred {
			t.Errorf("%+v waits for a task of which nothing will be learned", o)
		}
	})
	listed := Verdicts()
	for _, v := range listed {
		if !said[v] {
			t.Errorf("%+v is listed and never said", v)
		}
	}
	if len(said) != len(listed) {
		t.Errorf("%d verdicts are said and %d listed", len(said), len(listed))
	}
}

func TestCodesTakenOutOfTheSet(t *testing.T) {
	for _, code := range beforeDispatch {
		o := Observation{Stage: Answered, Status: 200, Message: Error, ID: Ours, Code: code}
		if rulesOutAnID(code) {
			o.Status, o.ID = 400, Absent
		}
		if got := Decide(&o).Outcome; got != Failed {
			t.Errorf("%d is %s, want failed", code, got)
		}
		o.CodeIsAmbiguous = true
		if got := Decide(&o); got.Outcome != Ambiguous || got.Observation != "error" && got.Observation != "error_without_id" {
			t.Errorf("%d, taken out, is %+v, want an ambiguous error", code, got)
		}
	}
	if BeforeDispatch(-32603) {
		t.Error("-32603 is not in the closed set")
	}
}

func TestZeroValuesClaimNothing(t *testing.T) {
	if v := Decide(new(Observation)); v.Outcome != Ambiguous || v.Answer != Unknown || v.Observation != "sent" {
		t.Errorf("the zero observation is %+v", v)
	}
	if v := (Verdict{}); v.Outcome != Ambiguous || v.Answer != Unknown {
		t.Errorf("the zero verdict is %+v", v)
	}
	if v := Decide(&Observation{Stage: Answered + 1}); v != (Verdict{}) {
		t.Errorf("a stage without a row is %+v, want the zero verdict", v)
	}
}

func TestOutcomeWords(t *testing.T) {
	for o, want := range map[Outcome]string{Ambiguous: "ambiguous", Failed: "failed", Committed: "committed", Held: "held", Deferred: "deferred", 99: "ambiguous"} {
		if got := o.String(); got != want {
			t.Errorf("outcome %d is %q, want %q", o, got, want)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	o := Observation{Stage: Answered, Status: 200, Modern: true, Message: Result, ID: Ours, HasResultType: true, ResultType: "complete"}
	b.ReportAllocs()
	for b.Loop() {
		if Decide(&o).Outcome != Committed {
			b.Fatal("not committed")
		}
	}
}
