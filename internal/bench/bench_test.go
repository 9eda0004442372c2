package bench

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pinfold/sandbox"
)

func TestOptionsNameTheFlagAtFault(t *testing.T) {
	for name, c := range map[string]struct {
		o     Options
		field string
	}{
		"quick and long":   {Options{Quick: true, Long: true}, "quick"},
		"unknown part":     {Options{Only: []string{"latency", "latncy"}}, "only"},
		"unknown peer":     {Options{Without: []string{"doker"}}, "without"},
		"too many rounds":  {Options{Rounds: maxRounds + 1}, "rounds"},
		"negative":         {Options{Concurrency: -1}, "concurrency"},
		"a day":            {Options{Duration: 24 * time.Hour}, "duration"},
		"go-judge no URL":  {Options{GoJudge: "127.0.0.1:5050"}, "go-judge"},
		"e2b another kind": {Options{E2B: "file:///etc/passwd"}, "e2b"},
	} {
		t.Run(name, func(t *testing.T) {
			var e *sandbox.Error
			if err := c.o.Validate(); !errors.As(err, &e) || e.Field != c.field {
				t.Errorf("got %v, want an error about %s", err, c.field)
			}
		})
	}
	if err := (Options{Only: []string{"burst"}, GoJudge: "http://127.0.0.1:5050"}).Validate(); err != nil {
		t.Errorf("what is right is refused: %v", err)
	}
}

func TestSampleQuantiles(t *testing.T) {
	var s sample
	for i := range 100 {
		s = append(s, time.Duration(100-i)*time.Millisecond)
	}
	for q, want := range map[float64]float64{0: 1, 0.5: 51, 0.95: 96, 0.99: 100, 1: 100} {
		if got := ms(s.at(q)); got != want {
			t.Errorf("quantile %v is %v, want %v ms", q, got, want)
		}
	}
	if got := (sample{}).median(); got != 0 || known(ms(got)) {
		t.Errorf("an empty sample has the median %v", got)
	}
}

func TestRaceTakesTurnsAndLeavesOutWhatFails(t *testing.T) {
	s := &session{ctx: t.Context(), o: Options{}.withDefaults(), report: &Report{}}
	var order []string
	make1 := func(name string, fails bool) *contender {
		return &contender{name: name, run: func(context.Context, workload) error {
			order = append(order, name)
			if fails {
				return errors.New("no\x1b[2J")
			}
			return nil
		}}
	}
	a, b, c := make1("a", false), make1("b", false), make1("c", true)
	sec := &Section{}
	times, err := s.race(sec, workload{}, []*contender{a, b, c}, 2)
	if err != nil {
		t.Fatal(err)
	}
	// Two rounds that do not count, two that do; each begins with another one.
	if got := strings.Join(order, ""); got != "abc"+"ba"+"ab"+"ab" {
		t.Errorf("the turns were %q", got)
	}
	if len(times[a]) != 2 || len(times[b]) != 2 || len(times[c]) != 0 {
		t.Errorf("times: %v", times)
	}
	if len(sec.Notes) != 1 || !strings.Contains(sec.Notes[0], ": c: no") || strings.Contains(sec.Notes[0], "\x1b") {
		t.Errorf("notes: %q", sec.Notes)
	}
	if len(s.report.Failures) > 0 {
		t.Errorf("another's failure is ours: %q", s.report.Failures)
	}
	c.ours = true
	if times, err = s.race(sec, workload{}, []*contender{a, c}, 1); err != nil || len(times[a]) != 1 || len(s.report.Failures) != 1 {
		t.Errorf("one of ours failed: %v, failures %q, times %v", err, s.report.Failures, times)
	}
}

// report is one with every kind of thing in it.
func report() *Report {
	t := &Table{ID: "latency-print", First: "what", Columns: append(spread(), besideBare()), Last: "isolation"}
	t.Add(bareName, "none | at all", 20, 22, 25, 19, 1)
	t.Add("pinfold run", "<all>", 25, 30, 35, 24, 1.25)
	t.Add(serverRunWarm, "", 3, 4, none, 2, 0.15)
	chart := Chart{File: "a.svg", Title: "A `title` <&> \"quoted\" \x00\x1b", Unit: UnitMS}
	chart.AddBar("one <script>", 0.5, false)
	chart.AddBar("two", 100, true)
	chart.AddBar("not measured", none, false)
	d := &Table{ID: "density", First: "living", Columns: []Column{{"run_ms", "run", UnitMS}, {"create_ms", "create", UnitMS}, {"command_ms", "command", UnitMS}}}
	d.Add("1", "", 2, 4, 1)
	d.Add("1000", "", 2.5, 8, none)
	return &Report{
		Command: "bench",
		Version: "v1", Options: " --quick", Machine: Machine{Cores: 2, System: "linux 6.1", Arch: "amd64", Root: true},
		Sections: []*Section{
			{Part: "latency", Title: "Latency of `print(1)`", Text: "Text.", Tables: []*Table{t}, Notes: []string{"left out: x | <y>"}, Charts: []Chart{chart}},
			{Part: "density", Title: "Growth", Tables: []*Table{d}, Charts: []Chart{growthChart(d)}},
		},
		Failures: []string{},
	}
}

