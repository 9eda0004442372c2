package vm

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"pinfold/internal/initramfs"
)

// Image is the guest's root file system: the programs and files that a test
// needs, in the layout of a merged /usr. The zero value is not usable; call NewImage.
type Image struct {
	files map[string]file // by path without a leading slash
}

type file struct {
	mode    uint32
	uid     int
	host    string // content comes from this file, or
	content []byte
}

// User is the ordinary user of the guest.
const User = 1000

// NewImage returns a tree with the usual directories and users, and no programs.
func NewImage() *Image {
	i := &Image{files: map[string]file{}}
	for _, d := range []string{"dev", "proc", "sys", "run", "tmp", "root", "etc", "mnt", "home", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "test"} {
		i.mkdirs(d)
	}
	i.files["home/user"] = file{mode: initramfs.TypeDir | 0o700, uid: User}
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		i.Link("/"+d, "usr/"+d)
	}
	i.Content("/etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")
	i.Content("/etc/group", 0o644, "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n")
	i.Content("/etc/hostname", 0o644, "guest\n")
	i.Content("/etc/os-release", 0o644, "ID=pinfold-test\n")
	return i
}

func (i *Image) put(name string, f file) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	i.mkdirs(path.Dir(name))
	i.files[name] = f
}

func (i *Image) mkdirs(dir string) {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, ok := i.files[dir]; !ok {
			i.files[dir] = file{mode: initramfs.TypeDir | 0o755}
		}
	}
}

// Content adds a file.
func (i *Image) Content(name string, perm uint32, content string) {
	i.put(name, file{mode: initramfs.TypeFile | perm, content: []byte(content)})
}

// Link adds a symbolic link.
func (i *Image) Link(name, target string) {
	i.put(name, file{mode: initramfs.TypeLink | 0o777, content: []byte(target)})
}

// Copy adds a file of the host's; symbolic links are followed. The content is
// read when the image is written.
func (i *Image) Copy(name, host string) error {
	st, err := os.Stat(host)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", host)
	}
	i.put(name, file{mode: initramfs.TypeFile | uint32(st.Mode().Perm()), host: host})
	return nil
}

// CopyTree adds a directory of the host's, without what skip names.
func (i *Image) CopyTree(name, host string, skip func(rel string) bool) error {
	return filepath.WalkDir(host, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(p, host), "/")
		switch {
		case rel != "" && skip(rel) && d.IsDir():
			return filepath.SkipDir
		case rel != "" && skip(rel):
			return nil
		case d.IsDir():
			i.put(path.Join(name, rel), file{mode: initramfs.TypeDir | 0o755})
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			i.Link(path.Join(name, rel), target)
			return err
		}
		return i.Copy(path.Join(name, rel), p)
	})
}

// libraryDirs is where the host's dynamic loader looks.
var libraryDirs = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"}

// CopyProgram adds a program of the host's with its dynamic loader and every
// library that it needs. Libraries keep their directory.
func (i *Image) CopyProgram(name, host string) error {
	if err := i.Copy(name, host); err != nil {
		return err
	}
	f, err := elf.Open(host)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		loader, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
		if err != nil {
			return err
		}
		l := string(bytes.TrimRight(loader, "\x00"))
		if err := i.Copy("/usr"+strings.TrimPrefix(l, "/usr"), l); err != nil {
			return err
		}
	}
	needed, err := f.DynString(elf.DT_NEEDED)
	if err != nil {
		return err
	}
	for _, lib := range needed {
		if err := i.copyLibrary(lib); err != nil {
			return fmt.Errorf("%s needs %s: %w", host, lib, err)
		}
	}
	return nil
}

func (i *Image) copyLibrary(lib string) error {
	for _, dir := range libraryDirs {
		name := path.Join("/usr", strings.TrimPrefix(dir, "/usr"), lib)
		if _, ok := i.files[name[1:]]; ok {
			return nil
		}
		err := i.CopyProgram(name, path.Join(dir, lib))
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fs.ErrNotExist
}

// write writes the tree as an archive that the kernel unpacks.
func (i *Image) write(w io.Writer) error {
	c := initramfs.NewArchive(w)
	for _, name := range slices.Sorted(maps.Keys(i.files)) { // a directory comes before what is in it
		if err := i.writeFile(c, name); err != nil {
			return err
		}
	}
	return c.Close()
}

func (i *Image) writeFile(c *initramfs.Archive, name string) error {
	f := i.files[name]
	e := initramfs.Entry{Name: name, Mode: f.mode, UID: f.uid, GID: f.uid, Size: int64(len(f.content)), Content: bytes.NewReader(f.content)}
	if f.host == "" {
		return c.Add(e)
	}
	in, err := os.Open(f.host)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	e.Size, e.Content = st.Size(), in
	return c.Add(e)
}
