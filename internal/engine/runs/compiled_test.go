package runs

import (
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"pinfold/internal/compilecache"
	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// product is where the compile step puts a program.
const product = "/tmp/.pinfold/program"

// compiler is an engine with a cache, over machines of memory in which gcc
// "compiles".
type compiler struct {
	*Runner
	t     *testing.T
	cache *compilecache.Cache
	host  fstest.MapFS
	steps atomic.Int32 // compile steps so far

	// What gcc does beside its work, and what the machines say.
	gcc    func(p *fake.Process) fake.Exit
	script func(compiling bool, s *fake.Script)
}

func newCompiler(t *testing.T) *compiler {
	t.Helper()
	cache, err := compilecache.Open(compilecache.Options{Dir: filepath.Join(t.TempDir(), "compiled"), Bytes: 512 << 20})
	if err != nil {
		t.Fatal(err)
	}
	c := &compiler{t: t, cache: cache, host: hostFiles(), gcc: says("", "a warning\n")}
	c.Runner, _ = newRunner(t, c.host, cache, func(p driver.Plan) fake.Script {
		compiling := strings.HasSuffix(p.ID, "-c")
		s := fake.Script{Program: c.run}
		if compiling {
			s.Program = c.compile
		}
		if c.script != nil {
			c.script(compiling, &s)
		}
		return s
	})
	t.Cleanup(func() { _ = cache.Close() })
	c.lookAgain()
	return c
}

// lookAgain has the engine look at the host's files now, and waits for it.
func (c *compiler) lookAgain() {
	c.t.Helper()
	c.toolchains.mu.Lock()
	clear(c.toolchains.known)
	c.toolchains.mu.Unlock()
	template, _ := c.planner.Template("")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, ok := c.toolchains.fingerprint(template); ok {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatal("the host's files are not looked at")
		}
	}
}

// compile makes a program that holds its source and what gcc was told.
func (c *compiler) compile(p *fake.Process) fake.Exit {
	n := c.steps.Add(1)
	source, _ := p.Machine.Files.Get("main.c")
	header, _ := p.Machine.Files.Get("h.h")
	p.Machine.Files.Put(product, fmt.Sprintf("%s|%s|%v|%d", source, header, p.Args[1:], n))
	return c.gcc(p)
}

// run prints the program.
func (c *compiler) run(p *fake.Process) fake.Exit {
	content, ok := p.Machine.Files.Get(product)
	if !ok {
		return fake.Exit{Code: 126}
	}
	_, _ = io.WriteString(p.Stdout, content)
	return fake.Exit{}
}

func program(code string) Request {
	return Request{Spec: sandbox.Spec{Language: "c", Code: code}}
}

// compiled runs a request and says whether its program was compiled.
func (c *compiler) compiled(req Request) (fresh bool, r *sandbox.Result) {
	c.t.Helper()
	before := c.steps.Load()
	r = run(c.t, c.Runner, req)
	fresh = c.steps.Load() > before
	if r.Compile == nil || r.Compile.Cached == fresh {
		c.t.Errorf("compiled %v, and the result says %+v", fresh, r.Compile)
	}
	return fresh, r
}

func TestCompiledOnce(t *testing.T) {
	c := newCompiler(t)
	_, first := c.compiled(program("int main;"))
	if first.Compile.Stderr != "a warning\n" || !strings.HasSuffix(first.Stdout, "|1") {
		t.Fatalf("%+v", first)
	}
	for range 2 {
		fresh, r := c.compiled(program("int main;"))
		if fresh {
			t.Fatal("it was compiled again")
		}
		if r.Stdout != first.Stdout || r.Status != first.Status || !reflect.DeepEqual(r.Cause, first.Cause) {
			t.Errorf("the run differs: %+v", r)
		}
		a, b := *first.Compile, *r.Compile
		if a.WallMS, a.CPUMS, a.Cached = 0, 0, true; *a.ExitCode != *b.ExitCode {
			t.Errorf("exit status %d", *b.ExitCode)
		}
		if a.ExitCode = b.ExitCode; a != b || r.Timings.CompileMS <= 0 {
			t.Errorf("the compile step differs: %+v, not %+v", b, a)
		}
	}
	s := c.cache.Stats()
	if s.Hits != 2 || s.Misses != 1 || s.Entries != 1 {
		t.Errorf("%+v", s)
	}
}