func TestSumTakesTheServersRows(t *testing.T) {
	b := &Table{ID: "burst", Columns: []Column{{"refused", "refused", UnitCount}}}
	b.Add("bare", "", 7)
	b.Add(serverRun, "", 0)
	b.Add(serverRunWarm, "", 3)
	r := &Report{Sections: []*Section{{Tables: []*Table{b}}}}
	if got := r.ofBursts("POST", "refused"); got != 3 {
		t.Errorf("%v, want 3", got)
	}
	if got := r.ofBursts("docker", "refused"); known(got) {
		t.Errorf("%v of nothing", got)
	}
}

func TestTargetsAreJudgedFromTheTables(t *testing.T) {
	got := map[string]State{}
	for _, a := range targets(report()) {
		got[a.Aim] = a.State
	}
	for aim, want := range map[string]State{
		"`print(1)` in at most bare python3 + 10 ms":                                   Reached,
		"`POST /v1/runs` of `print(1)` in at most 0.2 × bare python3":                  Reached,
		"`POST /v1/runs` of `print(1)` with a warm pool in at most 1.1 × bare python3": Reached,
		"faster than runc run":                                                         NotMeasured,
		"a new sandbox among 1,000 at most 1.3 × one among 1":                          NotReached,
		"a run among 1,000 living sandboxes at most 1.3 × one among 1":                 Reached,
		"of a burst none refused, none lost":                                           NotMeasured,
		"at least 4.5 × the throughput of bare python3":                                NotMeasured,
		"a command in a living sandbox in at most 3 ms":                                NotMeasured,
		"at most 3 MB unshared for a warm sandbox that waits":                          NotMeasured,
		"at most 2 MB unshared for each of many sandboxes":                             NotMeasured,
		"the same at 150 a second and more":                                            NotMeasured,
		"files at 500 MB/s and more, up and down":                                      NotMeasured,
		"a sandbox made, used and removed in at most 6 ms":                             NotMeasured,
		"the last sandboxes at most 1.2 × the first":                                   NotMeasured,
		"importing numpy, pandas and matplotlib.pyplot, warm, in at most 0.015 × bare": NotMeasured,
	} {
		if got[aim] != want {
			t.Errorf("%s: %q, want %q", aim, got[aim], want)
		}
	}
}

func TestJSONHasNumbersAndNulls(t *testing.T) {
	text, err := report().JSON()
	if err != nil {
		t.Fatal(err)
	}
	var back struct {
		Sections []struct {
			Tables []struct {
				ID   string           `json:"id"`
				Rows []map[string]any `json:"rows"`
			} `json:"tables"`
		} `json:"sections"`
	}
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	row := back.Sections[0].Tables[0].Rows[2]
	if row["what"] != serverRunWarm || row["median_ms"] != 3.0 || row["p99_ms"] != nil {
		t.Errorf("the row is %v", row)
	}
	if _, there := row["p99_ms"]; !there {
		t.Error("what was not measured is not null but missing")
	}
}

func TestMarkdownKeepsWhatStandsAboveTheMarker(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "docs.md")
	if err := os.WriteFile(path, []byte("# Mine\n\nText.\n\n"+Marker("bench")+"\n\nstale numbers\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := report().WriteMarkdown(path, filepath.Join(dir, "charts")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	for _, want := range []string{
		"# Mine\n\nText.\n\n" + Marker("bench") + "\n", "| pinfold run | 25.0 ms |", "none \\| at all", "&lt;all>", "](charts/a.svg)", "left out: x \\| &lt;y>", "| – |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "stale") {
		t.Error("the old numbers are still there")
	}
}

