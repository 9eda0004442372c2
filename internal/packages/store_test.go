package packages

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"pinfold/internal/image"
	"pinfold/sandbox"
)

// host has interpreters, one of them by another name.
func host() fstest.MapFS {
	program := &fstest.MapFile{Data: []byte("\x7fELF"), Mode: 0o755}
	return fstest.MapFS{"usr/bin/python3.11": program, "usr/bin/python3": {Data: []byte("python3.11"), Mode: os.ModeSymlink | 0o777}, "usr/bin/node": program}
}

func inside(t *testing.T, files fstest.MapFS) Inside {
	t.Helper()
	template, err := image.Host(files)
	if err != nil {
		t.Fatal(err)
	}
	return Inside{Template: template, Host: files, Lookup: func(c []string) (string, bool) { return template.Lookup(files, c) }}
}

func newStore(t *testing.T) *Store {
	t.Helper()
	return New(Options{Dir: filepath.Join(t.TempDir(), "packages"), Indexes: map[string]Index{
		sandbox.PackagesPython: {URL: "https://pypi.org/simple/", Endpoints: []string{"files.pythonhosted.org"}},
		sandbox.PackagesNPM:    {URL: "http://npm.test:4873/", Endpoints: []string{"npm.test:4873=127.0.0.1"}},
	}})
}

var digestOf = map[string]string{
	sandbox.PackagesPython: strings.Repeat("0a", 32), sandbox.PackagesNPM: "sha512-" + base64.StdEncoding.EncodeToString(make([]byte, 64)),
}

// installed is what an installer leaves that has done what it was asked for.
func installed(kind, name, version string) (lock string, files map[string]string) {
	if kind == sandbox.PackagesNPM {
		return fmt.Sprintf(`{"packages":{"node_modules/%s":{"version":"%s","integrity":"%s"}}}`, name, version, digestOf[kind]), map[string]string{name + "/index.js": "module.exports = 1"}
	}
	return fmt.Sprintf(`{"install":[{"metadata":{"name":"%s","version":"%s"},"download_info":{"archive_info":{"hash":"sha256=%s"}}}]}`, name, version, digestOf[kind]), map[string]string{name + "/__init__.py": "x = 1"}
}

