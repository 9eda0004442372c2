package api

import (
	"errors"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pinfold/sandbox"
)

// tableRows are the rows of a document's tables whose first cell is a word in
// code, by that word, after a heading.
func tableRows(t *testing.T, text, heading string) map[string][]string {
	t.Helper()
	_, text, ok := strings.Cut(text, "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("no %s", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	rows := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|(.*)\\|$").FindAllStringSubmatch(text, -1) {
		if rows[m[1]] != nil {
			t.Errorf("%s stands twice", m[1])
		}
		var cells []string
		for cell := range strings.SplitSeq(m[2], "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		rows[m[1]] = cells
	}
	return rows
}

// The page of errors names every code with its status, and every cause; and
// nothing else.
func TestErrorsPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(Options{})
	codes := tableRows(t, string(text), "Error codes")
	for _, code := range sandbox.Codes() {
		row := codes[code]
		if len(row) != 4 || row[2] == "" || row[3] == "" {
			t.Errorf("%s: %q", code, row)
			continue
		}
		if want := strconv.Itoa(s.statusOf(&sandbox.Error{Code: code})); row[0] != want {
			t.Errorf("%s: the page says %s, the server %s", code, row[0], want)
		}
		delete(codes, code)
	}
	causes := tableRows(t, string(text), "Causes")
	for _, kind := range sandbox.CauseKinds() {
		if row := causes[string(kind)]; len(row) != 4 || row[2] == "" || row[3] == "" {
			t.Errorf("%s: %q", kind, row)
		}
		delete(causes, string(kind))
	}
	if len(codes) > 0 || len(causes) > 0 {
		t.Errorf("words that do not exist: %v %v", codes, causes)
	}
}

// Every code that the server gives a status of its own exists.
func TestStatusesAreOfCodes(t *testing.T) {
	for code := range statuses() {
		if !slices.Contains(sandbox.Codes(), code) {
			t.Errorf("%s is no code", code)
		}
	}
	if got := newServer(Options{}).statusOf(errors.New("x")); got != http.StatusInternalServerError {
		t.Error(got)
	}
}
