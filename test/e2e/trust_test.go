//go:build linux

package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pinfold/internal/driver/drivertest"
	"pinfold/test/ledger"
)

// docs/trust.md is what happens: its commands are pasted in order, and what each block prints
// is what stands below it, word for word but for ids, digests, times and numbers of entries. A block with nothing
// below it prints nothing.
func TestTrustPage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has a wall that rules can raise to")
	}
	ledger.Check(t)
	runsc := drivertest.Runsc(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "trust.md"))
	if err != nil {
		t.Fatal(err)
	}
	server := freePort(t)
	page := strings.NewReplacer("7463", server, "8000", freePort(t)).Replace(string(text))
	page = strings.Replace(page, "serve --state state", "serve --listen 127.0.0.1:"+server+" --state state", 1)
	steps := stepsOf(t, page)
	var script strings.Builder
	for i, s := range steps {
		fmt.Fprintf(&script, "%s\necho '%s'\n", s.commands, mark(i))
	}
	dir := checkout(t)
	out, err := runScript(t, dir, script.String(), "PATH="+filepath.Dir(runsc)+":"+os.Getenv("PATH"))
	at := filepath.Join(dir, "out", "trust")
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(at, "server.log")) //nolint:gosec // our own
		t.Fatalf("%v\n%s\n%s", err, out, log)
	}
	keys := strings.NewReplacer(keyID(t, filepath.Join(at, "agent.key")), agentsID, keyID(t, filepath.Join(at, "anna.key")), annasID)
	for i, s := range steps {
		got, rest, _ := strings.Cut(out, mark(i)+"\n")
		out = rest
		if diff := differ(s.prints, keys.Replace(got)); diff != "" {
			t.Errorf("%s\nprints\n%s\n%s", s.commands, got, diff)
		}
	}
	untracked(t, dir)
}

// The ids of keys on the page.
const agentsID, annasID = "agent22222", "anna333333"

// keyID is the id of a key in a file.
func keyID(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file) //nolint:gosec // a test's own
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), "_")
	if len(parts) != 3 {
		t.Fatalf("%s: %d parts", file, len(parts))
	}
	return parts[1]
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// step is a block of commands, and what it prints.
type step struct{ commands, prints string }

func mark(i int) string { return fmt.Sprintf("=== end of block %d ===", i) }

// told are the blocks of commands, each with the block of output that may stand below it.
var told = regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$")

func stepsOf(t *testing.T, page string) (steps []step) {
	t.Helper()
	for _, block := range told.FindAllStringSubmatch(page, -1) {
		switch last := len(steps) - 1; {
		case block[1] == "sh":
			steps = append(steps, step{commands: block[2]})
		case last < 0 || steps[last].prints != "":
			t.Fatalf("output of nothing: %s", block[2])
		default:
			steps[last].prints = block[2]
		}
	}
	if len(steps) < 10 {
		t.Fatalf("%d blocks of commands: the page was not understood", len(steps))
	}
	return steps
}

// others is what is another each time.
var others = []struct {
	what *regexp.Regexp
	is   string
}{
	{regexp.MustCompile(`\b(run|sbx|prc)_[a-z2-7]{26}\b`), "${1}_ID"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "DIGEST"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\b`), "TIME"},
	{regexp.MustCompile(`\b\d+[sm] ago\b`), "AGO"},
	{regexp.MustCompile(`\bin \d+[sm]\b`), "IN"},
	{regexp.MustCompile(`(?m)^\d+ +TIME\b`), "N TIME"}, // an entry of the audit log
	{regexp.MustCompile(`\bentry \d+ of \d+ in\b`), "entry N of N in"},
	{regexp.MustCompile(`\b\d+ (entries are|of them are signed)`), "N ${1}"},
	{regexp.MustCompile(`\b\d+ checkpoints?\b`), "N checkpoints"}, // one, where the server was busy
}

// differ is the first line in which two texts have other words, or nothing.
func differ(want, got string) string {
	lines := func(text string) []string {
		for _, o := range others {
			text = o.what.ReplaceAllString(text, o.is)
		}
		return strings.Split(strings.TrimSpace(text), "\n")
	}
	wanted, printed := lines(want), lines(got)
	for i := range max(len(wanted), len(printed)) {
		var w, p string
		if i < len(wanted) {
			w = wanted[i]
		}
		if i < len(printed) {
			p = printed[i]
		}
		if !slices.Equal(strings.Fields(w), strings.Fields(p)) {
			return fmt.Sprintf("line %d: the page says\n%s\nand it prints\n%s", i+1, w, p)
		}
	}
	return ""
}

// A page that says something else than what is printed is found out.
func TestPagesAreComparedWordForWord(t *testing.T) {
	const page = "RUN  run_456xywues3p4jpak5nr2fwipym  asked 2s ago, at 2026-01-31 12:00:00 UTC\ncost 3\n"
	for got, same := range map[string]bool{
		page: true,
		"RUN    run_aaaaaaaaaaaaaaaaaaaaaaaaaa  asked 0s ago, at 2027-11-30 02:00:01 UTC\ncost 3": true,
		strings.Replace(page, "cost 3", "cost 4", 1):                                              false,
		strings.Replace(page, "run_4", "box_4", 1):                                                false,
		strings.Replace(page, "2s ago", "2h ago", 1):                                              false,
		page + "more\n": false,
		"":              false,
	} {
		if diff := differ(page, got); (diff == "") != same {
			t.Errorf("%q: %q", got, diff)
		}
	}
}
