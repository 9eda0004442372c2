package sandbox

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// constants are the values of the package's constants of a prefix.
func constants(t *testing.T, prefix string) []string {
	t.Helper()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range files {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, prefix) {
				return true
			}
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				found = append(found, text)
			}
			return true
		})
	}
	return found
}

// The lists have every word that there is, once.
func TestListsOfWordsAreWhole(t *testing.T) {
	var kinds []string
	for _, k := range CauseKinds() {
		kinds = append(kinds, string(k))
	}
	for prefix, listed := range map[string][]string{"Code": Codes(), "Cause": kinds} {
		want := constants(t, prefix)
		slices.Sort(want)
		slices.Sort(listed)
		if !slices.Equal(want, listed) {
			t.Errorf("%s: the constants are %v, the list has %v", prefix, want, listed)
		}
	}
}
