//go:build linux

package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// watcher is the agent's one inotify instance, made for the first watch: the
// kernel counts instances for the user that made the sandbox.
type watcher struct {
	a *agent

	mu      sync.Mutex
	file    *pollFile
	watches map[*watch]bool
	// dirs are the watched directories by the kernel's number: whose they are
	// and the path that each watch knows them by.
	dirs map[int32]map[*watch]string
}

// changes are what a watch wants to know.
const changes = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

// add begins a watch.
func (r *watcher) add(w *watch) *wire.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.watches) >= wire.MaxWatches {
		return faultBusy()
	}
	if err := r.begin(); err != nil {
		return watchFault(err)
	}
	r.watches[w] = true
	if err := r.scan(w, ".", false); err != nil {
		r.drop(w)
		return watchFault(err)
	}
	return nil
}

func watchFault(err error) *wire.Fault {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENOSPC) {
		return fault(sandbox.CodeResourceUnavailable, "the host has no inotify instance or watch left (fs.inotify.max_user_instances, fs.inotify.max_user_watches)")
	}
	return fileFault(err)
}

// begin makes the instance unless there is one.
func (r *watcher) begin() error {
	if r.file != nil {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err
	}
	f, err := newPollFile(fd, "inotify")
	if err != nil {
		_ = sysClose(fd)
		return err
	}
	r.file, r.watches, r.dirs = f, map[*watch]bool{}, map[int32]map[*watch]string{}
	go r.run(f)
	return nil
}

// close ends all watches.
func (r *watcher) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		_ = r.file.Close()
	}
}

// remove ends a watch.
func (r *watcher) remove(w *watch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(w)
}

func (r *watcher) drop(w *watch) {
	delete(r.watches, w)
	r.forget(w, ".")
}

// run reads what the kernel tells, for ever. It waits for no host.
func (r *watcher) run(f *pollFile) {
	buf := make([]byte, 16<<10)
	for {
		n, err := f.Read(buf)
		if err != nil {
			return // of an agent that ends
		}
		r.mu.Lock()
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			length := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
			if length > len(b) {
				break
			}
			name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:length], []byte{0})
			r.handle(change{
				wd:   int32(binary.NativeEndian.Uint32(b)), //nolint:gosec // the kernel's own number, which is signed
				mask: binary.NativeEndian.Uint32(b[4:]), cookie: binary.NativeEndian.Uint32(b[8:]), name: string(name),
			})
			b = b[length:]
		}
		r.settle(f.pending() > 0)
		r.mu.Unlock()
	}
}

// change is one event of the kernel's.
type change struct {
	wd           int32
	mask, cookie uint32 // the cookie joins the two halves of a move
	name         string
}

// handle acts on one event.
func (r *watcher) handle(e change) {
	wd, mask := e.wd, e.mask
	if mask&unix.IN_Q_OVERFLOW != 0 {
		for w := range r.watches {
			w.lose()
			if w.recursive { // directories may be among what was lost
				_ = r.scan(w, ".", false)
			}
		}
		return
	}
	for w, dir := range r.dirs[wd] {
		switch {
		case mask&unix.IN_IGNORED != 0:
			if w.dirs[dir] == wd {
				delete(w.dirs, dir)
			}
			if dir == "." {
				w.end()
			}
		case mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0:
			if dir == "." {
				w.end()
			}
		case e.name != "" && !r.left(w, dir):
			r.changed(w, path.Join(dir, e.name), e)
		}
	}
	if mask&unix.IN_IGNORED != 0 {
		delete(r.dirs, wd)
	}
}

// left says whether a directory is, or is within, one that was moved and has
// not come back: the halves of a move stand side by side, so an event from
// within means that there is no second one.
func (r *watcher) left(w *watch, dir string) bool {
	for cookie, old := range w.moving {
		if dir == old || strings.HasPrefix(dir, old+"/") {
			delete(w.moving, cookie)
			r.forget(w, old)
			return true
		}
	}
	return false
}

// kinds are the kernel's names for changes and ours.
var kinds = []struct {
	mask uint32
	kind string
}{
	{unix.IN_CREATE, wire.WatchCreated},
	{unix.IN_MODIFY, wire.WatchModified},
	{unix.IN_DELETE, wire.WatchRemoved},
	{unix.IN_MOVED_FROM, wire.WatchMovedFrom},
	{unix.IN_MOVED_TO, wire.WatchMovedTo},
}

// changed tells a watch of one change, and follows directories that come
// and go.
func (r *watcher) changed(w *watch, p string, e change) {
	isDir := e.mask&unix.IN_ISDIR != 0
	for _, k := range kinds {
		if e.mask&k.mask != 0 {
			w.push(k.kind, p, isDir)
		}
	}
	if !isDir || !w.recursive {
		return
	}
	if e.mask&unix.IN_MOVED_FROM != 0 {
		w.moving[e.cookie] = p
	}
	if e.mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 {
		r.arrived(w, p, e.cookie)
	}
}

