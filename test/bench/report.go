package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report prints tables as they come and keeps them for the document.
type report struct {
	head string
	text strings.Builder
}

func newReport() *report {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	load, _ := os.ReadFile("/proc/loadavg")
	head := fmt.Sprintf("%s, %d cores, Linux %s, %s, load %s\n",
		time.Now().Format(time.DateOnly), runtime.NumCPU(), strings.TrimSpace(string(kernel)), runtime.Version(),
		strings.Join(strings.Fields(string(load))[:3], " "))
	return &report{head: head}
}

// section begins a part.
func (r *report) section(title string) { r.line("\n### %s\n", title) }

func (r *report) line(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	fmt.Println(s)
	r.text.WriteString(s + "\n")
}

// table prints rows, the first of which is the header.
func (r *report) table(rows [][]string) {
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush()
	for i, row := range rows {
		r.text.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			r.text.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
}

// target says whether an aim is reached. It decides nothing.
func (r *report) target(what string, reached bool, measured string) {
	word := "reached"
	if !reached {
		word = "NOT reached"
	}
	r.line("- %s: **%s** (%s)", what, word, measured)
}

const marker = "<!-- written by make bench: everything below -->"

// writeDocs replaces what stands below the marker.
func (r *report) writeDocs(path string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	above, _, found := strings.Cut(string(old), marker)
	if !found {
		return fmt.Errorf("%s has no line %q", path, marker)
	}
	revision, _ := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	body := fmt.Sprintf("%s%s\n\nMade by `go run ./test/bench -write` at %s.\n\n%s%s",
		above, marker, strings.TrimSpace(string(revision)), r.head, r.text.String())
	return os.WriteFile(path, []byte(body), 0o644) //nolint:gosec // a document
}

// sample is a list of durations.
type sample []time.Duration

func (s sample) sorted() sample {
	c := slices.Clone(s)
	slices.Sort(c)
	return c
}

// at returns the quantile q of a sample that is not empty.
func (s sample) at(q float64) time.Duration {
	c := s.sorted()
	return c[min(len(c)-1, int(q*float64(len(c))))]
}

func (s sample) median() time.Duration { return s.at(0.5) }

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }

func ratio(a, b time.Duration) string { return fmt.Sprintf("%.2f ×", float64(a)/float64(b)) }
