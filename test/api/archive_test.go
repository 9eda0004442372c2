package api

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"io"
	"strings"
	"testing"

	"pinfold/internal/archive"
	"pinfold/sandbox"
)

// tarOf makes an archive of entries: a name, and what is in it; "->x" is a link.
func tarOf(t *testing.T, entries ...[2]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e[0], Mode: 0o644, Size: int64(len(e[1]))}
		if to, ok := strings.CutPrefix(e[1], "->"); ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, to, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, e[1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArchives(t *testing.T) {
	w := newWorld(t, nil)
	box := w.create("alpha")
	var sum archive.Summary
	w.must(200, request{key: "alpha", method: "PUT", path: box + "/archive?path=in", body: tarOf(t, [2]string{"a.txt", "one"}, [2]string{"d/b.txt", "two"})}).json(t, &sum)
	if sum.Files != 2 || sum.Bytes != 6 {
		t.Fatalf("%+v", sum)
	}
	if a := w.must(200, request{key: "alpha", method: "GET", path: box + "/files?path=in/d/b.txt"}); a.body != "two" {
		t.Fatalf("%q", a.body)
	}
	w.driver.Machines()[0].Files.PutLink("in/link")
	for format, mediaType := range map[string]string{"tar": "application/x-tar", "tar.gz": "application/gzip", "zip": "application/zip"} {
		s := w.open(request{key: "read", method: "GET", path: box + "/archive?path=in&format=" + format})
		packed, err := io.ReadAll(s.body)
		if err != nil || s.status != 200 || s.header.Get("Content-Type") != mediaType || !strings.HasPrefix(s.header.Get("Content-Disposition"), "attachment") {
			t.Fatalf("%s: %d %v %v", format, s.status, err, s.header)
		}
		if got := s.trailer.Get("X-Archive-Skipped"); got != "1" {
			t.Errorf("%s: %q left out", format, got)
		}
		if format == "zip" {
			z, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
			if err != nil || len(z.File) != 3 {
				t.Errorf("%v", err)
			}
		}
		w.must(200, request{key: "alpha", method: "PUT", path: box + "/archive?path=out-" + format + "&format=" + format, body: packed}).json(t, &sum)
		if a := w.must(200, request{key: "alpha", method: "GET", path: box + "/files?path=out-" + format + "/d/b.txt"}); a.body != "two" || sum.Files != 2 {
			t.Errorf("%s: %q %+v", format, a.body, sum)
		}
	}
}

// FS-09, FS-10: an archive that breaks a rule changes nothing.
func TestUnsafeArchivesAreRefused(t *testing.T) {
	w := newWorld(t, nil)
	box := w.create("alpha")
	before := w.tree(box)
	good := [2]string{"good.txt", "fine"}
	for name, packed := range map[string][]byte{
		"leaves": tarOf(t, good, [2]string{"../evil", "x"}), "absolute": tarOf(t, good, [2]string{"/etc/evil", "x"}), "a link": tarOf(t, good, [2]string{"l", "->/etc/passwd"}),
		"twice": tarOf(t, good, good), "cut off": tarOf(t, good)[:514], "no archive": []byte(strings.Repeat("x", 2000)), "control": tarOf(t, good, [2]string{"a\nb", "x"}),
	} {
		a := w.do(request{key: "alpha", method: "PUT", path: box + "/archive", body: packed})
		if a.status != 422 || a.code(t).Code != sandbox.CodeUnsafeArchive {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if after := w.tree(box); after != before {
		t.Errorf("something changed:\n%s\n%s", before, after)
	}
	for path, status := range map[string]int{"?format=rar": 400, "?path=../x": 400, "?path=none": 404} {
		if a := w.do(request{key: "alpha", method: "GET", path: box + "/archive" + path}); a.status != status {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// tree is the names of everything in a sandbox.
func (w *world) tree(box string) string {
	w.t.Helper()
	var list struct{ Items []sandbox.FileInfo }
	w.must(200, request{key: "alpha", method: "GET", path: box + "/files/list?path=%2F&depth=9"}).json(w.t, &list)
	var names []string
	for _, i := range list.Items {
		names = append(names, i.Path)
	}
	return strings.Join(names, "\n")
}
