// Package storetest holds every records.Store to the contract: the same tests
// for the one on disk and the one in memory. It knows neither.
package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// Make returns an empty store whose runs finish at the time that now says, and
// a function that closes it.
type Make func(now func() time.Time) (records.Store, func(), error)

// Run runs all tests.
func Run(t *testing.T, open Make) {
	for _, c := range []struct {
		name string
		test func(*testing.T, records.Store)
	}{
		{"Sandbox", testSandbox},
		{"Run", testRun},
		{"FirstResultWins", testFirstResultWins},
		{"Idempotency", testIdempotency},
		{"TenantsAreApart", testTenants},
		{"Unfinished", testUnfinished},
		{"Usage", testUsage},
		{"Snapshots", testSnapshots},
		{"BadQueries", testBadQueries},
		{"OddMetadata", testOddMetadata},
		{"PagesWhileOthersInsert", testPagesMeanwhile},
		{"OneWinner", testOneWinner},
		{"Cancelled", testCancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, done, err := open(time.Now)
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			c.test(t, s)
		})
	}
	t.Run("Model", func(t *testing.T) { testModel(t, open) })
}

// wantCode fails unless err is a *sandbox.Error of that code.
func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	e, ok := err.(*sandbox.Error) //nolint:errorlint // the contract: the error itself, not one around it
	if !ok || e.Code != code {
		t.Fatalf("the error is %v (%T), not of code %s", err, err, code)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

func at(second int) time.Time { return time.Date(2026, 3, 1, 12, 0, second, 123456789, time.UTC) }

func someInfo(id string, second int) sandbox.Info {
	return sandbox.Info{
		ID: id, State: sandbox.StateRunning, Template: "host", Limits: sandbox.Limits{}.WithDefaults(),
		Metadata:  map[string]string{"job": "j1"},
		Isolation: sandbox.Isolation{Driver: "native", Enforced: []string{"memory"}, NotEnforced: []sandbox.Gap{{What: "a", Why: "b", Fix: "c"}}},
		CreatedAt: at(second), ExpiresAt: at(second + 300), UsedAt: at(second), IdleMS: 1000,
		Usage: sandbox.Usage{CPUMS: 5}, Timings: sandbox.Timings{CreateMS: 1.25}, Processes: 2,
	}
}

func someRun(tenant, id string, second int) records.Run {
	return records.Run{
		ID: id, Tenant: tenant, CreatedAt: at(second), Language: "python", Metadata: map[string]string{"job": "j1"}, Digest: "d1",
	}
}

func someResult(id string) *sandbox.Result {
	code := 3
	return &sandbox.Result{
		ID: id, Status: sandbox.StatusFailed, ExitCode: &code, Cause: sandbox.Cause{Kind: sandbox.CauseExited, Evidence: "wait4"},
		Stdout: "a\x00\u2028\"</script>\n", Stderr: strings.Repeat("x", 70_000), StdoutBytes: 10,
		Results: []sandbox.Rich{{"text/plain": "1", "application/json": json.RawMessage(`{"n":12345678901234567890}`)}}, Artifacts: []sandbox.Artifact{{Path: "a", Size: 2, Content: []byte{0, 255}}},
		Isolation: sandbox.Isolation{Driver: "native"}, Timings: sandbox.Timings{ExecMS: 2.5}, Language: "python",
		Error: &sandbox.Error{Code: sandbox.CodeInternal, Message: "m", Hint: "h"},
	}
}

func testSandbox(t *testing.T, s records.Store) {
	ctx := context.Background()
	info := someInfo("sbx_a", 1)
	must(t, s.Ready(ctx))
	must(t, s.SaveSandbox(ctx, "t", info))
	got, err := s.LoadSandbox(ctx, "t", "sbx_a")
	must(t, err)
	same(t, got, info)
	end := at(9)
	info.State, info.EndedAt, info.Cause = sandbox.StateEnded, &end, &sandbox.Cause{Kind: sandbox.CauseTTL, Limit: 5}
	info.Error = &sandbox.Error{Code: sandbox.CodeSetupFailed, Message: "m"}
	info.Metadata["job"] = "j2" // what was saved before must not share it
	if before, err := s.LoadSandbox(ctx, "t", "sbx_a"); err != nil || before.Metadata["job"] != "j1" {
		t.Fatal("a description changed that nobody saved", before, err)
	}
	must(t, s.SaveSandbox(ctx, "t", info))
	got, err = s.LoadSandbox(ctx, "t", "sbx_a")
	must(t, err)
	same(t, got, info)
	page, err := s.ListSandboxes(ctx, "t", records.Query{States: []sandbox.State{sandbox.StateEnded}, Metadata: map[string]string{"job": "j2"}})
	must(t, err)
	same(t, page, records.Page[sandbox.Info]{Items: []sandbox.Info{info}})
	page, err = s.ListSandboxes(ctx, "t", records.Query{States: []sandbox.State{sandbox.StateRunning, sandbox.StateCreating}})
	must(t, err)
	same(t, page, records.Page[sandbox.Info]{Items: []sandbox.Info{}})
	_, err = s.LoadSandbox(ctx, "t", "sbx_b")
	wantCode(t, err, sandbox.CodeNotFound)
	for _, bad := range []string{"", strings.Repeat("x", 300)} {
		info.ID = bad
		wantCode(t, s.SaveSandbox(ctx, "t", info), sandbox.CodeInternal)
		_, err = s.LoadSandbox(ctx, "t", bad)
		wantCode(t, err, sandbox.CodeNotFound)
	}
}

func testRun(t *testing.T, s records.Store) {
	ctx := context.Background()
	r := someRun("t", "run_a", 1)
	earlier, err := s.BeginRun(ctx, r)
	if err != nil || earlier != nil {
		t.Fatal(earlier, err)
	}
	got, err := s.LoadRun(ctx, "t", "run_a")
	must(t, err)
	same(t, got, r)
	result := someResult("run_a")
	must(t, s.FinishRun(ctx, "t", "run_a", result))
	r.Status, r.Cause = result.Status, result.Cause.Kind
	page, err := s.ListRuns(ctx, "t", records.Query{Statuses: []sandbox.Status{sandbox.StatusFailed}})
	must(t, err)
	if len(page.Items) != 1 || time.Since(page.Items[0].FinishedAt) > time.Hour {
		t.Fatalf("%+v", page)
	}
	r.FinishedAt = page.Items[0].FinishedAt
	same(t, page, records.Page[records.Run]{Items: []records.Run{r}})
	r.Result = result
	got, err = s.LoadRun(ctx, "t", "run_a")
	must(t, err)
	same(t, got, r)
	_, err = s.BeginRun(ctx, someRun("t", "run_a", 2))
	wantCode(t, err, sandbox.CodeConflict)
	_, err = s.BeginRun(ctx, someRun("", "run_b", 2))
	wantCode(t, err, sandbox.CodeInternal)
	_, err = s.LoadRun(ctx, "t", "run_b")
	wantCode(t, err, sandbox.CodeNotFound)
	wantCode(t, s.FinishRun(ctx, "t", "run_b", result), sandbox.CodeNotFound)
	wantCode(t, s.FinishRun(ctx, "t", "run_a", nil), sandbox.CodeInternal)
}

func testFirstResultWins(t *testing.T, s records.Store) {
	ctx := context.Background()
	_, err := s.BeginRun(ctx, someRun("t", "run_a", 1))
	must(t, err)
	must(t, s.FinishRun(ctx, "t", "run_a", someResult("run_a")))
	lost := &sandbox.Result{ID: "run_a", Status: sandbox.StatusError, Cause: sandbox.Cause{Kind: sandbox.CauseLost}}
	must(t, s.FinishRun(ctx, "t", "run_a", lost))
	got, err := s.LoadRun(ctx, "t", "run_a")
	must(t, err)
	same(t, got.Result, someResult("run_a"))
	same(t, got.Status, sandbox.StatusFailed)
}

func testIdempotency(t *testing.T, s records.Store) {
	ctx := context.Background()
	first := someRun("t", "run_a", 1)
	first.IdempotencyKey = "k"
	_, err := s.BeginRun(ctx, first)
	must(t, err)
	second := someRun("t", "run_b", 2)
	second.IdempotencyKey, second.Digest = "k", "d2"
	earlier, err := s.BeginRun(ctx, second)
	must(t, err)
	same(t, earlier, &first)
	_, err = s.LoadRun(ctx, "t", "run_b")
	wantCode(t, err, sandbox.CodeNotFound)
	must(t, s.FinishRun(ctx, "t", "run_a", someResult("run_a")))
	earlier, err = s.BeginRun(ctx, second)
	must(t, err)
	first.Result, first.Status, first.Cause = someResult("run_a"), sandbox.StatusFailed, sandbox.CauseExited
	first.FinishedAt = earlier.FinishedAt
	same(t, earlier, &first)
	other := someRun("u", "run_c", 2)
	other.IdempotencyKey = "k"
	if earlier, err = s.BeginRun(ctx, other); err != nil || earlier != nil {
		t.Fatal("another tenant's key was met", earlier, err)
	}
}

func testTenants(t *testing.T, s records.Store) {
	ctx := context.Background()
	must(t, s.SaveSandbox(ctx, "t", someInfo("sbx_a", 1)))
	_, err := s.BeginRun(ctx, someRun("t", "run_a", 1))
	must(t, err)
	must(t, s.AddUsage(ctx, "t", at(1), records.Consumption{Runs: 1}))
	for _, foreign := range []string{"u", "", "T", "t%", "' OR 1=1 --"} {
		_, err := s.LoadSandbox(ctx, foreign, "sbx_a")
		wantCode(t, err, sandbox.CodeNotFound)
		_, err = s.LoadRun(ctx, foreign, "run_a")
		wantCode(t, err, sandbox.CodeNotFound)
		wantCode(t, s.FinishRun(ctx, foreign, "run_a", someResult("run_a")), sandbox.CodeNotFound)
		sandboxes, err := s.ListSandboxes(ctx, foreign, records.Query{})
		must(t, err)
		runs, err := s.ListRuns(ctx, foreign, records.Query{})
		must(t, err)
		days, err := s.UsageOf(ctx, foreign, at(0), at(10))
		must(t, err)
		if len(sandboxes.Items)+len(runs.Items)+len(days) != 0 {
			t.Fatalf("%q sees what is not its own", foreign)
		}
	}
	// The same id in another tenant is another object.
	must(t, s.SaveSandbox(ctx, "u", someInfo("sbx_a", 2)))
	got, err := s.LoadSandbox(ctx, "t", "sbx_a")
	must(t, err)
	same(t, got, someInfo("sbx_a", 1))
}

func testUnfinished(t *testing.T, s records.Store) {
	ctx := context.Background()
	for i, state := range sandbox.States() {
		info := someInfo("sbx_"+string(state), i)
		info.State = state
		must(t, s.SaveSandbox(ctx, fmt.Sprintf("t%d", i), info))
	}
	for i, id := range []string{"run_a", "run_b"} {
		_, err := s.BeginRun(ctx, someRun("t", id, i))
		must(t, err)
	}
	must(t, s.FinishRun(ctx, "t", "run_a", someResult("run_a")))
	machine := records.Machine{Driver: "d", ID: "m", Request: sandbox.Create{TTLMS: 5, Env: map[string]string{"K": "v"}}}
	for i, state := range sandbox.States() { // an ended one keeps none, and neither does another tenant's
		must(t, s.SaveMachine(ctx, fmt.Sprintf("t%d", i&^1), "sbx_"+string(state), machine))
	}
	again := someInfo("sbx_"+string(sandbox.StateCreating), 0)
	again.State = sandbox.StateCreating
	must(t, s.SaveSandbox(ctx, "t0", again))
	living, runs, err := s.Unfinished(ctx)
	must(t, err)
	var names []string
	for _, o := range living {
		names = append(names, o.Tenant+" "+o.Info.ID)
	}
	same(t, names, []string{"t0 sbx_creating", "t1 sbx_running", "t2 sbx_paused", "t3 sbx_ending"})
	same(t, []*records.Machine{living[0].Machine, living[1].Machine, living[2].Machine, living[3].Machine}, []*records.Machine{&machine, nil, &machine, nil})
	same(t, runs, []records.Run{someRun("t", "run_b", 1)})
}

func testUsage(t *testing.T, s records.Store) {
	ctx := context.Background()
	u := records.Consumption{Runs: 1, Sandboxes: 2, CPUMS: 3, WallMS: 4, MemoryMiBMS: 5, OutputBytes: 6, ArtifactBytes: 7}
	day := time.Date(2026, 3, 1, 23, 30, 0, 0, time.FixedZone("", 3600)) // 22:30 UTC
	late := time.Date(2026, 3, 1, 23, 30, 0, 0, time.FixedZone("", -3600))
	for _, d := range []time.Time{day, day, late, day.AddDate(0, 0, 5)} {
		must(t, s.AddUsage(ctx, "t", d, u))
	}
	double := records.Consumption{Runs: 2, Sandboxes: 4, CPUMS: 6, WallMS: 8, MemoryMiBMS: 10, OutputBytes: 12, ArtifactBytes: 14}
	days, err := s.UsageOf(ctx, "t", day, late)
	must(t, err)
	same(t, days, []records.DayUsage{{Day: "2026-03-01", Consumption: double}, {Day: "2026-03-02", Consumption: u}})
	days, err = s.UsageOf(ctx, "t", late, day)
	must(t, err)
	same(t, days, []records.DayUsage{})
}

func testBadQueries(t *testing.T, s records.Store) {
	ctx := context.Background()
	for i := range 3 {
		must(t, s.SaveSandbox(ctx, "t", someInfo(fmt.Sprintf("sbx_%d", i), i)))
	}
	page, err := s.ListSandboxes(ctx, "t", records.Query{Limit: 1})
	must(t, err)
	crowd := make(map[string]string)
	for i := range sandbox.MaxMetadata + 1 {
		crowd[fmt.Sprint(i)] = ""
	}
	for name, q := range map[string]records.Query{
		"negative limit": {Limit: -1}, "large limit": {Limit: 1001}, "no cursor": {Cursor: "x"}, "cursor of the other order": {Cursor: page.Next, Oldest: true},
		"cut cursor": {Cursor: page.Next[:3]}, "long cursor": {Cursor: strings.Repeat("A", 1<<20)}, "not base64": {Cursor: "%00'\x00"},
		"much metadata": {Metadata: crowd}, "many states": {States: make([]sandbox.State, 100)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.ListSandboxes(ctx, "t", q)
			wantCode(t, err, sandbox.CodeRequestInvalid)
			_, err = s.ListRuns(ctx, "t", q)
			if len(q.States) == 0 {
				wantCode(t, err, sandbox.CodeRequestInvalid)
			}
		})
	}
}

