package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"pinfold/sandbox"
)

// Report is everything that one benchmark, or comparison, found.
type Report struct {
	Command  string     `json:"command"` // of pinfold: "bench"
	Made     time.Time  `json:"made"`
	Version  string     `json:"version"`
	Options  string     `json:"options"` // how thorough it was
	Machine  Machine    `json:"machine"`
	Sections []*Section `json:"sections"`
	Targets  []Target   `json:"targets"`
	Failures []string   `json:"failures"` // sandboxes that failed, traces that were left
}

// Machine is where it was measured.
type Machine struct {
	Cores     int    `json:"cores"`
	Processor string `json:"processor,omitempty"`
	MemoryMB  int64  `json:"memory_mb,omitempty"`
	System    string `json:"system"` // "linux 6.1.0"
	Arch      string `json:"arch"`
	Load      string `json:"load,omitempty"` // at the beginning
	Root      bool   `json:"root"`
}

// Section is one part of the report.
type Section struct {
	Part   string   `json:"part"`
	Title  string   `json:"title"`
	Text   string   `json:"text,omitempty"`
	Tables []*Table `json:"tables"`
	// Notes say what was left out and why, and what does not fit a table.
	Notes  []string `json:"notes,omitempty"`
	Charts []Chart  `json:"-"`
}

// Note adds a line, which may hold foreign text.
func (s *Section) Note(format string, args ...any) {
	line := sandbox.SafeText(strings.TrimSpace(fmt.Sprintf(format, args...)), 600)
	s.Notes = append(s.Notes, line)
}

// State says whether an aim was reached.
type State string

// What became of an aim.
const (
	Reached     State = "reached"
	NotReached  State = "NOT reached"
	NotMeasured State = "not measured"
)

// Target is an aim. It decides nothing.
type Target struct {
	Group    string `json:"group"`
	Aim      string `json:"aim"`
	State    State  `json:"state"`
	Measured string `json:"measured,omitempty"`
}

// LookAtMachine describes this machine.
func LookAtMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), System: runtime.GOOS, Arch: runtime.GOARCH, Root: os.Geteuid() == 0}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += " " + sandbox.SafeText(strings.TrimSpace(string(kernel)), 80)
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil && len(strings.Fields(string(load))) >= 3 {
		m.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	if cpu, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(cpu)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				m.Processor = sandbox.SafeText(strings.TrimSpace(v), 80)
				break
			}
		}
	}
	m.MemoryMB = meminfo()["MemTotal"] >> 20
	return m
}

// Line describes the machine in one line.
func (r *Report) Line() string {
	m := r.Machine
	line := fmt.Sprintf("%s, %d cores", r.Made.Format(time.DateOnly), m.Cores)
	if m.Processor != "" {
		line += " (" + m.Processor + ")"
	}
	if m.MemoryMB > 0 {
		line += fmt.Sprintf(", %d MB", m.MemoryMB)
	}
	line += ", " + m.System + " " + m.Arch
	if m.Load != "" {
		line += ", load " + m.Load
	}
	if !m.Root {
		line += ", not root"
	}
	return line
}

// JSON writes the report as JSON.
func (r *Report) JSON() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(r)
	return b.Bytes(), err
}

// WriteText writes a section for a terminal.
func (s *Section) WriteText(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n%s\n", plain(s.Title), strings.Repeat("=", utf8.RuneCountInString(plain(s.Title))))
	if s.Text != "" {
		fmt.Fprintf(w, "%s\n", plain(s.Text))
	}
	for _, t := range s.Tables {
		fmt.Fprintln(w)
		if t.Title != "" {
			fmt.Fprintf(w, "%s\n", plain(t.Title))
		}
		tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		for _, row := range t.cells() {
			fmt.Fprintln(tab, plain(strings.TrimRight(strings.Join(row, "\t"), "\t")))
		}
		_ = tab.Flush()
	}
	if len(s.Notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, n := range s.Notes {
		fmt.Fprintf(w, "- %s\n", plain(n))
	}
}

// WriteSummary writes for a terminal what the numbers come to. Our own aims are
// for those who work on Pinfold: they stand in the Markdown and in the JSON.
func (r *Report) WriteSummary(w io.Writer) {
	var lines []string
	for _, s := range []struct {
		text   string
		values []float64
		unit   Unit
	}{
		{"a one-line program takes %s with pinfold run, %s with bare python3", []float64{r.Find("latency-print", "pinfold run", "median_ms"), r.Find("latency-print", bareName, "median_ms")}, UnitMS},
		{"a server answers it in %s, or %s with a warm interpreter", []float64{r.Find("latency-print", serverRun, "median_ms"), r.Find("latency-print", serverRunWarm, "median_ms")}, UnitMS},
		{"a server runs %s of them, or %s warm", []float64{r.Find("throughput-print", serverRun, "per_second"), r.Find("throughput-print", serverRunWarm, "per_second")}, UnitRate},
		{"a command in a sandbox that stays takes %s", []float64{r.Find("exec", "pinfold", "median_ms")}, UnitMS},
	} {
		if line, ok := summed(s.text, s.unit, s.values); ok {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "\nIn short (medians on this machine, as it was loaded)\n")
	for _, line := range lines {
		fmt.Fprintf(w, "- %s\n", line)
	}
}

// summed fills in values, if all of them were measured.
func summed(text string, unit Unit, values []float64) (string, bool) {
	shown := make([]any, len(values))
	for i, v := range values {
		if !known(v) {
			return "", false
		}
		shown[i] = unit.Format(v)
	}
	return fmt.Sprintf(text, shown...), true
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// plain is Markdown's text without its marks.
func plain(s string) string { return strings.ReplaceAll(s, "`", "") }

// Find returns the value of a cell of a table, or none.
func (r *Report) Find(table, what, key string) float64 {
	for t := range r.tables(table) {
		if v := t.find(what, key); known(v) {
			return v
		}
	}
	return none
}

func (r *Report) tables(id string) iter.Seq[*Table] {
	return func(yield func(*Table) bool) {
		for _, s := range r.Sections {
			for _, t := range s.Tables {
				if t.ID == id && !yield(t) {
					return
				}
			}
		}
	}
}

// ofBursts adds up a column of the bursts over the rows whose names begin so;
// none where there are no such rows.
func (r *Report) ofBursts(prefix, key string) float64 {
	total := none
	for t := range r.tables("burst") {
		for _, row := range t.Rows {
			if v := t.find(row.What, key); known(v) && strings.HasPrefix(row.What, prefix) {
				if !known(total) {
					total = 0
				}
				total += v
			}
		}
	}
	return total
}

func (t *Table) find(what, key string) float64 {
	for i, c := range t.Columns {
		for _, row := range t.Rows {
			if c.Key == key && row.What == what && i < len(row.Values) && !math.IsInf(row.Values[i], 0) {
				return row.Values[i]
			}
		}
	}
	return none
}
