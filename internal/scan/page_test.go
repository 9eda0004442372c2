package scan

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table in docs/scan.md")

const page = "../../docs/scan.md"

// TestPageHasTheRules holds the page's table to the rules.
func TestPageHasTheRules(t *testing.T) {
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, rest, ok := strings.Cut(string(b), "-update -->\n")
	_, end, also := strings.Cut(rest, "<!-- end of rules -->")
	if !ok || !also {
		t.Fatal("the page has no place for the table")
	}
	var table strings.Builder
	table.WriteString("\n| rule | class | severity | sees | why it matters |\n|---|---|---|---|---|\n")
	for _, r := range Rules() {
		in := ""
		if len(r.Languages) > 0 {
			in = " (" + strings.Join(r.Languages, ", ") + ")"
		}
		fmt.Fprintf(&table, "| `%s`%s | %s | %s | %s: %s | %s |\n", r.ID, in, r.Class, r.Severity, r.Title, strings.ReplaceAll(r.Sees, "|", `\|`), r.Why)
	}
	table.WriteString("\n")
	want := begin + "-update -->\n" + table.String() + "<!-- end of rules -->" + end
	if want == string(b) {
		return
	}
	if !*update {
		t.Fatal("docs/scan.md is not what the rules say; fix: go test ./internal/scan -run TestPageHasTheRules -update")
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil { //nolint:gosec // a page for everybody
		t.Fatal(err)
	}
}
