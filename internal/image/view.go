package image

import (
	"io"
	"io/fs"
	"path"
	"strings"
)

// maxLinks is how many symbolic links one path may go through, as in Linux.
const maxLinks = 40

// view reads a host's file tree. Every symbolic link is followed here, step by
// step, so that where a path ends is known and not left to the kernel. A view
// lives for one look only; it is not for concurrent use.
type view struct {
	root fs.FS
	dirs map[string]fs.FileInfo // real directories seen so far
}

func newView(root fs.FS) view { return view{root, map[string]fs.FileInfo{}} }

// resolve returns the path at which p ends after all symbolic links. ok is
// false when something on the way does not exist or links go round in circles.
func (v view) resolve(p string) (end string, info fs.FileInfo, ok bool) {
	todo := strings.Split(strings.TrimPrefix(path.Clean(p), "/"), "/")
	end = "/"
	for links := 0; len(todo) > 0; {
		next := path.Join(end, todo[0]) // Join cleans "..", which at / stays /
		todo = todo[1:]
		fi, seen := v.dirs[next]
		if !seen {
			var err error
			if fi, err = v.lstat(next); err != nil {
				return "", nil, false
			}
		}
		if fi.IsDir() {
			v.dirs[next] = fi
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			end, info = next, fi
			continue
		}
		target, err := fs.ReadLink(v.root, strings.TrimPrefix(next, "/"))
		if links++; err != nil || links > maxLinks {
			return "", nil, false
		}
		if path.IsAbs(target) {
			end = "/"
		}
		todo = append(strings.Split(strings.Trim(target, "/"), "/"), todo...)
	}
	return end, info, info != nil
}

// lstat describes p itself, without following it.
func (v view) lstat(p string) (fs.FileInfo, error) {
	if p == "/" {
		return fs.Stat(v.root, ".")
	}
	return fs.Lstat(v.root, strings.TrimPrefix(p, "/"))
}

// read returns the content of a regular file that everybody may read, when it
// is at most limit bytes long and ends, after links, below one of the places.
// A file that grows meanwhile is not read.
func (v view) read(p string, limit int64, places ...string) ([]byte, bool) {
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
	n, err := io.ReadFull(f, content)
	return content[:n], err == io.EOF || err == io.ErrUnexpectedEOF
}

// executable says whether p is a program: after all links a regular file
// below one of the places, that everybody may execute.
func (v view) executable(p string, places []string) bool {
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
