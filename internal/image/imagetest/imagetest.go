// Package imagetest gives tests the template of the host that they run on.
package imagetest

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"pinfold/internal/image"
	"pinfold/sandbox"
)

var look = sync.OnceValues(func() (image.Template, error) { return image.Host(image.HostTree()) })

// Host describes the host, which is looked at once. Without a usable one the test ends.
func Host(tb testing.TB) image.Template {
	tb.Helper()
	t, err := look()
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// Templates are those by name: there is none but the host.
func Templates(name string) (image.Template, error) {
	if name != sandbox.TemplateHost {
		return image.Template{}, &sandbox.Error{Code: sandbox.CodeTemplateUnknown, Field: "template", Message: "no such template"}
	}
	return look()
}

// Image is a template that is an image: in its lower layer are the programs of this host's
// /usr, and in the upper a file and a mark that hides a directory.
func Image(tb testing.TB) image.Template {
	tb.Helper()
	dir := tb.TempDir()
	record, top := filepath.Join(dir, "record"), filepath.Join(dir, "top")
	for _, err := range []error{
		os.Chmod(filepath.Dir(dir), 0o711), // a sandbox's first process goes through it
		os.WriteFile(record, nil, 0o600), os.Mkdir(top, 0o755),
		os.WriteFile(filepath.Join(top, "said"), []byte("of the upper layer\n"), 0o644),
		os.Symlink(".", filepath.Join(top, "usr")), // Python looks there for its own modules
		syscall.Mknod(filepath.Join(top, "games"), syscall.S_IFCHR, 0),
	} {
		if err != nil {
			tb.Fatal(err)
		}
	}
	layers := image.Layers{Under: "/", Dirs: []string{strings.TrimPrefix(top, "/"), "usr"}, Record: record}
	return image.Layered(os.DirFS("/usr"), "programs", top, layers, image.User{}, []string{"GREETING=hello"}, []string{"sh", "python3"})
}