func TestMarkdownDoesNotReplaceADocumentWithoutTheMarker(t *testing.T) {
	path := filepath.Join(t.TempDir(), "precious.md")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := report().WriteMarkdown(path, ""); err == nil {
		t.Error("it was replaced")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
		t.Errorf("it is now %q, %v", text, err)
	}
	fresh := filepath.Join(t.TempDir(), "new.md")
	if err := report().WriteMarkdown(fresh, ""); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(fresh); err != nil || strings.Contains(string(text), ".svg") {
		t.Errorf("a report without charts shows some: %v", err)
	}
}

func TestTextIsAligned(t *testing.T) {
	var b strings.Builder
	r := report()
	r.Sections[0].WriteText(&b)
	r.WriteSummary(&b)
	for _, want := range []string{"Latency of print(1)\n====", "bare                 20.0 ms", "In short", "takes 25.0 ms with pinfold run, 20.0 ms with bare python3", "- left out: x | <y>"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, b.String())
		}
	}
	if s := counts(map[string]int{"mounts": 3, "cgroups": 2}); s != "cgroups 2, mounts 3" {
		t.Error(s)
	}
}

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		u    Unit
		v    float64
		want string
	}{
		{UnitMS, 1.234, "1.23 ms"},
		{UnitMS, 31.26, "31.3 ms"},
		{UnitMS, 918.2, "918 ms"},
		{UnitMS, none, "–"},
		{UnitTimes, 0.0149, "0.015 ×"},
		{UnitTimes, 1.5, "1.50 ×"},
		{UnitRate, 8.25, "8.2 /s"},
		{UnitRate, 812.4, "812 /s"},
		{UnitKB, 768.2, "768 kB"},
		{UnitCount, 16, "16"},
	} {
		if got := c.u.Format(c.v); got != c.want {
			t.Errorf("%v %q is %q, want %q", c.v, c.u, got, c.want)
		}
	}
}

const smapsExample = `c000000000-c000400000 rw-p 00000000 00:00 0
Private_Clean:         0 kB
Private_Dirty:       100 kB
00400000-00500000 r-xp 00000000 00:01 1 /memfd:pinfold-agent (deleted)
Private_Clean:       900 kB
Private_Dirty:         0 kB
00500000-00510000 rw-p 00100000 00:01 1 /memfd:pinfold-agent (deleted)
Private_Dirty:        20 kB
VmFlags: rd wr
`

func TestMemoryOfAnAgentLeavesOutItsSharedText(t *testing.T) {
	if got := private(smapsExample); got != 120<<10 {
		t.Errorf("%d bytes, want 120 kB", got)
	}
}

func TestCommandsAreJudgedByWhatTheyPrint(t *testing.T) {
	if err := once(t.Context(), []string{"/bin/sh", "-c", "echo 1"}, "1"); err != nil {
		t.Error(err)
	}
	for name, script := range map[string]string{"another output": "echo 2", "a failure": "echo 1; exit 3", "nothing": "true"} {
		if err := once(t.Context(), []string{"/bin/sh", "-c", script}, "1"); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	err := once(t.Context(), []string{"/bin/sh", "-c", "printf '\\033[2J'; head -c 1000000 /dev/zero | tr '\\0' x"}, "1")
	if err == nil || len(err.Error()) > 1000 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("a foreign program's output stands in our message as it is: %.2000q", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := once(ctx, []string{"/bin/true"}, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end a command was started: %v", err)
	}
}

func TestChildEndsWhenItIsToldAndSaysWhatItSaid(t *testing.T) {
	c, err := startChild([]string{"/bin/sh", "-c", "trap 'exit 0' TERM; echo hello; while :; do sleep 0.05; done"})
	if err != nil {
		t.Fatal(err)
	}
	for c.lastLine() != "hello" && !c.ended() {
		time.Sleep(5 * time.Millisecond)
	}
	if err := c.stop(); err != nil {
		t.Error(err)
	}
	if c, err = startChild([]string{"/bin/sh", "-c", "echo no room >&2; exit 3"}); err != nil {
		t.Fatal(err)
	}
	<-c.done
	if err := c.stop(); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("a child that failed: %v", err)
	}
	if _, err := startChild([]string{"/nowhere/at/all"}); err == nil {
		t.Error("what is not there was started")
	}
}

func TestZerosAndCounters(t *testing.T) {
	var n counter
	if m, err := io.Copy(&n, io.LimitReader(zeros{}, 100_000)); err != nil || m != 100_000 || n != 100_000 {
		t.Errorf("%d and %d bytes, %v", m, n, err)
	}
}
