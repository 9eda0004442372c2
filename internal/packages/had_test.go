package packages

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pinfold/sandbox"
)

// What a sandbox before had is what a set has: the one that is here, or else one that is
// installed by the very versions and digests; and nothing else.
func TestSetsAreWhatASandboxHad(t *testing.T) {
	s := newStore(t)
	in := inside(t, host())
	u, err := want(t, s, "a", rich).Fetch(t.Context(), honest(t, sandbox.PackagesPython, "rich", "13.9.0"))
	if err != nil {
		t.Fatal(err)
	}
	in.Had = u.Packages
	u.Release()
	again := func(run Run) (*Use, error) {
		w, err := s.Want("a", rich, in)
		if err != nil {
			t.Fatal(err)
		}
		return w.Fetch(t.Context(), run)
	}
	never := func(context.Context, sandbox.Spec, func(sandbox.Artifact, io.Reader) error) (*sandbox.Result, error) {
		t.Error("it is fetched again")
		return &sandbox.Result{}, nil
	}
	if u, err = again(never); err != nil || !slices.Equal(u.Packages.Python, in.Had.Python) {
		t.Fatalf("%+v, %v", u, err)
	}
	u.Release()
	if err := os.RemoveAll(filepath.Join(s.o.Dir, owner("a"))); err != nil {
		t.Fatal(err)
	}
	// Meanwhile the same words stand for something else.
	lock, _ := installed(sandbox.PackagesPython, "rich", "13.9.0")
	lock = strings.Replace(lock, `{"install":[`, `{"install":[{"metadata":{"name":"dep","version":"2.0"},"download_info":{"archive_info":{"hash":"sha256=`+strings.Repeat("0b", 32)+`"}}},`, 1)
	newer := leaves(lock, tarOf(t, file("dep.py", "x")))
	if u, err = want(t, s, "a", rich).Fetch(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	u.Release()
	if u, err = again(newer); err == nil || sandbox.AsError(err).Code != sandbox.CodePackagesFailed || sandbox.AsError(err).Field != "packages.python" {
		t.Fatalf("other packages: %+v, %v", u, err)
	}
	asked := ""
	u, err = again(func(ctx context.Context, spec sandbox.Spec, artifact func(sandbox.Artifact, io.Reader) error) (*sandbox.Result, error) {
		asked = spec.Files[0].Content
		return honest(t, sandbox.PackagesPython, "rich", "13.9.0")(ctx, spec, artifact)
	})
	if err != nil || !slices.Equal(u.Packages.Python, in.Had.Python) || asked != in.Had.Python[0]+"\n" {
		t.Fatalf("%q: %+v, %v", asked, u, err)
	}
	u.Release()
}

// npm can have a package in two versions; which is where, it says by itself, and is held
// to what was had.
func TestNPMPackageTwice(t *testing.T) {
	s := newStore(t)
	in := inside(t, host())
	digest := " " + digestOf[sandbox.PackagesNPM]
	for twice, had := range map[bool][]string{true: {"a@1.0.0" + digest, "b@1.0.0" + digest, "b@2.0.0" + digest}, false: {"a@1.0.0" + digest, "b@1.0.0" + digest}} {
		in.Had = sandbox.Packages{NPM: had}
		w, err := s.Want("a", sandbox.Packages{NPM: []string{"a@1.0.0"}}, in)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := w.installer(w.all[0])
		names := map[bool][]string{true: {"a@1.0.0"}, false: {"a@1.0.0", "b@1.0.0"}}[twice]
		if err != nil || !slices.Equal(spec.Args[1:], names) || !slices.Equal(w.all[0].Asked, had) {
			t.Errorf("%v: %v, %v, %v", had, spec.Args, w.all[0].Asked, err)
		}
	}
}
