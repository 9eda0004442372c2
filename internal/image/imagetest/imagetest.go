// Package imagetest gives tests the template of the host that they run on.
package imagetest

import (
	"sync"
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
