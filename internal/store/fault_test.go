package store

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pinfold/internal/access"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// The test binary is its own victim: with this variable set it writes into a
// store until it is killed.
const victimVariable = "PINFOLD_STORE_VICTIM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimVariable); dir != "" {
		victim(dir)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// victim says what has been acknowledged, a line each, in one write each.
func victim(dir string) {
	s, err := Open(context.Background(), dir)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	var mu sync.Mutex
	say := func(err error, words ...any) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			fmt.Println("error", err)
			return
		}
		fmt.Println(words...)
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("run_%d_%d_%d", os.Getpid(), w, i)
				_, err := s.BeginRun(context.Background(), records.Run{ID: id, Tenant: "t", CreatedAt: time.Now(), IdempotencyKey: id})
				say(err, "began", id)
				result := &sandbox.Result{ID: id, Status: sandbox.StatusSucceeded, Stdout: strings.Repeat(id, rand.N(300))}
				say(s.FinishRun(context.Background(), "t", id, result), "finished", id)
				info := sandbox.Info{ID: id, State: sandbox.StateRunning, CreatedAt: time.Now()}
				say(s.SaveSandbox(context.Background(), "t", info), "saved", id)
			}
		})
	}
	wg.Wait()
}

// TestKilledWhileWriting: what was acknowledged is there after kill -9, and
// nothing is half there.
func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	acknowledged := make(map[string]string)
	for life := range 8 {
		runVictim(t, dir, 1+rand.N(1500), acknowledged)
		s := mustOpen(t, dir)
		if err := s.Check(t.Context()); err != nil {
			t.Fatal("life", life, err)
		}
		for id, what := range acknowledged {
			r, err := s.LoadRun(t.Context(), "t", id)
			if err != nil {
				t.Fatal("life", life, id, what, err)
			}
			if what != "began" && (r.Result == nil || r.Result.ID != id) {
				t.Fatal("life", life, id, "has lost its result")
			}
			if _, err := s.LoadSandbox(t.Context(), "t", id); what == "saved" && err != nil {
				t.Fatal("life", life, id, err)
			}
		}
		if _, err := s.LoadRun(t.Context(), "t", "run_x"); sandbox.AsError(err).Code != sandbox.CodeNotFound {
			t.Fatal("the check finds what is not there", err)
		}
		s.Close()
	}
	if len(acknowledged) < 8 {
		t.Fatalf("only %d runs were acknowledged", len(acknowledged))
	}
}

