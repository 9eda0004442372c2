package image

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestStripped(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o644} }
	root := fstest.MapFS{
		"etc/matplotlibrc": file("## all\n\n#backend: Agg\nbackend:  TkAgg # or so\n  # indented\n"),
		"etc/mime.types":   file("# types\napplication/none\nimage/webp\t\t\twebp\n"),
	}
	var got Template
	got.addStripped(newView(root))
	want := []string{"backend: TkAgg # or so\n", "image/webp webp\n"}
	for i, f := range got.Files {
		if string(f.Content) != want[i] {
			t.Errorf("%s is %q", f.Path, f.Content)
		}
	}
	if len(got.Files) != len(want) {
		t.Errorf("%d files", len(got.Files))
	}
	root["etc/mime.types"] = file(strings.Repeat("x y\n", maxStripped))
	root["etc/matplotlibrc"].Mode = 0o600
	got.Files = nil
	if got.addStripped(newView(root)); len(got.Files) != 0 {
		t.Errorf("what is too large or private is copied: %v", got.Files)
	}
}
