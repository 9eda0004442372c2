package store

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

func mustOpen(t *testing.T, dir string, options ...Option) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func wantError(t *testing.T, err error, code string, parts ...string) {
	t.Helper()
	e := sandbox.AsError(err)
	if e == nil || e.Code != code {
		t.Fatalf("the error is %v, not of code %s", err, code)
	}
	for _, p := range parts {
		if !strings.Contains(e.Message+"\n"+e.Hint, p) {
			t.Fatalf("%q does not say %q", e.Message+"\n"+e.Hint, p)
		}
	}
}

// fill puts so many finished runs into a store.
func fill(t *testing.T, s *Store, n int) {
	t.Helper()
	for i := range n {
		if err := oneRun(t.Context(), s, int64(i)); err != nil {
			t.Fatal(err)
		}
	}
}

// sqlOn runs SQL on a database that no store has open.
func sqlOn(t *testing.T, dir, text string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", databaseFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(text, args...); err != nil {
		t.Fatal(err)
	}
}

func TestNobodyElseCanReadTheState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "state")
	s := mustOpen(t, dir)
	fill(t, s, 1)
	for name, want := range map[string]os.FileMode{"": 0o700, "pinfold.db": 0o600, "pinfold.db-wal": 0o600, "pinfold.db-shm": 0o600, "pinfold.lock": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%q has mode %o, not %o", name, got, want)
		}
	}
	s.Close()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), dir)
	wantError(t, err, sandbox.CodeConfigInvalid, "777", "chmod go-w "+dir)
}

func TestReopenedStoreHasEverything(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "odd ?#%41 ü'\"")
	s := mustOpen(t, dir)
	fill(t, s, 3)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal("closing twice:", err)
	}
	if exists(databaseFile(dir) + "-wal") {
		t.Fatal("the log was not written back: something is still open")
	}
	_, err := s.ListRuns(t.Context(), "local", records.Query{})
	wantError(t, err, sandbox.CodeShuttingDown)
	wantError(t, oneRun(t.Context(), s, 9), sandbox.CodeShuttingDown)
	_, err = s.LoadRun(t.Context(), "local", "x")
	wantError(t, err, sandbox.CodeShuttingDown)
	s = mustOpen(t, dir)
	page, err := s.ListRuns(t.Context(), "local", records.Query{})
	if err != nil || len(page.Items) != 3 {
		t.Fatal(len(page.Items), err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestSecondServerIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	fill(t, s, 1)
	_, err := Open(t.Context(), dir)
	wantError(t, err, sandbox.CodeConflict, dir, fmt.Sprintf("process %d", os.Getpid()), "end that server")
	_, err = Quarantine(dir)
	wantError(t, err, sandbox.CodeConflict, dir)
	fill2 := oneRun(t.Context(), s, 2)
	if fill2 != nil {
		t.Fatal("the first server suffered:", fill2)
	}
	s.Close()
	mustOpen(t, dir)
}

// TestAttachWorksBesideAServer: keys are made and revoked while it runs, and
// nobody is in the way of its start.
func TestAttachWorksBesideAServer(t *testing.T) {
	dir := t.TempDir()
	alone, err := Attach(t.Context(), dir) // before the first start
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	server := mustOpen(t, dir)
	beside, err := Attach(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, beside, 1)
	fill2 := oneRun(t.Context(), alone, 1)
	if fill2 != nil {
		t.Fatal(fill2)
	}
	if err := beside.Close(); err != nil {
		t.Fatal(err)
	}
	page, err := server.ListRuns(t.Context(), "local", records.Query{})
	if err != nil || len(page.Items) != 2 {
		t.Fatal(len(page.Items), err)
	}
	if err := oneRun(t.Context(), server, 5); err != nil {
		t.Fatal(err)
	}
}

func TestNewerAndForeignDatabasesAreRefused(t *testing.T) {
	for _, c := range []struct{ name, sql, code, says string }{
		{"newer", "PRAGMA user_version = 1000", sandbox.CodeConfigInvalid, "schema 1000"},
		{"foreign", "PRAGMA application_id = 5", sandbox.CodeStateCorrupt, "another program's"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			s := mustOpen(t, dir)
			fill(t, s, 1)
			s.Close()
			sqlOn(t, dir, c.sql)
			for _, open := range []func(context.Context, string, ...Option) (*Store, error){Open, Attach} {
				_, err := open(t.Context(), dir)
				wantError(t, err, c.code, c.says, "set state")
			}
		})
	}
	dir := t.TempDir() // somebody else's file under our name
	sqlOn(t, dir, "CREATE TABLE accounts (n)")
	_, err := Open(t.Context(), dir)
	wantError(t, err, sandbox.CodeStateCorrupt, "another program's")
}