func testOddMetadata(t *testing.T, s records.Store) {
	ctx := context.Background()
	for i, odd := range []string{"", `"`, `a.b`, `$.x[0]`, "ü\u2028<>&", "'; DROP TABLE runs; --", `\u0041`, "1", "true", "null", "line\nfeed\ttab", "%", "\U0001F600", "a\x00b", "\x7f"} {
		r := someRun("t", fmt.Sprintf("run_%02d", i), i)
		r.Metadata = map[string]string{odd: "v", "k": odd}
		_, err := s.BeginRun(ctx, r)
		must(t, err)
		for _, q := range []map[string]string{{odd: "v"}, {"k": odd}, r.Metadata} {
			page, err := s.ListRuns(ctx, "t", records.Query{Metadata: q})
			must(t, err)
			same(t, page.Items, []records.Run{r})
		}
	}
}

func testPagesMeanwhile(t *testing.T, s records.Store) {
	ctx := context.Background()
	for i := range 20 { // several of the same time
		must(t, s.SaveSandbox(ctx, "t", someInfo(fmt.Sprintf("sbx_%02d", i), i/3)))
	}
	for _, oldest := range []bool{false, true} {
		seen := make(map[string]int)
		cursor := ""
		for n := 0; ; n++ {
			page, err := s.ListSandboxes(ctx, "t", records.Query{Limit: 3, Oldest: oldest, Cursor: cursor})
			must(t, err)
			for _, info := range page.Items {
				seen[info.ID]++
			}
			must(t, s.SaveSandbox(ctx, "t", someInfo(fmt.Sprintf("sbx_new_%v_%d", oldest, n), n)))
			if cursor = page.Next; cursor == "" || n > 50 {
				break
			}
		}
		for i := range 20 {
			if id := fmt.Sprintf("sbx_%02d", i); seen[id] != 1 {
				t.Errorf("oldest %v: %s came %d times", oldest, id, seen[id])
			}
		}
		for id, n := range seen {
			if n > 1 {
				t.Errorf("%s came %d times", id, n)
			}
		}
	}
}

