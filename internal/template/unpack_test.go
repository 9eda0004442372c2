//go:build linux

package template

import (
	"archive/tar"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pinfold/sandbox"
)

func TestUnpack(t *testing.T) {
	for name, c := range map[string]struct {
		tar  []entry
		want []string
	}{
		"kinds": {
			[]entry{
				{name: "./"},
				{name: "./bin/", mode: 0o700},
				{name: "./bin/sh", content: "#!", mode: 0o6711},
				{name: "./etc/shadow", content: "x", mode: 0o600},
				{name: "./bin/bash -> sh"},
				{name: "./bin/dash => ./bin/sh"},
				{header: &tar.Header{Typeflag: tar.TypeChar, Name: "dev/null", Devmajor: 1, Devminor: 3}},
				{header: &tar.Header{Typeflag: tar.TypeFifo, Name: "pipe"}},
			},
			[]string{"bin/ 755", "bin/bash -> sh", "bin/dash = #! 755", "bin/sh = #! 755", "etc/ 755", "etc/shadow = x 644"},
		},
		"absolute names are the image's": {
			[]entry{{name: "/app/run", content: "1"}, {name: "//a/./b", content: "2"}, {name: "/hard => /app/run"}},
			[]string{"a/ 755", "a/b = 2 644", "app/ 755", "app/run = 1 644", "hard = 1 644"},
		},
		"links that lead out are kept as they are": {
			[]entry{{name: "etc -> /etc"}, {name: "up -> ../../../up"}},
			[]string{"etc -> /etc", "up -> ../../../up"},
		},
		"where a sandbox mounts, an image has nothing": {
			[]entry{
				{name: "dev -> /etc"},
				{name: "./proc -> ../../../proc"},
				{name: "/sys/"},
				{name: "sys/kernel", content: "x"},
				{name: "sys/l -> /"},
				{name: ".wh.dev"},
				{name: "proc/.wh..wh..opq"},
				{name: "device", content: "x"},
				{name: "a/dev -> /dev"},
			},
			[]string{"a/ 755", "a/dev -> /dev", "device = x 644"},
		},
		"the last of a name counts": {
			[]entry{
				{name: "f", content: "first"},
				{name: "other => f"},
				{name: "f", content: "second"},
				{name: "l -> f"},
				{name: "l", content: "file"},
				{name: "f2 -> f"},
				{name: "f2 -> g"},
				{name: "d/"},
				{name: "d/x", content: "1"},
				{name: "d/"},
			},
			[]string{"d/ 755", "d/x = 1 644", "f = second 644", "f2 -> g", "l = file 644", "other = first 644"},
		},
		"names that differ in case": {
			[]entry{{name: "README", content: "1"}, {name: "readme", content: "2"}},
			[]string{"README = 1 644", "readme = 2 644"},
		},
		"whiteouts": {
			[]entry{
				{name: "etc/.wh.passwd"},
				{name: ".wh.gone"},
				{name: "opt/.wh..wh..opq"},
				{name: "opt/new", content: "n"},
				{name: "made", content: "before"},
				{name: ".wh.made"},
				{name: ".wh.later"},
				{name: "later", content: "after"},
				{name: "tree/x", content: "x"},
				{name: ".wh.tree"},
				{name: ".wh.wood"},
				{name: "wood/y", content: "y"},
				{name: ".wh..wh.aufs"},
				{name: ".wh..wh.plnk/"},
				{name: ".wh.again"},
				{name: ".wh.again"},
			},
			[]string{
				"again gone", "etc/ 755", "etc/passwd gone", "gone gone", "later = after 644", "made = before 644",
				"opt/ opaque 755", "opt/new = n 644", "tree/ opaque 755", "tree/x = x 644", "wood/ opaque 755", "wood/y = y 644",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := unpacked(t.Context(), t, tarOf(t, c.tar...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, show(t, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// No entry writes outside of the layer, whatever its name and whatever was before it.
func TestUnpackStaysInside(t *testing.T) {
	long := strings.Repeat("d/", maxDepth+1) + "f"
	outside := t.TempDir()
	for name, list := range map[string][]entry{
		"name goes up":                     {{name: "../evil", content: "x"}},
		"name goes up in the middle":       {{name: "a/../../evil", content: "x"}},
		"name is only up":                  {{name: "..", content: "x"}},
		"below a link":                     {{name: "d -> " + outside}, {name: "d/evil", content: "x"}},
		"below a link to a directory":      {{name: "real/"}, {name: "d -> real"}, {name: "d/evil", content: "x"}},
		"directory below a link":           {{name: "d -> " + outside}, {name: "d/evil/"}},
		"directory over a link":            {{name: "d -> " + outside}, {name: "d/"}},
		"link below a link":                {{name: "d -> " + outside}, {name: "d/evil -> /etc/passwd"}},
		"whiteout below a link":            {{name: "d -> " + outside}, {name: "d/.wh.evil"}},
		"opaque below a link":              {{name: "d -> " + outside}, {name: "d/.wh..wh..opq"}},
		"whiteout of the parent":           {{name: "a/.wh..."}, {name: "a/.wh..", content: "x"}},
		"whiteout of nothing":              {{name: "a/.wh."}},
		"below a file":                     {{name: "f", content: "x"}, {name: "f/evil", content: "x"}},
		"file over a directory":            {{name: "d/"}, {name: "d", content: "x"}},
		"link over a directory":            {{name: "d/"}, {name: "d -> " + outside}},
		"hard link out":                    {{name: "f => ../../../etc/passwd"}},
		"hard link to what is not":         {{name: "f => etc/passwd"}},
		"hard link of a link":              {{name: "l -> /etc/passwd"}, {name: "f => l"}},
		"hard link through a link":         {{name: "l -> /etc"}, {name: "f => l/passwd"}},
		"hard link of a directory":         {{name: "d/"}, {name: "f => d"}},
		"hard link of a whiteout":          {{name: ".wh.w"}, {name: "f => w"}},
		"hard link to what is left out":    {{name: "proc/f", content: "x"}, {name: "f => proc/f"}},
		"too deep":                         {{name: long, content: "x"}},
		"link that says nothing":           {{header: &tar.Header{Typeflag: tar.TypeSymlink, Name: "l"}}},
		"the root as a link":               {{header: &tar.Header{Typeflag: tar.TypeSymlink, Name: "./", Linkname: outside}}},
		"a kind that nobody knows":         {{header: &tar.Header{Typeflag: '9', Name: "x"}}},
		"link that is too long":            {{header: &tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: strings.Repeat("x", maxLink+1)}}},
		"name that is too long":            {{name: strings.Repeat("xxxxxxx/", 600), content: ""}},
		"hard link in a directory's place": {{name: "f", content: "x"}, {name: "d/"}, {name: "d => f"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := unpacked(t.Context(), t, tarOf(t, list...))
			if codeOf(err) != sandbox.CodeUnsafeArchive {
				t.Errorf("error is %v", err)
			}
			if list := show(t, outside); len(list) > 0 {
				t.Errorf("outside are %q", list)
			}
			if _, err := os.Lstat(filepath.Join(filepath.Dir(dir), "evil")); err == nil {
				t.Error("evil lies beside the layer")
			}
		})
	}
}

// A few hundred bytes that become a gigabyte are refused, though no bound on what comes
// out of the archive sees them.
func TestUnpackRefusesHoles(t *testing.T) {
	for _, format := range []string{"gnu", "pax"} {
		dir := t.TempDir()
		f, err := os.Create(filepath.Join(dir, "bomb"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Truncate(1<<30), f.Close()); err != nil {
			t.Fatal(err)
		}
		archive, err := exec.CommandContext(t.Context(), "tar", "--sparse", "--format="+format, "-C", dir, "-cf", "-", "bomb").Output() //nolint:gosec // of the test
		if err != nil {
			t.Fatal(err)
		}
		if len(archive) > 1<<20 { // the control: it is one
			t.Fatalf("tar made %d bytes of it", len(archive))
		}
		if got, err := unpacked(t.Context(), t, archive); codeOf(err) != sandbox.CodeUnsafeArchive {
			t.Errorf("%s: %v, %q", format, err, got)
		}
	}
}

// What is said of a layer's content is true, and every difference makes another hash.
func TestDigest(t *testing.T) {
	base := []entry{{name: "d/"}, {name: "d/f", content: "x"}, {name: "l -> f"}}
	of := func(list ...entry) tree {
		t.Helper()
		dir, err := unpacked(t.Context(), t, tarOf(t, list...))
		if err != nil {
			t.Fatal(err)
		}
		got, err := digest(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := of(base...)
	if again := of(base...); again != first {
		t.Errorf("the same content has the hashes %v and %v", first, again)
	}
	if first.Entries != 3 || first.Bytes != 1 {
		t.Errorf("%d entries with %d bytes", first.Entries, first.Bytes)
	}
	seen := map[ID]string{first.ID: "the first"}
	for name, list := range map[string][]entry{
		"a name":       {{name: "d/"}, {name: "d/g", content: "x"}, {name: "l -> f"}},
		"content":      {{name: "d/"}, {name: "d/f", content: "y"}, {name: "l -> f"}},
		"executable":   {{name: "d/"}, {name: "d/f", content: "x", mode: 0o755}, {name: "l -> f"}},
		"a link":       {{name: "d/"}, {name: "d/f", content: "x"}, {name: "l -> g"}},
		"opaque":       append([]entry{{name: "d/.wh..wh..opq"}}, base...),
		"a whiteout":   append([]entry{{name: "d/.wh.x"}}, base...),
		"a directory":  append([]entry{{name: "e/"}}, base...),
		"a file's age": {{name: "d/"}, {header: &tar.Header{Typeflag: tar.TypeReg, Name: "d/f", Size: 1, Mode: 0o644}, content: "x"}, {name: "l -> f"}},
	} {
		got := of(list...)
		if other, known := seen[got.ID]; known {
			t.Errorf("%s has the same hash as %s", name, other)
		}
		seen[got.ID] = name
	}
}
