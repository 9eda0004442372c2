package engine

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/records"
	"pinfold/internal/image"
	"pinfold/internal/packages"
	"pinfold/internal/policy"
	"pinfold/internal/store/memstore"
	"pinfold/sandbox"
)

// installs is an installer that leaves a package, and counts.
func installs(n *atomic.Int32) func(*fake.Process) fake.Exit {
	return func(p *fake.Process) fake.Exit {
		n.Add(1)
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		_ = w.WriteHeader(&tar.Header{Name: "rich/__init__.py", Typeflag: tar.TypeReg, Size: 1, Mode: 0o644})
		_, _ = w.Write([]byte("x"))
		_ = w.Close()
		p.Machine.Files.Put("set.tar", b.String())
		p.Machine.Files.Put("lock.json", `{"install":[{"metadata":{"name":"rich","version":"13.9.0"},"download_info":{"archive_info":{"hash":"sha256=`+strings.Repeat("0a", 32)+`"}}}]}`)
		return fake.Exit{}
	}
}

// withPackages is an engine with room for one sandbox, whose installers' machines are told
// from others by what they reach. It remembers the plans of the others.
func withPackages(t *testing.T, install func(*fake.Process) fake.Exit, change ...func(*Options)) (*Engine, func() []driver.Plan) {
	t.Helper()
	var mu sync.Mutex
	var plans []driver.Plan
	script := func(p driver.Plan) fake.Script {
		if !p.Network.None() {
			if len(p.Mounts) > 0 || p.Network.Endpoints[0].Host != "index.test" || len(p.Network.Endpoints) != 1 {
				t.Errorf("an installer has %+v and %+v", p.Network, p.Mounts)
			}
			return fake.Script{Program: install}
		}
		mu.Lock()
		plans = append(plans, p)
		mu.Unlock()
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			_, _ = p.Stdout.Write([]byte(strings.Join(p.Env, "\n")))
			return fake.Exit{}
		}}
	}
	files := hostFiles()
	files["usr/bin/python3"] = files["usr/bin/sh"]
	template, err := image.Host(files)
	if err != nil {
		t.Fatal(err)
	}
	options := func(o *Options) {
		o.Host, o.Template = files, func(string) (image.Template, error) { return template, nil }
		o.Capacity = admission.Capacity{Sandboxes: 1, Runs: 1}
		o.Packages = packages.New(packages.Options{Dir: filepath.Join(t.TempDir(), "packages"), Indexes: map[string]packages.Index{
			sandbox.PackagesPython: {URL: "http://index.test:8080/simple/", Endpoints: []string{"index.test:8080=127.0.0.1"}},
		}})
	}
	e, _ := newEngine(t, script, append([]func(*Options){options}, change...)...)
	return e, func() []driver.Plan {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(plans)
	}
}

// A run is shown its packages read-only and told where they are; it gets no network by
// them, although its tenant may declare none, and the second run fetches nothing. There is
// room for one sandbox only: the installer's does not wait for the run that waits for it.
func TestRunWithPackages(t *testing.T) {
	var fetches atomic.Int32
	e, plans := withPackages(t, installs(&fetches))
	for range 2 {
		req := shell(sandbox.Limits{})
		req.Spec.Packages, req.Spec.Env = sandbox.Packages{Python: []string{"rich==13.9"}}, map[string]string{"PYTHONPATH": "mine"}
		r := run(t, e, req)
		if r.Status != sandbox.StatusSucceeded || r.Packages == nil || !slices.Equal(r.Packages.Python, []string{"rich==13.9.0 --hash=sha256:" + strings.Repeat("0a", 32)}) {
			t.Fatalf("%+v", r)
		}
		if !strings.Contains(r.Stdout, "PYTHONPATH=mine:"+sandbox.PythonPackagesDir) || r.Network != nil {
			t.Errorf("%s %+v", r.Stdout, r.Network)
		}
	}
	for _, p := range plans() {
		if len(p.Mounts) != 1 || p.Mounts[0].Writable || p.Mounts[0].Guest != sandbox.PythonPackagesDir || !p.Network.None() {
			t.Errorf("%+v %+v", p.Mounts, p.Network)
		}
		if content, err := os.ReadFile(filepath.Join(p.Mounts[0].Host, "rich/__init__.py")); err != nil || string(content) != "x" {
			t.Errorf("%q, %v", content, err)
		}
	}
	if n := fetches.Load(); n != 1 || len(plans()) != 2 {
		t.Errorf("%d fetches, %d runs", n, len(plans()))
	}
}

