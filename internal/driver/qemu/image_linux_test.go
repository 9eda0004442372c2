//go:build linux

package qemu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/image"
	"pinfold/internal/image/imagetest"
	"pinfold/sandbox"
)

// madeOf makes a machine of a template, which the caller destroys.
func madeOf(t *testing.T, d *Driver, shown image.Template) (*machine, error) {
	t.Helper()
	r, err := d.Probe(t.Context(), shown)
	if err != nil {
		return nil, err
	}
	if r.Blocked != nil {
		return nil, r.Blocked
	}
	plan, err := driver.MakePlan(sandbox.Spec{Code: "x"}.WithDefaults().Machine(), shown, r, fmt.Sprintf("t%d", time.Now().UnixNano()%1e12))
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Create(t.Context(), plan)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = m.Destroy(context.Background()) }) // once more, after a failure
	return m.(*machine), nil
}

// ofImage has a machine of a template say something.
func ofImage(t *testing.T, d *Driver, shown image.Template, script string) string {
	t.Helper()
	m, err := madeOf(t, d, shown)
	if err != nil {
		t.Fatal(err)
	}
	said := says(t, m, script)
	if err := m.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	return said
}

// TestConformanceOfImages holds machines of an image to the same.
func TestConformanceOfImages(t *testing.T) {
	o := options(t)
	d, shown := open(t, o), imagetest.Image(t)
	ofImage(t, d, shown, "true")
	conform(t, d, o, func(testing.TB) image.Template { return shown }, "report", "life", "living", "isolation") // limits and snapshots are the machine's, with any image
}

// A second machine of an image takes neither another disk nor another boot, and machines of
// another template have nothing of it.
func TestImage(t *testing.T) {
	d, shown := open(t, options(t)), imagetest.Image(t)
	for range 3 {
		drivertest.Image(t, shown, func(script string) string { return ofImage(t, d, shown, script) })
	}
	if n, disks := len(d.bases.known), len(d.host.disk.known); n != 2 || disks != 1 { // an empty one, and one with the sandbox
		t.Errorf("three machines took %d snapshots and %d disks", n, disks)
	}
	if out := ofImage(t, d, imagetest.Host(t), "cat /said 2>&1; ls -d /usr/games"); !strings.Contains(out, "No such file") || !strings.HasSuffix(out, "\n/usr/games\n") {
		t.Errorf("in a machine of the host's: %q", out)
	}
}

// Snapshots hold nothing of an image; what was made of one that is gone goes.
func TestImageIsHeld(t *testing.T) {
	d, shown := open(t, options(t)), imagetest.Image(t)
	create := func(string) (driver.Machine, error) { return madeOf(t, d, shown) }
	drivertest.ImageIsHeld(t, shown, create)
	if left := d.dropRemoved(); !left || len(d.bases.known) == 0 {
		t.Fatalf("control: of an image that is there %d snapshots are kept", len(d.bases.known))
	}
	drivertest.ImageIsGone(t, shown, func() {
		if left := d.dropRemoved(); left || len(d.bases.known) != 0 || len(d.host.disk.known) != 0 {
			t.Errorf("of an image that is gone %d snapshots and %d disks are kept", len(d.bases.known), len(d.host.disk.known))
		}
	}, create)
	if err := os.WriteFile(shown.Layers.Record, nil, 0o600); err != nil { // it came back
		t.Fatal(err)
	}
	if out := ofImage(t, d, shown, "cat /said"); out != "of the upper layer\n" {
		t.Errorf("of one that came back: %q", out)
	}
}

func TestHostileImage(t *testing.T) {
	d, shown := open(t, options(t)), imagetest.Image(t)
	drivertest.HostileImage(t, shown, func(script string) string { return ofImage(t, d, shown, script) })
}

// An image that cannot be shown is refused with the reason, and others are made all the same.
func TestImageThatCannotBeShown(t *testing.T) {
	d, shown := open(t, options(t)), imagetest.Image(t)
	broken := shown
	broken.ID, broken.Layers.Dirs = "broken", append([]string{strings.TrimPrefix(t.TempDir(), "/") + "/gone"}, shown.Layers.Dirs...)
	if _, err := madeOf(t, d, broken); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
	if out := ofImage(t, d, shown, "cat /said"); out != "of the upper layer\n" {
		t.Errorf("of another: %q", out)
	}
}

// Disks are kept of the templates that were used last.
func TestDisksAreBounded(t *testing.T) {
	var d disks
	first := d.at("first")
	for i := range maxDisks + 5 {
		d.at(fmt.Sprint(i))
		if d.at("first") != first {
			t.Fatalf("the one that is used is gone after %d others", i+1)
		}
	}
	if len(d.known) != maxDisks || d.known["0"] != nil {
		t.Errorf("%d are kept", len(d.known))
	}
}

// conform runs the contract's suite. Its tests share a driver that has looked at the host
// and booted a machine: each would do so again, which takes many seconds.
func conform(t *testing.T, d *Driver, o Options, template func(testing.TB) image.Template, groups ...string) {
	t.Helper()
	drivertest.Run(t, func(t *testing.T) driver.Driver {
		t.Helper()
		kept := maps.Clone(d.bases.known)
		t.Cleanup(func() { d.forget(kept) })
		return d
	}, drivertest.Options{
		Template: template,
		Again:    groups != nil,
		Groups:   groups,
		Kernel:   true,
		Isolated: true,
		Host:     true,
		KillAgent: func(m driver.Machine) error {
			one, ok := m.(*machine)
			if !ok {
				return errors.New("it is no virtual machine")
			}
			return one.process.child.Kill()
		},
		Break: func(_ *testing.T, p *driver.Plan) string {
			p.Limits.MemoryBytes = 1 << 50
			return "boot"
		},
		State: []string{o.StateDir},
	})
}
