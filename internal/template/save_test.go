//go:build linux

package template

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	view "pinfold/internal/image"
	"pinfold/sandbox"
)

// What is saved is the same each time, and becomes the same image elsewhere.
func TestSaveAndLoad(t *testing.T) {
	low := tarOf(t, append(bottom, entry{name: "bin/ash => bin/sh"}, entry{name: "l -> /bin"}, entry{name: "bin/\xff", content: "not UTF-8"},
		entry{name: strings.Repeat("long/", 40) + "f", content: "x"})...)
	s := open(t, Limits{})
	want := add(t, s, "app:1", ociLayout(t, gzipped, low, tarOf(t, top...)).tar(t))
	var first, again bytes.Buffer
	for _, w := range []io.Writer{&first, &again} {
		if err := s.Save(t.Context(), "app:1", w); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), again.Bytes()) {
		t.Error("it is not the same each time")
	}
	elsewhere := open(t, Limits{})
	got := add(t, elsewhere, "app:1", first.Bytes())
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Template{}, "From", "Added")); diff != "" {
		t.Error(diff)
	}
	if got.From.Reference != "app:1" {
		t.Errorf("it comes from %+v", got.From)
	}
	if err := s.Save(t.Context(), "nothing", io.Discard); codeOf(err) != sandbox.CodeTemplateUnknown {
		t.Errorf("a template that is not there: %v", err)
	}
}

// A description that could not be read again is refused before anything stands under the name.
func TestTooMuchToDescribe(t *testing.T) {
	s := open(t, Limits{})
	image := add(t, s, "plain", ociLayout(t, gzipped, tarOf(t, bottom...)).tar(t)).Image
	image.Config.User = "another"
	for n, code := range map[int]string{100: "", maxRecord / 100: sandbox.CodeTooLarge} {
		name := "described-" + strconv.Itoa(n)
		all := sandbox.Packages{NPM: slices.Repeat([]string{"left-pad@1.3.0 sha512-" + strings.Repeat("A", 86) + "=="}, n)}
		if _, err := s.Keep(name, image, Origin{Kind: "build", Packages: all}); codeOf(err) != code {
			t.Errorf("%d: %v", n, err)
		}
		got, err := s.Get(name)
		if code == "" && (err != nil || len(got.From.Packages.NPM) != n) || code != "" && codeOf(err) != sandbox.CodeTemplateUnknown {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// What sandboxes of an image begin with is saved with it, and is part of what the image is.
// What its labels say is refused where it could not be carried out.
func TestStartIsSaved(t *testing.T) {
	s, elsewhere := open(t, Limits{}), open(t, Limits{})
	plain := add(t, s, "plain", ociLayout(t, gzipped, tarOf(t, bottom...)).tar(t))
	image := plain.Image
	image.Config.User = ""
	image.Config.Start = view.Start{Command: "serve --port 80", Ready: "test -e /tmp/ready", WithinMS: 5000}
	want, err := s.Keep("served", image, Origin{})
	if err != nil {
		t.Fatal(err)
	}
	var saved bytes.Buffer
	if err := s.Save(t.Context(), "served", &saved); err != nil {
		t.Fatal(err)
	}
	got := add(t, elsewhere, "served", saved.Bytes())
	if got.Image.ID != want.Image.ID || got.Image.ID == plain.Image.ID || got.Image.Config.Start != image.Config.Start {
		t.Errorf("%+v became %+v", want.Image, got.Image)
	}
	resolved, err := elsewhere.Resolve("served", nil)
	if err != nil || resolved.Start != image.Config.Start {
		t.Errorf("%+v, %v", resolved.Start, err)
	}
	for _, labels := range []string{
		`{"pinfold.ready": "true"}`, `{"pinfold.start": "a", "pinfold.ready": "b"}`, `{"pinfold.start": " "}`, `{"pinfold.start": "a\u0000b"}`,
		`{"pinfold.start": "a", "pinfold.ready": "b", "pinfold.ready-within-ms": "1h"}`, `{"pinfold.start": "a", "pinfold.ready": "b", "pinfold.ready-within-ms": "3600000"}`,
		`{"pinfold.start": "` + strings.Repeat("x", maxStartLine+1) + `"}`,
	} {
		if _, err := readConfig([]byte(`{"config": {"Labels": `+labels+`}, "rootfs": {"diff_ids": []}}`), 0); codeOf(err) != sandbox.CodeUnsafeArchive {
			t.Errorf("%.100s: %v", labels, err)
		}
	}
	if _, err := readConfig([]byte(`{"config": {"Labels": {"else": "x", "pinfold.start": "a"}}, "rootfs": {"diff_ids": []}}`), 0); err != nil {
		t.Error(err)
	}
}

// The name that an archive gives its image is taken, but replaces nothing.
func TestLoadReplacesNothing(t *testing.T) {
	s, other := open(t, Limits{}), open(t, Limits{})
	add(t, other, "python", tarOf(t, entry{name: "evil", content: "x"}))
	var evil bytes.Buffer
	if err := other.Save(t.Context(), "python", &evil); err != nil {
		t.Fatal(err)
	}
	load := func(s *Store, o Import) error {
		o.Format = Images
		_, err := s.Import(t.Context(), bytes.NewReader(evil.Bytes()), o)
		return err
	}
	mine := add(t, s, "python", tarOf(t, bottom...))
	if err := load(s, Import{}); codeOf(err) != sandbox.CodeConflict {
		t.Error(err)
	}
	if got, err := s.Get("python"); err != nil || got.Image.ID != mine.Image.ID {
		t.Errorf("it was replaced: %v, %v", got.Image.ID, err)
	}
	if err := load(s, Import{Name: "python"}); err != nil { // somebody who says so may
		t.Error(err)
	}
	empty := open(t, Limits{})
	for range 2 { // the same again is no replacing
		if err := load(empty, Import{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := empty.Get("python"); err != nil {
		t.Error(err)
	}
}

// Whatever the bytes are: nothing is written outside, and what was unpacked can be packed
// and unpacked to the same.
func FuzzUnpack(f *testing.F) {
	f.Add(tarOf(f, entry{name: "a/"}, entry{name: "a/b", content: "c"}, entry{name: "l -> a"}, entry{name: "h => a/b"}, entry{name: ".wh.x"}, entry{name: "a/.wh..wh..opq"}))
	f.Add(tarOf(f, entry{name: "l -> /tmp"}, entry{name: "l/x", content: "c"}))
	f.Add(tarOf(f, entry{name: "../x", content: "c"}))
	f.Fuzz(func(t *testing.T, archive []byte) {
		parent := t.TempDir()
		unpackTo := func(name string, b []byte) (string, error) {
			dir := filepath.Join(parent, name)
			if err := makeRoot(dir); err != nil {
				t.Fatal(err)
			}
			return dir, unpack(t.Context(), bytes.NewReader(b), dir, &budget{bytes: 1 << 20, entries: 200})
		}
		dir, err := unpackTo("first", archive)
		if list, readErr := os.ReadDir(parent); readErr != nil || len(list) != 1 {
			t.Fatalf("beside the layer are %v, %v", list, readErr)
		}
		if err != nil {
			return
		}
		first, err := digest(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		var packed bytes.Buffer
		if err := pack(t.Context(), dir, &packed); err != nil {
			t.Fatal(err)
		}
		again, err := unpackTo("again", packed.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		second, err := digest(t.Context(), again)
		if err != nil {
			t.Fatal(err)
		}
		if first != second {
			t.Errorf("%v became %v:\n%s", first, second, cmp.Diff(show(t, dir), show(t, again)))
		}
	})
}