// Everything that decides what a compiler makes is part of the key; what does
// not is no part of it.
func TestWhatMisses(t *testing.T) {
	c := newCompiler(t)
	base := func() Request {
		r := program("int main;")
		r.Spec.Files = []sandbox.File{{Path: "h.h", Content: "int h;"}}
		r.Spec.Env = map[string]string{"CPATH": "/a", "B": "b"}
		return r
	}
	if fresh, _ := c.compiled(base()); !fresh {
		t.Fatal("there is something in the cache to begin with")
	}
	for name, x := range map[string]struct {
		change func(r *Request)
		misses bool
	}{
		"nothing":            {func(*Request) {}, false},
		"arguments":          {func(r *Request) { r.Spec.Args = []string{"x"} }, false},
		"standard input":     {func(r *Request) { r.Spec.Stdin = "x" }, false},
		"run's time":         {func(r *Request) { r.Spec.Limits.WallTimeMS = 1234 }, false},
		"metadata":           {func(r *Request) { r.Spec.Metadata = map[string]string{"a": "b"} }, false},
		"tenant":             {func(r *Request) { r.Tenant = "mallory" }, true},
		"source":             {func(r *Request) { r.Spec.Code += " " }, true},
		"header":             {func(r *Request) { r.Spec.Files[0].Content = "int g;" }, true},
		"header's name":      {func(r *Request) { r.Spec.Files[0].Path = "g.h" }, true},
		"header's mode":      {func(r *Request) { r.Spec.Files[0].Executable = true }, true},
		"another file":       {func(r *Request) { r.Spec.Files = append(r.Spec.Files, sandbox.File{Path: "z"}) }, true},
		"where files end":    {func(r *Request) { r.Spec.Files[0] = sandbox.File{Path: "h.hi", Content: "nt h;"} }, true},
		"environment":        {func(r *Request) { r.Spec.Env["CPATH"] = "/b" }, true},
		"another variable":   {func(r *Request) { r.Spec.Env["C"] = "" }, true},
		"disk limit":         {func(r *Request) { r.Spec.Limits.DiskBytes = 64 << 20 }, true},
		"CPUs":               {func(r *Request) { r.Spec.Limits.CPUs = 0.5 }, true},
		"the file's name":    {func(r *Request) { r.Spec.Code, r.Spec.Entrypoint = "", "h.h" }, true},
		"asked for cold":     {func(r *Request) { r.Spec.Cold = true }, true},
		"files from outside": {func(r *Request) { r.Inputs = []Input{{Path: "in", Dir: true, Mode: 0o755}} }, true},
		"a mount":            {func(r *Request) { r.Spec.Mounts = []sandbox.Mount{{Host: "/a", Guest: "/b"}} }, true},
	} {
		r := base()
		x.change(&r)
		if fresh, _ := c.compiled(r); fresh != x.misses {
			t.Errorf("%s: compiled again: %v", name, fresh)
		}
		if fresh, _ := c.compiled(base()); fresh {
			t.Errorf("%s: the first program's entry is gone", name)
		}
	}
}

