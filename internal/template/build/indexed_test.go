package build

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pinfold/internal/image"
	"pinfold/internal/packages"
	"pinfold/internal/template"
	"pinfold/sandbox"
)

// indexed has packages as an engine has them, of an index of which the digests change, and
// no sandboxes.
type indexed struct {
	t       *testing.T
	images  *template.Store
	kept    *packages.Store
	dir     string // of what is kept
	digest  byte   // of what the index has
	fetched int
	failure error // of the index
}

func newIndexed(t *testing.T, indexes ...string) *indexed {
	t.Helper()
	dir := t.TempDir()
	images, err := template.Open(filepath.Join(dir, "templates"), template.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	o := packages.Options{Dir: filepath.Join(dir, packages.DirName), Indexes: map[string]packages.Index{}}
	for _, kind := range indexes {
		o.Indexes[kind] = packages.Index{URL: "https://" + kind + ".test/"}
	}
	base := tarOfFiles(t, map[string]string{"usr/bin/python3": "#!", "usr/bin/node": "#!", "usr/lib/x": "x"})
	if _, err := images.Import(t.Context(), bytes.NewReader(base), template.Import{Name: "tools"}); err != nil {
		t.Fatal(err)
	}
	return &indexed{t: t, images: images, kept: packages.New(o), dir: o.Dir}
}

func tarOfFiles(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content))})
		if err == nil {
			_, err = io.WriteString(w, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Create implements Sandboxes.
func (x *indexed) Create(context.Context, sandbox.Create) (Sandbox, error) {
	return nil, errors.New("a sandbox is made")
}

// Packages implements Sandboxes.
func (x *indexed) Packages(ctx context.Context, p sandbox.Packages, lent, is string) (*packages.Use, error) {
	if _, err := x.images.Get(lent); err != nil || lent == is {
		x.t.Errorf("no sandbox can be made of %s: %v", lent, err)
	}
	sets, err := x.kept.Want("a", p, packages.Inside{
		Template: image.Template{ID: lent, Layers: image.Layers{Dirs: []string{"1"}}}, Image: is, Driver: stepDriver,
		Lookup: func([]string) (string, bool) { return "usr/bin/x", true },
	})
	if err != nil {
		return nil, err
	}
	return sets.Fetch(ctx, x.install)
}

// install leaves what an installer does for rich 13.9.4 and left-pad 1.3.0.
func (x *indexed) install(_ context.Context, spec sandbox.Spec, artifact func(sandbox.Artifact, io.Reader) error) (*sandbox.Result, error) {
	x.fetched++
	if x.failure != nil {
		return nil, x.failure
	}
	lock, files := fmt.Sprintf(`{"install":[{"metadata":{"name":"rich","version":"13.9.4"},"download_info":{"archive_info":{"hash":"sha256=%s"}}}]}`, x.hex()), map[string]string{"rich/__init__.py": "x = 1"}
	if strings.Contains(spec.Code, "npm") {
		lock, files = fmt.Sprintf(`{"packages":{"node_modules/left-pad":{"version":"1.3.0","integrity":"%s"}}}`, x.integrity()), map[string]string{"left-pad/index.js": "module.exports = 1"}
	}
	return &sandbox.Result{Status: sandbox.StatusSucceeded}, errors.Join(
		artifact(sandbox.Artifact{Path: "lock.json"}, strings.NewReader(lock)),
		artifact(sandbox.Artifact{Path: "set.tar"}, bytes.NewReader(tarOfFiles(x.t, files))))
}

func (x *indexed) hex() string { return fmt.Sprintf("%064x", x.digest) }

func (x *indexed) integrity() string {
	return "sha512-" + base64.StdEncoding.EncodeToString(append(make([]byte, 63), x.digest))
}

func (x *indexed) build(declaration string) (Result, error) {
	x.t.Helper()
	d, err := Parse([]byte(declaration))
	if err != nil {
		x.t.Fatal(err)
	}
	return Build(x.t.Context(), x.images, x, d, Options{})
}

func (x *indexed) must(declaration string) Result {
	x.t.Helper()
	r, err := x.build(declaration)
	if err != nil {
		x.t.Fatal(err)
	}
	return r
}

// places are the directories in a variable of the image, and the files that are there.
func (x *indexed) places(r Result, name string) (dirs []string) {
	x.t.Helper()
	for _, kv := range r.Image.Config.Env {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			dirs = append(dirs, strings.Split(value, ":")...)
		}
	}
	return dirs
}

func (x *indexed) content(r Result, name string) string {
	x.t.Helper()
	u, err := x.images.Use(r.Name)
	if err != nil {
		x.t.Fatal(err)
	}
	defer u.Close()
	files, done, err := u.Files()
	if err != nil {
		x.t.Fatal(err)
	}
	defer done()
	text, _ := fs.ReadFile(files, strings.TrimPrefix(name, "/"))
	return string(text)
}

const bothIndexed = `
name: both
base: tools
packages: {python: ["rich==13.9.4"], npm: ["left-pad@1.3.0"]}
env: {PYTHONPATH: /opt/mine}
`

// What a declaration names of indexes is a layer that the image's variables name, without a
// sandbox of the build, and stands in the description with versions and digests. A second
// build takes the image while these are the same, also where they were fetched again.
func TestIndexedPackages(t *testing.T) {
	x := newIndexed(t, sandbox.PackagesPython, sandbox.PackagesNPM)
	first := x.must(bothIndexed)
	python, npm := x.places(first, "PYTHONPATH"), x.places(first, "NODE_PATH")
	if len(python) != 2 || python[0] != "/opt/mine" || len(npm) != 1 {
		t.Fatalf("the image has %q", first.Image.Config.Env)
	}
	if x.content(first, python[1]+"/rich/__init__.py") != "x = 1" || x.content(first, npm[0]+"/left-pad/index.js") != "module.exports = 1" {
		t.Errorf("there is nothing in %q and %q", python, npm)
	}
	for _, p := range (&Declaration{}).Places() {
		if within(python[1], p) || within(npm[0], p) {
			t.Errorf("commands of a build can write to %q", p)
		}
	}
	want := sandbox.Packages{Python: []string{"rich==13.9.4 --hash=sha256:" + x.hex()}, NPM: []string{"left-pad@1.3.0 " + x.integrity()}}
	kept, err := x.images.Get("both")
	if err != nil || !same(kept.From.Packages, want) || !same(first.Built().Packages, want) {
		t.Errorf("it is said to have %+v and %+v, %v", kept.From.Packages, first.Built().Packages, err)
	}
	if again := x.must(bothIndexed); !again.Cached || again.Image.ID != first.Image.ID || x.fetched != 2 || !same(again.From.Packages, want) {
		t.Errorf("%+v after %d fetched", again, x.fetched)
	}
	if err := os.RemoveAll(x.dir); err != nil {
		t.Fatal(err)
	}
	if again := x.must(bothIndexed); !again.Cached || again.Image.ID != first.Image.ID || x.fetched != 4 {
		t.Errorf("fetched again: %+v after %d fetched", again, x.fetched)
	}
	if err := os.RemoveAll(x.dir); err != nil {
		t.Fatal(err)
	}
	x.digest++
	if other := x.must(bothIndexed); other.Cached || same(other.From.Packages, want) {
		t.Errorf("the digests are others: %+v", other)
	}
}

func same(a, b sandbox.Packages) bool {
	return slices.Equal(a.Python, b.Python) && slices.Equal(a.NPM, b.NPM)
}

// A template whose base was built with packages of indexes has both, each in a directory of
// its own, its own first, and says so.
func TestIndexedPackagesOfABase(t *testing.T) {
	x := newIndexed(t, sandbox.PackagesPython, sandbox.PackagesNPM)
	low := x.must(`{"name": "low", "base": "tools", "packages": {"npm": ["left-pad@1.3.0"]}, "env": {"PYTHONPATH": "/opt/low"}}`)
	high := x.must(`{"name": "high", "base": "low", "packages": {"python": ["rich==13.9.4"]}}`)
	python, npm := x.places(high, "PYTHONPATH"), x.places(high, "NODE_PATH")
	if len(python) != 2 || python[1] != "/opt/low" || !slices.Equal(npm, x.places(low, "NODE_PATH")) || len(npm) != 1 {
		t.Errorf("the image has %q", high.Image.Config.Env)
	}
	if len(high.From.Packages.Python) != 1 || !slices.Equal(high.From.Packages.NPM, low.From.Packages.NPM) || len(low.From.Packages.NPM) != 1 {
		t.Errorf("%+v on %+v", high.From.Packages, low.From.Packages)
	}
	if plain := x.must(`{"name": "plain", "base": "high", "env": {"A": "b"}}`); !same(plain.From.Packages, high.From.Packages) {
		t.Errorf("%+v", plain.From.Packages)
	}
}

// Without an index, and where it fails, nothing is kept, and the error is a run's.
func TestIndexedPackagesWithoutAnIndex(t *testing.T) {
	x := newIndexed(t, sandbox.PackagesNPM)
	_, err := x.build(bothIndexed)
	if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodePackagesFailed || e.Field != "packages.python" || !strings.Contains(e.Hint, "packages.indexes.python") {
		t.Errorf("%v", err)
	}
	x.failure = &sandbox.Error{Code: sandbox.CodePackagesFailed, Message: "404"}
	_, err = x.build(`{"name": "both", "base": "tools", "packages": {"npm": ["left-pad@1.3.0"]}}`)
	if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodePackagesFailed || e.Field != "packages.npm" || x.fetched != 1 {
		t.Errorf("%v", err)
	}
	if _, err := x.images.Get("both"); sandbox.AsError(err).Code != sandbox.CodeTemplateUnknown {
		t.Errorf("it is kept: %v", err)
	}
}

// The form of an entry says whether it is a file or a package of an index.
func TestParsePackages(t *testing.T) {
	d, err := Parse([]byte(`{"name": "x", "base": "y", "packages": {
		"python": ["a/x-1.0-py3-none-any.whl", "rich==13.9.4", "Words[a]==2.0 --hash=sha256:` + strings.Repeat("0a", 32) + `"],
		"npm": ["left-pad@1.3.0.tgz", "left-pad@1.3.0", "@types/node@22.9.0"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if named := d.Packages.named(); len(named.Python) != 2 || !slices.Equal(named.NPM, []string{"left-pad@1.3.0", "@types/node@22.9.0"}) {
		t.Errorf("%+v", named)
	}
	for entry, field := range map[string]string{
		`"python": ["rich"]`:                                      "packages.python[0]",
		`"python": ["rich>=13"]`:                                  "packages.python[0]",
		`"python": ["rich==13", "x.tar.gz"]`:                      "packages.python[1]",
		`"python": ["https://x.test/rich-1.whl"]`:                 "packages.python[0]",
		`"python": ["rich==1.whl"]`:                               "packages.python[0]",
		`"python": ["--index-url=https://x.test"]`:                "packages.python[0]",
		`"python": ["rich==13", "Rich==14"]`:                      "packages.python[1]",
		`"python": ["rich==13 --hash=sha256:0a"]`:                 "packages.python[0]",
		`"npm": ["left-pad"]`:                                     "packages.npm[0]",
		`"npm": ["left-pad@latest"]`:                              "packages.npm[0]",
		`"npm": ["left-pad@1.3.0", "left-pad@1.3.1"]`:             "packages.npm[1]",
		`"npm": ["github:x/left-pad"]`:                            "packages.npm[0]",
		`"debian": ["hello==1.0"]`:                                "packages.debian[0]",
		`"npm": [` + strings.Repeat(`"x.tgz",`, 500) + `"y.tgz"]`: "packages.npm",
	} {
		_, err := Parse([]byte(`{"name": "x", "base": "y", "packages": {` + entry + `}}`))
		if e := sandbox.AsError(err); e == nil || e.Field != field || e.Code != sandbox.CodeSpecInvalid {
			t.Errorf("%.60s: %v", entry, err)
		} else if e.Hint == "" && field != "packages.npm" {
			t.Errorf("%s: no hint", entry)
		}
	}
	many := make([]string, sandbox.MaxPackages+1)
	for i := range many {
		many[i] = fmt.Sprintf(`"p%d==1"`, i)
	}
	_, err = Parse([]byte(`{"name": "x", "base": "y", "packages": {"python": [` + strings.Join(many, ",") + `]}}`))
	if e := sandbox.AsError(err); e == nil || e.Field != "packages.python[200]" {
		t.Errorf("%v", err)
	}
}
