//go:build linux

package network

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/driver/native"
	"pinfold/internal/engine"
	"pinfold/internal/engine/runs"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/packages"
	"pinfold/internal/store/memstore"
	"pinfold/sandbox"
	"pinfold/test/ledger"
	"pinfold/test/packageindex"
)

// indexed is an engine with the native driver, whose operator names the two indexes of a
// server on loopback, or none where that is nil.
func indexed(t *testing.T, index *packageindex.Index) (*engine.Engine, *packages.Store) {
	t.Helper()
	agent := agenttest.Bytes(t)
	return indexedWith(t, index, func(state string) driver.Driver {
		return native.New(native.Options{StateDir: filepath.Join(state, "native"), Agent: func() ([]byte, error) { return agent, nil }})
	})
}

// indexedWith is the same with another driver.
func indexedWith(t *testing.T, index *packageindex.Index, made func(state string) driver.Driver) (*engine.Engine, *packages.Store) {
	t.Helper()
	for _, program := range []string{"/usr/bin/python3", "/usr/bin/npm"} {
		if _, err := os.Stat(program); err != nil {
			drivertest.Missing(t, "%s is not here", program)
		}
	}
	if exec.CommandContext(t.Context(), "/usr/bin/python3", "-m", "pip", "--version").Run() != nil {
		drivertest.Missing(t, "pip is not here")
	}
	state := t.TempDir()
	o := packages.Options{Dir: filepath.Join(state, packages.DirName)}
	if index != nil {
		port := index.URL[strings.LastIndexByte(index.URL, ':')+1:]
		at := []string{"index.test:" + port + "=127.0.0.1"}
		o.Indexes = map[string]packages.Index{
			sandbox.PackagesPython: {URL: "http://index.test:" + port + "/simple/", Endpoints: at},
			sandbox.PackagesNPM:    {URL: "http://index.test:" + port + "/npm/", Endpoints: at},
		}
	}
	store := packages.New(o)
	e := engine.New(engine.Options{
		Drivers: []driver.Driver{made(state)},
		Host:    os.DirFS("/"), Template: imagetest.Templates, Packages: store, Store: memstore.New(memstore.Options{}),
	})
	if err := e.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Drain(context.Background())
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, store
}

// withPackages is a run of a tenant, which may reach nothing.
func withPackages(tenant, language, code string, p sandbox.Packages) runs.Request {
	return runs.Request{Tenant: tenant, Spec: sandbox.Spec{Language: language, Code: code, Packages: p, Limits: sandbox.Limits{WallTimeMS: 60_000}}}
}

var (
	greet = sandbox.Packages{Python: []string{"greet==1.0"}}
	left  = sandbox.Packages{NPM: []string{"left@1.0.0"}}
)

// The real pip and npm install what a request names, and what that needs, of indexes of the
// operator's; programs import it, cannot write to it, and reach nothing. It is fetched once
// for a tenant, and again for another.
func TestPackagesOfIndexes(t *testing.T) {
	ledger.Check(t)
	index := packageindex.New(t)
	e, _ := indexed(t, index)
	const python = `
import greet, os, urllib.request
print(greet.hello())
for path in greet.__file__, os.path.dirname(greet.__file__) + '/new.py':
    try: open(path, 'a'); print('WRITTEN')
    except OSError as e: print(e.strerror)
try: urllib.request.urlopen('http://index.test:%s/simple/greet/', timeout=5); print('REACHED')
except OSError: print('nothing to reach')
`
	const node = `
const fs = require('fs'); console.log(require('left'));
for (const p of ['/node_modules/left/index.js', '/node_modules/new.js', '/node_modules/left/ran']) {
  if (p.endsWith('ran')) { console.log(fs.existsSync(p) ? 'A SCRIPT RAN' : 'no script ran'); continue }
  try { fs.appendFileSync(p, 'x'); console.log('WRITTEN') } catch (e) { console.log(e.code) }
}`
	port := index.URL[strings.LastIndexByte(index.URL, ':')+1:]
	for _, c := range []struct {
		language, code string
		ask            sandbox.Packages
		want           string
		fetched        []int64 // in all, after a run of a tenant's, another, and one of another tenant's
	}{
		{"python", fmt.Sprintf(python, port), greet, "hello from words\nRead-only file system\nRead-only file system\nnothing to reach\n", []int64{2, 2, 4}},
		{"javascript", node, left, "hello from left\nEROFS\nEROFS\nno script ran\n", []int64{6, 6, 8}},
	} {
		for i, tenant := range []string{"a", "a", "b"} {
			r, err := e.Run(t.Context(), withPackages(tenant, c.language, c.code, c.ask))
			if err != nil {
				t.Fatal(err)
			}
			if r.Stdout != c.want || r.Packages == nil || len(r.Packages.Python)+len(r.Packages.NPM) != 2 || r.Network != nil {
				t.Errorf("%s: %q %q %+v", c.language, r.Stdout, r.Stderr, r.Packages)
			}
			if n := index.Files.Load(); n != c.fetched[i] {
				t.Errorf("%s for %s: %d files were fetched, not %d", c.language, tenant, n, c.fetched[i])
			}
			t.Logf("%+v", r.Packages)
		}
	}
	s, err := e.Create(t.Context(), "a", sandbox.Create{Packages: greet})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Destroy(context.Background())
	p, err := s.Exec(t.Context(), sandbox.Command{Args: []string{"python3", "-c", "import greet; print(greet.hello())"}})
	if err != nil || p.Stdout != "hello from words\n" || index.Files.Load() != 8 {
		t.Errorf("a living sandbox: %+v, %v", p, err)
	}
}

