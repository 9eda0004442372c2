package archtest

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const specification = "docs/SPECIFICATION.md"

// The specification is tables of "| id | promise | test |". The last cell
// names tests as `package.TestName`, with a subtest or script after a slash
// where the promise is one of several that the test enforces; or it says
// pending.
var testRef = regexp.MustCompile("`([a-z0-9_/]+)\\.((?:Test|Fuzz)[A-Za-z0-9_]*)(?:/([^`]+))?`")

func TestEveryPromiseNamesATestThatExists(t *testing.T) {
	tests := testsByPackage(t)
	ids := make(map[string]bool)
	for _, row := range promises(t) {
		id, enforced := row[0], row[2]
		if ids[id] {
			t.Errorf("%s: two promises have this number", id)
		}
		ids[id] = true
		refs := testRef.FindAllStringSubmatch(enforced, -1)
		if len(refs) == 0 && !strings.HasPrefix(enforced, "pending") {
			t.Errorf("%s: names no test and is not pending: %q", id, enforced)
		}
		for _, ref := range refs {
			pkg, name, sub := ref[1], ref[2], ref[3]
			if !tests[pkg][name] {
				t.Errorf("%s: there is no %s in %s", id, name, pkg)
			} else if sub != "" && !mentions(t, pkg, path.Base(sub)) {
				t.Errorf("%s: nothing in %s is named %q", id, pkg, sub)
			}
		}
	}
	if len(ids) < 20 {
		t.Fatalf("%s has %d promises: its tables were not understood", specification, len(ids))
	}
}

// The attacks that other tests make are made by tests that exist.
func TestEveryAttackMadeElsewhereNamesATestThatExists(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(moduleRoot(t), "docs/attacks.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests, refs := testsByPackage(t), testRef.FindAllStringSubmatch(string(text), -1)
	for _, ref := range refs {
		if !tests[ref[1]][ref[2]] {
			t.Errorf("there is no %s in %s", ref[2], ref[1])
		}
	}
	if len(refs) < 20 {
		t.Fatalf("%d tests are named: the table was not understood", len(refs))
	}
}

// walkStop is a name on the walk of a run: a package's folder and what it declares, with
// a type's method or without.
var walkStop = regexp.MustCompile("`([a-z][a-z0-9_/]*)\\.([A-Za-z]\\w*)(?:\\.([A-Za-z]\\w*))?`")

// Every stop on the walk of a run exists by the name that the architecture page gives.
func TestEveryStopOfARunExists(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(moduleRoot(t), "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, walk, _ := strings.Cut(string(text), "\n## The life of a run\n")
	walk, _, _ = strings.Cut(walk, "\n## ")
	stops := walkStop.FindAllStringSubmatch(walk, -1)
	if len(stops) < 20 {
		t.Fatalf("the walk has %d stops: it was not understood", len(stops))
	}
	for _, stop := range stops {
		if !declares(t, stop[1], stop[2], stop[3]) {
			t.Errorf("there is no %s", stop[0])
		}
	}
}

// declares says whether a package declares a name, or a method or field of a type of
// that name.
func declares(t *testing.T, pkg, name, member string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(moduleRoot(t), pkg, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^(?:func|type) ` + name + `\b`)
	if member != "" {
		declared = regexp.MustCompile(`(?m)^func \(\w+ \*?` + name + `\) ` + member + `\(`)
	}
	for _, file := range files {
		source, err := os.ReadFile(file) //nolint:gosec // of this module
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") && declared.Match(source) {
			return true
		}
	}
	return false
}

// promises returns the cells of every row of the specification's tables.
func promises(t *testing.T) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot(t), specification))
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.SplitSeq(string(text), "\n") {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || strings.HasPrefix(cells[0], "---") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] != "#" { // the head of a table
			rows = append(rows, cells)
		}
	}
	return rows
}

// testsByPackage returns the names of the test functions of each package.
func testsByPackage(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := make(map[string]map[string]bool)
	for _, s := range sources(t) {
		if !s.isTest() {
			continue
		}
		dir := path.Dir(s.path)
		if all[dir] == nil {
			all[dir] = make(map[string]bool)
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				all[dir][f.Name.Name] = true
			}
		}
	}
	return all
}

// mentions says whether a subtest's name stands in the package, in the
// conformance suite, or as the name of a file below the package's testdata.
func mentions(t *testing.T, pkg, name string) bool {
	t.Helper()
	for _, rel := range files(t) {
		dir := path.Dir(rel)
		if strings.HasPrefix(dir, pkg+"/testdata") && strings.TrimSuffix(path.Base(rel), path.Ext(rel)) == name {
			return true
		}
		if (dir != pkg && dir != "internal/driver/drivertest") || !strings.HasSuffix(rel, ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(moduleRoot(t), rel))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), name) {
			return true
		}
	}
	return false
}

var (
	markdownLink = regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)]*)?\)`)
	makeCommand  = regexp.MustCompile("(?m)(?:^ {4}|`)make ([a-z]+)")
)

func TestDocumentsPointAtWhatExists(t *testing.T) {
	dir := moduleRoot(t)
	makefile, err := os.ReadFile(filepath.Join(dir, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, rel := range files(t) {
		if path.Ext(rel) != ".md" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, rel))
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range markdownLink.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(dir, path.Dir(rel), link[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", rel, link[1])
			}
		}
		for _, target := range makeCommand.FindAllStringSubmatch(string(text), -1) {
			if !regexp.MustCompile(`(?m)^` + target[1] + `:`).Match(makefile) {
				t.Errorf("%s says make %s, and the Makefile has no such target", rel, target[1])
			}
		}
	}
}
