package language

import (
	"slices"
	"strings"
	"testing"

	"pinfold/sandbox"
)

func TestWithHarness(t *testing.T) {
	plain, _ := Find("python")
	for name, c := range map[string]struct {
		imports []string
		report  bool
		args    string
		files   int
		results string
	}{
		"nothing wanted":    {args: "/usr/bin/python3 /tmp/.pinfold/pinfold_harness.py --no-results main.py a", files: 4},
		"values":            {report: true, args: "/usr/bin/python3 /tmp/.pinfold/pinfold_harness.py main.py a", files: 4, results: "/tmp/.pinfold/results.jsonl"},
		"limits":            {imports: []string{"b", "a", "b"}, args: "/usr/bin/python3 /tmp/.pinfold/pinfold_harness.py --imports=a,b --no-results main.py a", files: 5},
		"nothing to import": {imports: []string{}, report: true, args: "/usr/bin/python3 /tmp/.pinfold/pinfold_harness.py --imports= main.py a", files: 5, results: "/tmp/.pinfold/results.jsonl"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := plain.WithHarness(c.imports, c.report)
			if err != nil {
				t.Fatal(err)
			}
			steps, err := l.Plan("", []string{"a"}, sandbox.Limits{}, everything)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(steps.Run.Args, " "); got != c.args || len(steps.Files) != c.files || steps.Results != c.results {
				t.Fatalf("%s, %d files, %q", got, len(steps.Files), steps.Results)
			}
		})
	}
	if again, _ := Find("python"); !slices.Equal(again.Run, plain.Run) || len(again.Support) != len(plain.Support) {
		t.Error("the table has changed")
	}
}

// Every harness of the table can be put in place.
func TestHarnesses(t *testing.T) {
	for _, l := range Table() {
		with, err := l.WithHarness([]string{"a"}, true)
		if l.Harness.Limiter == nil {
			if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodeSpecInvalid || e.Field != "allowed_imports" || e.Hint == "" {
				t.Errorf("%s: %v", l.Name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", l.Name, err)
			continue
		}
		steps, err := with.Plan("", []string{"{file}"}, sandbox.Limits{}, everything)
		if err != nil || len(steps.Files) == 0 || steps.Dir == "" || slices.Contains(steps.Run.Args, "{options}") {
			t.Errorf("%s: %v %+v", l.Name, err, steps)
		}
	}
}
