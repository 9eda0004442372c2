package packages

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pinfold/sandbox"
)

// oneSet is what bundles here hold.
var oneSet = sandbox.Packages{Python: []string{"rich==13.9.4"}}

// nobody is a Run that must not be used.
func nobody(t *testing.T) Run {
	return func(context.Context, sandbox.Spec, func(sandbox.Artifact, io.Reader) error) (*sandbox.Result, error) {
		t.Error("something is fetched")
		return nil, os.ErrInvalid
	}
}

// bundleOf is a bundle of rich.
func bundleOf(t *testing.T, content string) []byte {
	t.Helper()
	lock, _ := installed(sandbox.PackagesPython, "rich", "13.9.4")
	var b bytes.Buffer
	all, err := want(t, newStore(t), "a", oneSet).Bundle(t.Context(), leaves(lock, tarOf(t, file("rich/__init__.py", content))), &b)
	if err != nil || len(all) != 1 || all[0].Kind != sandbox.PackagesPython {
		t.Fatalf("%+v, %v", all, err)
	}
	return b.Bytes()
}

// What was loaded is found by every tenant on a machine without an index, whole or a part of
// it, is shown as what was fetched, and goes when it is removed and nobody has it.
func TestBundleIsLoaded(t *testing.T) {
	s := New(Options{Dir: filepath.Join(t.TempDir(), "packages")})
	bundle := bundleOf(t, "x = 1")
	if again := bundleOf(t, "x = 1"); !bytes.Equal(again, bundle) {
		t.Error("it is another each time")
	}
	loaded, err := s.Load(t.Context(), bytes.NewReader(bundle))
	if err != nil || len(loaded) != 1 || loaded[0].Asked[0] != "rich==13.9.4" || !strings.HasPrefix(loaded[0].Packages[0], "rich==13.9.4 --hash=sha256:") {
		t.Fatalf("%+v, %v", loaded, err)
	}
	var held []*Use
	for tenant, p := range map[string]sandbox.Packages{"a": oneSet, "b": {Python: []string{"rich==13.9.4 --hash=sha256:" + digestOf[sandbox.PackagesPython]}}} {
		sets := want(t, s, tenant, p)
		u, err := sets.Fetch(t.Context(), nobody(t))
		if err != nil || len(u.Packages.Python) != 1 {
			t.Fatalf("%+v, %v", u, err)
		}
		if content, err := os.ReadFile(filepath.Join(sets.Mounts()[0].Host, "rich/__init__.py")); string(content) != "x = 1" {
			t.Errorf("%q, %v", content, err)
		}
		held = append(held, u)
	}
	for what, p := range map[string]sandbox.Packages{
		"another version": {Python: []string{"rich==13.9"}},
		"another digest":  {Python: []string{"rich==13.9.4 --hash=sha256:" + strings.Repeat("0b", 32)}},
		"more":            {Python: []string{"rich==13.9.4", "six==1"}},
		"extras":          {Python: []string{"rich[jupyter]==13.9.4"}},
	} {
		if _, err := s.Want("a", p, inside(t, host())); sandbox.AsError(err).Code != sandbox.CodePackagesFailed {
			t.Errorf("%s: %v", what, err)
		}
	}
	newer := host()
	newer["usr/bin/python3.13"], newer["usr/bin/python3"].Data = newer["usr/bin/python3.11"], []byte("python3.13")
	if _, err := s.Want("a", oneSet, inside(t, newer)); err == nil || !strings.Contains(err.Error(), "python3.11") || !strings.Contains(err.Error(), "python3.13") {
		t.Errorf("another interpreter: %v", err)
	}
	if err := s.Unload(loaded[0].ID); sandbox.AsError(err).Code != sandbox.CodeConflict {
		t.Errorf("in use: %v", err)
	}
	for _, u := range held {
		u.Release()
	}
	if err := s.Unload(loaded[0].ID); err != nil || len(s.Loaded()) != 0 {
		t.Errorf("%v", err)
	}
	if err := s.Unload(loaded[0].ID); sandbox.AsError(err).Code != sandbox.CodeNotFound {
		t.Errorf("%v", err)
	}
}

// A bundle with the same names and other files takes the place of the first, unless somebody
// has that.
func TestBundleIsLoadedAgain(t *testing.T) {
	s := New(Options{Dir: filepath.Join(t.TempDir(), "packages")})
	load := func(content string) (string, error) {
		all, err := s.Load(t.Context(), bytes.NewReader(bundleOf(t, content)))
		if err != nil {
			return "", err
		}
		return all[0].SHA256, nil
	}
	first, err := load("x = 1")
	if err != nil {
		t.Fatal(err)
	}
	u, err := want(t, s, "a", oneSet).Fetch(t.Context(), nobody(t))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := load("x = 1"); err != nil || again != first {
		t.Errorf("%s, %v", again, err)
	}
	if _, err := load("x = 2"); sandbox.AsError(err).Code != sandbox.CodeConflict {
		t.Errorf("in use: %v", err)
	}
	u.Release()
	if again, err := load("x = 2"); err != nil || again == first || s.Loaded()[0].SHA256 != again {
		t.Errorf("%s, %v", again, err)
	}
}

