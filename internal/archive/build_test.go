package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io/fs"
	"testing"
)

// item is one entry of an archive that a test makes.
type item struct {
	name    string
	content string
	link    string // a symbolic link
	hard    string // a hard link; tar only
	kind    byte   // another type of tar's
	mode    fs.FileMode
	pax     map[string]string
}

func makeTar(t testing.TB, items ...item) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, i := range items {
		h := &tar.Header{Name: i.name, Size: int64(len(i.content)), Mode: int64(0o644 | i.mode), Typeflag: tar.TypeReg, PAXRecords: i.pax}
		switch {
		case i.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, i.link
		case i.hard != "":
			h.Typeflag, h.Linkname = tar.TypeLink, i.hard
		case i.kind != 0:
			h.Typeflag = i.kind
		case i.name[len(i.name)-1] == '/':
			h.Typeflag, h.Mode = tar.TypeDir, int64(0o755|i.mode)
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(i.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func makeGzip(t testing.TB, items ...item) []byte {
	t.Helper()
	return compress(t, makeTar(t, items...))
}

func compress(t testing.TB, plain []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func makeZip(t testing.TB, items ...item) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, i := range items {
		h := &zip.FileHeader{Name: i.name, Method: zip.Deflate}
		mode, content := 0o644|i.mode, i.content
		switch {
		case i.link != "":
			mode, content = fs.ModeSymlink|0o777, i.link
		case i.name[len(i.name)-1] == '/':
			mode, h.Method = fs.ModeDir|0o755, zip.Store
		}
		h.SetMode(mode)
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// makers make the same archive in every format.
var makers = map[Format]func(testing.TB, ...item) []byte{Tar: makeTar, TarGzip: makeGzip, Zip: makeZip}
