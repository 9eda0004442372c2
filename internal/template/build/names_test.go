package build

import (
	"archive/tar"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pinfold/sandbox"
)

func fromDirectory(t *testing.T, names ...string) ([]string, error) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755), os.WriteFile(filepath.Join(dir, name), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	d, err := Parse([]byte(`{"name": "x", "base": "y", "files": [{"path": "/opt/app", "from": "."}]}`))
	if err != nil {
		t.Fatal(err)
	}
	in, err := gather(d, dir)
	if err != nil {
		return nil, err
	}
	defer in.close()
	var got []string
	for _, f := range in.files {
		got = append(got, f.path)
	}
	return got, nil
}

// A directory's files have the names that they have there.
func TestDirectoryKeepsNames(t *testing.T) {
	got, err := fromDirectory(t, ".env", "env", "..x", "a/.b", ".c/d")
	if want := []string{"/opt/app/..x", "/opt/app/.c/d", "/opt/app/.env", "/opt/app/a/.b", "/opt/app/env"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

// No name hides files of the base, and none has the hash of another.
func TestNamesThatNoLayerHas(t *testing.T) {
	for _, name := range []string{".wh.passwd", "a/.wh..wh..opq", ".wh.d/f", "\xff", "a/\xfe"} {
		if got, err := fromDirectory(t, name); err == nil || sandbox.AsError(err).Code != sandbox.CodeSpecInvalid {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	for name, want := range map[string]string{"/etc/.wh.passwd": "files[0].path", "/etc/.wh.d/f": "files[0].path", "/etc/x.wh.y": ""} {
		got := ""
		if _, err := Parse([]byte(`{"name": "x", "base": "y", "files": [{"path": "` + name + `", "content": ""}]}`)); err != nil {
			got = sandbox.AsError(err).Field
		}
		if got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// What a command leaves does not become something else in the layer.
func TestChangesThatWouldHide(t *testing.T) {
	for _, name := range []string{"opt/.wh.passwd", "opt/d/.wh..wh..opq", "opt/.wh.d/f"} {
		spool := spooledTar(t, tar.Header{Name: name, Typeflag: tar.TypeReg})
		c := &changes{spool: spool, places: []string{"/opt"}}
		if err := c.look(t.Context()); err == nil || sandbox.AsError(err).Code != sandbox.CodeBuildFailed {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// spooledTar is an archive of empty files that came out of a sandbox.
func spooledTar(t *testing.T, list ...tar.Header) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "spool"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	w := tar.NewWriter(f)
	for _, h := range list {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return f
}
