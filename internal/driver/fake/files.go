package fake

import (
	"io"
	"path"
	"slices"
	"strings"
	"sync"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Files are a machine's files. Directories above a file are made with it. It is safe for concurrent use.
type Files struct {
	mu      sync.Mutex
	all     map[string]file // by absolute path
	watches map[*watch]bool
	inodes  uint64 // given so far
}

type file struct {
	kind    string // a wire.Type
	mode    uint32
	content []byte
	target  string // of a link
	mtime   int64  // ns since 1970
	inode   uint64
}

// stat describes it.
func (x file) stat() *wire.Stat {
	return &wire.Stat{
		Type: x.kind, Size: int64(len(x.content)), Mode: x.mode, UID: sandbox.UID, GID: sandbox.GID,
		Target: x.target, MtimeNS: x.mtime, Inode: x.inode,
	}
}

func newFiles() *Files {
	dir := file{kind: wire.TypeDir, mode: 0o755}
	return &Files{all: map[string]file{sandbox.Home: dir, "/tmp": dir, "/dev/shm": dir}, watches: map[*watch]bool{}}
}

// Put makes a regular file. A path that is not absolute is below the home.
func (f *Files) Put(name, content string) {
	f.set(name, file{kind: wire.TypeFile, mode: 0o644, content: []byte(content)})
}

// PutLink makes what looks like a symbolic link.
func (f *Files) PutLink(name string) {
	f.set(name, file{kind: wire.TypeSymlink, mode: 0o777, target: "/nowhere"})
}

// PutPipe makes what is neither a file, a directory nor a link.
func (f *Files) PutPipe(name string) { f.set(name, file{kind: wire.TypeOther, mode: 0o644}) }

// Get returns a file's content and whether there is such a file.
func (f *Files) Get(name string) (content string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, ok := f.all[absolute(name)]
	return string(x.content), ok && x.kind == wire.TypeFile
}

func (f *Files) set(name string, x file) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put(absolute(name), x)
}

func absolute(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(sandbox.Home, name)
}

func (f *Files) write(req *wire.FileRequest, r io.Reader) wire.Outcome {
	content, err := io.ReadAll(r)
	if err != nil {
		return failed(sandbox.CodeInternal, err.Error())
	}
	f.set(req.Path, file{kind: wire.TypeFile, mode: req.Mode, content: content})
	return wire.Outcome{Size: int64(len(content))}
}

func (f *Files) read(req *wire.FileRequest, w io.Writer, change func(string, []byte) []byte) wire.Outcome {
	x, ok := f.find(absolute(req.Path))
	switch {
	case !ok:
		return failed(sandbox.CodeFileNotFound, "no such file")
	case x.kind != wire.TypeFile:
		return failed(sandbox.CodeNotRegularFile, "not a regular file")
	case req.Inode != 0 && (x.inode != req.Inode || int64(len(x.content))-req.Offset < req.Size):
		return failed(sandbox.CodeConflict, "another file has the name by now, or it has become shorter")
	case !req.Part && int64(len(x.content)) > req.Size:
		return failed(sandbox.CodeTooLarge, "the file is too large")
	}
	if req.Part {
		x.content = x.content[min(req.Offset, int64(len(x.content))):]
		if req.Size >= 0 {
			x.content = x.content[:min(req.Size, int64(len(x.content)))]
		}
	}
	if change != nil {
		x.content = change(req.Path, x.content)
	}
	n, err := w.Write(x.content)
	if err != nil {
		return failed(sandbox.CodeInternal, err.Error())
	}
	return wire.Outcome{Size: int64(n)}
}

// find returns a file, or a directory that is there because of what is below.
func (f *Files) find(name string) (file, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lookup(name)
}

func (f *Files) lookup(name string) (file, bool) {
	if x, ok := f.all[name]; ok {
		return x, true
	}
	for other := range f.all {
		if strings.HasPrefix(other, strings.TrimSuffix(name, "/")+"/") {
			return file{kind: wire.TypeDir, mode: 0o755}, true
		}
	}
	return file{}, false
}

func (f *Files) stat(req *wire.FileRequest) wire.Outcome {
	x, ok := f.find(absolute(req.Path))
	if !ok {
		return failed(sandbox.CodeFileNotFound, "no such file")
	}
	return wire.Outcome{Stat: x.stat()}
}

func (f *Files) mkdir(req *wire.FileRequest) wire.Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := absolute(req.Path)
	switch x, ok := f.lookup(name); {
	case !ok:
		f.put(name, file{kind: wire.TypeDir, mode: req.Mode})
	case x.kind != wire.TypeDir:
		return failed(sandbox.CodePathInvalid, "it is a file")
	}
	return wire.Outcome{}
}

func (f *Files) remove(req *wire.FileRequest) wire.Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	name, found := absolute(req.Path), false
	for other := range f.all {
		if other == name || strings.HasPrefix(other, name+"/") {
			f.drop(other)
			found = true
		}
	}
	if !found {
		return failed(sandbox.CodeFileNotFound, "no such file")
	}
	return wire.Outcome{}
}

// glob lists what matches, in order, and says whether there was more.
func (f *Files) glob(req *wire.GlobRequest) (found []wire.FileEntry, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir := absolute(req.Dir)
	for name, x := range f.all {
		rel, below := strings.CutPrefix(name, dir+"/")
		if !below || x.kind == wire.TypeDir || !matches(req.Patterns, rel, x.kind) {
			continue
		}
		found = append(found, wire.FileEntry{Path: rel, Type: x.kind, Size: int64(len(x.content))})
	}
	slices.SortFunc(found, func(a, b wire.FileEntry) int { return strings.Compare(a.Path, b.Path) })
	if len(found) > req.Max {
		return found[:req.Max], true
	}
	return found, false
}

// matches follows wire.GlobRequest. What is not a regular file matches only
// its own name.
func matches(patterns []string, name, kind string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if kind != wire.TypeFile {
			return p == name
		}
		return match(strings.Split(p, "/"), strings.Split(name, "/"))
	})
}

func match(pattern, name []string) bool {
	switch {
	case len(pattern) == 0:
		return len(name) == 0
	case pattern[0] == "**":
		return match(pattern[1:], name) || len(name) > 0 && match(pattern, name[1:])
	case len(name) == 0:
		return false
	}
	ok, err := path.Match(pattern[0], name[0])
	return err == nil && ok && match(pattern[1:], name[1:])
}
