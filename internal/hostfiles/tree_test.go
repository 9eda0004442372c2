package hostfiles

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What is packed comes out again; what is not a file or a directory is counted.
func TestPackAndUnpack(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for name, mode := range map[string]os.FileMode{"run.sh": 0o755, "sub/data.txt": 0o644, "sub/odd\x1b": 0o644} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, name), []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"link": "run.sh", "out": "/etc/passwd"} {
		if err := os.Symlink(target, filepath.Join(from, name)); err != nil {
			t.Fatal(err)
		}
	}
	var archive bytes.Buffer
	if left, err := Pack(from, &archive); left != 2 || err != nil { // the odd name and the link out
		t.Fatalf("%d left out, %v", left, err)
	}
	sink, err := OpenSink(to)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	if err := Unpack(&archive, sink); err != nil || len(sink.Skipped()) > 0 {
		t.Fatalf("%v, %v", err, sink.Skipped())
	}
	for name, want := range map[string]string{"run.sh": "run.sh", "link": "run.sh", "sub/data.txt": "sub/data.txt"} {
		got, err := os.ReadFile(filepath.Join(to, name))
		info, sErr := os.Lstat(filepath.Join(to, name))
		if err != nil || sErr != nil || string(got) != want || !info.Mode().IsRegular() || (info.Mode()&0o100 != 0) != (want == "run.sh") {
			t.Errorf("%s: %q %v %v", name, got, info, err)
		}
	}
}

// An archive of a sandbox leaves nothing outside the directory, and writes through
// nothing that is there.
func TestUnpackIsBounded(t *testing.T) {
	to, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(to, "away")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "victim"), filepath.Join(to, "through")); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	hostile := []string{"../evil", "/evil", "away/evil", "a/../../evil", "bell\x07"}
	for _, name := range append(slices.Clone(hostile), "through", "good") {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 1, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte("x"))
	}
	_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "/etc"})
	_ = w.Close()
	sink, err := OpenSink(to)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	if err := Unpack(&archive, sink); err != nil {
		t.Fatal(err)
	}
	var skipped []string
	for _, s := range sink.Skipped() {
		skipped = append(skipped, s.Path)
	}
	if want := slices.Concat(hostile, []string{"link"}); !slices.Equal(skipped, want) {
		t.Errorf("skipped %q, not %q", skipped, want)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside: %v, %v", left, err)
	}
	for _, name := range []string{"through", "good"} { // a link is replaced, not followed
		if info, err := os.Lstat(filepath.Join(to, name)); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
}
