package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// module is the module's path; the rules write package paths without it.
const module = "pinfold"

// pkg is what `go list` says of one package, test files left out.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

// path is the package's path inside the module: "sandbox", "internal/wire",
// and "." for the root.
func (p pkg) path() string { return inModule(p.ImportPath) }

func inModule(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

// source is one Go file of the module, parsed with its comments.
type source struct {
	path  string // relative to the module's root, with slashes
	file  *ast.File
	fset  *token.FileSet
	lines int
}

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// isTable says that the file is data, not thought: generated, or a table by
// its name.
func (s source) isTable() bool {
	return ast.IsGenerated(s.file) || strings.HasPrefix(path.Base(s.path), "table_")
}

func (s source) lineOf(pos token.Pos) int { return s.fset.Position(pos).Line }

// root is the module's directory.
var root = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	return strings.TrimSpace(string(out)), err
})

func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := root()
	if err != nil {
		t.Fatalf("go list -m: %v", err)
	}
	return dir
}

var listed = sync.OnceValues(func() ([]pkg, error) {
	dir, err := root()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Standard,Imports,Deps", "./...")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
})

// packages returns the module's own packages.
func packages(t *testing.T) []pkg {
	t.Helper()
	all, err := listed()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var own []pkg
	for _, p := range all {
		if p.ImportPath == module || strings.HasPrefix(p.ImportPath, module+"/") {
			own = append(own, p)
		}
	}
	if len(own) < 5 {
		t.Fatalf("go list found %d packages: the rules would hold over nothing", len(own))
	}
	return own
}

// isStandard says whether an import path is the standard library's.
func isStandard(t *testing.T, importPath string) bool {
	t.Helper()
	all, err := listed()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, p := range all {
		if p.ImportPath == importPath {
			return p.Standard
		}
	}
	return importPath == "C" || importPath == "unsafe"
}

// sources returns every Go file of the module, tests included, those of other
// systems and build tags too.
func sources(t *testing.T) []source {
	t.Helper()
	dir := moduleRoot(t)
	var all []source
	for _, rel := range files(t) {
		if !strings.HasSuffix(rel, ".go") || strings.Contains(rel, "testdata/") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, filepath.Join(dir, rel), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, source{rel, file, fset, fset.File(file.Pos()).LineCount()})
	}
	return all
}

// files returns every file of the checkout, relative to its root, without what
// is built and without git's own.
func files(t *testing.T) []string {
	t.Helper()
	dir := moduleRoot(t)
	var all []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch rel {
		case ".git", ".cache", "bin", "dist", "out":
			if entry.IsDir() {
				return filepath.SkipDir
			}
		}
		if entry.Type().IsRegular() {
			all = append(all, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// matches says whether a package path fits one of the patterns: an exact path,
// or a path with "/..." for it and everything below.
func matches(path string, patterns []string) bool {
	for _, p := range patterns {
		if below, ok := strings.CutSuffix(p, "/..."); ok {
			if path == below || strings.HasPrefix(path, below+"/") {
				return true
			}
		} else if path == p {
			return true
		}
	}
	return false
}
