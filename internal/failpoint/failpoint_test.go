package failpoint

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every moment stands in the source, once, and every one there has a name here.
func TestNames(t *testing.T) {
	call := regexp.MustCompile(`failpoint\.Hit\("([^"]*)"\)`)
	var found []string
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		b, err := fs.ReadFile(root, name)
		for _, m := range call.FindAllSubmatch(b, -1) {
			found = append(found, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Names()
	slices.Sort(want)
	slices.Sort(found)
	if !slices.Equal(found, want) {
		t.Errorf("in the source: %v\nin the table: %v", found, want)
	}
}
