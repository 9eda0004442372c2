//go:build linux

package native

import (
	"pinfold/internal/image"
	"pinfold/internal/linux/mount"
	"pinfold/internal/linux/spawn"
)

// devices are the device files that every sandbox has. They are views of the
// host's and the only mounts without nodev. tty is whatever terminal the process
// that opens it has been given, and none without.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// view is a part of the host that will be seen inside.
type view struct {
	target string
	dir    bool
	tree   mount.Tree
}

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
	flags          uint64
}

// hostViews lists them.
func hostViews(t image.Template) []hostView {
	var all []hostView
	for _, b := range t.Binds {
		all = append(all, hostView{b.Source, b.Target, b.Dir, viewFlags | mount.ReadOnly})
	}
	for _, d := range devices {
		all = append(all, hostView{"/dev/" + d, "/dev/" + d, false, mount.NoSuid | mount.NoExec})
	}
	return all
}

// openViews takes hold of every part of the host before the new root hides it.
func (n *pen) openViews(p *spawn.Program) []view {
	var views []view
	for i, b := range hostViews(n.template) {
		if n.onGround {
			b.source, b.flags = groundView(i), 0
		}
		views = append(views, view{target: b.target, dir: b.dir, tree: mount.Clone(p, b.source, b.dir, b.flags)})
	}
	for i := range n.mounts {
		views = append(views, n.viewOf(p, i))
	}
	return views
}
