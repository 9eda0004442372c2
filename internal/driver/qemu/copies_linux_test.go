//go:build linux

package qemu

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/internal/image"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/language"
	"pinfold/internal/wire"
	"pinfold/internal/zygote"
	"pinfold/internal/zygote/warm"
	"pinfold/internal/zygote/zygotetest"
	"pinfold/sandbox"
)

// waiting is a machine that was kept while an interpreter waited in it.
type waiting struct {
	kept  driver.Kept
	state guest.State
	plan  driver.Plan
}

// keep keeps a machine with an interpreter in it that has loaded a module, called treasure.
// edited changes the interpreter's own files.
func keep(t *testing.T, d *Driver, module string, edited func(name, content string) string) *waiting {
	t.Helper()
	return keepOf(t, d, imagetest.Host(t), module, edited)
}

func keepOf(t *testing.T, d *Driver, shown image.Template, module string, edited func(name, content string) string) *waiting {
	t.Helper()
	r, err := d.Probe(t.Context(), shown)
	if err != nil || r.Blocked != nil {
		t.Fatalf("%v, %+v", err, r.Blocked)
	}
	plan, err := driver.MakePlan(sandbox.Spec{Code: "x"}.WithDefaults().Machine(), shown, r, fmt.Sprintf("o%d", time.Now().UnixNano()%1e12))
	if err != nil {
		t.Fatal(err)
	}
	o, err := d.CreateOriginal(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := o.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	python, err := language.Find("python")
	if err != nil {
		t.Fatal(err)
	}
	step, _, err := python.CopiedStep([]string{"treasure"}, plan.Limits, func(names []string) (string, bool) { return plan.Template.Lookup(os.DirFS("/"), names) })
	if err != nil {
		t.Fatal(err)
	}
	conn, err := o.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g, err := guest.New(t.Context(), conn, hello(plan))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	files := []wire.PutFile{{Path: step.Dir + "/treasure.py", Mode: 0o644, Content: []byte(module)}}
	for _, f := range step.Files {
		files = append(files, wire.PutFile{Path: f.Path, Mode: 0o644, Content: []byte(edited(path.Base(f.Path), string(f.Content)))})
	}
	if _, err := g.Put(t.Context(), files); err != nil {
		t.Fatal(err)
	}
	i, err := warm.Start(t.Context(), g, guest.Command{Args: step.Args, Env: append(step.Env, "HOME="+sandbox.Home), Dir: sandbox.Home}, step.Modules)
	if err != nil {
		t.Fatal(err)
	}
	w := &waiting{plan: plan}
	if w.state, err = i.State(t.Context(), sandbox.Home); err == nil {
		w.kept, err = o.Keep(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.kept.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func hello(p driver.Plan) wire.Hello {
	return wire.Hello{UID: sandbox.UID, GID: sandbox.GID, SwitchUser: p.SwitchUser, Home: sandbox.Home}
}

// says has a copy run a program, and returns what it says by key.
func (w *waiting) says(t *testing.T, code string) map[string]string {
	t.Helper()
	plan := w.plan.Named(fmt.Sprintf("c%d", time.Now().UnixNano()%1e12))
	m, err := w.kept.Copy(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	conn, err := m.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g, i := warm.Copied(conn, hello(plan), w.state)
	defer g.Close()
	var out, errs bytes.Buffer
	code = "def say(key, value): print(key, value)\n" + code
	p, err := i.Begin(zygote.Handover{File: "main.py", Code: &code}, nil, guest.Streams{Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if e, err := p.Wait(ctx); err != nil || e.Code != 0 {
		t.Fatalf("%+v, %v: %s%s", e, err, &out, &errs)
	}
	values := map[string]string{}
	for line := range strings.Lines(out.String()) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		values[key] = value
	}
	return values
}

// clocks and ids of a machine.
const identity = `
import time
say("urandom_first", os.urandom(16).hex()) if (os := __import__("os")) else None
say("boot_id", open("/proc/sys/kernel/random/boot_id").read().strip()); say("wall", time.time())
say("btime", [l for l in open("/proc/stat") if l.startswith("btime")][0].split()[1])
`

// alike lists what two copies have in common, of so many things.
func (w *waiting) alike(t *testing.T, apart time.Duration) (shared []string, first map[string]string) {
	t.Helper()
	first = w.says(t, identity+zygotetest.HoardCode)
	time.Sleep(apart)
	second := w.says(t, identity+zygotetest.HoardCode)
	late := time.Now().UnixNano()
	for key, value := range first {
		if second[key] == value || second[key] == "" {
			shared = append(shared, key)
		}
	}
	var wall float64
	if _, err := fmt.Sscan(second["wall"], &wall); err != nil {
		t.Fatal(err)
	}
	if off := time.Duration(late - int64(wall*1e9)); off > apart-time.Second {
		shared = append(shared, "clock")
	}
	slices.Sort(shared)
	return shared, first
}

func asItIs(_, content string) string { return content }

// Copies of a machine in which an interpreter waits share no random number, no id, no key
// and no clock.
func TestCopiesAreStrangers(t *testing.T) {
	w := keep(t, open(t, options(t)), zygotetest.Hoard, asItIs)
	shared, first := w.alike(t, 0)
	shared = slices.DeleteFunc(shared, func(key string) bool { return key == "clock" || key == "btime" }) // they are of one moment
	if len(shared) > 0 || len(first) < 18 {
		t.Errorf("of %d, two copies share %v", len(first), shared)
	}
}

// The control: without what makes them strangers copies share all that was begun before the
// machine was kept, and also what they draw from its kernel.
func TestCopiesThatAreAlike(t *testing.T) {
	o := options(t)
	o.stale = true
	d := open(t, o)
	for range 6 { // whether a kept kernel begins anew when it is asked, as each does some seconds after it has, was settled when it was kept
		w := keep(t, d, zygotetest.Hoard, func(name, content string) string {
			if name == "pinfold_siblings.py" {
				return strings.Replace(content, "    begin_anew(numbers)\n", "", 1)
			}
			return content
		})
		shared, first := w.alike(t, 2*time.Second)
		want := slices.Concat(zygotetest.Drawn, []string{"boot_id", "clock", "ssl"})
		if _, numpy := first["numpy"]; numpy {
			want = slices.Concat(want, zygotetest.DrawnByNumpy)
		}
		for _, key := range want {
			if !slices.Contains(shared, key) {
				t.Fatalf("%s is not shared: %v", key, shared)
			}
		}
		if slices.Contains(shared, "urandom_first") {
			return
		}
	}
	t.Error("no two copies drew the same from their kernels: nothing is shown")
}

// An interpreter of an image waits in copies as one of the host's does.
func TestCopiesOfAnImage(t *testing.T) {
	w := keepOf(t, open(t, options(t)), imagetest.Image(t), "said = open('/said').read().strip()", asItIs)
	for range 2 {
		if said := w.says(t, "import treasure\nsay('module', treasure.said); say('file', open('/said').read().strip())"); said["module"] != "of the upper layer" || said["file"] != said["module"] {
			t.Errorf("it says %v", said)
		}
	}
}

// What was kept is of no use with another QEMU or for another size, and says so.
func TestKeptOfAnother(t *testing.T) {
	d := open(t, options(t))
	w := keep(t, d, "", asItIs)
	for what, c := range map[string]func(k *kept, p *driver.Plan){
		"another QEMU":     func(k *kept, _ *driver.Plan) { k.key.qemu.Ino++ },
		"another size":     func(_ *kept, p *driver.Plan) { p.Limits.MemoryBytes *= 4 },
		"another template": func(k *kept, _ *driver.Plan) { k.key.disk = &disk{} },
	} {
		k, plan := w.kept.(*kept), w.plan.Named("another")
		was := k.key
		c(k, &plan)
		m, err := k.Copy(t.Context(), plan)
		k.key = was
		if err == nil {
			_ = m.Destroy(t.Context())
		}
		if err == nil || sandbox.AsError(err).Code != sandbox.CodeConflict {
			t.Errorf("%s: %v", what, err)
		}
	}
	if said := w.says(t, "say('ok', 6 * 7)"); said["ok"] != "42" {
		t.Errorf("it says %v", said)
	}
}
