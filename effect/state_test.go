package effect

import (
	"encoding/json"
	"os"
	"testing"
)

// machine is testdata/effects.json.
type machine struct {
	Rows    []map[string]string
	Answers []struct {
		Answer string
		Code   int
		Advice string
	}
}

func readMachine(t *testing.T) machine {
	t.Helper()
	text, err := os.ReadFile("../testdata/effects.json")
	if err != nil {
		t.Fatal(err)
	}
	var m machine
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// Every event in every state is answered as the data says.
func TestEveryPair(t *testing.T) {
	rows := readMachine(t).Rows
	if len(rows) != len(table) || len(eventNames) != len(table) {
		t.Fatalf("the data has %d events, the table %d, and there are %d names", len(rows), len(table), len(eventNames))
	}
	for i, row := range rows {
		event := Event(i)
		if event.String() != row["event"] {
			t.Fatalf("row %d is of %s, want %s", i, row["event"], event)
		}
		for _, state := range States() {
			next, answer := Next(state, event)
			got := answer.String()
			if next != state || !table[event][state].stays {
				got += " > " + next.String()
			}
			if want := row[state.String()]; got != want {
				t.Errorf("%s in %s: got %q, want %q", event, state, got, want)
			}
		}
	}
}

func TestEveryAnswer(t *testing.T) {
	rows := readMachine(t).Answers
	if len(rows) != len(answers) {
		t.Fatalf("the data has %d answers, the table %d", len(rows), len(answers))
	}
	for i, row := range rows {
		a := Answer(i)
		if a.String() != row.Answer || a.Code() != row.Code || a.Advice() != row.Advice {
			t.Errorf("got %s, %d, %q, want %+v", a, a.Code(), a.Advice(), row)
		}
	}
}

// The promises of the design's text, over every pair.
func TestPromises(t *testing.T) {
	for i := range table {
		event := Event(i)
		for _, from := range States() {
			next, answer := Next(from, event)
			check := func(ok bool, promise string) {
				t.Helper()
				if !ok {
					t.Errorf("%s in %s is %s > %s: %s", event, from, answer, next, promise)
				}
			}
			call, moved := event <= StrayStranger, next != from
			if next == Executing && moved {
				check(answer == Forward && call, "only a call that is forwarded starts an execution")
				check(from == None || from == Failed || from == Held && event == Continuation,
					"an attempt is started from none or failed, and goes on from what is held")
			}
			if answer == Forward {
				check(moved || event == CallAgain && from == Executing, "what is forwarded is reserved")
			}
			if call && !moved {
				check(answer.Code() != 0 && answer.Advice() != "" || answer == Replay || answer == Gone || answer == Forward,
					"a call that is not forwarded is told why and what to do")
			}
			if event == Timeout || event == TimeoutUncommitted {
				check(!moved || next == Ambiguous || event == TimeoutUncommitted && from == Held && next == Failed,
					"time only ever makes unknown what was going on")
			}
			if from == Ambiguous && moved {
				check(event == ResolveCommitted || event == ResolveFailed || OutcomeCommitted <= event && event <= OutcomeDeferred ||
					event == Withdraw || event == WithdrawContinuation, "ambiguous is left by a resolution or the same attempt")
			}
			if from == Committed && moved {
				check(event == Reopen || event == Retire, "committed is left by a person alone")
			}
			if next == None && moved {
				check(event == Retire && (from == Committed || from == Failed), "only what is known is ever deleted")
			}
			if event == StaleCommitted || event == StaleOutcome || event == StaleRenew || event == StaleWithdraw || event.stranger() && from != None && from != Failed {
				check(!moved, "what is not of the record's reservation changes nothing")
			}
			if event == StraySame || event == StrayConflict || event == StrayStranger {
				check(!moved, "a mismatch consumes nothing")
			}
			if event.stranger() {
				check(answer != Replay && answer != Conflict, "a stranger is told nothing but code and state")
			}
		}
	}
}
