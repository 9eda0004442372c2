//go:build linux

package template

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pinfold/sandbox"
)

// What is used stays, and what nobody uses and nothing names goes.
func TestRemoveAndCollect(t *testing.T) {
	s := open(t, Limits{})
	other, ok, err := Look(s.dir, Limits{}) // as another process has it
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	low, high := tarOf(t, bottom...), tarOf(t, top...)
	both := add(t, s, "both", ociLayout(t, gzipped, low, high).tar(t))
	add(t, s, "low", ociLayout(t, gzipped, low).tar(t))
	u, err := other.Use("both")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), "both"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Use("both"); codeOf(err) != sandbox.CodeTemplateUnknown {
		t.Errorf("its name is still there: %v", err)
	}
	byID, err := s.Get(string(both.Image.ID)) // whoever has it in use may name it by its hash
	if err != nil || byID.Name != "" {
		t.Errorf("%+v, %v", byID, err)
	}
	for _, l := range u.Layers {
		if len(show(t, l)) == 0 {
			t.Errorf("%s is gone while it is used", l)
		}
	}
	u.Close()
	got, err := s.Collect(t.Context())
	if want := (Collected{Images: 1, Layers: 1, Bytes: 1}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if _, err := s.Use("low"); err != nil {
		t.Errorf("what another image needs is gone: %v", err)
	}
	if err := s.Remove(t.Context(), "low"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Collect(t.Context()); err != nil || got.InUse != 1 { // of the Use that was not closed
		t.Errorf("%+v, %v", got, err)
	}
	if err := s.Remove(t.Context(), "low"); codeOf(err) != sandbox.CodeTemplateUnknown {
		t.Errorf("it is removed twice: %v", err)
	}
}

// What nobody uses is gone from the disk when its last name is.
func TestRemoveMakesRoom(t *testing.T) {
	s := open(t, Limits{})
	add(t, s, "one", tarOf(t, bottom...))
	add(t, s, "other", tarOf(t, bottom...))
	if err := s.Remove(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if found, err := s.Check(t.Context(), "other", nil); err != nil || len(found) > 0 {
		t.Errorf("the other: %q, %v", found, err)
	}
	if err := s.Remove(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	empty(t, s)
}

// A name is a name, whatever it looks like.
func TestNames(t *testing.T) {
	s := open(t, Limits{})
	archive := tarOf(t, bottom...)
	good := []string{"python", "Python", "python:3.13", "docker.io/library/python:3.13-slim", "a@b", "0"}
	for _, name := range good {
		add(t, s, name, archive)
	}
	list, err := s.List(t.Context())
	var got []string
	for _, l := range list {
		got = append(got, l.Name)
	}
	want := []string{"0", "Python", "a@b", "docker.io/library/python:3.13-slim", "python", "python:3.13"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%s, %v", diff, err)
	}
	for _, name := range []string{"", "host", "../x", ".x", "a//b", "a/", "sha256:abc", "a b", "a\x00", "a%2F", strings.Repeat("a", maxName+1), "é", "-x"} {
		if _, err := s.Import(t.Context(), bytes.NewReader(archive), Import{Name: name}); codeOf(err) != sandbox.CodeSpecInvalid {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := s.Get(name); codeOf(err) != sandbox.CodeTemplateUnknown {
			t.Errorf("%q is found: %v", name, err)
		}
	}
	id := string(list[0].Image.ID)
	for _, name := range []string{id, id[7:19], id[:20]} {
		if got, err := s.Get(name); err != nil || string(got.Image.ID) != id {
			t.Errorf("%s: %v, %v", name, got.Image.ID, err)
		}
	}
	if _, err := s.Get(id[7:18]); codeOf(err) != sandbox.CodeTemplateUnknown {
		t.Errorf("too few digits: %v", err)
	}
}

// Check finds what somebody did to the files.
func TestCheck(t *testing.T) {
	s := open(t, Limits{})
	for name, damage := range map[string]func(layer string) error{
		"":        func(string) error { return nil },
		"content": func(l string) error { return os.WriteFile(filepath.Join(l, "root/bin/sh"), []byte("SHELL"), 0o600) },
		"more":    func(l string) error { return os.WriteFile(filepath.Join(l, "root/bin/more"), nil, 0o600) },
		"less":    func(l string) error { return os.Remove(filepath.Join(l, "root/bin/sh")) },
		"all":     os.RemoveAll,
		"device": func(l string) error {
			return exec.CommandContext(t.Context(), "mkfifo", filepath.Join(l, "root/p")).Run()
		},
	} {
		got := add(t, s, "app", tarOf(t, append(bottom, entry{name: "for", content: name})...))
		if err := damage(s.path("layers", got.Image.Layers[0].ID.Hex())); err != nil {
			t.Fatal(err)
		}
		found, err := s.Check(t.Context(), "app", nil)
		if err != nil || len(found) > 0 != (name != "") {
			t.Errorf("%q: %q, %v", name, found, err)
		}
	}
	// Nor is a record believed that is not the one of its hash.
	got := add(t, s, "app", tarOf(t, bottom...))
	record := s.path("images", got.Image.ID.Hex()+".json")
	text, err := os.ReadFile(record) //nolint:gosec // of the test
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(record, bytes.Replace(text, []byte("amd64"), []byte("AMD64"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Use("app"); codeOf(err) != sandbox.CodeStateCorrupt {
		t.Errorf("a changed record: %v", err)
	}
}

// A directory that others can write to is none to keep images in.
func TestOpenRefusesWhatOthersCanWrite(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // that is the point
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, link} {
		if _, err := Open(d, Limits{}); codeOf(err) != sandbox.CodeSetupFailed {
			t.Errorf("%s: %v", d, err)
		}
	}
}

// Many add the same at once, and others remove: there is one of each layer, whole.
func TestConcurrentUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "templates")
	low, high := tarOf(t, bottom...), tarOf(t, top...)
	archives := [][]byte{ociLayout(t, gzipped, low, high).tar(t), ociLayout(t, gzipped, low).tar(t), tarOf(t, bottom...)}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s, err := Open(dir, Limits{})
			if err != nil {
				t.Error(err)
				return
			}
			for range 5 {
				if _, err := s.Import(t.Context(), bytes.NewReader(archives[i%3]), Import{Name: "app"}); err != nil {
					t.Error(err)
				}
				u, err := s.Use("app")
				if err != nil {
					if codeOf(err) != sandbox.CodeTemplateUnknown {
						t.Error(err)
					}
					continue
				}
				for _, l := range u.Layers {
					if _, err := os.Lstat(l); err != nil {
						t.Errorf("a layer is gone while it is used: %v", err)
					}
				}
				u.Close()
				if err := s.Remove(t.Context(), "app"); err != nil && codeOf(err) != sandbox.CodeTemplateUnknown {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s, err := Open(dir, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	empty(t, s)
}

// slowly is an archive that comes in pieces, and then waits.
type slowly struct {
	r    io.Reader
	wait <-chan struct{}
}

func (s slowly) Read(b []byte) (int, error) {
	n, err := s.r.Read(b[:min(len(b), 64<<10)])
	if errors.Is(err, io.EOF) {
		<-s.wait
	}
	return n, err
}

// A context that is cancelled ends an import that waits for its sender, and nothing is kept.
func TestImportIsCancelled(t *testing.T) {
	for _, f := range []Format{Auto, Root} {
		s := open(t, Limits{})
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		go func() {
			_, _ = w.Write(tarOf(t, bottom...)[:1024])
			cancel()
			_ = w.CloseWithError(context.Canceled)
		}()
		if _, err := s.Import(ctx, r, Import{Name: "app", Format: f}); err == nil {
			t.Error("a part of an archive became a template")
		}
		empty(t, s)
	}
}

const killedEnv = "PINFOLD_TEST_TEMPLATE_STORE"

// A process that is killed while it unpacks leaves nothing that the next one keeps.
func TestKilledWhileUnpacking(t *testing.T) {
	if dir := os.Getenv(killedEnv); dir != "" {
		s, err := Open(dir, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		archive := tarOf(t, entry{name: "a", content: strings.Repeat("x", 1<<20)})
		progress := func(e Event) {
			if e.Bytes > 0 {
				_, _ = os.Stdout.WriteString("half\n")
			}
		}
		_, _ = s.Import(t.Context(), slowly{bytes.NewReader(append(archive, make([]byte, 1<<20)...)), make(chan struct{})}, Import{Name: "app", Format: Root, Progress: progress})
		return
	}
	dir := filepath.Join(t.TempDir(), "templates")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledWhileUnpacking$") //nolint:gosec // this test
	cmd.Env = append(os.Environ(), killedEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "half"; {
	}
	s := &Store{dir: dir, limits: Limits{}.withDefaults()}
	if len(tmpOf(t, s)) == 0 {
		t.Error("it was not half done")
	}
	if _, err := Open(dir, Limits{}); err != nil { // while it lives, what it does is its own
		t.Fatal(err)
	}
	if len(tmpOf(t, s)) == 0 {
		t.Error("what a living process is doing was removed")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if s, err = Open(dir, Limits{}); err != nil {
		t.Fatal(err)
	}
	empty(t, s)
	add(t, s, "app", tarOf(t, bottom...))
}

// An image that is much larger than memory could be costs little of it.
func TestImportMemoryIsFlat(t *testing.T) {
	const files, each = 64, 2 << 20
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(writeLarge(w, files, each)) }()
	s := open(t, Limits{})
	runtime.GC()
	var before, most runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := s.Import(t.Context(), r, Import{Name: "large", Format: Root, Progress: func(e Event) {
		var now runtime.MemStats
		if runtime.ReadMemStats(&now); now.HeapAlloc > most.HeapAlloc {
			most = now
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if grown := int64(most.HeapAlloc) - int64(before.HeapAlloc); grown > 24<<20 {
		t.Errorf("%d MiB of memory for an image of %d MiB", grown>>20, files*each>>20)
	}
}
