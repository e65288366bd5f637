package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A check names one check of the suite. A scenario may make a check more than once; nth counts from 1.
type check struct {
	scenario, id, name string
	nth                int
}

func (c check) String() string {
	return fmt.Sprintf("%s: %s %s (%d)", c.scenario, c.id, c.name, c.nth)
}

// A verdict is what the suite says of a check: SUCCESS, FAILURE, WARNING or SKIPPED, and why.
type verdict struct {
	status, reason string
}

type results map[check]verdict

// The suite writes one folder for each scenario, named after it and the time, for server scenarios with a prefix.
var scenarioFolder = regexp.MustCompile(`^(?:server-)?(.+)-\d{4}-\d\d-\d\dT[-\d]+Z$`)

// readResults reads the checks.json of every scenario in folder that is not about authorization: those are one
// folder deeper. Entries that only log traffic (INFO) are left out.
func readResults(t *testing.T, folder string) results {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*", "checks.json"))
	if err != nil {
		t.Fatal(err)
	}
	all := make(results)
	for _, file := range files {
		m := scenarioFolder.FindStringSubmatch(filepath.Base(filepath.Dir(file)))
		if m == nil {
			t.Fatalf("%s is in no folder of a scenario", file)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var entries []struct{ ID, Name, Status, ErrorMessage string }
		if err := json.Unmarshal(content, &entries); err != nil {
			t.Fatalf("reading %s: %v", file, err)
		}
		for _, e := range entries {
			if e.Status == "INFO" {
				continue
			}
			c := check{scenario: m[1], id: e.ID, name: e.Name, nth: 1}
			for all.has(c) {
				c.nth++
			}
			all[c] = verdict{status: e.Status, reason: e.ErrorMessage}
		}
	}
	return all
}

func (r results) has(c check) bool {
	_, ok := r[c]
	return ok
}

// A score counts checks that passed and failed.
type score struct{ passed, failed int }

func (s score) String() string { return fmt.Sprintf("%d/%d", s.passed, s.failed) }

// score counts the checks of the named scenarios, or of all if none is named.
func (r results) score(scenarios ...string) score {
	var s score
	for c, v := range r {
		if len(scenarios) > 0 && !slices.Contains(scenarios, c.scenario) {
			continue
		}
		switch v.status {
		case "SUCCESS":
			s.passed++
		case "FAILURE":
			s.failed++
		}
	}
	return s
}

// wantSame fails the test for every check whose verdict through the gateway is another one than direct.
func wantSame(t *testing.T, direct, behind results) {
	t.Helper()
	union := maps.Clone(direct)
	maps.Copy(union, behind)
	sorted := slices.SortedFunc(maps.Keys(union), func(a, b check) int { return strings.Compare(a.String(), b.String()) })
	for _, c := range sorted {
		if d, b := direct[c], behind[c]; d.status != b.status {
			t.Errorf("%v\n\tdirect:  %s %s\n\tgateway: %s %s", c, orNone(d.status), d.reason, orNone(b.status), b.reason)
		}
	}
}

func orNone(status string) string {
	if status == "" {
		return "(not made)"
	}
	return status
}
