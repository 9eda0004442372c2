package packages

import (
	"maps"
	"strings"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/sandbox"
)

// A set is named behind what a request has in the variable, and before what its template has,
// so that neither hides the other. An image's set is of what the image is, under whichever ID
// it is shown.
func TestVariables(t *testing.T) {
	s := newStore(t)
	in := inside(t, host())
	in.Template.ID, in.Template.Layers, in.Template.Env = "sha256:aa", image.Layers{Dirs: []string{"1"}}, []string{"PYTHONPATH=/usr/lib/pinfold/python-1", "A=b"}
	w, err := s.Want("a", rich, in)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what        string
		asked, want map[string]string
	}{
		{"the template's", nil, map[string]string{"PYTHONPATH": sandbox.PythonPackagesDir + ":/usr/lib/pinfold/python-1"}},
		{"the request's", map[string]string{"PYTHONPATH": "/mine"}, map[string]string{"PYTHONPATH": "/mine:" + sandbox.PythonPackagesDir}},
	} {
		if got := w.Env(c.asked); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	at := func(id, is string) string {
		in.Template.ID, in.Image = id, is
		w, err := s.Want("a", rich, in)
		if err != nil {
			t.Fatal(err)
		}
		return w.Mounts()[0].Host
	}
	if at("sha256:aa", "") != at("sha256:bb", "sha256:aa") || at("sha256:aa", "") == at("sha256:bb", "") {
		t.Error("the set is not the image's")
	}
}

// blind is a driver that can show nothing.
type blind struct{ driver.Driver }

func (blind) Name() string                { return "process" }
func (blind) Abilities() driver.Abilities { return driver.Abilities{} }

// What a driver cannot show is refused, with those that can.
func TestDriverThatCannotShowPackages(t *testing.T) {
	e := sandbox.AsError(want(t, newStore(t), "a", rich).Showable(blind{}))
	if e == nil || e.Code != sandbox.CodePackagesFailed || e.Field != "packages" {
		t.Fatalf("%v", e)
	}
	for _, name := range []string{"native", "docker", "gvisor", "qemu"} {
		if !strings.Contains(e.Hint, name) {
			t.Errorf("%q does not name %s", e.Hint, name)
		}
	}
	t.Log(e.Hint)
}
