package cli

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"pinfold/sandbox"
)

// The page of errors says with which status this program leaves.
func TestErrorsPageHasOurExitStatus(t *testing.T) {
	text, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	row := func(word string) []string {
		m := regexp.MustCompile("(?m)^\\| `" + word + "` \\| ([^|]*) \\| ([^|]*) \\|").FindStringSubmatch(string(text))
		if m == nil {
			t.Fatalf("the page lacks %s", word)
		}
		return m[1:]
	}
	for _, code := range sandbox.Codes() {
		if got, want := row(code)[1], strconv.Itoa(errorStatus(&sandbox.Error{Code: code})); got != want {
			t.Errorf("%s: the page says %s, we leave with %s", code, got, want)
		}
	}
	for _, kind := range sandbox.CauseKinds() {
		cells := row(string(kind))
		if cells[0] != string(sandbox.StatusKilled) {
			continue
		}
		if want := strconv.Itoa(exitStatus(&sandbox.Result{Status: sandbox.StatusKilled, Cause: sandbox.Cause{Kind: kind}})); cells[1] != want {
			t.Errorf("%s: the page says %s, we leave with %s", kind, cells[1], want)
		}
	}
}