// The same for runs for which nobody waits: they have their place in the queue already.
func TestDetachedRunWithPackages(t *testing.T) {
	var fetches atomic.Int32
	e, _ := withPackages(t, installs(&fetches), func(o *Options) { o.Store = memstore.New(memstore.Options{}) })
	req := shell(sandbox.Limits{})
	req.Spec.Packages = sandbox.Packages{Python: []string{"rich==13.9"}}
	r, err := e.Start(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	r, err = e.AwaitRun(t.Context(), r.Tenant, r.ID)
	if err != nil || r.Result == nil || r.Result.Status != sandbox.StatusSucceeded || r.Result.Packages == nil {
		t.Errorf("%+v, %v", r.Result, err)
	}
}

// What cannot be had is refused, and the program does not run.
func TestPackagesThatCannotBeHad(t *testing.T) {
	fails := func(p *fake.Process) fake.Exit {
		_, _ = p.Stderr.Write([]byte("ERROR: No matching distribution found"))
		return fake.Exit{Code: 1}
	}
	for what, c := range map[string]struct {
		change func(*Options)
		ask    sandbox.Packages
		field  string
		says   string
	}{
		"the index has none":   {func(*Options) {}, sandbox.Packages{Python: []string{"rich==13.9"}}, "packages.python", "No matching distribution"},
		"no index":             {func(o *Options) { o.Packages = nil }, sandbox.Packages{Python: []string{"rich==13.9"}}, "packages.python", "no index"},
		"no interpreter":       {func(*Options) {}, sandbox.Packages{NPM: []string{"left-pad@1.3.0"}}, "packages.npm", "no node"},
		"an option":            {func(*Options) {}, sandbox.Packages{Python: []string{"--index-url=http://evil"}}, "packages.python[0]", "name"},
		"a driver that cannot": {func(o *Options) { o.Drivers = []driver.Driver{fake.New(fake.Options{NoMounts: true})} }, sandbox.Packages{Python: []string{"rich==13.9"}}, "packages", "cannot show packages"},
	} {
		e, plans := withPackages(t, fails, c.change)
		req := shell(sandbox.Limits{})
		req.Spec.Packages = c.ask
		_, err := e.Run(t.Context(), req)
		if known := sandbox.AsError(err); known == nil || known.Field != c.field || !strings.Contains(known.Message, c.says) || known.Hint == "" {
			t.Errorf("%s: %+v", what, known)
		}
		if len(plans()) > 0 {
			t.Errorf("%s: the program ran", what)
		}
	}
}

// What the operator lets requests use at most bounds an installer, too.
func TestInstallersKeepTheOperatorsLimits(t *testing.T) {
	var seen atomic.Int64
	var fetches atomic.Int32
	e, _ := withPackages(t, func(p *fake.Process) fake.Exit {
		seen.Store(p.Machine.Plan.Limits.MemoryBytes)
		return installs(&fetches)(p)
	}, func(o *Options) { o.Policy.Max = sandbox.Limits{MemoryBytes: 300 << 20} })
	req := shell(sandbox.Limits{})
	req.Spec.Packages = sandbox.Packages{Python: []string{"rich==13.9"}}
	run(t, e, req)
	if seen.Load() != 300<<20 {
		t.Errorf("%d", seen.Load())
	}
}

// A living sandbox shows its packages to every process, holds them while it lives, and what
// is forked of it has them, too. Installing them takes the one place that there is, before
// the sandbox has it.
func TestLivingSandboxWithPackages(t *testing.T) {
	var fetches atomic.Int32
	e, plans := withPackages(t, installs(&fetches), func(o *Options) {
		o.Capacity = admission.Capacity{Sandboxes: 2}
		o.Store = memstore.New(memstore.Options{})
	})
	s, err := e.Create(t.Context(), records.LocalTenant, sandbox.Create{Packages: sandbox.Packages{Python: []string{"rich==13.9"}}, Env: map[string]string{"PYTHONPATH": "mine"}})
	if err != nil {
		t.Fatal(err)
	}
	if p := s.Info().Packages; p == nil || !slices.Equal(p.Python, []string{"rich==13.9.0 --hash=sha256:" + strings.Repeat("0a", 32)}) {
		t.Errorf("%+v", p)
	}
	for env, want := range map[string]string{"": "PYTHONPATH=mine:" + sandbox.PythonPackagesDir, "own": "PYTHONPATH=own:" + sandbox.PythonPackagesDir} {
		c := sandbox.Command{Args: []string{"env"}}
		if env != "" {
			c.Env = map[string]string{"PYTHONPATH": env}
		}
		if p, err := s.Exec(t.Context(), c); err != nil || !strings.Contains(p.Stdout, want+"\n") && !strings.HasSuffix(p.Stdout, want) {
			t.Errorf("%q has no %s: %v", p.Stdout, want, err)
		}
	}
	forks, err := e.Fork(t.Context(), s, sandbox.ForkSandbox{})
	if err != nil || forks[0].Info().Packages == nil {
		t.Fatalf("%v", err)
	}
	all := plans()
	if n := fetches.Load(); n != 1 || len(all) != 2 {
		t.Fatalf("%d fetches, %d machines", n, len(all))
	}
	for _, p := range all {
		if len(p.Mounts) != 1 || p.Mounts[0].Writable || p.Mounts[0].Guest != sandbox.PythonPackagesDir || !p.Network.None() {
			t.Errorf("%+v %+v", p.Mounts, p.Network)
		}
	}
	held := func() bool { // nobody removes what somebody has locked
		dir, err := os.Open(filepath.Dir(all[0].Mounts[0].Host))
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		return unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
	}
	if !held() {
		t.Error("it holds no packages")
	}
	for _, s := range append(forks, s) {
		if _, err := s.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if held() {
		t.Error("it holds them still")
	}
}

// What begins with a snapshot has the packages of the snapshot's sandbox, by their digests
// where the set is not there any more; packages that the request names are fetched anew.
func TestSnapshotKeepsItsPackages(t *testing.T) {
	var fetches atomic.Int32
	var mu sync.Mutex
	var asked []string
	leave := installs(&fetches)
	dir := t.TempDir()
	e, _ := withPackages(t, func(p *fake.Process) fake.Exit {
		text, _ := p.Machine.Files.Get("requirements.txt")
		mu.Lock()
		asked = append(asked, text)
		mu.Unlock()
		return leave(p)
	}, func(o *Options) {
		o.Capacity = admission.Capacity{Sandboxes: 5}
		o.Store, o.Snapshots.Dir = memstore.New(memstore.Options{}), t.TempDir()
		o.Packages = packages.New(packages.Options{Dir: dir, Indexes: map[string]packages.Index{
			sandbox.PackagesPython: {URL: "http://index.test:8080/simple/", Endpoints: []string{"index.test:8080=127.0.0.1"}},
		}})
	})
	const words = "rich==13.9"
	create := func(c sandbox.Create) string {
		s, err := e.Create(t.Context(), records.LocalTenant, c)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Destroy(t.Context())
		if p := s.Info().Packages; p == nil || !strings.Contains(p.Python[0], "13.9.0 --hash=") {
			t.Errorf("%+v", p)
		}
		taken, err := s.Snapshot(t.Context(), sandbox.TakeSnapshot{})
		if err != nil {
			t.Fatal(err)
		}
		return taken.ID
	}
	first := create(sandbox.Create{Packages: sandbox.Packages{Python: []string{words}}})
	create(sandbox.Create{Snapshot: first})
	for _, c := range []sandbox.Create{{Snapshot: first}, {Snapshot: create(sandbox.Create{Snapshot: first})}, {Snapshot: first, Packages: sandbox.Packages{Python: []string{words}}}} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		create(c)
	}
	exact := "rich==13.9.0 --hash=sha256:" + strings.Repeat("0a", 32)
	if want := []string{words + "\n", exact + "\n", exact + "\n", words + "\n"}; !slices.Equal(asked, want) {
		t.Errorf("%q", asked)
	}
}

// What cannot be had makes no sandbox, and what a rule takes from a request it takes before
// anything is fetched.
func TestNothingIsFetchedInVain(t *testing.T) {
	var fetches atomic.Int32
	refuse, err := policy.New(sandbox.Policy{Rules: []sandbox.PolicyRule{{ID: "bare", When: sandbox.PolicyWhen{Data: []string{sandbox.PolicyInputs}}, Then: sandbox.PolicyThen{Refuse: "only programs"}}}})
	if err != nil {
		t.Fatal(err)
	}
	wanted := sandbox.Packages{Python: []string{"rich==13.9"}}
	for code, change := range map[string]func(*Options){
		sandbox.CodePolicyRefused:  func(o *Options) { o.Rules = func() *policy.Policy { return refuse } },
		sandbox.CodePackagesFailed: func(o *Options) { o.Drivers = []driver.Driver{fake.New(fake.Options{NoMounts: true})} },
	} {
		e, plans := withPackages(t, installs(&fetches), change)
		req := shell(sandbox.Limits{})
		req.Spec.Packages = wanted
		if _, err := e.Run(t.Context(), req); sandbox.AsError(err).Code != code {
			t.Errorf("a run: %v, not %s", err, code)
		}
		if _, err := e.Create(t.Context(), records.LocalTenant, sandbox.Create{Packages: wanted}); sandbox.AsError(err).Code != code {
			t.Errorf("a sandbox: %v, not %s", err, code)
		}
		if fetches.Load() > 0 || len(plans()) > 0 {
			t.Errorf("%s: %d fetches", code, fetches.Load())
		}
	}
}

// Packages for an image that stands under an ID of the moment are the image's: installed in
// a sandbox of it that reaches the index only, once for a tenant, and held until released.
func TestPackagesOfAnImage(t *testing.T) {
	var fetches atomic.Int32
	e, plans := withPackages(t, installs(&fetches), func(o *Options) {
		base := o.Template
		o.Template = func(name string) (image.Template, error) {
			shown, err := base(name)
			shown.ID, shown.Layers = name, image.Layers{Dirs: []string{"1"}}
			return shown, err
		}
	})
	var last *packages.Use
	for _, c := range []struct {
		tenant, lent, image string
		fetches             int32
	}{{"@build", "sha256:aa", "sha256:cc", 1}, {"@build", "sha256:bb", "sha256:cc", 1}, {"@build", "sha256:bb", "sha256:dd", 2}, {"a", "sha256:bb", "sha256:cc", 3}} {
		last.Release()
		in := sandbox.Spec{Template: c.lent}.WithDefaults().Machine()
		var err error
		last, err = e.PackagesOf(t.Context(), c.tenant, sandbox.Packages{Python: []string{"rich==13.9"}}, in, c.image)
		if err != nil || len(last.Packages.Python) != 1 || len(last.Trees()) != 1 || last.Trees()[0].Env != "PYTHONPATH" {
			t.Fatalf("%+v, %v", last, err)
		}
		if n := fetches.Load(); n != c.fetches || len(plans()) > 0 {
			t.Errorf("%+v: %d fetches", c, n)
		}
	}
	last.Release()
}
