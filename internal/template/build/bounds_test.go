package build

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pinfold/sandbox"
)

// A program that stands in for tar makes the host remember no more than tar could: neither by
// how many files it names nor by how long their names are.
func TestArchiveCostsBoundedMemory(t *testing.T) {
	long := strings.Repeat("x/", 500_000) + "x" // a name may have as many bytes as a PAX header takes
	for what, one := range map[string]struct {
		count int
		make  func(i int) tar.Header
	}{
		"many": {boxInodes + 1, func(i int) tar.Header {
			return tar.Header{Name: fmt.Sprint("opt/", i), Typeflag: tar.TypeSymlink, Linkname: "x"}
		}},
		"long names": {70, func(i int) tar.Header {
			return tar.Header{Name: fmt.Sprint("opt/", i, "/", long), Typeflag: tar.TypeReg}
		}},
		"long links": {70, func(i int) tar.Header {
			return tar.Header{Name: fmt.Sprint("opt/", i), Typeflag: tar.TypeSymlink, Linkname: long}
		}},
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "spool"))
		if err != nil {
			t.Fatal(err)
		}
		buffer := bufio.NewWriterSize(f, 1<<20)
		w := tar.NewWriter(buffer)
		for i := range one.count {
			h := one.make(i)
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), buffer.Flush()); err != nil {
			t.Fatal(err)
		}
		c := &changes{spool: f, places: []string{"/opt"}}
		if err := c.look(t.Context()); err == nil || sandbox.AsError(err).Code != sandbox.CodeTooLarge {
			t.Errorf("%s: %d names are in memory: %v", what, len(c.found), err)
		}
		_ = f.Close()
	}
}
