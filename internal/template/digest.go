package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"slices"
)

// ID is "sha256:" and 64 digits.
type ID string

const hashPrefix = "sha256:"

func idOf(h hash.Hash) ID { return ID(hashPrefix + hex.EncodeToString(h.Sum(nil))) }

// hashOf returns the hash of what is in memory.
func hashOf(b []byte) ID {
	h := sha256.New()
	_, _ = h.Write(b)
	return idOf(h)
}

// parseID reads an ID. Other algorithms than SHA-256 are not accepted.
func parseID(s string) (ID, bool) {
	if len(s) != len(hashPrefix)+2*sha256.Size || s[:len(hashPrefix)] != hashPrefix {
		return "", false
	}
	for _, c := range s[len(hashPrefix):] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", false
		}
	}
	return ID(s), true
}

// Hex is the ID without what names the algorithm.
func (id ID) Hex() string { return string(id[len(hashPrefix):]) }

// tree is what a layer holds, summed up.
type tree struct {
	ID      ID
	Entries int64 // whiteouts included
	Bytes   int64 // of the files, each counted once however many names it has
}

// digest looks at an unpacked layer, every byte of it. Its ID covers each entry's name,
// kind, content, whether it is executable, and the time of its change in seconds, for
// programs go by that; and the marks that hide what lies below.
//
// It follows no link, and holds one directory's names in memory at a time for each level.
func digest(ctx context.Context, dir string) (tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return tree{}, err
	}
	defer root.Close() //nolint:errcheck // only read
	d := &digesting{ctx: ctx, sum: sha256.New(), files: map[[2]uint64]string{}, buffer: make([]byte, copyBuffer)}
	if err := d.directory(root, ""); err != nil {
		return tree{}, err
	}
	d.tree.ID = idOf(d.sum)
	return d.tree, nil
}

type digesting struct {
	ctx    context.Context //nolint:containedctx // the call's own
	sum    hash.Hash
	tree   tree
	files  map[[2]uint64]string // the hashes of files with several names
	buffer []byte
}

// entries lists a directory in the order of names, and says whether it is opaque.
func entries(dir *os.Root) (list []fs.DirEntry, opaque bool, err error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, false, err
	}
	defer f.Close() //nolint:errcheck // only read
	if opaque, err = isOpaque(f); err != nil {
		return nil, false, err
	}
	list, err = f.ReadDir(-1)
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return compareNames(a.Name(), b.Name()) })
	return list, opaque, err
}

func compareNames(a, b string) int {
	if a < b {
		return -1
	}
	return 1 // no two are the same
}

func (d *digesting) directory(dir *os.Root, path string) error {
	list, opaque, err := entries(dir)
	if err != nil {
		return err
	}
	if opaque {
		d.line("opaque", path, "")
	}
	for _, e := range list {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		if err := d.entry(dir, e.Name(), path+"/"+e.Name()); err != nil {
			return err
		}
	}
	return nil
}

func (d *digesting) entry(dir *os.Root, name, path string) error {
	info, err := dir.Lstat(name)
	if err != nil {
		return err
	}
	d.tree.Entries++
	switch {
	case info.IsDir():
		d.line("directory", path, fmt.Sprint(info.ModTime().Unix()))
		below, err := dir.OpenRoot(name)
		if err != nil {
			return err
		}
		defer below.Close() //nolint:errcheck // only read
		return d.directory(below, path)
	case info.Mode().IsRegular():
		return d.file(dir, name, path, info)
	case info.Mode()&fs.ModeSymlink != 0:
		says, err := dir.Readlink(name)
		d.line("link", path, says)
		return err
	case isWhiteout(info):
		d.line("whiteout", path, "")
		return nil
	}
	return fmt.Errorf("%s is none of the kinds that a layer has", path)
}

func (d *digesting) file(dir *os.Root, name, path string, info fs.FileInfo) error {
	names, inode := links(info)
	content, known := d.files[inode]
	if !known || names < 2 {
		f, err := dir.Open(name)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // only read
		h := sha256.New()
		n, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{f}, d.buffer)
		if err != nil {
			return err
		}
		d.tree.Bytes += n
		content = fmt.Sprintf("%d %x", n, h.Sum(nil))
		if names > 1 {
			d.files[inode] = content
		}
	}
	d.line("file", path, fmt.Sprintf("%t %d %s", info.Mode().Perm()&0o100 != 0, info.ModTime().Unix(), content))
	return nil
}

func (d *digesting) line(kind, path, says string) {
	_, _ = fmt.Fprintf(d.sum, "%s %q %q\n", kind, path, says) // a hash takes everything
}
