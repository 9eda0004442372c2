//go:build linux

package qemu

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"pinfold/internal/image"
	"pinfold/internal/linux/erofs"
)

// disks keeps the templates' disks. It is safe for concurrent use.
type disks struct {
	mu    sync.Mutex
	known map[string]*disk // by Template.ID
}

// disk is a template as a machine's disk.
type disk struct {
	*erofs.Image
	template image.Template
	stamp    string
	changed  atomic.Bool // something that it shows is not what it was
}

// ReadAt notices what has changed.
func (d *disk) ReadAt(p []byte, off int64) (int, error) {
	n, err := d.Image.ReadAt(p, off)
	if errors.Is(err, erofs.ErrChanged) {
		d.changed.Store(true)
	}
	return n, err
}

// of returns a template's disk. It is made anew when packages were installed or removed
// since, or somebody found a file changed.
func (d *disks) of(ctx context.Context, t image.Template) (*disk, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	root := os.DirFS("/")
	stamp := t.Stamp(root, nil)
	if have := d.known[t.ID]; have != nil && have.stamp == stamp && !have.changed.Load() {
		return have, nil
	}
	image, err := makeDisk(ctx, t)
	if err != nil {
		return nil, failed("make the machine's disk", err)
	}
	made := &disk{Image: image, template: t, stamp: stamp}
	if d.known == nil {
		d.known = map[string]*disk{}
	}
	d.known[t.ID] = made
	return made, nil
}

// mountPoints are directories that the warden mounts something at.
var mountPoints = []string{"/proc", "/sys", "/dev", "/run", "/tmp"}

// makeDisk shows what the template shows of the host, under the same names. What the
// template makes up comes on top of it inside.
func makeDisk(ctx context.Context, t image.Template) (*erofs.Image, error) {
	b := erofs.New()
	for _, dir := range mountPoints {
		if err := b.Dir(dir, 0o755, 0, 0); err != nil {
			return nil, err
		}
	}
	binds := slices.Clone(t.Binds)
	slices.SortFunc(binds, func(a, b image.Bind) int { return len(a.Source) - len(b.Source) }) // none comes after one below it
	for _, bind := range binds {
		if err := b.Tree(ctx, bind.Source, bind.Source); err != nil {
			return nil, err
		}
	}
	for _, l := range t.Links { // what programs on the disk expect, before there is a sandbox
		if err := b.Link(l.Path, l.Target); err != nil {
			return nil, err
		}
	}
	return b.Image()
}