// A run that is not cached leaves nothing there either.
func TestWhatIsNotLookedUpIsNotKept(t *testing.T) {
	c := newCompiler(t)
	for name, change := range map[string]func(r *Request){
		"cold":   func(r *Request) { r.Spec.Cold = true },
		"inputs": func(r *Request) { r.Inputs = []Input{{Path: "in", Dir: true, Mode: 0o755}} },
		"mounts": func(r *Request) { r.Spec.Mounts = []sandbox.Mount{{Host: "/a", Guest: "/b"}} },
		"clock":  func(r *Request) { r.Spec.Code = "char *when = __DATE__;" },
		"clock in a header": func(r *Request) {
			r.Spec.Files = []sandbox.File{{Path: "h.h", Content: "__TIMESTAMP__"}}
		},
	} {
		for range 2 {
			r := program("int main;")
			change(&r)
			if fresh, _ := c.compiled(r); !fresh {
				t.Errorf("%s: it came from the cache", name)
			}
		}
	}
	if s := c.cache.Stats(); s.Entries != 0 || s.Hits+s.Misses != 0 {
		t.Errorf("%+v", s)
	}
	if fresh, _ := c.compiled(program("int main;")); !fresh {
		t.Error("the plain program came from the cache")
	}
	if fresh, _ := c.compiled(program("int main;")); fresh {
		t.Error("the plain program is not cached: the test shows nothing")
	}
}

// A compiler that was changed, or a header, or a package manager that was at
// work: what was compiled before does not count.
func TestChangedToolchainMisses(t *testing.T) {
	c := newCompiler(t)
	c.compiled(program("int main;"))
	c.host["usr/bin/gcc"] = &fstest.MapFile{Data: []byte("\x7fELF another"), Mode: 0o755}
	if fresh, _ := c.compiled(program("int main;")); !fresh {
		t.Error("another compiler, and the old one's program")
	}
	c.host["var/lib/dpkg/status"] = &fstest.MapFile{Data: []byte("Package: libc6-dev")}
	if fresh, _ := c.compiled(program("int main;")); !fresh {
		t.Error("packages were changed, and the old program is used")
	}
	c.host["usr/include/stdio.h"] = &fstest.MapFile{Data: []byte("int x;")}
	if fresh, _ := c.compiled(program("int main;")); fresh {
		t.Error("a header that nobody has looked at is seen: the next step shows nothing")
	}
	c.lookAgain()
	if fresh, _ := c.compiled(program("int main;")); !fresh {
		t.Error("another header, and the old program")
	}
	// What is known of the host grows too old to count.
	c.toolchains.mu.Lock()
	for _, known := range c.toolchains.known {
		known.at, known.making = time.Now().Add(-2*fingerprintCounts), true
	}
	c.toolchains.mu.Unlock()
	if fresh, _ := c.compiled(program("int main;")); !fresh {
		t.Error("an old look at the host counts")
	}
}

