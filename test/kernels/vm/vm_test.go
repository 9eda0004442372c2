package vm

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pinfold/internal/initramfs"
)

func TestImage(t *testing.T) {
	host := filepath.Join(t.TempDir(), "host")
	if err := os.MkdirAll(filepath.Join(host, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"keep": "a", "sub/keep": "b", "sub/skip": "c"} {
		if err := os.WriteFile(filepath.Join(host, name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("keep", filepath.Join(host, "link")); err != nil {
		t.Fatal(err)
	}
	i := &Image{files: map[string]file{}}
	err := i.CopyTree("/opt/x", host, func(rel string) bool { return rel == "sub/skip" })
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint32{}
	for name, f := range i.files {
		got[name] = f.mode
	}
	want := map[string]uint32{
		"opt": initramfs.TypeDir | 0o755, "opt/x": initramfs.TypeDir | 0o755, "opt/x/sub": initramfs.TypeDir | 0o755,
		"opt/x/keep": initramfs.TypeFile | 0o640, "opt/x/sub/keep": initramfs.TypeFile | 0o640, "opt/x/link": initramfs.TypeLink | 0o777,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("(-want +got):\n%s", d)
	}
	if err := i.Copy("/x", host); err == nil {
		t.Fatal("a directory was copied as a file")
	}
}

func TestCopyProgramFindsLibraries(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	i := NewImage()
	if err := i.CopyProgram("/usr/bin/sh", sh); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for name := range i.files {
		found[filepath.Base(name)] = true
	}
	for _, lib := range []string{"libc.so.6", "ld-linux-x86-64.so.2"} {
		if !found[lib] {
			t.Errorf("%s is missing", lib)
		}
	}
}

func TestEventsSurviveNoise(t *testing.T) {
	sent := []Event{
		{Seq: 0, Job: "a", Kind: EventStart},
		{Seq: 1, Job: "a", Kind: EventOutput, Output: []byte("PINFOLD 00000000 {}\n\x1b[0m\xff")},
		{Seq: 2, Job: "a", Kind: EventExit, Exit: 3, Error: "exit status 3"},
		{Seq: 3, Kind: EventDone},
	}
	var wire bytes.Buffer
	for _, e := range sent {
		wire.WriteString("[    1.5] noise without an end")
		if err := WriteEvent(&wire, e); err != nil {
			t.Fatal(err)
		}
		wire.WriteString("PINFOLD 12345678 {\"Seq\":9}\r\n")
	}
	var got []Event
	if err := readEvents(&wire, func(e Event) { got = append(got, e) }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sent, got); d != "" {
		t.Fatalf("(-want +got):\n%s", d)
	}
}

func TestEventsThatAreMissing(t *testing.T) {
	for name, seqs := range map[string][]int{"gap": {0, 2}, "end": {0, 1}, "nothing": {}, "too long": nil} {
		var wire bytes.Buffer
		for _, s := range seqs {
			if err := WriteEvent(&wire, Event{Seq: s}); err != nil {
				t.Fatal(err)
			}
		}
		if seqs == nil {
			wire.Write(make([]byte, maxFrame+1))
		}
		if err := readEvents(&wire, func(Event) {}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Output of the greatest size fits into a frame.
func TestLargestEvent(t *testing.T) {
	var wire bytes.Buffer
	if err := WriteEvent(&wire, Event{Output: make([]byte, MaxOutput)}); err != nil || wire.Len() > maxFrame {
		t.Fatalf("%d bytes, %v", wire.Len(), err)
	}
}

func FuzzParseEvent(f *testing.F) {
	f.Add([]byte("PINFOLD 00000000 {}"))
	var wire bytes.Buffer
	_ = WriteEvent(&wire, Event{Kind: EventDone})
	f.Add(bytes.TrimSpace(wire.Bytes()))
	f.Fuzz(func(t *testing.T, line []byte) {
		if e, ok := parseEvent(line); ok && !bytes.HasPrefix(line, []byte(frameMark)) {
			t.Fatalf("%q is an event: %+v", line, e)
		}
	})
}

func TestTail(t *testing.T) {
	var tl tail
	for range 3 {
		if _, err := tl.Write(bytes.Repeat([]byte("x"), tailSize/2+1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(tl.text()); n != tailSize {
		t.Fatalf("kept %d bytes", n)
	}
}