// What tenants fetch takes nothing of what was loaded, and that counts for no tenant.
func TestLoadedStays(t *testing.T) {
	s := newStore(t)
	s.o.Bytes = 16 << 10 // a small set of a tenant's, and half
	if _, err := s.Load(t.Context(), bytes.NewReader(bundleOf(t, strings.Repeat("x", 1<<20)))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		u, err := want(t, s, "t", sandbox.Packages{NPM: []string{name + "@1.0.0"}}).Fetch(t.Context(), leaves(first(installed(sandbox.PackagesNPM, name, "1.0.0")), tarOf(t)))
		if err != nil {
			t.Fatal(err)
		}
		u.Release()
	}
	if len(s.Loaded()) != 1 {
		t.Error("it was removed")
	}
}

func first(lock string, _ map[string]string) string { return lock }

// A bundle that is none, lies, breaks off or would leave its place is refused, and nothing of
// it is kept.
func TestHostileBundles(t *testing.T) {
	bundle := bundleOf(t, "x = 1")
	entries := func() (head bundleHead, tree []byte) {
		r := tar.NewReader(bytes.NewReader(bundle))
		_, _ = r.Next()
		if err := json.NewDecoder(r).Decode(&head); err != nil {
			t.Fatal(err)
		}
		_, _ = r.Next()
		tree, _ = io.ReadAll(r)
		return head, tree
	}
	made := func(change func(h *bundleHead, tree *[]byte)) []byte {
		head, tree := entries()
		change(&head, &tree)
		text, _ := json.Marshal(head)
		return tarOf(t, file(bundleName, string(text)), file("0.tar", string(tree)))
	}
	if got := made(func(*bundleHead, *[]byte) {}); len(got) == 0 {
		t.Fatal()
	} else if _, err := New(Options{Dir: t.TempDir()}).Load(t.Context(), bytes.NewReader(got)); err != nil {
		t.Fatalf("one that nobody changed: %v", err)
	}
	for what, b := range map[string][]byte{
		"nothing":        nil,
		"text":           []byte("hello"),
		"breaks off":     bundle[:len(bundle)/2],
		"no head":        tarOf(t, file("x", "{}")),
		"another":        made(func(h *bundleHead, _ *[]byte) { h.V = 2 }),
		"no sets":        made(func(h *bundleHead, _ *[]byte) { h.Sets = nil }),
		"twice":          made(func(h *bundleHead, _ *[]byte) { h.Sets = append(h.Sets, h.Sets[0]) }),
		"kind":           made(func(h *bundleHead, _ *[]byte) { h.Sets[0].Kind = "../x" }),
		"an option":      made(func(h *bundleHead, _ *[]byte) { h.Sets[0].Asked = []string{"--index-url=http://evil"} }),
		"a path":         made(func(h *bundleHead, _ *[]byte) { h.Sets[0].Lock = []string{"../../etc==1"} }),
		"other platform": made(func(h *bundleHead, _ *[]byte) { h.Sets[0].Platform = "a\x1b[0m" }),
		"other files": made(func(_ *bundleHead, tree *[]byte) {
			*tree = tarOf(t, file("rich/__init__.py", "x = 2"))
		}),
		"a link": made(func(_ *bundleHead, tree *[]byte) {
			*tree = tarOf(t, &tar.Header{Name: "rich", Typeflag: tar.TypeSymlink, Linkname: "/etc"})
		}),
		"leaves": made(func(_ *bundleHead, tree *[]byte) { *tree = tarOf(t, file("../../out", "x")) }),
	} {
		dir := t.TempDir()
		s := New(Options{Dir: filepath.Join(dir, "packages")})
		if all, err := s.Load(t.Context(), bytes.NewReader(b)); sandbox.AsError(err).Code != sandbox.CodePackagesFailed || sandbox.AsError(err).Hint == "" || len(all) > 0 {
			t.Errorf("%s: %+v, %v", what, all, err)
		}
		var left []string
		_ = filepath.WalkDir(dir, func(p string, d os.DirEntry, _ error) error {
			if !d.IsDir() {
				left = append(left, p)
			}
			return nil
		})
		if len(left) > 0 || len(s.Loaded()) > 0 {
			t.Errorf("%s leaves %v", what, slices.Concat(left))
		}
	}
}
