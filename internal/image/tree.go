package image

import (
	"io/fs"
	"os"
	"syscall"
)

// HostTree is this host's file tree, for Host and Lookup. It is os.DirFS("/"),
// but opens files without registering them with Go's poller, which cannot wait
// for files anyway: that is six system calls for each of some thirty files, in
// every start of the program.
func HostTree() fs.FS {
	return hostTree{os.DirFS("/").(tree)} //nolint:errcheck,forcetypeassert // as os.DirFS promises
}

// tree is what os.DirFS promises besides reading whole files.
type tree interface {
	fs.StatFS
	fs.ReadDirFS
	fs.ReadLinkFS
}

type hostTree struct{ tree }

// Open implements fs.FS.
func (hostTree) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	for {
		fd, err := syscall.Open("/"+name, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NOCTTY, 0)
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), name), nil
		case syscall.EINTR:
		default:
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}
