package scan

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"pinfold/internal/language"
	"pinfold/sandbox"
)

// mostFlagged is how many of the honest programs may have a finding above notice.
const mostFlagged = 5

// labelled are the programs of an archive; a name is class/name.ext.
func labelled(t *testing.T, name string) []txtar.File {
	t.Helper()
	a, err := txtar.ParseFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Files) != 100 {
		t.Errorf("%s has %d programs, not 100", name, len(a.Files))
	}
	return a.Files
}

func scanFile(t *testing.T, s Scanner, f txtar.File) *Report {
	t.Helper()
	l, err := language.Detect(f.Name, f.Data)
	if err != nil {
		t.Fatal(err)
	}
	r := scanned(t, s, l.Name, string(f.Data))
	if r.Unread != "" {
		t.Errorf("%s: %s", f.Name, r.Unread)
	}
	return r
}

// TestLabelledSet scans a hundred hostile programs and a hundred honest ones, and prints
// what was seen of each class, with each miss.
func TestLabelledSet(t *testing.T) {
	s := scanner(t)
	classOf := map[string]string{}
	for _, r := range Rules() {
		classOf[r.ID] = r.Class
	}
	type row struct{ programs, seen, above int }
	rows, order := map[string]*row{}, []string{}
	var misses []string
	for _, f := range labelled(t, "hostile.txtar") {
		class := path.Dir(f.Name)
		if rows[class] == nil {
			rows[class] = &row{}
			order = append(order, class)
		}
		r := scanFile(t, s, f)
		rows[class].programs++
		seen := false
		for _, found := range r.Findings {
			seen = seen || classOf[found.Rule] == class
		}
		if seen {
			rows[class].seen++
		} else {
			misses = append(misses, fmt.Sprintf("%s: not seen as %s, only %s", f.Name, class, strings.Join(rulesOf(r), " ")))
		}
		if Rank(r.Worst) > Rank(sandbox.SeverityNotice) {
			rows[class].above++
		} else {
			misses = append(misses, fmt.Sprintf("%s: nothing above notice", f.Name))
		}
	}
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-18s%10s%8s%16s\n", "class", "programs", "seen", "above notice")
	for _, class := range order {
		r := rows[class]
		fmt.Fprintf(&table, "%-18s%10d%8d%16d\n", class, r.programs, r.seen, r.above)
		if r.seen == 0 {
			t.Errorf("no program of class %s is seen", class)
		}
		if r.seen < r.programs {
			t.Errorf("%d of %d programs of class %s are not seen as such", r.programs-r.seen, r.programs, class)
		}
	}
	flagged := 0
	for _, f := range labelled(t, "honest.txtar") {
		if r := scanFile(t, s, f); Rank(r.Worst) > Rank(sandbox.SeverityNotice) {
			flagged++
			for _, found := range r.Findings {
				if Rank(found.Severity) > Rank(sandbox.SeverityNotice) {
					misses = append(misses, fmt.Sprintf("%s: honest, but %s in line %d", f.Name, found.Rule, found.Line))
				}
			}
		}
	}
	fmt.Fprintf(&table, "%-18s%10d%8s%16d\n\n", "honest", 100, "", flagged)
	t.Log(table.String() + strings.Join(misses, "\n"))
	if flagged > mostFlagged {
		t.Errorf("%d honest programs have findings above notice, more than %d", flagged, mostFlagged)
	}
}
