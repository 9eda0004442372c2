package docker

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	ours "pinfold/internal/image"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/template"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// stored makes a template of the programs of testImage, with a layer over them that hides
// some: what the engine has under the name testImage has no part in it.
func stored(t *testing.T) ours.Template {
	t.Helper()
	return storedFor(t, ours.User{UID: 1001, GID: 1002, Name: "app", Home: "/srv/app"})
}

func storedFor(t *testing.T, user ours.User) ours.Template {
	t.Helper()
	dir := t.TempDir()
	s, err := template.Open(filepath.Join(dir, "templates"), template.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Import(t.Context(), bytes.NewReader(packImage(t)), template.Import{Name: "small", Format: template.Root}); err != nil {
		t.Fatal(err)
	}
	small, err := s.Resolve("small", []string{"sh"})
	if err != nil {
		t.Fatal(err)
	}
	top, record := filepath.Join(dir, "top"), filepath.Join(dir, "record")
	lower := filepath.Join(small.Layers.Under, small.Layers.Dirs[0])
	for _, err := range []error{
		os.MkdirAll(filepath.Join(top, "usr/bin"), 0o755), os.Mkdir(filepath.Join(top, "etc"), 0o755), os.WriteFile(record, nil, 0o600),
		os.WriteFile(filepath.Join(top, "said"), []byte("of the upper layer\n"), 0o644),
		unix.Mknod(filepath.Join(top, "usr/bin/seq"), unix.S_IFCHR, 0),
		unix.Mknod(filepath.Join(top, "etc/shadow"), unix.S_IFCHR, 0), unix.Mknod(filepath.Join(top, "root"), unix.S_IFCHR, 0), // which everybody may read in an image
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	layers := ours.Layers{Under: "/", Dirs: []string{top[1:], lower[1:]}, Record: record}
	return ours.Layered(os.DirFS(lower), "small", dir, layers, user, []string{"GREETING=hello"}, []string{"sh"})
}

func TestConformanceOfImages(t *testing.T) {
	small := storedFor(t, ours.User{})
	conformOf(t, &theDaemon, "create the container", func(testing.TB) ours.Template { return small })
}

// Podman has the same copies by the same names. What holds machines is that engine's with
// any image.
func TestConformanceOfImagesOfPodman(t *testing.T) {
	small := storedFor(t, ours.User{})
	conformOf(t, &thePodman, "start the container", func(testing.TB) ours.Template { return small }, "report", "living")
}

func planOf(t *testing.T, d *Driver, of ours.Template, id string) driver.Plan {
	t.Helper()
	r, err := d.Probe(t.Context(), of)
	if err != nil || r.Blocked != nil {
		t.Fatalf("%v, %+v", err, r.Blocked)
	}
	p, err := driver.MakePlan(sandbox.Spec{Code: "x"}.WithDefaults().Machine(), of, r, id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func created(t *testing.T, d *Driver, plan driver.Plan) driver.Machine {
	t.Helper()
	m, err := d.Create(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return m
}

// What is inside is the template's layers, the upper over the lower, and what it has in the
// place of the sandbox's own directories leads nowhere.
func TestImage(t *testing.T) {
	where := engineForTests(t)
	state := stateDir(t)
	ledger.Check(t, state)
	d, of := open(t, where, state), stored(t)
	top := "/" + of.Layers.Dirs[0]
	for name, to := range map[string]string{"tmp": "/etc", "srv": "/usr/bin", "dev": "/tmp", "proc": "/usr", "sys": "/usr", "run": "/", "var": "/usr"} {
		if err := os.Symlink(to, filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	const script = `
cat /said; test -e /usr/bin/seq || echo no seq
for d in /tmp /srv /srv/app /dev /proc /sys /run /var /var/tmp; do test -d $d && ! test -L $d || echo $d; done
for f in /x /etc/x /usr/bin/x /said; do (echo > $f) 2>/dev/null || echo read-only; done
echo mine > /srv/app/x && echo mine > /tmp/x && cat /srv/app/x /etc/passwd; ls /etc/x /usr/bin/app 2>/dev/null`
	plan := planOf(t, d, of, "image")
	out := run(t, created(t, d, plan), plan, "/bin/sh", "-c", script)
	want := "of the upper layer\nno seq\n" + strings.Repeat("read-only\n", 4) + "mine\napp:x:1001:1002::/srv/app:/bin/sh\nroot:x:0:0::/:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"
	if out != want {
		t.Errorf("inside:\n%s\nwant\n%s", out, want)
	}
	host := planFor(t, d, "host")
	if out := run(t, created(t, d, host), host, "/bin/sh", "-c", "test -e /usr/bin/seq && ! test -e /said && echo another"); out != "another\n" {
		t.Errorf("control: the configured image says %q", out)
	}
}

// Programs of the template host are those of the configured image, not of this host.
func TestConfiguredImage(t *testing.T) {
	host := imagetest.Host(t)
	if _, ok := host.Lookup(os.DirFS("/"), []string{"perl"}); !ok {
		t.Fatal("control: this host has no Perl either")
	}
	for name, e := range map[string]*testEngine{"Docker": &theDaemon, "Podman": &thePodman} {
		t.Run(name, func(t *testing.T) {
			d := open(t, e.address(t), e.stateDir(t))
			d.o.Programs = []string{"perl", "sh"}
			r, err := d.Probe(t.Context(), host)
			if err != nil || r.Blocked != nil || r.Template == nil {
				t.Fatalf("%v, %+v", err, r)
			}
			if sh, ok := r.Template.Lookup(os.DirFS("/"), []string{"sh"}); !ok || sh != "/usr/bin/sh" || r.Template.ID == host.ID {
				t.Errorf("sh is %q in %s", sh, r.Template.ID)
			}
			if path, ok := r.Template.Lookup(os.DirFS("/"), []string{"perl"}); ok {
				t.Errorf("it has a Perl at %s", path)
			}
			if again, err := d.Probe(t.Context(), host); err != nil || again.Template != r.Template {
				t.Errorf("it is looked at again: %v", err)
			}
		})
	}
}

// copiesOf lists what the engine has for a driver.
func copiesOf(t *testing.T, d *Driver) []image.Summary {
	t.Helper()
	engine, err := d.engine()
	if err != nil {
		t.Fatal(err)
	}
	list, err := engine.ImageList(t.Context(), client.ImageListOptions{Filters: make(client.Filters).Add("label", labelState+"="+d.o.StateDir)})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// The engine gets one copy of a template, however many ask for it at once; it is removed
// when the template is, and when no container is of it any more.
func TestCopies(t *testing.T) {
	where := engineForTests(t)
	d, of := open(t, where, stateDir(t)), stored(t)
	plan := planOf(t, d, of, "first")
	var all sync.WaitGroup
	machines := make([]driver.Machine, 4)
	for i := range machines {
		all.Go(func() { machines[i], _ = d.Create(t.Context(), plan.Named("copies-"+string(rune('a'+i)))) })
	}
	all.Wait()
	for _, m := range machines {
		if m == nil {
			t.Fatal("not every one was made")
		}
	}
	if has := copiesOf(t, d); len(has) != 1 || has[0].RepoTags[0] != d.o.image(of) {
		t.Fatalf("the engine has %+v", has)
	}
	collect := func() []driver.Leftover {
		t.Helper()
		gone, err := d.Leftovers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return gone
	}
	if gone := collect(); len(gone) > 0 || len(copiesOf(t, d)) != 1 {
		t.Errorf("control: of a template that is there it removes %+v", gone)
	}
	if err := os.Remove(of.Layers.Record); err != nil {
		t.Fatal(err)
	}
	if gone := collect(); len(gone) > 0 || len(copiesOf(t, d)) != 1 {
		t.Errorf("while there are machines of it, it removes %+v", gone)
	}
	lives := planOf(t, d, of, "copies-a")
	if out := run(t, machines[0], lives, "/bin/cat", "/said"); out != "of the upper layer\n" {
		t.Errorf("a machine of a template that is gone says %q", out)
	}
	for _, m := range machines {
		if err := m.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if gone := collect(); len(gone) != 1 || gone[0].Err != nil || gone[0].Kind != "image" || len(copiesOf(t, d)) != 0 {
		t.Errorf("without machines, it removes %+v", gone)
	}
}

// Of a template that is gone, or that nobody waits for any more, the engine gets nothing.
func TestNoCopy(t *testing.T) {
	where := engineForTests(t)
	d, of := open(t, where, stateDir(t)), stored(t)
	plan := planOf(t, d, of, "none")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Create(over, plan); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits: %v", err)
	}
	if err := os.Rename("/"+of.Layers.Dirs[1], "/"+of.Layers.Dirs[1]+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(t.Context(), plan); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a layer is gone: %v", err)
	}
	if err := os.Remove(of.Layers.Record); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(t.Context(), plan); err == nil || sandbox.AsError(err).Code != sandbox.CodeTemplateUnknown {
		t.Errorf("the template is gone: %v", err)
	}
	if has := copiesOf(t, d); len(has) != 0 {
		t.Errorf("the engine has %+v", has)
	}
	if entries, err := os.ReadDir(d.o.StateDir); err != nil || len(entries) != 1 { // the agent's
		t.Errorf("there is %v, %v", entries, err)
	}
}

// A copy that nobody waits for any more is whole or not there, and is made when it is asked
// for again.
func TestCopyIsCutShort(t *testing.T) {
	where := engineForTests(t)
	d, of := open(t, where, stateDir(t)), stored(t)
	cut := 0
	for after := time.Millisecond; after < time.Minute; after *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		done, err := d.haveImage(ctx, of)
		cancel()
		if has := copiesOf(t, d); len(has) > 1 || len(has) == 1 && (len(has[0].RepoTags) != 1 || has[0].RepoTags[0] != d.o.image(of)) {
			t.Fatalf("after %v the engine has %+v", after, has)
		}
		if err == nil {
			done()
			break
		}
		cut++
	}
	if cut == 0 {
		t.Error("none was cut short")
	}
	plan := planOf(t, d, of, "whole")
	if out := run(t, created(t, d, plan), plan, "/bin/cat", "/said"); out != "of the upper layer\n" {
		t.Errorf("it says %q", out)
	}
}

// Of very many copies those go that were not used for the longest time, and none that
// somebody is making a machine of.
func TestTooManyCopies(t *testing.T) {
	record := filepath.Join(t.TempDir(), "record")
	if err := os.WriteFile(record, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var c copies
	var all []image.Summary
	for i := range maxCopies + 4 {
		all = append(all, image.Summary{RepoTags: []string{string(rune('A' + i))}, Created: int64(i), Labels: map[string]string{labelRecord: record}})
	}
	_, done := c.use("A")
	_, used := c.use("B")
	used()
	removing := c.unneeded(all)
	var names []string
	for _, u := range removing {
		names = append(names, u.name)
	}
	if got := strings.Join(names, ""); got != "CDE" {
		t.Errorf("it removes %q", got)
	}
	done()
	one, free := c.use("C") // which is being removed
	select {
	case one.turn <- struct{}{}:
		t.Error("a machine is made of what is being removed")
	case <-time.After(10 * time.Millisecond):
	}
	free()
}
