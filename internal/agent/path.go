//go:build linux

package agent

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
)

// relative turns a request's path (absolute, or relative to Home) into a clean
// path relative to the root.
func (a *agent) relative(p string) (string, error) {
	switch {
	case len(p) > wire.MaxPath:
		return "", unix.ENAMETOOLONG
	case strings.IndexByte(p, 0) >= 0:
		return "", unix.ENOENT
	case !path.IsAbs(p):
		p = path.Join("/", a.hello.Home, p)
	}
	p = strings.TrimPrefix(path.Clean(p), "/")
	if p == "" {
		return ".", nil
	}
	return p, nil
}

// noLinks refuses symbolic links in every component.
const noLinks = unix.RESOLVE_NO_SYMLINKS

// openAt opens a path relative to a directory, which it cannot leave. The
// links of /proc are never followed.
func (a *agent) openAt(dir int, rel string, flags, mode, resolve uint64) (int, error) {
	how := &unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Mode: mode,
		Resolve: resolve | unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	for try := 0; ; try++ {
		fd, err := sysOpenat2(dir, rel, how)
		// EAGAIN: something was renamed meanwhile and the kernel is not sure.
		if errors.Is(err, unix.EINTR) || (errors.Is(err, unix.EAGAIN) && try < 32) {
			continue
		}
		return fd, err
	}
}

// openParent opens the directory that holds a path and returns the path's last
// component. With create, missing directories are made.
func (a *agent) openParent(p string, create bool) (dir int, base string, err error) {
	rel, err := a.relative(p)
	if err != nil {
		return -1, "", err
	}
	if rel == "." {
		return -1, "", unix.EBUSY // the root itself
	}
	parent, base := path.Split(rel)
	if parent = path.Clean(parent); create {
		dir, err = a.makeDirs(parent)
	} else {
		dir, err = a.openAt(a.root, parent, unix.O_PATH|unix.O_DIRECTORY, 0, noLinks)
	}
	return dir, base, err
}

// makeDirs opens a directory relative to the root and makes what is missing of
// it, component by component.
func (a *agent) makeDirs(rel string) (int, error) {
	dir, err := a.openAt(a.root, rel, unix.O_PATH|unix.O_DIRECTORY, 0, noLinks)
	if !errors.Is(err, unix.ENOENT) {
		return dir, err
	}
	if dir, err = sysDup(a.root); err != nil {
		return -1, err
	}
	for name := range strings.SplitSeq(rel, "/") {
		next, err := a.makeDir(dir, name, 0o755)
		_ = sysClose(dir)
		if err != nil {
			return -1, err
		}
		dir = next
	}
	return dir, nil
}

// makeDir opens dir/name and makes it if it does not exist.
func (a *agent) makeDir(dir int, name string, mode uint32) (int, error) {
	made := sysMkdirat(dir, name, mode)
	if made != nil && !errors.Is(made, unix.EEXIST) {
		// A directory that exists in a read-only place is not an error.
		if fd, err := a.openAt(dir, name, unix.O_PATH|unix.O_DIRECTORY, 0, noLinks); err == nil {
			return fd, nil
		}
		return -1, made
	}
	fd, err := a.openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0, noLinks)
	if errors.Is(err, unix.EACCES) { // it exists and is not ours to read
		return a.openAt(dir, name, unix.O_PATH|unix.O_DIRECTORY, 0, noLinks)
	}
	if err != nil || made != nil {
		return fd, err
	}
	if err := a.own(fd, mode); err != nil {
		_ = sysClose(fd)
		return -1, err
	}
	return fd, nil
}

// own gives a file or directory that we have made its mode and its owner.
func (a *agent) own(fd int, mode uint32) error {
	if a.hello.SwitchUser {
		if err := sysFchown(fd, a.hello.UID, a.hello.GID); err != nil {
			return err
		}
	}
	return sysFchmod(fd, mode&0o777)
}

func typeOf(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return wire.TypeFile
	case unix.S_IFDIR:
		return wire.TypeDir
	case unix.S_IFLNK:
		return wire.TypeSymlink
	}
	return wire.TypeOther
}