// testOneWinner has many begin with one key, and finish one run, at once.
func testOneWinner(t *testing.T, s records.Store) {
	ctx := context.Background()
	const n = 32
	var mu sync.Mutex
	first := make(map[string]int) // by the run that BeginRun named
	began := 0
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			r := someRun("t", fmt.Sprintf("run_%02d", i), i)
			r.IdempotencyKey = "k"
			earlier, err := s.BeginRun(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Error(err)
			case earlier == nil:
				began++
				first[r.ID]++
			default:
				first[earlier.ID]++
			}
		})
	}
	wg.Wait()
	if began != 1 || len(first) != 1 {
		t.Fatalf("%d began; the first were %v", began, first)
	}
	var id string
	for id = range first {
	}
	for i := range n {
		wg.Go(func() {
			result := someResult(id)
			result.Stdout = fmt.Sprint(i)
			if err := s.FinishRun(ctx, "t", id, result); err != nil {
				t.Error(err)
			}
			r, err := s.LoadRun(ctx, "t", id)
			if err != nil || r.Result == nil {
				t.Error("a result that was acknowledged is not there", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			first["stdout "+r.Result.Stdout]++
		})
	}
	wg.Wait()
	if len(first) != 2 {
		t.Fatalf("the result changed after it was given out: %v", first)
	}
}

func testCancelled(t *testing.T, s records.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.SaveSandbox(ctx, "t", someInfo("sbx_a", 1)); err == nil {
		t.Error("saved for somebody who has left")
	}
	if _, err := s.BeginRun(ctx, someRun("t", "run_a", 1)); err == nil {
		t.Error("began for somebody who has left")
	}
	page, err := s.ListRuns(context.Background(), "t", records.Query{})
	must(t, err)
	same(t, page.Items, []records.Run{})
}