// Only a compile step at which nothing was wrong is kept.
func TestUncleanCompileStepsAreNotKept(t *testing.T) {
	for name, spoil := range map[string]func(c *compiler){
		"it fails":             func(c *compiler) { c.gcc = exits(fake.Exit{Code: 1}) },
		"a signal ends it":     func(c *compiler) { c.gcc = exits(fake.Exit{Signal: 11}) },
		"more words than kept": func(c *compiler) { c.gcc = says(strings.Repeat("x", 1<<20+1), "") },
		"something is left running": func(c *compiler) {
			c.gcc = func(p *fake.Process) fake.Exit { p.Held = true; return fake.Exit{} }
		},
		"the disk was full": func(c *compiler) {
			c.script = func(compiling bool, s *fake.Script) {
				s.Usage = func(time.Duration) driver.Usage { return driver.Usage{DiskFull: compiling} }
			}
		},
		"no more processes": func(c *compiler) {
			c.gcc = func(p *fake.Process) fake.Exit { p.Sleep(50 * time.Millisecond); return fake.Exit{} }
			c.script = func(compiling bool, s *fake.Script) {
				if compiling {
					s.Usage = later(driver.Usage{ProcessesDenied: 1})
				}
			}
		},
		"a call was forbidden": func(c *compiler) {
			c.gcc = func(p *fake.Process) fake.Exit { p.Sleep(50 * time.Millisecond); return fake.Exit{} }
			c.script = func(compiling bool, s *fake.Script) {
				if compiling {
					s.Usage = later(driver.Usage{Killed: "ptrace"})
				}
			}
		},
		"what is left cannot be ended": func(c *compiler) {
			c.script = func(compiling bool, s *fake.Script) {
				if compiling {
					s.KillAll = func(stop <-chan struct{}) { <-stop }
				}
			}
		},
		"a link is called a product": func(c *compiler) {
			c.script = func(_ bool, s *fake.Script) {
				s.Glob = func(found []wire.FileEntry) []wire.FileEntry {
					return append(found, wire.FileEntry{Path: "zz", Type: wire.TypeSymlink})
				}
			}
		},
		"huge products": func(c *compiler) {
			c.gcc = func(p *fake.Process) fake.Exit {
				p.Machine.Files.Put("/tmp/.pinfold/core", strings.Repeat("0", compilecache.MaxEntryBytes))
				return fake.Exit{}
			}
		},
		"too many products": func(c *compiler) {
			c.gcc = func(p *fake.Process) fake.Exit {
				for n := range compilecache.MaxFiles + 1 {
					p.Machine.Files.Put(fmt.Sprintf("/tmp/.pinfold/d/%d", n), "")
				}
				return fake.Exit{}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCompiler(t)
			c.compiled(program("int good;"))
			if fresh, _ := c.compiled(program("int good;")); fresh {
				t.Fatal("a clean step is not kept: the test shows nothing")
			}
			spoil(c)
			_, first := c.compiled(program("int bad;"))
			fresh, second := c.compiled(program("int bad;"))
			if !fresh {
				t.Error("it was kept")
			}
			if first.Status != second.Status || first.Cause.Kind != second.Cause.Kind {
				t.Errorf("%+v, then %+v", first, second)
			}
			if s := c.cache.Stats(); s.Entries != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Many runs of one program at once: one compiles, and all get the same.
func TestCompiledOnceForManyAtOnce(t *testing.T) {
	c := newCompiler(t)
	c.gcc = func(p *fake.Process) fake.Exit { p.Sleep(100 * time.Millisecond); return fake.Exit{} }
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r, err := c.Run(t.Context(), program("int main;"))
			if err != nil || !strings.HasSuffix(r.Stdout, "|1") {
				t.Errorf("%v %+v", err, r)
			}
		})
	}
	wg.Wait()
	if n := c.steps.Load(); n != 1 {
		t.Errorf("compiled %d times", n)
	}
}

// TestSmallDiskForACompiler: "make the program smaller" was once the advice to three lines
// of Go, whose compiler had the request's own megabyte of disk.
func TestSmallDiskForACompiler(t *testing.T) {
	for name, x := range map[string]struct {
		usage driver.Usage
		cause sandbox.CauseKind
		hint  string
	}{
		"full":         {driver.Usage{DiskFull: true, DiskPeak: 1 << 20}, sandbox.CauseDisk, `the compiler has as much as the program: "limits": {"disk_bytes": 268435456}`},
		"all but full": {driver.Usage{DiskPeak: 1000 << 10}, sandbox.CauseExited, `the compiler used 1000KiB of 1MiB of disk; if its messages speak of space: "limits": {"disk_bytes": 268435456}`},
		"inodes":       {driver.Usage{InodesPeak: 15}, sandbox.CauseExited, `the compiler used 15 of 16 inodes; if its messages speak of space: "limits": {"inodes": 16384}`},
		"room":         {driver.Usage{DiskPeak: 1000, InodesPeak: 5}, sandbox.CauseExited, "the program does not compile; stderr has the compiler's messages"},
		"its own":      {driver.Usage{ProcessesDenied: 1}, sandbox.CauseProcesses, "the compiler needed more than the compile step's own limits allow; make the program smaller"},
	} {
		c := newCompiler(t)
		c.gcc = func(p *fake.Process) fake.Exit { p.Sleep(50 * time.Millisecond); return fake.Exit{Code: 1} }
		c.script = func(_ bool, s *fake.Script) { s.Usage = later(x.usage) }
		req := program("int main;")
		req.Spec.Limits = sandbox.Limits{DiskBytes: 1 << 20, Inodes: 16}
		if r := run(t, c.Runner, req); r.Cause.Kind != x.cause || r.Cause.Hint != x.hint {
			t.Errorf("%s: %+v", name, r.Cause)
		}
	}
}