// What an index lies about is not taken, nothing of a package is run while it is installed,
// and the program does not run. The control is TestPackagesOfIndexes.
func TestHostileIndexes(t *testing.T) {
	ledger.Check(t)
	e, _ := indexed(t, packageindex.New(t))
	for what, c := range map[string]struct {
		ask  sandbox.Packages
		says string
	}{
		"another digest, pip": {sandbox.Packages{Python: []string{"lies==1.0"}}, "HASH"},
		"another digest, npm": {sandbox.Packages{NPM: []string{"lies@1.0.0"}}, "EINTEGRITY"},
		"a digest that was asked for": {sandbox.Packages{Python: []string{
			"words==2.0 --hash=sha256:" + strings.Repeat("0a", 32),
		}}, "HASH"},
		"a source distribution": {sandbox.Packages{Python: []string{"source==1.0"}}, "No matching distribution"},
		"a file that leaves":    {sandbox.Packages{Python: []string{"climbs==1.0"}}, "outside"},
		"no such package":       {sandbox.Packages{NPM: []string{"none@1.0.0"}}, "404"},
		"no end":                {sandbox.Packages{Python: []string{"endless==1.0"}}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			r, err := e.Run(t.Context(), withPackages("a", "sh", "echo it ran", c.ask))
			known := sandbox.AsError(err)
			if r != nil || known == nil || known.Code != sandbox.CodePackagesFailed || known.Hint == "" || !strings.Contains(known.Message, c.says) || strings.Contains(known.Message, "SETUP RAN") {
				t.Errorf("%+v, %v", r, err)
			}
			t.Log(err)
		})
	}
}

// What was bundled where there is an index is used where there is none.
func TestBundleOfPackages(t *testing.T) {
	ledger.Check(t)
	from, _ := indexed(t, packageindex.New(t))
	var bundle bytes.Buffer
	both := sandbox.Packages{Python: greet.Python, NPM: left.NPM}
	if _, err := from.Bundle(t.Context(), both, sandbox.Spec{}.WithDefaults().Machine(), &bundle); err != nil {
		t.Fatal(err)
	}
	to, store := indexed(t, nil)
	code := "import greet; print(greet.hello())"
	if _, err := to.Run(t.Context(), withPackages("a", "python", code, greet)); sandbox.AsError(err).Code != sandbox.CodePackagesFailed {
		t.Errorf("without: %v", err)
	}
	if _, err := store.Load(t.Context(), &bundle); err != nil {
		t.Fatal(err)
	}
	r, err := to.Run(t.Context(), withPackages("a", "python", code, greet))
	if err != nil || r.Stdout != "hello from words\n" {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = to.Run(t.Context(), withPackages("b", "javascript", "console.log(require('left'))", left))
	if err != nil || r.Stdout != "hello from left\n" {
		t.Errorf("%+v, %v", r, err)
	}
}

// What holds for the native driver holds for each that can show packages: the real pip and
// npm install them in its sandboxes, which then show them, and let nobody write to them.
func TestPackagesOfDrivers(t *testing.T) {
	ledger.Check(t)
	if os.Geteuid() != 0 {
		t.Skip("these drivers are root's")
	}
	for name, made := range map[string]func(t *testing.T) driver.Driver{
		"gvisor": newGVisor, "qemu": newQEMU, "docker": newDocker,
	} {
		t.Run(name, func(t *testing.T) {
			d := made(t)
			e, _ := indexedWith(t, packageindex.New(t), func(string) driver.Driver { return d })
			inWhole := (&world{driver: name}).inWhole()
			both := sandbox.Packages{Python: greet.Python}
			if inWhole {
				both.NPM = left.NPM
			}
			s, err := e.Create(t.Context(), "a", sandbox.Create{Packages: both})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Destroy(context.Background())
			for _, c := range []struct{ want, program, code string }{
				{"hello from words\nrefused\nrefused\nmine\n", "python3", `
import greet, os
print(greet.hello())
for path in greet.__file__, os.path.dirname(greet.__file__) + '/new.py', os.environ['HOME'] + '/new.py':
    try: open(path, 'a'); print('mine' if path.startswith('/home') else 'WRITTEN')
    except OSError: print('refused')`},
				{"hello from left\nrefused\nno script ran\n", "node", `
const fs = require('fs'); console.log(require('left'));
try { fs.appendFileSync('/node_modules/left/index.js', 'x'); console.log('WRITTEN') } catch (e) { console.log('refused') }
console.log(fs.existsSync('/node_modules/left/ran') ? 'A SCRIPT RAN' : 'no script ran')`},
			} {
				args := []string{c.program, "-c", c.code}
				if c.program == "node" {
					if !inWhole {
						continue
					}
					args[1] = "-e"
				}
				p, err := s.Exec(t.Context(), sandbox.Command{Args: args})
				if err != nil || p.Stdout != c.want {
					t.Errorf("%s: %+v, %v", c.program, p, err)
				}
			}
			if !inWhole {
				return
			}
			r, err := e.Run(t.Context(), withPackages("a", "python", "import greet; print(greet.hello())", greet))
			if err != nil || r.Stdout != "hello from words\n" || r.Isolation.Driver != name {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}
