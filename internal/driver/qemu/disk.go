//go:build linux

package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"pinfold/internal/image"
	"pinfold/internal/linux/erofs"
	"pinfold/internal/linux/failure"
	"pinfold/sandbox"
)

// disks keeps the templates' disks. It is safe for concurrent use.
type disks struct {
	mu    sync.Mutex
	known map[string]*place // by Template.ID, and what is kept beside it
	turn  int
}

// place is where a template's disk is kept.
type place struct {
	making chan struct{} // has room for one, who guards disk
	disk   atomic.Pointer[disk]
	used   int // when it was used last; guarded by disks.mu
}

// disk is a template as a machine's disk.
type disk struct {
	*erofs.Image
	template image.Template
	kept     []sandbox.Mount // directories of the engine's beside it
	inside   image.Template  // the same, as the machine finds it
	stamp    string
	changed  atomic.Bool // something that it shows is not what it was
}

// maxDisks is of how many templates disks are kept, the last used: what describes an
// image of 100,000 files takes some 20 MB.
const maxDisks = 16

// ReadAt notices what has changed.
func (d *disk) ReadAt(p []byte, off int64) (int, error) {
	n, err := d.Image.ReadAt(p, off)
	if errors.Is(err, erofs.ErrChanged) {
		d.changed.Store(true)
	}
	return n, err
}

func isImage(t image.Template) bool { return len(t.Layers.Dirs) > 0 }

// stampOf changes with what a template shows, as far as a quick look tells. Of an image
// that is its record, which goes with it: what is in its layers never changes.
func stampOf(t image.Template, kept []sandbox.Mount) string {
	stamp := templateStamp(t)
	for _, m := range kept {
		stamp += " " + inodeStamp(m.Host)
	}
	return stamp
}

func templateStamp(t image.Template) string {
	if t.Layers.Record == "" {
		return t.Stamp(os.DirFS("/"), nil)
	}
	return inodeStamp(t.Layers.Record)
}

func inodeStamp(name string) string {
	info, err := os.Lstat(name)
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprint(st.Dev, st.Ino, st.Ctim)
}

// current says whether the disk shows what the template is now.
func (d *disk) current() bool {
	return d != nil && !d.changed.Load() && d.stamp == stampOf(d.template, d.kept)
}

// at returns the place of a template's disk, and has the one that was not used for longest
// go for it.
func (d *disks) at(id string) *place {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.known[id]
	if p == nil {
		p = &place{making: make(chan struct{}, 1)}
		if d.known == nil {
			d.known = map[string]*place{}
		}
		d.known[id] = p
	}
	d.turn++
	p.used = d.turn
	for len(d.known) > maxDisks {
		var oldest string
		for id, one := range d.known {
			if oldest == "" || one.used < d.known[oldest].used {
				oldest = id
			}
		}
		delete(d.known, oldest)
	}
	return p
}

// diskOf returns a template's disk. It is made anew when packages were installed or
// removed since, or an image was and came back, or somebody found a file changed.
func (d *Driver) diskOf(ctx context.Context, h *host, t image.Template, kept []sandbox.Mount) (*disk, error) {
	p := h.disk.at(fmt.Sprint(t.ID, kept))
	select {
	case p.making <- struct{}{}:
		defer func() { <-p.making }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	was := p.disk.Load()
	if was.current() {
		return was, nil
	}
	held, err := t.Hold()
	if err != nil {
		return nil, err
	}
	defer held.Close() //nolint:errcheck // only a lock
	made := &disk{template: t, kept: kept, inside: t, stamp: stampOf(t, kept)}
	if isImage(t) {
		made.inside.Layers = image.Layers{Under: "/", Dirs: []string{imageDir}}
		made.Image, err = imageDisk(ctx, t, kept)
	} else {
		made.Image, err = hostDisk(ctx, t, kept)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, failure.Of("make the machine's disk", err)
	}
	p.disk.Store(made)
	if was != nil {
		d.bases.dropDisk(was)
	}
	if isImage(t) {
		d.watchImages()
	}
	return made, nil
}

// removedAfter is how long an image can have been removed before what was made of it is.
const removedAfter = 30 * time.Second

// watchImages has what was made of images go when they do.
func (d *Driver) watchImages() {
	d.opening.Lock()
	defer d.opening.Unlock()
	if d.closed || d.watching != nil {
		return
	}
	d.watching = time.AfterFunc(removedAfter, func() {
		left := d.dropRemoved()
		d.opening.Lock()
		d.watching = nil
		d.opening.Unlock()
		if left {
			d.watchImages()
		}
	})
}

// dropRemoved drops what was made of images that are gone, and says whether some are left.
func (d *Driver) dropRemoved() (left bool) {
	gone := map[string]*disk{}
	disks := &d.host.disk
	disks.mu.Lock()
	for id, p := range disks.known {
		switch one := p.disk.Load(); {
		case one == nil || !isImage(one.template):
		case one.current():
			left = true
		default:
			gone[id] = one
			delete(disks.known, id)
		}
	}
	disks.mu.Unlock()
	for _, one := range gone {
		d.bases.dropDisk(one)
	}
	return left
}

// mountPoints are directories that the warden mounts something at.
var mountPoints = []string{"/proc", "/sys", "/dev", "/run", "/tmp"}

// keptAt is where a machine's disk has a directory that the engine keeps.
func keptAt(i int) string { return fmt.Sprintf("/kept/%d", i) }

func newDisk(ctx context.Context, kept []sandbox.Mount) (*erofs.Builder, error) {
	b := erofs.New()
	for _, dir := range mountPoints {
		if err := b.Dir(dir, 0o755, 0, 0); err != nil {
			return nil, err
		}
	}
	for i, m := range kept {
		if err := b.Tree(ctx, keptAt(i), m.Host); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// imageDir is where a machine's disk has an image.
const imageDir = "image"

// imageDisk shows an image's layers merged into one directory, beside the machine's own:
// nothing that an image has is where the warden mounts something.
func imageDisk(ctx context.Context, t image.Template, kept []sandbox.Mount) (*erofs.Image, error) {
	b, err := newDisk(ctx, kept)
	if err != nil {
		return nil, err
	}
	layers := make([]string, len(t.Layers.Dirs))
	for i, dir := range t.Layers.Dirs {
		layers[i] = filepath.Join(t.Layers.Under, dir)
	}
	if err := b.Merge(ctx, imageDir, layers); err != nil {
		return nil, err
	}
	return b.Image()
}

// hostDisk shows what the template shows of the host, under the same names. What the
// template makes up comes on top of it inside.
func hostDisk(ctx context.Context, t image.Template, kept []sandbox.Mount) (*erofs.Image, error) {
	b, err := newDisk(ctx, kept)
	if err != nil {
		return nil, err
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
