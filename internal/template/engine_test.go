//go:build linux

package template

import (
	"bytes"
	"strings"
	"testing"

	"pinfold/internal/image"
)

// What an engine is given is the same each time, and holds what a sandbox of the template
// does: the upper layers over the lower, and the sandbox's own files over both.
func TestEngineArchive(t *testing.T) {
	s := open(t, Limits{})
	lower := tarOf(t, entry{name: "etc/passwd", content: "app:x:7:7::/srv/app:/bin/sh\n"}, entry{name: "bin/sh", content: "#!"}, entry{name: "gone", content: "x"}, entry{name: "srv -> /bin"})
	upper := tarOf(t, entry{name: ".wh.gone"}, entry{name: "new", content: "new"})
	l := ociLayout(t, gzipped, lower, upper)
	add(t, s, "image", l.tar(t))
	of, err := s.Resolve("image", []string{"sh"})
	if err != nil {
		t.Fatal(err)
	}
	archive := func() []byte {
		t.Helper()
		var out bytes.Buffer
		if err := EngineArchive(t.Context(), &out, of, "localhost/x:1", map[string]string{"whose": "ours"}); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	first := archive()
	if !bytes.Equal(first, archive()) {
		t.Error("the second time it is another")
	}
	for _, says := range []string{`"RepoTags":["localhost/x:1"]`, `"Labels":{"whose":"ours"}`} {
		if !bytes.Contains(first, []byte(says)) {
			t.Errorf("it does not say %s", says)
		}
	}
	if _, err := s.Import(t.Context(), bytes.NewReader(first), Import{Name: "copy"}); err != nil { // which checks every digest
		t.Fatal(err)
	}
	u, err := s.Use("copy")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	root, done, err := u.Files()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	for name, want := range map[string]string{"/new": "new", "/bin/sh": "#!", "/gone": "", "/etc/hostname": "sandbox\n"} {
		if got, _ := image.ReadFile(root, name, 1000); string(got) != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if users, _ := image.ReadFile(root, "/etc/passwd", 1000); !strings.HasPrefix(string(users), "app:x:7:7:") {
		t.Errorf("its users are %q", users)
	}
	for _, dir := range []string{"srv", "srv/app", "tmp", "var/tmp", "run"} {
		if info, err := root.Lstat(dir); err != nil || !info.IsDir() {
			t.Errorf("%s is no directory: %v", dir, err)
		}
	}
}
