//go:build linux

package native

import (
	"strings"

	"golang.org/x/sys/unix"
	"pinfold/internal/image"
	"pinfold/internal/linux/mount"
	"pinfold/internal/linux/spawn"
)

// # Views
//
// A sandbox sees directories of the host, and must not touch them. A bind mount, be it
// read-only, shows the host's own inodes: who watches, locks, stamps or flushes one
// does so for the host and for every other sandbox. So each sandbox sees them through
// overlays of its own, whose inodes nobody else has (mount.Overlay). Each overlay is
// of one directory, without what is mounted below it; that gets one of its own.
// Files are too small for that: a sandbox gets copies (copies.go).
//
// In a user namespace the kernel makes no overlay of a directory with mounts below
// it, since these hide something. Then root's sandboxes stand on prepared mounts, which
// hold each file system alone; ordinary users' have plain views, and their results
// say so.

// view is a part of the host that will be seen inside.
type view struct {
	target string
	dir    bool
	tree   mount.Tree // where it is a plain one
	lower  string     // otherwise: what to lay an overlay of the sandbox's own over
}

// show makes it visible in the root at a path.
func (v view) show(p *spawn.Program, at string, made map[string]bool) {
	if at == "" {
		v.makeTarget(p, made) // it is there already where it lies in another view
	}
	if v.lower == "" {
		v.tree.Attach(p, at+rel(v.target))
		return
	}
	// The kernel makes no overlay of one directory.
	mount.Overlay(p, []string{v.lower, emptyDir}, at+rel(v.target), unix.MS_NOSUID|unix.MS_NODEV)
}

// emptyDir is a directory of the sandbox's root, in which there is nothing.
const emptyDir = "dev/pts"

// makeTarget makes the file or directory that the view will cover, and the
// directories above that are not made yet.
func (v view) makeTarget(p *spawn.Program, made map[string]bool) {
	mkdir := func(path string) {
		if !made[path] {
			mount.Mkdir(p, path, 0o755)
			made[path] = true
		}
	}
	for i, c := range v.target[1:] {
		if c == '/' {
			mkdir(v.target[1 : i+1])
		}
	}
	if v.dir {
		mkdir(rel(v.target))
	} else {
		mount.WriteFile(p, rel(v.target), nil, 0o644)
	}
}

// hostView is a view of the host that every sandbox has.
type hostView struct {
	source, target string
	dir            bool
	layered        bool // through an overlay of the sandbox's own
	flags          uint64
}

// hostViews lists them, what is inside another behind it. nested are the places of
// mounts below what the template shows.
func hostViews(t image.Template, layered, ownDevices bool, nested []string) []hostView {
	var all []hostView
	for _, b := range t.Binds {
		if !b.Dir {
			continue
		}
		all = append(all, hostView{b.Source, b.Target, true, layered, viewFlags | mount.ReadOnly})
		for _, n := range nested {
			if below, ok := strings.CutPrefix(n, b.Source+"/"); ok && layered {
				all = append(all, hostView{n, b.Target + "/" + below, true, true, viewFlags | mount.ReadOnly})
			}
		}
	}
	if ownDevices {
		return all
	}
	// Read-only, so that nobody can stamp them: it keeps nobody from writing to the
	// device.
	for _, d := range devices {
		path := "/dev/" + d.Name
		all = append(all, hostView{path, path, false, false, mount.ReadOnly | mount.NoSuid | mount.NoExec})
	}
	return all
}

// openViews takes hold of every part of the host before the new root hides it.
func (n *initSpec) openViews(p *spawn.Program) []view {
	var views []view
	for i, b := range hostViews(n.template, n.layered, n.ownDevices, n.nested) {
		v := view{target: b.target, dir: b.dir}
		if n.onPrepared {
			b.source, b.flags = preparedView(i), 0
		}
		if b.layered {
			v.lower = b.source
		} else {
			v.tree = mount.Clone(p, b.source, b.dir, b.flags)
		}
		views = append(views, v)
	}
	for i := range n.mounts {
		views = append(views, n.viewOf(p, i))
	}
	return views
}
