// Command report reads `go test -json` from stdin and prints what a person
// wants to know: one line for each package, everything that a failed test
// said, every skipped test with its reason, and which tests took longest. It
// fails when a test failed.
//
// It runs nothing and keeps nothing.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Elapsed    float64
	Output     string
}

type report struct {
	out     io.Writer
	said    map[string]*strings.Builder // by package and test
	skipped []string
	took    []took // tests that are no part of another
	passed  int
	failed  int
}

// took is how long a test took.
type took struct {
	seconds float64
	test    string
}

func main() {
	r := &report{out: os.Stdout, said: make(map[string]*strings.Builder)}
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	r.summary()
	if r.failed > 0 || r.passed == 0 {
		os.Exit(1)
	}
}

// read takes events until the end. A line that is none (the go command's own
// complaints) is passed on.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(r.out, lines.Text())
			continue
		}
		r.take(e)
	}
	return lines.Err()
}

func (r *report) take(e event) {
	key := e.Package + "\x00" + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		if r.said[key] == nil {
			r.said[key] = new(strings.Builder)
		}
		r.said[key].WriteString(e.Output)
		return
	case "pass":
		if e.Test != "" {
			r.passed++
			if !strings.Contains(e.Test, "/") {
				r.took = append(r.took, took{e.Elapsed, strings.TrimPrefix(e.Package, "pinfold/") + "." + e.Test})
			}
		} else {
			fmt.Fprintf(r.out, "   ok    %6.1f s  %s\n", e.Elapsed, e.Package)
		}
	case "fail":
		r.failed++
		if said := r.said[key]; said != nil {
			fmt.Fprint(r.out, said.String())
		}
		if e.Test == "" {
			fmt.Fprintf(r.out, "   FAIL  %6.1f s  %s\n", e.Elapsed, e.Package)
		}
	case "skip":
		if e.Test != "" {
			r.skipped = append(r.skipped, e.Package+" "+e.Test+": "+reason(r.said[key]))
		}
	default:
		return
	}
	delete(r.said, key)
}

// reason is what a skipped test said last.
func reason(said *strings.Builder) string {
	if said == nil {
		return "no reason given"
	}
	why := "no reason given"
	for line := range strings.Lines(said.String()) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "--- ") {
			why = line
		}
	}
	return why
}

func (r *report) summary() {
	for _, s := range r.skipped {
		fmt.Fprintln(r.out, "   skipped:", s)
	}
	slices.SortFunc(r.took, func(a, b took) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, t := range r.took[:min(10, len(r.took))] {
		fmt.Fprintf(r.out, "   took  %6.1f s  %s\n", t.seconds, t.test)
	}
	fmt.Fprintf(r.out, "   %d passed, %d skipped, %d failed\n", r.passed, len(r.skipped), r.failed)
}
