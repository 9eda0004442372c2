// Package filetree is the form in which the files of a sandbox travel and are kept: a
// stream of entries, in the order in which they can be made, with holes as holes. Both ends
// need memory for one entry, however deep and however large the tree is.
//
// Names are a guest's: any bytes that a file name can have. So an entry has one name and
// never a path: who reads a stream goes into a directory and comes back out of it, and no
// name leads anywhere else. The reader checks everything that it hands out. What it does
// with it is its caller's.
//
// A stream is its head, and then places, one after the other, each with a name that both
// ends know ("home", "/tmp") and what it holds:
//
//	Place  begins a place; what follows is in it
//	Dir    a directory; what follows is in that, until its Up
//	Up     the end of the directory or place, with its mode and time
//	File   a regular file, followed by its content: Data and holes
//	Link   another name of a file that had a number
//	Symlink
//	End    nothing follows
package filetree

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is what an entry is.
type Kind uint8

// The kinds. Content is not an entry.
const (
	End Kind = iota + 1
	Place
	Dir
	Up
	File
	Link
	Symlink

	data
	hole
)

// Bounds on what a stream may hold.
const (
	MaxName   = 255       // bytes of a file name
	MaxTarget = 4095      // of what a symbolic link says
	MaxData   = 256 << 10 // of content at once
	maxMode   = 0o7777
)

const head = "pinfold files 1\n"

// Entry is one entry. Which fields it has depends on its kind.
type Entry struct {
	Kind    Kind
	Name    string // of a Place: its own
	Mode    uint32 // of File and Up: permission bits, with the sticky bit of a directory
	MtimeNS int64  // of File, Up and Symlink, since 1970
	Size    int64  // of File
	// Number tells files apart that have several names: of the first, File, it is one
	// more than the number before, and a Link has that of its file. 0: it has one name.
	Number uint64
	Last   bool   // of Link: no other follows
	Target string // of Symlink
}

// Summary counts what a stream holds.
type Summary struct {
	Files, Dirs, Symlinks int64
	Names                 int64 // further names of files that have several
	Bytes                 int64 // content, without holes
	Left                  int64 // devices, pipes and sockets, and what could not be read, that were left out
}

// Entries is how many there are altogether.
func (s Summary) Entries() int64 { return s.Files + s.Dirs + s.Symlinks + s.Names }

// count adds an entry.
func (s *Summary) count(k Kind) {
	switch k {
	case File:
		s.Files++
	case Dir:
		s.Dirs++
	case Link:
		s.Names++
	case Symlink:
		s.Symlinks++
	}
}

// errBroken is what a stream that cannot be is told by.
var errBroken = errors.New("filetree: not a tree of files")

func broken(why string) error { return fmt.Errorf("%w: %s", errBroken, why) }

// checkName says whether a file can have that name.
func checkName(s string) error {
	if s == "" || len(s) > MaxName || s == "." || s == ".." || strings.ContainsAny(s, "/\x00") {
		return broken("a name that no file can have")
	}
	return nil
}

// order is what may follow what: the same for both ends.
type order struct {
	depth   int64 // 0: between places
	numbers uint64
	left    int64 // content of the file that is under way, holes included
	ended   bool
}

// next says whether an entry may come now.
func (o *order) next(e Entry) error {
	switch {
	case o.ended:
		return broken("something after its end")
	case o.left > 0:
		return broken("a file that is shorter than it says")
	case (e.Kind == Place || e.Kind == End) != (o.depth == 0):
		return broken("an entry outside of a place, or a place in another")
	}
	switch e.Kind {
	case End:
		o.ended = true
		return nil
	case Place:
		o.depth++
		return checkName(strings.ReplaceAll(e.Name, "/", "_"))
	case Up:
		o.depth--
		return checkMode(e)
	case Dir:
		o.depth++
		return checkName(e.Name)
	case File, Link, Symlink:
		return errors.Join(checkName(e.Name), o.file(e))
	}
	return broken("an unknown entry")
}

// file says whether a file, another name of one, or a link can be.
func (o *order) file(e Entry) error {
	switch e.Kind {
	case File:
		if e.Size < 0 || e.Number != 0 && e.Number != o.numbers+1 {
			return broken("a file that cannot be")
		}
		o.numbers, o.left = max(o.numbers, e.Number), e.Size
		return checkMode(e)
	case Link:
		if e.Number == 0 || e.Number > o.numbers {
			return broken("another name of an unknown file")
		}
	default:
		if e.Target == "" || len(e.Target) > MaxTarget || strings.Contains(e.Target, "\x00") {
			return broken("a link that cannot be")
		}
	}
	return nil
}

func checkMode(e Entry) error {
	if e.Mode > maxMode {
		return broken("a mode that cannot be")
	}
	return nil
}

// content says whether so many bytes of content may come now.
func (o *order) content(n int64) error {
	if n <= 0 || n > o.left {
		return broken("a file that is longer than it says")
	}
	o.left -= n
	return nil
}