func TestOlderSchemaIsBroughtUpToDate(t *testing.T) {
	dir := t.TempDir()
	file := databaseFile(dir)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	sqlOn(t, dir, fmt.Sprintf("PRAGMA application_id = %d", applicationID)) // ours, from before the first schema
	fill(t, mustOpen(t, dir), 1)
}

// TestCorruptStateIsNeverReset: each kind of damage is refused with the
// command that helps, nothing is changed, and the command works.
func TestCorruptStateIsNeverReset(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, file string){
		"not a database": func(t *testing.T, file string) { write(t, file, []byte(strings.Repeat("hello ", 3000))) },
		"empty":          func(t *testing.T, file string) { write(t, file, nil) },
		"cut":            func(t *testing.T, file string) { truncate(t, file, 3) },
		"cut in a page":  func(t *testing.T, file string) { truncate(t, file, 2) },
		"a directory": func(t *testing.T, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(file, 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"only the log": func(t *testing.T, file string) {
			if err := os.Rename(file, file+"-wal"); err != nil {
				t.Fatal(err)
			}
		},
		"header of a page": func(t *testing.T, file string) { poke(t, file, 4096, 8) },
		"all of a page":    func(t *testing.T, file string) { poke(t, file, 8192, 4096) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := mustOpen(t, dir)
			fill(t, s, 50)
			s.Close()
			damage(t, databaseFile(dir))
			before := snapshot(t, dir)
			_, err := Open(t.Context(), dir)
			wantError(t, err, sandbox.CodeStateCorrupt, dir, "pinfold serve --state "+dir+" --quarantine")
			if after := snapshot(t, dir); after != before {
				t.Fatalf("opening changed the state:\n%s\n%s", before, after)
			}
			moved, err := Quarantine(dir)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(moved, dir+"/quarantine-") {
				t.Fatal(moved)
			}
			kept, err := os.ReadDir(moved)
			if err != nil || len(kept) == 0 {
				t.Fatal("nothing was kept", err)
			}
			fill(t, mustOpen(t, dir), 1)
		})
	}
	_, err := Quarantine(t.TempDir())
	wantError(t, err, sandbox.CodeNotFound)
}

func write(t *testing.T, file string, b []byte) {
	t.Helper()
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, file string, part int64) {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, info.Size()/part&^4095+4096*(3-part)/2); err != nil {
		t.Fatal(err)
	}
}

func poke(t *testing.T, file string, at int64, n int) {
	t.Helper()
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.N(255) + 1)
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// snapshot is the content of the database files in a directory.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		if e.Name() == lockName || strings.HasSuffix(e.Name(), "-shm") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err == nil && len(content) == 0 && strings.HasSuffix(e.Name(), "-wal") {
			continue
		}
		fmt.Fprintf(&b, "%s %q %v\n", e.Name(), content, err != nil)
	}
	return b.String()
}

// TestFlippedBytes: whatever byte is wrong, opening and reading either work or
// say what is wrong; they do not panic, hang or lose the rest in silence.
func TestFlippedBytes(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	fill(t, s, 40)
	s.Close()
	whole, err := os.ReadFile(databaseFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	refused, missing := 0, 0
	for i := range 100 {
		broken := append([]byte(nil), whole...)
		place := rand.N(len(broken))
		if i%2 == 0 { // the head of a page; there is little of it
			place = place&^4095 + rand.N(12)
		}
		broken[place] ^= byte(rand.N(255) + 1)
		dir := t.TempDir()
		write(t, databaseFile(dir), broken)
		s, err := Open(t.Context(), dir)
		if err != nil {
			refused++
			if code := sandbox.AsError(err).Code; code != sandbox.CodeStateCorrupt && code != sandbox.CodeConfigInvalid {
				t.Errorf("byte %d: %v", place, err)
			}
			continue
		}
		// Most bytes are in no structure: text that is wrong, or free space.
		missing += readAll(t, s, place)
		if err := oneRun(t.Context(), s, 1000); err != nil && sandbox.AsError(err).Code != sandbox.CodeStateCorrupt {
			t.Errorf("byte %d: writing: %v", place, err)
		}
		s.Close()
	}
	t.Logf("%d of 100 were refused when opened; in the others, %d runs were missing and said so", refused, missing)
	if refused == 0 || missing > 40*50 {
		t.Error("no damage was noticed, or all the rest was lost with it")
	}
}

// readAll reads 40 runs and says how many are missing.
func readAll(t *testing.T, s *Store, place int) (missing int) {
	t.Helper()
	for i := range 40 {
		id := fmt.Sprintf("run_%08x%d", uint32(int64(i)*2654435761), i)
		if _, err := s.LoadRun(t.Context(), "local", id); err != nil {
			missing++
			if code := sandbox.AsError(err).Code; code != sandbox.CodeNotFound && code != sandbox.CodeStateCorrupt {
				t.Errorf("byte %d: %v", place, err)
			}
		}
	}
	return missing
}
