package archtest

import (
	"bytes"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// Longer than this, a reader loses the beginning before the end.
const (
	maxFileLines     = 500
	maxFunctionLines = 100
)

func TestFilesAndFunctionsAreShort(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTable() {
			continue
		}
		if s.lines > maxFileLines {
			t.Errorf("%s has %d lines, more than %d: split it by what changes together", s.path, s.lines, maxFileLines)
		}
		for _, f := range functions(s) {
			if n := s.lineOf(f.End()) - s.lineOf(f.Pos()) + 1; n > maxFunctionLines && !s.isTest() {
				t.Errorf("%s:%d: %s has %d lines, more than %d", s.path, s.lineOf(f.Pos()), f.Name.Name, n, maxFunctionLines)
			}
		}
	}
}

// maxFolderLines is what one reader holds in the head.
const maxFolderLines = 3000

// largeFolders are the folders beyond that, each with what makes it readable all the same.
var largeFolders = map[string]string{
	"internal/cli":               "one file for each command, none of which knows another; what they share is flags, words and how a result is said",
	"internal/api":               "one file for each resource (routes_*.go), a table of routes each; what they share is the call and the document made of the tables",
	"internal/agent":             "one program, flat: one file for each request that it answers, around one loop; it must not grow by what packages export",
	"internal/bench":             "one file for each measurement and for each form of the report; the measurements do not know each other",
	"internal/engine/living":     "one living sandbox: a file for each thing that can be asked of it (files, processes, pause, snapshot, fork), all of which hold its one lock",
	"internal/engine/runs":       "one run's way: a file for each step before and after its machine (policy, approval, scan, gate, validators, replay), each called from one place",
	"internal/driver/native":     "one sandbox's making and end; each mechanism of the kernel that it uses is a package of its own in internal/linux",
	"internal/driver/drivertest": "the contract of drivers as tests: a file for each thing that is promised, one harness; what runs inside is a package of its own",
	"internal/driver/qemu":       "one machine's making and end, and a file for each thing that others go on from (base, copy, memory); the disk, its protocol, what is said to a machine and its initial file system are packages of their own",
	"internal/audit":             "one log: a file for each thing that is done with it (write, read, prove, verify, keep texts) over one tree; the tree and the notes are libraries",
	"internal/egress":            "one way out: a file for each thing that is decided on it (the name, the address, the request, the secret, what is declared now), all about one connection; which addresses are special is a table",
	"sandbox":                    "the public vocabulary: data, a file for each noun of requests and results, which users read one at a time",
	"internal/template":          "one store: a file for each way in and out of it (import, save, use) and for each thing that an archive has to get past (compression, names, digests)",
}

func TestFoldersAreHeldInTheHead(t *testing.T) {
	lines := map[string]int{}
	for _, s := range sources(t) {
		if !s.isTest() && !s.isTable() {
			lines[path.Dir(s.path)] += s.lines
		}
	}
	for dir, n := range lines {
		if _, known := largeFolders[dir]; n > maxFolderLines && !known {
			t.Errorf("%s has %d lines, more than %d: divide it by subject, or say in largeFolders why it is readable", dir, n, maxFolderLines)
		}
	}
	for dir, why := range largeFolders {
		if lines[dir] <= maxFolderLines {
			t.Errorf("%s has %d lines: it needs no reason any more (%s)", dir, lines[dir], why)
		}
	}
}

func TestUnsafeStaysInFilesNamedForIt(t *testing.T) {
	for _, s := range sources(t) {
		stem := strings.TrimSuffix(strings.TrimSuffix(s.path, ".go"), "_test")
		if strings.HasSuffix(stem, "_unsafe") {
			continue
		}
		for _, i := range s.file.Imports {
			if i.Path.Value == `"unsafe"` {
				t.Errorf("%s imports unsafe: put it into a file named *_unsafe.go, where a reviewer looks for it", s.path)
			}
		}
	}
}

func TestNothingUsesCgo(t *testing.T) {
	for _, s := range sources(t) {
		for _, i := range s.file.Imports {
			if i.Path.Value == `"C"` {
				t.Errorf("%s uses cgo: CGO_ENABLED=0 builds everything, for every target, from one machine", s.path)
			}
		}
	}
}

func TestNothingHappensBeforeMain(t *testing.T) {
	for _, s := range sources(t) {
		for _, f := range functions(s) {
			if f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s:%d: has an init function: importing a package must change nothing", s.path, s.lineOf(f.Pos()))
			}
		}
	}
}

// A library that prints to the process's streams writes into somebody's JSON.
func TestLibrariesDoNotPrint(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest() || s.file.Name.Name == "main" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := call.X.(*ast.Ident); ok && x.Name == "fmt" && strings.HasPrefix(call.Sel.Name, "Print") {
				t.Errorf("%s:%d: fmt.%s: a library writes to a writer that it was given", s.path, s.lineOf(n.Pos()), call.Sel.Name)
			}
			return true
		})
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	type key struct{ dir, name string }
	said := make(map[key]string)
	for _, s := range sources(t) {
		k := key{path.Dir(s.path), strings.TrimSuffix(s.file.Name.Name, "_test")}
		if doc := s.file.Doc.Text(); doc != "" || said[k] == "" {
			said[k] = doc
		}
	}
	for k, doc := range said {
		want := "Package " + k.name + " "
		if k.name == "main" {
			want = "Command " + path.Base(k.dir) + " "
		}
		if !strings.HasPrefix(doc, want) {
			t.Errorf("%s: its comment begins %.40q, not %q", k.dir, doc, want)
		}
	}
}

// A path of the machine on which a line was written helps nobody else.
func TestNoFileNamesThisCheckout(t *testing.T) {
	dir := moduleRoot(t)
	for _, rel := range files(t) {
		content, err := os.ReadFile(filepath.Join(dir, rel))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte(dir+"/")) {
			t.Errorf("%s contains %s/", rel, dir)
		}
	}
}

func functions(s source) []*ast.FuncDecl {
	var all []*ast.FuncDecl
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			all = append(all, f)
		}
	}
	return all
}
