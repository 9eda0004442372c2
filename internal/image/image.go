// Package image describes what a sandbox's root holds before anything runs in
// it: which host paths are visible, which links, directories and files are
// made, and which places can be written to. A Template is data; drivers carry
// it out. The package mounts, writes and starts nothing.
//
// The template "host" (see Host) is the host's own programs with
// a made-up /etc. Nothing of the host's /root, /home, /opt, /srv, /var, /run,
// /boot, /media or /mnt is in it. All others are images (see Layered).
package image

import (
	"fmt"
	"io/fs"
	"strings"

	"pinfold/sandbox"
)

// SearchPath is where programs are looked up in a sandbox, in the form of the
// PATH variable.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin"

// Template is what a sandbox's root holds. All paths are absolute and clean,
// no path is in two of the lists, and an order that works is Dirs, Links,
// Files, Writable, Binds. The mount points of Writable and Binds are the
// driver's to make; the directories above them are in Dirs.
//
// Everything is owned by root and read-only for the sandbox, except Writable.
type Template struct {
	Name     string
	ID       string   // changes with what is in it, as far as that is not the host's to change
	User     User     // who programs are
	WorkDir  string   // where commands start that say nothing of it; "": at home
	Start    Start    // what living sandboxes begin with
	Home     Home     // what there is in the user's home from the beginning
	Layers   Layers   // of an image, below everything else; none: the root begins empty
	Env      []string // of programs, K=V, as the image says
	Dirs     []Dir    // directories of the root, parents first
	Binds    []Bind   // host paths shown read-only
	Links    []Link   // symbolic links
	Files    []File   // small made-up or copied files
	Writable []Dir    // places that the driver makes writable, within the disk limits

	// Programs lists the directories in which programs are found, in order:
	// those of SearchPath and compilers' own. Use Lookup.
	Programs []string
	Commands map[string]string // of an image: where programs are, by name
}

// Start is what a living sandbox begins with, as an image says. The commands are lines for
// /bin/sh.
type Start struct {
	Command string `json:"command,omitempty"` // is started; none: nothing is
	Ready   string `json:"ready,omitempty"`   // succeeds when that is ready; none: it is at once
	// WithinMS is how long that may take, in milliseconds.
	WithinMS int64 `json:"within_ms,omitempty"`
}

// Home is how much an image has where its user's home is: what sandboxes of it begin with
// a copy of, which is the user's.
type Home struct {
	Bytes   int64 // of disk, whole pages
	Entries int64
}

// User is a user inside a sandbox. Its ids are those that are seen there.
type User struct {
	UID, GID   int
	Name, Home string // the home is also the working directory
	Tmp        string // for its temporary files
}

// Bind shows the host's Source, and everything mounted below it, at Target,
// read-only. Dir says that Source is a directory and not a file. Nothing that is done
// to what is shown may reach the host or be noticed in another sandbox: a driver shows
// a layer of the sandbox's own, or a copy.
type Bind struct {
	Source, Target string
	Dir            bool
}

// Link is a symbolic link at Path that says Target.
type Link struct {
	Target, Path string
}

// Dir is a directory. Mode holds the permission bits, the sticky bit as 0o1000.
// UID is both the owner and the group, as numbers inside the sandbox.
type Dir struct {
	Path string
	Mode uint32
	UID  int
}

// File is a file of root's with the given permission bits.
type File struct {
	Path    string
	Mode    uint32
	Content []byte
}

// Lookup finds the first of the candidate programs that exists in the
// template, and returns its absolute path in the sandbox. root is the host's
// file tree, as for Host, and is looked at afresh by each call.
//
// A candidate counts only when the file that it leads to, through every
// symbolic link, is itself part of the template: a /usr/bin/rustc that points
// into somebody's home is not found.
func (t Template) Lookup(root fs.FS, candidates []string) (path string, ok bool) {
	v := newView(root)
	for _, name := range candidates {
		if t.Commands != nil {
			path, ok = t.Commands[name]
		} else {
			path, ok = t.find(v, name, t.sources())
		}
		if ok {
			return path, true
		}
	}
	return "", false
}

// find finds a program that is below one of the places.
func (t Template) find(v *view, name string, places []string) (path string, ok bool) {
	if name == "" || strings.ContainsRune(name, '/') {
		return "", false
	}
	for _, dir := range t.Programs {
		if p := dir + "/" + name; v.executable(p, places) {
			return p, true
		}
	}
	return "", false
}

// sources lists the host paths that the template shows.
func (t Template) sources() []string {
	s := make([]string, len(t.Binds))
	for i, b := range t.Binds {
		s[i] = b.Source
	}
	return s
}

// OnlyHost refuses a template that is an image, for a driver that can show none.
func (t Template) OnlyHost(driver string) *sandbox.Error {
	if len(t.Layers.Dirs) == 0 {
		return nil
	}
	return &sandbox.Error{
		Code: sandbox.CodeRequirementUnmet, Field: "template",
		Message: fmt.Sprintf("the %s driver makes no sandboxes of images such as %s", driver, sandbox.SafeText(t.Name, 60)),
		Hint:    "take the native driver, or the template " + sandbox.TemplateHost,
	}
}

// End is where a program of the host's that the template shows really lies, after all
// symbolic links; of others, and of an image's, it is p.
func (t Template) End(root fs.FS, p string) string {
	if t.Commands == nil {
		if end, _, ok := newView(root).resolve(p); ok {
			return end
		}
	}
	return p
}
