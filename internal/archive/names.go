package archive

import (
	"path"
	"strings"

	"pinfold/sandbox"
)

// names are the entries of an archive so far: each name once, and no file where
// another entry needs a directory.
type names struct {
	limit int
	seen  map[string]kind
}

// kind is what stands under a name.
type kind uint8

const (
	aFile  kind = iota + 1
	aDir        // with an entry of its own
	within      // a directory, because something is below it
)

func newNames(limit int) *names { return &names{limit: limit, seen: map[string]kind{}} }

// clean checks an entry's name and returns it as a local path; "" for the
// archive's root itself.
func clean(name string, dir bool) (string, error) {
	p := name
	if dir {
		p = strings.TrimSuffix(p, "/")
	}
	p = strings.TrimPrefix(p, "./")
	if dir && (p == "." || p == "" && strings.HasPrefix(name, ".")) {
		return "", nil
	}
	if err := sandbox.CheckGuestPath("", p); err != nil {
		return "", refuse(name, "has a name that is not accepted: it must be relative, in its shortest form, printable, and without \"..\"")
	}
	return p, nil
}

// add takes up one entry.
func (n *names) add(p string, k kind) error {
	switch was := n.seen[p]; {
	case was == within && k == aDir:
	case was == within:
		return refuse(p, "is a file where other entries need a directory")
	case was != 0:
		return refuse(p, "is there twice")
	}
	n.seen[p] = k
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		was := n.seen[dir]
		if was == aFile {
			return refuse(p, "is below an entry that is a file")
		}
		if was != 0 {
			break
		}
		n.seen[dir] = within
	}
	if len(n.seen) > n.limit {
		return tooMuch("has too many entries")
	}
	return nil
}
