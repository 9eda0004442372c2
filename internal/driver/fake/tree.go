package fake

import (
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// put stores a file and tells the watches. f.mu is held.
func (f *Files) put(name string, x file) {
	_, was := f.lookup(name)
	if dir := path.Dir(name); dir != "/" && dir != name {
		if _, there := f.all[dir]; !there {
			f.put(dir, file{kind: wire.TypeDir, mode: 0o755})
		}
	}
	if x.inode == 0 {
		f.inodes++
		x.inode = f.inodes
	}
	f.all[name] = x.at(time.Now())
	if !was {
		f.tell(wire.WatchCreated, name, x)
	}
	if x.kind == wire.TypeFile {
		f.tell(wire.WatchModified, name, x)
	}
}

func (x file) at(t time.Time) file {
	x.mtime = t.UnixNano()
	return x
}

// drop removes a file and tells the watches. f.mu is held.
func (f *Files) drop(name string) {
	f.tell(wire.WatchRemoved, name, f.all[name])
	delete(f.all, name)
}

// move gives a file or directory another name, with all that is below it.
func (f *Files) move(req *wire.MoveRequest) wire.Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	from, to := absolute(req.From), absolute(req.To)
	x, ok := f.lookup(from)
	there, taken := f.lookup(to)
	switch {
	case !ok:
		return failed(sandbox.CodeFileNotFound, "no such file")
	case strings.HasPrefix(to, from+"/"):
		return failed(sandbox.CodePathInvalid, "a directory cannot be moved into itself")
	case taken && there.kind != wire.TypeFile:
		return failed(sandbox.CodeNotRegularFile, "the new name belongs to something that is not a regular file")
	case taken && x.kind == wire.TypeDir:
		return failed(sandbox.CodePathInvalid, "a directory cannot replace a file")
	}
	f.tell(wire.WatchMovedFrom, from, x)
	if _, there := f.all[path.Dir(to)]; !there && path.Dir(to) != "/" {
		f.put(path.Dir(to), file{kind: wire.TypeDir, mode: 0o755})
	}
	for name, y := range f.all {
		if rest, below := strings.CutPrefix(name, from); below && (rest == "" || rest[0] == '/') {
			delete(f.all, name)
			f.all[to+rest] = y
		}
	}
	f.tell(wire.WatchMovedTo, to, x)
	return wire.Outcome{}
}

// list lists a directory, in order.
func (f *Files) list(req *wire.ListRequest) ([]wire.Entry, wire.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir := absolute(req.Dir)
	switch x, ok := f.lookup(dir); {
	case !ok:
		return nil, failed(sandbox.CodeFileNotFound, "no such directory")
	case x.kind == wire.TypeSymlink:
		return nil, failed(sandbox.CodeNotRegularFile, "a symbolic link is in the path")
	case x.kind != wire.TypeDir:
		return nil, failed(sandbox.CodePathInvalid, "not a directory")
	}
	found := map[string]wire.Entry{}
	for name := range f.all {
		rel, below := strings.CutPrefix(name, strings.TrimSuffix(dir, "/")+"/")
		for ; below && rel != "."; rel = path.Dir(rel) { // with the directories above it
			if strings.Count(rel, "/") < req.Depth {
				found[rel] = f.entry(dir, rel)
			}
		}
	}
	var all []wire.Entry
	var o wire.Outcome
	for _, e := range found {
		if sandbox.CheckGuestPath("", e.Path) != nil { // as the agent does it
			o.Unprintable++
			continue
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b wire.Entry) int { return strings.Compare(a.Path, b.Path) })
	if len(all) > req.Max {
		all, o.More = all[:req.Max], true
	}
	return all, o
}

func (f *Files) entry(dir, rel string) wire.Entry {
	x, _ := f.lookup(path.Join(dir, rel))
	s := x.stat()
	return wire.Entry{
		Path: rel, Type: s.Type, Size: s.Size, Mode: s.Mode, MtimeNS: s.MtimeNS, UID: s.UID, GID: s.GID, Target: s.Target,
	}
}

func (c *channel) list(req *wire.ListRequest) wire.Outcome {
	found, o := c.a.m.Files.list(req)
	for part := range slices.Chunk(found, eventFiles) {
		c.a.message(wire.KindEvent, c.id, &wire.Event{Kind: wire.EventEntries, Entries: part})
	}
	return o
}

// watch is one watch under way.
type watch struct {
	dir       string
	recursive bool
	wake      chan struct{}

	mu    sync.Mutex
	queue []wire.WatchEvent
	lost  bool
}

// tell tells the watches that see name. f.mu is held.
func (f *Files) tell(kind, name string, x file) {
	for w := range f.watches {
		rel, below := strings.CutPrefix(name, strings.TrimSuffix(w.dir, "/")+"/")
		if below && (w.recursive || !strings.Contains(rel, "/")) {
			w.push(wire.WatchEvent{Kind: kind, Path: rel, Dir: x.kind == wire.TypeDir})
		}
	}
}

// maxQueued bounds what waits for a host that is slow.
const maxQueued = 1024

func (w *watch) push(e wire.WatchEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lost || len(w.queue) >= maxQueued {
		w.lost = true
	} else {
		w.queue = append(w.queue, e)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watch) take() []wire.WatchEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queue
	if w.lost {
		q = append(q, wire.WatchEvent{Kind: wire.WatchOverflow})
	}
	w.queue, w.lost = nil, false
	return q
}

// watch sends changes until the host closes.
func (c *channel) watch(req *wire.WatchRequest) wire.Outcome {
	f := c.a.m.Files
	w := &watch{dir: absolute(req.Dir), recursive: req.Recursive, wake: make(chan struct{}, 1)}
	switch x, ok := f.find(w.dir); {
	case !ok:
		return failed(sandbox.CodeFileNotFound, "no such directory")
	case x.kind != wire.TypeDir:
		return failed(sandbox.CodePathInvalid, "not a directory")
	}
	f.mu.Lock()
	f.watches[w] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watches, w)
	}()
	w.push(wire.WatchEvent{Kind: wire.WatchReady})
	for {
		select {
		case <-c.gone:
			return failed(sandbox.CodeInternal, "nobody watches any more")
		case <-w.wake:
		}
		for _, e := range w.take() {
			if _, err := c.outbound(wire.Stdout).Write(wire.AppendWatchEvent(nil, &e)); err != nil {
				return failed(sandbox.CodeInternal, err.Error())
			}
		}
	}
}
