//go:build linux

package templates

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/engine"
	"pinfold/internal/engine/runs"
	"pinfold/internal/packages"
	"pinfold/internal/store/memstore"
	"pinfold/internal/template"
	"pinfold/internal/template/build"
	"pinfold/internal/wiring"
	"pinfold/sandbox"
	"pinfold/test/ledger"
	"pinfold/test/packageindex"
	"pinfold/test/smallimage"
)

const withIndexes = `
name: indexed
base: tools
packages: {python: ["greet==1.0"], npm: ["left@1.0.0"]}
run:
  - python3 -c 'import greet; print(greet.hello())' > /usr/local/said
  - node -e 'console.log(require("left"))' >> /usr/local/said
  - "! touch /usr/lib/pinfold/x"
  - |
    python3 -c '
    import sys, urllib.request
    try: urllib.request.urlopen("http://index.test:PORT/simple/greet/", timeout=5)
    except OSError: sys.exit(0)
    sys.exit("the index is reached")'
`

// The real pip and npm fetch what a declaration names, and what that needs, of the operator's
// indexes; the build's commands and the template's programs find it, also beside packages of
// a run's own, and reach no index. A second build takes the image and fetches nothing.
func TestBuildWithIndexes(t *testing.T) {
	ledger.Check(t)
	index := packageindex.New(t)
	port := index.URL[strings.LastIndexByte(index.URL, ':')+1:]
	at := []string{"index.test:" + port + "=127.0.0.1"}
	state := t.TempDir()
	images := filepath.Join(state, "templates")
	e, err := wiring.NewEngine(engine.Options{
		Store: memstore.New(memstore.Options{}),
		Packages: packages.New(packages.Options{Dir: filepath.Join(state, packages.DirName), Indexes: map[string]packages.Index{
			sandbox.PackagesPython: {URL: "http://index.test:" + port + "/simple/", Endpoints: at},
			sandbox.PackagesNPM:    {URL: "http://index.test:" + port + "/npm/", Endpoints: at},
		}}),
	}, wiring.Parts{Images: images, Agent: filepath.Join(agenttest.Install(t, agenttest.Agent), "pinfold-agent")})
	if err == nil {
		err = e.Open(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Drain(context.Background())
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	smallimage.Tools(t, images, "tools")
	store, err := template.Open(images, template.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	made := func() build.Result {
		t.Helper()
		d, err := build.Parse([]byte(strings.ReplaceAll(withIndexes, "PORT", port)))
		if err != nil {
			t.Fatal(err)
		}
		r, err := build.Build(t.Context(), store, build.In(e.Manager, e.Runner, "@build"), d, build.Options{})
		if err != nil {
			t.Fatalf("%v\n%s", err, sandbox.AsError(err).Hint)
		}
		return r
	}
	first := made()
	if p := first.From.Packages; len(p.Python) != 2 || len(p.NPM) != 2 || !strings.HasPrefix(p.Python[0], "greet==1.0 --hash=sha256:") || !strings.HasPrefix(p.NPM[1], "right@2.0.0 sha512-") {
		t.Errorf("it is said to have %+v", p)
	}
	if n := index.Files.Load(); first.Cached || n != 4 {
		t.Errorf("%+v, and %d files were fetched", first, n)
	}
	if again := made(); !again.Cached || again.Image.ID != first.Image.ID || index.Files.Load() != 4 || !slices.Equal(again.From.Packages.NPM, first.From.Packages.NPM) {
		t.Errorf("%+v, and then %+v", first, again)
	}
	for _, c := range []struct {
		language, code, want string
		packages             sandbox.Packages
	}{
		{"python", "import greet; print(greet.hello()); print(open('/usr/local/said').read(), end='')", "hello from words\nhello from words\nhello from left\n", sandbox.Packages{}},
		{"javascript", "console.log(require('left'))", "hello from left\n", sandbox.Packages{}},
		{"python", "import greet, os; print(greet.__file__.startswith('/usr/lib/pinfold/'), os.path.isdir('/opt/pinfold/python/words'))", "True True\n", sandbox.Packages{Python: []string{"words==2.0"}}},
		{"javascript", "console.log(require('left'), require.resolve('right'))", "hello from left /node_modules/right/index.js\n", sandbox.Packages{NPM: []string{"right@2.0.0"}}},
	} {
		r, err := e.Run(t.Context(), runs.Request{Tenant: "a", Spec: sandbox.Spec{
			Template: "indexed", Language: c.language, Code: c.code, Packages: c.packages, Limits: sandbox.Limits{WallTimeMS: 60_000},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Stdout != c.want {
			t.Errorf("%s with %+v: %q %q", c.language, c.packages, r.Stdout, r.Stderr)
		}
	}
}