func tarOf(t *testing.T, headers ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := h.Linkname
		if h.Typeflag == tar.TypeReg {
			h.Size, h.Linkname = int64(len(content)), ""
		}
		h.Mode = 0o600
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			_, _ = io.WriteString(w, content)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// file is an entry; its content waits in Linkname.
func file(name, content string) *tar.Header {
	return &tar.Header{Name: name, Typeflag: tar.TypeReg, Linkname: content}
}

// leaves is a Run whose installer leaves an archive and a lock.
func leaves(lock string, archive []byte) Run {
	return func(_ context.Context, _ sandbox.Spec, artifact func(sandbox.Artifact, io.Reader) error) (*sandbox.Result, error) {
		err := errors.Join(
			artifact(sandbox.Artifact{Path: lockFile}, strings.NewReader(lock)),
			artifact(sandbox.Artifact{Path: treeFile}, bytes.NewReader(archive)))
		r := &sandbox.Result{Status: sandbox.StatusSucceeded}
		if err != nil {
			r.ArtifactsSkipped = []sandbox.SkippedArtifact{{Path: treeFile, Reason: err.Error()}}
		}
		return r, nil
	}
}

func honest(t *testing.T, kind, name, version string) Run {
	t.Helper()
	lock, files := installed(kind, name, version)
	var all []*tar.Header
	for n, content := range files {
		all = append(all, file("./"+n, content))
	}
	return leaves(lock, tarOf(t, all...))
}

func want(t *testing.T, s *Store, tenant string, p sandbox.Packages) *Sets {
	t.Helper()
	w, err := s.Want(tenant, p, inside(t, host()))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

var rich = sandbox.Packages{Python: []string{"rich==13.9"}}

func TestFetchedOnceAndShown(t *testing.T) {
	s := newStore(t)
	w := want(t, s, "a", rich)
	u, err := w.Fetch(t.Context(), honest(t, sandbox.PackagesPython, "rich", "13.9.0"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(u.Packages.Python, []string{"rich==13.9.0 --hash=sha256:" + digestOf[sandbox.PackagesPython]}) || u.Packages.NPM != nil {
		t.Errorf("%+v", u.Packages)
	}
	mounts := w.Mounts()
	if len(mounts) != 1 || mounts[0].Writable || mounts[0].Guest != sandbox.PythonPackagesDir {
		t.Fatalf("%+v", mounts)
	}
	if content, err := os.ReadFile(filepath.Join(mounts[0].Host, "rich/__init__.py")); err != nil || string(content) != "x = 1" {
		t.Errorf("%q, %v", content, err)
	}
	if info, err := os.Stat(filepath.Join(mounts[0].Host, "rich")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("a guest has to read it: %v, %v", info, err)
	}
	if info, err := os.Stat(s.o.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("others on the host read it: %v, %v", info, err)
	}
	if env := w.Env(map[string]string{"PYTHONPATH": "lib"}); env["PYTHONPATH"] != "lib:"+sandbox.PythonPackagesDir {
		t.Errorf("%q", env)
	}
	never := func(context.Context, sandbox.Spec, func(sandbox.Artifact, io.Reader) error) (*sandbox.Result, error) {
		t.Error("it is fetched again")
		return nil, errors.New("no")
	}
	again, err := want(t, s, "a", rich).Fetch(t.Context(), never)
	if err != nil || !slices.Equal(again.Packages.Python, u.Packages.Python) {
		t.Errorf("%+v, %v", again, err)
	}
	again.Release()
	u.Release()
}

// What decides what is installed decides under which key it is kept.
func TestSetsOfOthersAreOthers(t *testing.T) {
	s := newStore(t)
	first := want(t, s, "a", rich).Mounts()[0].Host
	newer := host()
	newer["usr/bin/python3.12"] = newer["usr/bin/python3.11"]
	newer["usr/bin/python3"] = &fstest.MapFile{Data: []byte("python3.12"), Mode: os.ModeSymlink | 0o777}
	other, err := s.Want("a", rich, inside(t, newer))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := newStore(t)
	elsewhere.o.Dir = s.o.Dir
	elsewhere.o.Indexes[sandbox.PackagesPython] = Index{URL: "https://index.example/simple/"}
	for what, at := range map[string]string{
		"another tenant's": want(t, s, "b", rich).Mounts()[0].Host, "another version": want(t, s, "a", sandbox.Packages{Python: []string{"rich==13.8"}}).Mounts()[0].Host,
		"another interpreter": other.Mounts()[0].Host, "another index": want(t, elsewhere, "a", rich).Mounts()[0].Host,
		"with a digest": want(t, s, "a", sandbox.Packages{Python: []string{"rich==13.9 --hash=sha256:" + strings.Repeat("00", 32)}}).Mounts()[0].Host,
	} {
		if at == first {
			t.Errorf("%s is the same set", what)
		}
	}
	if same := want(t, s, "a", sandbox.Packages{Python: []string{"Rich==13.9"}}).Mounts()[0].Host; same != first {
		t.Error("the same name, written otherwise, is another set")
	}
}

// An installer's sandbox reaches the index and nothing else, and runs no script.
func TestInstallerReachesItsIndexOnly(t *testing.T) {
	s := newStore(t)
	both := want(t, s, "a", sandbox.Packages{Python: rich.Python, NPM: []string{"left-pad@1.3.0 " + digestOf[sandbox.PackagesNPM]}})
	both.inside.Driver, both.inside.Isolation = "native", "namespace"
	python, err := both.installer(both.all[0])
	if err != nil {
		t.Fatal(err)
	}
	npm, err := both.installer(both.all[1])
	if err != nil {
		t.Fatal(err)
	}
	hosts := func(spec sandbox.Spec) (all []string) {
		for _, e := range spec.Network.Endpoints {
			all = append(all, e.String())
		}
		return all
	}
	if got := hosts(python); !slices.Equal(got, []string{"files.pythonhosted.org:443", "pypi.org:443"}) {
		t.Errorf("%q", got)
	}
	if got := hosts(npm); len(got) != 1 || npm.Network.Endpoints[0].Address != "127.0.0.1" {
		t.Errorf("%q", got)
	}
	if !strings.Contains(python.Code, "--only-binary :all:") || npm.Env["npm_config_ignore_scripts"] != "true" || npm.Env["npm_config_userconfig"] == npm.Env["npm_config_globalconfig"] || !slices.Equal(npm.Args, []string{"http://npm.test:4873/", "left-pad@1.3.0"}) {
		t.Errorf("%+v %+v", python, npm)
	}
	for _, spec := range []sandbox.Spec{python, npm} {
		if err := spec.WithDefaults().Validate(); err != nil || spec.Driver != "native" || spec.Isolation != "namespace" || len(spec.Mounts) > 0 {
			t.Errorf("%+v: %v", spec, err)
		}
	}
}

// brokeOff is a run whose files did not come whole, though what came looked so.
func brokeOff(run Run) Run {
	return func(ctx context.Context, spec sandbox.Spec, artifact func(sandbox.Artifact, io.Reader) error) (*sandbox.Result, error) {
		r, err := run(ctx, spec, artifact)
		r.ArtifactsSkipped = []sandbox.SkippedArtifact{{Reason: "broke off"}}
		return r, err
	}
}

// Nothing of what was not whole, or not what was asked for, is kept.
func TestNothingHalfIsKept(t *testing.T) {
	lock, _ := installed(sandbox.PackagesPython, "rich", "13.9.0")
	good := tarOf(t, file("rich/__init__.py", "x"))
	ended := func(r sandbox.Result) Run {
		return func(_ context.Context, _ sandbox.Spec, artifact func(sandbox.Artifact, io.Reader) error) (*sandbox.Result, error) {
			_ = artifact(sandbox.Artifact{Path: treeFile}, bytes.NewReader(good)) // it has left something
			return &r, nil
		}
	}
	one, none := 1, exitNoInstaller
	for what, c := range map[string]struct {
		run  Run
		says string
	}{
		"a link that leaves":    {leaves(lock, tarOf(t, &tar.Header{Name: "rich", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, file("rich/passwd", "x"))), "rich"},
		"a name that leaves":    {leaves(lock, tarOf(t, file("../../escaped", "x"))), "escaped"},
		"a device":              {leaves(lock, tarOf(t, &tar.Header{Name: "null", Typeflag: tar.TypeChar})), "null"},
		"half an archive":       {leaves(lock, good[:512]), "archive"},
		"files that broke off":  {brokeOff(leaves(lock, good)), "broke off"},
		"a lock of nothing":     {leaves(`{}`, good), "is not rich"},
		"a lock that is none":   {leaves(`[`, good), "cannot be read"},
		"another package":       {leaves(strings.Replace(lock, "rich", "poor", 1), good), "is not rich"},
		"no digest":             {leaves(strings.Replace(lock, digestOf[sandbox.PackagesPython], "", 1), good), "cannot be read"},
		"an option as name":     {leaves(strings.Replace(lock, `"rich"`, `"--index-url"`, 1), good), "cannot be read"},
		"an index that hangs":   {ended(sandbox.Result{Status: sandbox.StatusKilled, Cause: sandbox.Cause{Kind: sandbox.CauseWallTime, Limit: fetchTimeMS}}), "within 5m"},
		"a bomb":                {ended(sandbox.Result{Status: sandbox.StatusKilled, Cause: sandbox.Cause{Kind: sandbox.CauseDisk, Limit: fetchDisk}}), "limits.disk_bytes of 3GiB"},
		"a refusal":             {ended(sandbox.Result{Status: sandbox.StatusFailed, Cause: sandbox.Cause{Kind: sandbox.CauseExited}, ExitCode: &one, Stderr: "no such version"}), "no such version"},
		"no installer":          {ended(sandbox.Result{Status: sandbox.StatusFailed, Cause: sandbox.Cause{Kind: sandbox.CauseExited}, ExitCode: &none}), "no installer"},
		"a host not named here": {ended(sandbox.Result{Status: sandbox.StatusFailed, Cause: sandbox.Cause{Kind: sandbox.CauseExited}, ExitCode: &one, Network: &sandbox.NetworkUse{Denied: []sandbox.Denial{{Host: "files.evil.example", Reason: sandbox.DeniedUndeclared}}}}), "files.evil.example"},
	} {
		s := newStore(t)
		u, err := want(t, s, "a", rich).Fetch(t.Context(), c.run)
		e := sandbox.AsError(err)
		if u != nil || e == nil || e.Code != sandbox.CodePackagesFailed || e.Field != "packages.python" || !strings.Contains(e.Message, c.says) || e.Hint == "" && len(e.Advice) == 0 {
			t.Errorf("%s: %+v, %v", what, e, u)
		}
		if left := s.sets(); len(left) > 0 {
			t.Errorf("%s: %+v is kept", what, left)
		}
		if left, _ := os.ReadDir(filepath.Join(s.o.Dir, stagesName)); len(left) > 0 {
			t.Errorf("%s: %v is left on its way", what, left)
		}
		if outside, _ := filepath.Glob(filepath.Join(filepath.Dir(s.o.Dir), "*escaped*")); len(outside) > 0 {
			t.Errorf("%s: %v", what, outside)
		}
	}
}

// An index whose answer is too large, or has no end, is not said to be missing in its own
// list: the limit is named.
func TestAnswerWithoutAnEnd(t *testing.T) {
	one := 1
	r := &sandbox.Result{Status: sandbox.StatusFailed, Cause: sandbox.Cause{Kind: sandbox.CauseExited}, ExitCode: &one, Stderr: "IncompleteRead", Network: &sandbox.NetworkUse{
		Denied: []sandbox.Denial{{Host: "index.test", Port: 443, Reason: sandbox.DeniedBytesDown}},
	}}
	e := sandbox.AsError(failed(set{record: record{Kind: sandbox.PackagesPython}}, r))
	if e.Code != sandbox.CodePackagesFailed || e.Field != "packages.python" || !strings.Contains(e.Message, "network.limits.bytes_down of 2GiB") ||
		strings.Contains(e.Message, "index.test") || !strings.Contains(e.Hint, "fewer or smaller") || strings.Contains(e.Hint, "endpoints") {
		t.Errorf("%+v", e)
	}
}

// An index that nobody reached was once a matter of names and versions.
func TestIndexThatIsNotReached(t *testing.T) {
	one := 1
	for errs, want := range map[int64][2]string{
		2: {"; index.test was not reached: no such host", "look whether https://index.test/simple/ can be reached from the server's host"},
		1: {"", "look at the names and versions"}, // it was, in the end
		0: {"", "look at the names and versions"},
	} {
		r := &sandbox.Result{Status: sandbox.StatusFailed, Cause: sandbox.Cause{Kind: sandbox.CauseExited}, ExitCode: &one, Network: &sandbox.NetworkUse{
			Endpoints: []sandbox.EndpointUse{{Host: "index.test", Connections: 2, Errors: errs, LastError: "no such host"}},
		}}
		e := sandbox.AsError(failed(set{record: record{Kind: sandbox.PackagesPython, Index: "https://index.test/simple/"}}, r))
		if e.Message != "the packages could not be installed"+want[0] || !strings.Contains(e.Hint, want[1]) {
			t.Errorf("%d errors: %+v", errs, e)
		}
	}
}

// An index that gives other bytes than were asked for is found out by the digest, also
// where it lies consistently.
func TestDigestsThatWereAskedFor(t *testing.T) {
	s := newStore(t)
	lie := sandbox.Packages{NPM: []string{"left-pad@1.3.0 sha512-" + strings.Repeat("A", 85) + "Q=="}}
	_, err := want(t, s, "a", lie).Fetch(t.Context(), honest(t, sandbox.PackagesNPM, "left-pad", "1.3.0"))
	if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodePackagesFailed || !strings.Contains(e.Message, "is not left-pad@1.3.0 sha512-") {
		t.Errorf("%v", err)
	}
	truth := sandbox.Packages{NPM: []string{"left-pad@1.3.0 " + digestOf[sandbox.PackagesNPM]}}
	u, err := want(t, s, "a", truth).Fetch(t.Context(), honest(t, sandbox.PackagesNPM, "left-pad", "1.3.0"))
	if err != nil || !slices.Equal(u.Packages.NPM, truth.NPM) {
		t.Errorf("%+v, %v", u, err)
	}
	u.Release()
	_, err = readLock(sandbox.PackagesNPM, []byte(`{"packages":{"":{},"node_modules/a":{"version":"1.0.0","integrity":"sha1-xx"}}}`), nil)
	if err == nil {
		t.Error("a digest that anybody can forge is taken")
	}
}

// Who asks at once waits for one fetch, and for its error; who fetches and goes away leaves
// it to the next.
func TestAskedForAtOnce(t *testing.T) {
	s := newStore(t)
	var fetches atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	slow := func(ctx context.Context, spec sandbox.Spec, artifact func(sandbox.Artifact, io.Reader) error) (*sandbox.Result, error) {
		if fetches.Add(1) == 1 {
			close(begun)
			select {
			case <-goOn:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return honest(t, sandbox.PackagesPython, "rich", "13.9.0")(ctx, spec, artifact)
	}
	ctx, leave := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { _, err := want(t, s, "a", rich).Fetch(ctx, slow); first <- err }()
	<-begun
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			u, err := want(t, s, "a", rich).Fetch(t.Context(), slow)
			if err != nil {
				t.Error(err)
			}
			u.Release()
		})
	}
	time.Sleep(20 * time.Millisecond)
	leave()
	if err := <-first; err == nil {
		t.Error("who left has packages")
	}
	all.Wait()
	close(goOn)
	if n := fetches.Load(); n != 2 {
		t.Errorf("%d fetches", n)
	}
}

// The cache is bounded, for a tenant, too; what is in use stays.
func TestBounded(t *testing.T) {
	s := newStore(t)
	s.o.Bytes = 100 << 10 // a set takes about 16 KiB
	fetch := func(tenant, version string) (*Use, error) {
		return want(t, s, tenant, sandbox.Packages{NPM: []string{"left-pad@" + version}}).Fetch(t.Context(), honest(t, sandbox.PackagesNPM, "left-pad", version))
	}
	held, err := fetch("a", "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	other, err := fetch("b", "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	other.Release()
	for i := range 9 {
		u, err := fetch("a", fmt.Sprintf("2.0.%d", i))
		if err != nil {
			t.Fatal(err)
		}
		u.Release()
	}
	var of []string
	var bytes int64
	for _, k := range s.sets() {
		of = append(of, k.owner)
		bytes += onDisk(k.record)
	}
	if bytes > s.o.Bytes || !slices.Contains(of, owner("b")) || !slices.ContainsFunc(s.sets(), func(k known) bool {
		return slices.Equal(k.record.Asked, []string{"left-pad@1.0.0"}) && k.owner == owner("a")
	}) {
		t.Errorf("%d bytes of %v", bytes, of)
	}
	held.Release()
	s.o.Bytes = 1 << 10
	if _, err := fetch("c", "1.0.0"); sandbox.AsError(err).Code != sandbox.CodeInsufficient {
		t.Errorf("%v", err)
	}
}

func TestWithoutAnIndexNothingIsFetched(t *testing.T) {
	for what, s := range map[string]*Store{"none named": New(Options{Dir: t.TempDir()}), "no store": nil} {
		_, err := s.Want("a", rich, inside(t, host()))
		if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodePackagesFailed || e.Field != "packages.python" || !strings.Contains(e.Advice.String(), "packages.indexes.python") {
			t.Errorf("%s: %+v", what, e)
		}
	}
	without := host()
	delete(without, "usr/bin/node")
	_, err := newStore(t).Want("a", sandbox.Packages{NPM: []string{"a@1.0.0"}}, inside(t, without))
	if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodeLanguageMissing || e.Field != "packages.npm" {
		t.Errorf("%v", err)
	}
}

func TestIndexes(t *testing.T) {
	for what, c := range map[string]struct {
		index Index
		field string
	}{
		"plain http outside": {Index{URL: "http://pypi.example/simple"}, "url"}, "a password": {Index{URL: "https://me:secret@pypi.example/"}, "url"}, "a file": {Index{URL: "file:///etc"}, "url"},
		"an option": {Index{URL: "--index-url"}, "url"}, "an address": {Index{URL: "https://127.0.0.1/"}, "url"}, "a query": {Index{URL: "https://pypi.example/?a=b"}, "url"},
		"many names": {Index{URL: "https://pypi.example/", Endpoints: []string{"*.example.com"}}, "endpoints[0]"}, "a set": {Index{URL: "https://pypi.example/", Endpoints: []string{"x.example", "@all"}}, "endpoints[1]"},
		"a secret in the clear": {Index{URL: "http://pypi.example/", Endpoints: []string{"pypi.example:80=10.0.0.1"}, Secret: "index"}, "secret"},
	} {
		if _, err := c.index.Network(); err == nil || sandbox.AsError(err).Field != c.field || sandbox.AsError(err).Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	n, err := Index{URL: "https://pypi.example:8443/simple/", Endpoints: []string{"pypi.example:8443=10.0.0.1", "files.example"}, Secret: "index"}.Network()
	if err != nil || len(n.Endpoints) != 2 || n.Endpoints[0].Secret != "index" || n.Endpoints[0].Address != "10.0.0.1" || n.Endpoints[1].Secret != "" {
		t.Errorf("%+v, %v", n, err)
	}
	t.Setenv(PythonEnv, " https://pypi.org/simple/  files.pythonhosted.org ")
	t.Setenv(NPMEnv, "")
	if all := FromEnv(); len(all) != 1 || !slices.Equal(all["python"].Endpoints, []string{"files.pythonhosted.org"}) {
		t.Errorf("%+v", all)
	}
}
