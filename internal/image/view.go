package image

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"math"
	"path"
	"strings"
)

// maxPath is how long a path may become, as in Linux.
const maxPath = 4096

// maxLinks is how many symbolic links one path may go through, as in Linux.
const maxLinks = 40

// view reads a host's file tree. Every symbolic link is followed here, step by
// step, so that where a path ends is known and not left to the kernel. A view
// lives for one look only; it is not for concurrent use.
type view struct {
	root  fs.FS
	dirs  map[string]fs.FileInfo // real directories seen so far
	steps int                    // that are left; what takes more is not there
}

func newView(root fs.FS) *view { return &view{root, map[string]fs.FileInfo{}, math.MaxInt} }

// resolve returns the path at which p ends after all symbolic links. ok is
// false when something on the way does not exist or links go round in circles.
func (v *view) resolve(p string) (end string, info fs.FileInfo, ok bool) {
	p, done := path.Clean(p), 0 // p[:done] exists and has no links in it
	for links := 0; done < len(p); {
		if v.steps--; v.steps < 0 || len(p) > maxPath {
			return "", nil, false
		}
		if info != nil && !info.IsDir() {
			return "", nil, false
		}
		next := len(p)
		if i := strings.IndexByte(p[done+1:], '/'); i >= 0 {
			next = done + 1 + i
		}
		rest := p[next:]
		switch p[done+1 : next] {
		case "", ".":
			p = p[:done] + rest
			continue
		case "..":
			done = max(0, strings.LastIndexByte(p[:done], '/'))
			p, info = p[:done]+rest, nil
			continue
		}
		here, seen := v.dirs[p[:next]]
		if !seen {
			var err error
			if here, err = v.lstat(p[:next]); err != nil {
				return "", nil, false
			}
		}
		if here.IsDir() {
			v.dirs[p[:next]] = here
		}
		if here.Mode()&fs.ModeSymlink == 0 {
			done, info = next, here
			continue
		}
		target, err := fs.ReadLink(v.root, p[1:next])
		if links++; err != nil || links > maxLinks {
			return "", nil, false
		}
		if path.IsAbs(target) {
			p, done, info = target+rest, 0, nil
		} else {
			p = p[:done] + "/" + target + rest
		}
	}
	p = cmp.Or(p, "/")
	if info == nil { // the last step was one up
		info, _ = v.lstat(p)
	}
	return p, info, info != nil
}

// lstat describes p itself, without following it.
func (v *view) lstat(p string) (fs.FileInfo, error) {
	if p == "/" {
		return fs.Stat(v.root, ".")
	}
	return fs.Lstat(v.root, strings.TrimPrefix(p, "/"))
}

// read returns the content of a regular file that everybody may read, when it
// is at most limit bytes long and ends, after links, below one of the places.
// A file that changes its size meanwhile is not read.
func (v *view) read(p string, limit int64, places ...string) ([]byte, bool) {
	end, info, ok := v.resolve(p)
	if !ok || !info.Mode().IsRegular() || !public(info) || info.Size() > limit || !below(end, places) {
		return nil, false
	}
	f, err := v.root.Open(strings.TrimPrefix(end, "/"))
	if err != nil {
		return nil, false
	}
	defer func() { _ = f.Close() }()
	content := make([]byte, info.Size()+1) // one more than there should be
	n, err := f.Read(content)              // of a file, it reads all that there is
	return content[:n], int64(n) == info.Size() && (err == nil || errors.Is(err, io.EOF))
}

// ReadFile returns the content of a file of a template's whole root, at most limit bytes
// of it, through links as they lead inside. ok is false where there is none that
// everybody may read.
func ReadFile(root fs.FS, p string, limit int64) (content []byte, ok bool) {
	return newView(root).read(p, limit, "")
}

// executable says whether p is a program: after all links a regular file
// below one of the places, that everybody may execute.
func (v *view) executable(p string, places []string) bool {
	end, info, ok := v.resolve(p)
	return ok && info.Mode().IsRegular() && info.Mode().Perm()&0o001 != 0 && below(end, places)
}

// public says whether everybody on the host may read the file, or list the
// directory. What only some may read never goes into a sandbox.
func public(info fs.FileInfo) bool {
	if info.IsDir() {
		return info.Mode().Perm()&0o005 == 0o005
	}
	return info.Mode().Perm()&0o004 != 0
}

// below says whether p is one of the places or inside one.
func below(p string, places []string) bool {
	for _, place := range places {
		if p == place || strings.HasPrefix(p, place+"/") {
			return true
		}
	}
	return false
}