// arrived follows a directory that has come to a new place. One that was moved
// within the tree stays watched without a gap.
func (r *watcher) arrived(w *watch, p string, cookie uint32) {
	if old, ok := w.moving[cookie]; ok && cookie != 0 {
		delete(w.moving, cookie)
		r.renamed(w, old, p)
	}
	for c, old := range w.moving {
		if old == p { // it went away, and this is another
			delete(w.moving, c)
			r.forget(w, old)
		}
	}
	_ = r.scan(w, p, true) // gone again: its removal is told
}

// renamed gives a directory and all below it the paths that they have now.
func (r *watcher) renamed(w *watch, from, to string) {
	moved := map[string]int32{}
	for dir, wd := range w.dirs {
		if rest, below := strings.CutPrefix(dir, from); below && (rest == "" || rest[0] == '/') {
			delete(w.dirs, dir)
			moved[to+rest] = wd
		}
	}
	for dir, wd := range moved {
		w.dirs[dir] = wd
		r.dirs[wd][w] = dir
	}
}

// maxMoving bounds the moves whose second half is still awaited.
const maxMoving = 64

// settle stops watching the directories that were moved away: the second half
// of a move comes at once or not at all. more says that events are waiting.
func (r *watcher) settle(more bool) {
	for w := range r.watches {
		if more && len(w.moving) <= maxMoving {
			continue
		}
		for cookie, p := range w.moving {
			delete(w.moving, cookie)
			r.forget(w, p)
		}
	}
}

// forget stops watching a directory and all below it.
func (r *watcher) forget(w *watch, p string) {
	for dir, wd := range w.dirs {
		if p != "." && dir != p && !strings.HasPrefix(dir, p+"/") {
			continue
		}
		delete(w.dirs, dir)
		delete(r.dirs[wd], w)
		if len(r.dirs[wd]) == 0 {
			delete(r.dirs, wd)
			_ = r.file.raw.Control(func(fd uintptr) {
				_, _ = unix.InotifyRmWatch(int(fd), uint32(wd)) //nolint:gosec // the kernel's own number
			})
		}
	}
}

// scan begins to watch a directory and, for a recursive watch, all below it.
// With announce what a directory holds that was not watched before is told as
// created: it came before the watch was in place. The error is about the first
// directory.
func (r *watcher) scan(w *watch, first string, announce bool) error {
	left := wire.MaxWalk
	for todo := []string{first}; len(todo) > 0; {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		list, fresh, err := r.directory(w, dir, &left)
		if err != nil {
			if dir == first {
				return err
			}
			if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EMFILE) {
				w.lose()
			}
			continue
		}
		for _, e := range list {
			p, isDir := path.Join(dir, e.name), e.kind == unix.DT_DIR
			if announce && fresh {
				w.push(wire.WatchCreated, p, isDir)
			}
			if isDir {
				todo = append(todo, p)
			}
		}
	}
	return nil
}

// directory begins to watch one directory, says whether it was not watched
// before, and returns its entries for a recursive watch.
func (r *watcher) directory(w *watch, dir string, left *int) (all []entry, fresh bool, err error) {
	fd, err := r.a.openAt(r.a.root, path.Join(w.root, dir), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0, noLinks)
	if err != nil {
		return nil, false, err
	}
	defer sysClose(fd) //nolint:errcheck // a directory
	if fresh, err = r.watchOpen(w, dir, fd); err != nil || !w.recursive {
		return nil, fresh, err
	}
	buf := make([]byte, 16<<10)
	for {
		list, err := readEntries(fd, buf)
		if err != nil || len(list) == 0 {
			return all, fresh, nil // not readable any more: as far as it went
		}
		if *left -= len(list); *left < 0 {
			w.lose()
			return all, fresh, nil
		}
		all = append(all, list...)
	}
}

// watchOpen begins to watch a directory that is open, and says whether the
// watch did not have it before: the kernel wants a path, and any other could
// lead elsewhere by now.
func (r *watcher) watchOpen(w *watch, dir string, fd int) (fresh bool, err error) {
	if _, known := w.dirs[dir]; !known && len(r.dirs) >= wire.MaxWatchedDirs {
		return false, unix.ENOSPC
	}
	var wd int
	if cErr := r.file.raw.Control(func(ino uintptr) {
		wd, err = sysInotifyAddWatch(int(ino), "/proc/self/fd/"+strconv.Itoa(fd), changes)
	}); cErr != nil {
		return false, cErr
	}
	if err != nil {
		return false, err
	}
	n := int32(wd) //nolint:gosec // the kernel's own number
	if r.dirs[n] == nil {
		r.dirs[n] = map[*watch]string{}
	}
	old, had := r.dirs[n][w]
	if had && old != dir {
		delete(w.dirs, old)
	}
	r.dirs[n][w], w.dirs[dir] = dir, n
	return !had, nil
}