// runVictim lets a victim write so many lines, and kills it.
func runVictim(t *testing.T, dir string, lines int, acknowledged map[string]string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(out)
	for n := 0; in.Scan(); n++ {
		what, id, _ := strings.Cut(in.Text(), " ")
		if what == "error" {
			t.Error(in.Text())
			break
		}
		acknowledged[id] = what // also what it said between the kill and its death
		if n == lines {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Process.Kill()
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatal("the victim was not killed:", err)
	}
}

// TestDamagedRowIsPutAside: one row that cannot be read costs that object, and
// not the list it is in.
func TestDamagedRowIsPutAside(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	ctx := t.Context()
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		if err := s.SaveSandbox(ctx, "t", sandbox.Info{ID: "sbx_" + id, State: sandbox.StateRunning}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.BeginRun(ctx, records.Run{ID: "run_" + id, Tenant: "t", IdempotencyKey: id}); err != nil {
			t.Fatal(err)
		}
		if err := s.FinishRun(ctx, "t", "run_"+id, &sandbox.Result{ID: "run_" + id, Status: sandbox.StatusSucceeded}); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	sqlOn(t, dir, `UPDATE sandboxes SET info = '{"id":' WHERE id IN ('sbx_a', 'sbx_b');
		UPDATE results SET body = 'x' WHERE run IN (SELECT seq FROM runs WHERE id IN ('run_a', 'run_e'));
		UPDATE runs SET metadata = '{' WHERE id = 'run_b';
		DELETE FROM results WHERE run = (SELECT seq FROM runs WHERE id = 'run_c')`)
	var log bytes.Buffer
	s = mustOpen(t, dir, WithLog(slog.New(slog.NewJSONHandler(&log, nil))))
	wantError(t, s.Check(ctx), sandbox.CodeStateCorrupt, "results row")
	for _, id := range []string{"run_a", "run_c"} {
		_, err := s.LoadRun(ctx, "t", id)
		wantError(t, err, sandbox.CodeNotFound)
	}
	// Whoever asks to run again with its key must not run twice.
	_, err := s.BeginRun(ctx, records.Run{ID: "run_z", Tenant: "t", IdempotencyKey: "e"})
	wantError(t, err, sandbox.CodeStateCorrupt, "use a new key")
	_, err = s.LoadSandbox(ctx, "t", "sbx_a")
	wantError(t, err, sandbox.CodeNotFound)
	runs, err := s.ListRuns(ctx, "t", records.Query{Oldest: true})
	if err != nil || len(runs.Items) != 2 || runs.Items[0].ID != "run_d" {
		t.Fatal(runs.Items, err)
	}
	sandboxes, err := s.ListSandboxes(ctx, "t", records.Query{})
	if err != nil || len(sandboxes.Items) != 3 {
		t.Fatal(sandboxes.Items, err)
	}
	living, _, err := s.Unfinished(ctx)
	if err != nil || len(living) != 3 {
		t.Fatal(living, err)
	}
	if n, err := s.Quarantined(ctx); err != nil || n != 5 {
		t.Fatal(n, "rows were put aside", err)
	}
	if n := strings.Count(log.String(), "was put aside"); n != 5 {
		t.Fatalf("%d rows were reported:\n%s", n, log.String())
	}
}

// TestFullDisk: what does not fit is refused in clear words and leaves nothing
// behind; what fits again works again.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts a small file system, which takes root; continuous integration runs it")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := mustOpen(t, dir)
	ctx := t.Context()
	if err := s.Ready(ctx); err != nil {
		t.Fatal("with room:", err)
	}
	output := strings.Repeat("x", 50_000)
	begun, finished := 0, 0
	var full error
	for i := range 100 {
		id := fmt.Sprintf("run_%d", i)
		if _, full = s.BeginRun(ctx, records.Run{ID: id, Tenant: "t"}); full != nil {
			break
		}
		begun++
		if full = s.FinishRun(ctx, "t", id, &sandbox.Result{ID: id, Status: sandbox.StatusSucceeded, Stdout: output}); full != nil {
			break
		}
		finished++
	}
	wantError(t, full, sandbox.CodeInsufficient, "is full", "df -h "+dir)
	wantError(t, s.Ready(ctx), sandbox.CodeInsufficient, "is full", "make room")
	if finished == 0 {
		t.Fatal("nothing fitted")
	}
	page, err := s.ListRuns(ctx, "t", records.Query{Statuses: []sandbox.Status{sandbox.StatusSucceeded}})
	if err != nil || len(page.Items) != finished {
		t.Fatal(len(page.Items), "of", finished, "results are there", err)
	}
	if page, err = s.ListRuns(ctx, "t", records.Query{}); err != nil || len(page.Items) != begun {
		t.Fatal(len(page.Items), "of", begun, "runs are there", err)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size=20m"); err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(ctx); err != nil {
		t.Fatal("after making room:", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, roomFile+"*")); err != nil || len(left) > 0 {
		t.Fatal("left:", left, err)
	}
	for i := range 5 {
		if err := oneRun(ctx, s, int64(i)); err != nil {
			t.Fatal("after making room:", err)
		}
	}
	if err := s.Check(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	_, err = Open(ctx, dir)
	wantError(t, err, sandbox.CodeConfigInvalid, "read-only", "set state")
}

// TestOneBadChangeHurtsNobodyElse: changes travel together and fail alone.
func TestOneBadChangeHurtsNobodyElse(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	group := make([]op, 20)
	for i := range group {
		group[i] = op{done: make(chan error, 1), do: func(ctx context.Context, w *session) error {
			if i%5 == 0 {
				if _, err := w.exec(ctx, "INSERT INTO usage VALUES ('half', '2026-01-01', 1, 1, 1, 1, 1, 1, 1) ON CONFLICT DO NOTHING"); err != nil {
					return err
				}
				_, err := w.exec(ctx, "INSERT INTO keys (id) VALUES (NULL)") // fails in the database
				return err
			}
			_, err := w.exec(ctx, "INSERT INTO usage VALUES (?, '2026-01-01', 1, 1, 1, 1, 1, 1, 1)", fmt.Sprint("t", i))
			return err
		}}
	}
	c, err := s.maint.Conn(t.Context()) // the writer rests, so that another may write
	if err != nil {
		t.Fatal(err)
	}
	s.commitGroup(t.Context(), &session{conn: c, prepared: make(map[string]*sql.Stmt)}, group)
	c.Close()
	for i, o := range group {
		if err := <-o.done; (err != nil) != (i%5 == 0) {
			t.Errorf("change %d: %v", i, err)
		}
	}
	for i := range group {
		days, err := s.UsageOf(t.Context(), fmt.Sprint("t", i), time.Unix(0, 0), time.Now().AddDate(10, 0, 0))
		if err != nil || len(days) == 1 == (i%5 == 0) {
			t.Error(i, days, err)
		}
	}
	if days, err := s.UsageOf(t.Context(), "half", time.Unix(0, 0), time.Now().AddDate(10, 0, 0)); err != nil || len(days) != 0 {
		t.Error("half of a change was kept", days, err)
	}
}

// TestLogIsWrittenBack: the log does not grow with what passes through it.
func TestLogIsWrittenBack(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	output := strings.Repeat("x", 100_000)
	written := 0
	for i := range 600 {
		id := fmt.Sprintf("run_%d", i)
		if _, err := s.BeginRun(t.Context(), records.Run{ID: id, Tenant: "t"}); err != nil {
			t.Fatal(err)
		}
		if err := s.FinishRun(t.Context(), "t", id, &sandbox.Result{ID: id, Stdout: output}); err != nil {
			t.Fatal(err)
		}
		written += len(output)
	}
	// It is written back at each 4 MiB; the writer itself does it at 80 MiB.
	for range 3000 {
		info, err := os.Stat(filepath.Join(dir, "pinfold.db"))
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > int64(written)-8<<20 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("nothing writes the log back")
}

func TestKeysAndTenantsAreKept(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	var store access.Store = s
	ctx := t.Context()
	end := time.Date(2027, 1, 1, 0, 0, 0, 5, time.UTC)
	r := access.Record{
		Key:  access.Key{ID: "k1", Tenant: "t", Name: "ci", Scopes: []string{"read", "run"}, CreatedAt: end.AddDate(-1, 0, 0), ExpiresAt: &end},
		Hash: bytes.Repeat([]byte{0, 1}, 16),
	}
	if err := store.InsertKey(ctx, r); err != nil {
		t.Fatal(err)
	}
	wantError(t, store.InsertKey(ctx, r), sandbox.CodeConflict)
	_, err := store.FindKey(ctx, "k2")
	wantError(t, err, sandbox.CodeNotFound)
	_, err = store.RevokeKey(ctx, "k2", end)
	wantError(t, err, sandbox.CodeNotFound)
	wantError(t, store.TouchKey(ctx, "k2", end), sandbox.CodeNotFound)
	if err := store.TouchKey(ctx, "k1", end); err != nil {
		t.Fatal(err)
	}
	for _, at := range []time.Time{end, end.Add(time.Hour)} {
		if k, err := store.RevokeKey(ctx, "k1", at); err != nil || !k.RevokedAt.Equal(end) {
			t.Fatal("a key is revoked once:", k.RevokedAt, err)
		}
	}
	for id, allow := range map[string][]string{"none": {}, "some": {"a.test", "@package indexes"}} {
		narrow := access.Record{Key: access.Key{ID: id, Tenant: "n", Scopes: []string{"run"}, CreatedAt: end, Allow: allow}, Hash: r.Hash}
		if err := store.InsertKey(ctx, narrow); err != nil {
			t.Fatal(err)
		}
		if got, err := store.FindKey(ctx, id); err != nil || got.Allow == nil || !slices.Equal(got.Allow, allow) {
			t.Errorf("%v: %#v %v", allow, got.Allow, err)
		}
	}
	if got, err := store.FindKey(ctx, "k1"); err != nil || got.Allow != nil {
		t.Errorf("%#v %v", got.Allow, err)
	}
	for _, damaged := range []string{"", "null", "{", "3", `["a`} {
		sqlOn(t, dir, "UPDATE keys SET allow = '"+damaged+"' WHERE id = 'some'")
		if got, err := store.FindKey(ctx, "some"); err != nil || got.Allow == nil || len(got.Allow) > 0 {
			t.Errorf("%s allows %#v: %v", damaged, got.Allow, err)
		}
	}
	confined := access.Record{Key: access.Key{ID: "confined", Tenant: "n", Scopes: []string{"run"}, CreatedAt: end, Profiles: []string{"plots"}}, Hash: r.Hash}
	if err := store.InsertKey(ctx, confined); err != nil {
		t.Fatal(err)
	}
	if got, err := store.FindKey(ctx, "confined"); err != nil || !slices.Equal(got.Profiles, []string{"plots"}) || got.Allow != nil {
		t.Errorf("%#v %v", got, err)
	}
	for _, damaged := range []string{"", "null", "{"} {
		sqlOn(t, dir, "UPDATE keys SET profiles = '"+damaged+"' WHERE id = 'confined'")
		if got, err := store.FindKey(ctx, "confined"); err != nil || got.Profiles == nil || len(got.Profiles) > 0 {
			t.Errorf("%s confines to %#v: %v", damaged, got.Profiles, err)
		}
	}
	sqlOn(t, dir, "DELETE FROM keys WHERE tenant = 'n'")
	sqlOn(t, dir, "DELETE FROM tenants WHERE name = 'n'")
	quota := admission.Quota{Sandboxes: 5, CPUs: 1.5}
	for range 2 {
		if err := store.SaveTenant(ctx, access.Tenant{Name: "t", Quota: quota}); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s = mustOpen(t, dir)
	store = s
	got, err := store.FindKey(ctx, "k1")
	if err != nil || got.Name != "ci" || !bytes.Equal(got.Hash, r.Hash) || !got.ExpiresAt.Equal(end) || !got.LastUsedAt.Equal(end) || len(got.Scopes) != 2 {
		t.Fatalf("%+v %v", got, err)
	}
	if all, err := store.ListKeys(ctx, ""); err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if none, err := store.ListKeys(ctx, "u"); err != nil || len(none) != 0 {
		t.Fatal(none, err)
	}
	tenant, err := store.FindTenant(ctx, "t")
	if err != nil || tenant.Quota != quota || !tenant.CreatedAt.Equal(r.CreatedAt) {
		t.Fatalf("%+v %v", tenant, err)
	}
	s.Close()
	sqlOn(t, dir, "UPDATE tenants SET quota = 'x'")
	_, err = mustOpen(t, dir).FindTenant(ctx, "t")
	wantError(t, err, sandbox.CodeStateCorrupt, "set it anew")
}
