//go:build linux

package agent

import (
	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// filesPerEvent keeps an event of the longest paths within one frame.
const filesPerEvent = 32

// glob lists the regular files that match.
func (a *agent) glob(c *channel, req wire.Request) wire.Outcome {
	patterns, err := compile(req.Glob.Patterns)
	if err != nil {
		return failed(fault(sandbox.CodeSpecInvalid, err.Error()))
	}
	rel, err := a.relative(req.Glob.Dir)
	if err != nil {
		return failed(a.fileFault(err))
	}
	base, err := a.openAt(a.root, rel, unix.O_PATH|unix.O_DIRECTORY, 0, noLinks)
	if err != nil {
		return failed(a.fileFault(err))
	}
	defer sysClose(base) //nolint:errcheck // a directory
	w := &walk{
		a: a, c: c, base: base, patterns: patterns, room: req.Glob.Max, left: wire.MaxWalk,
		buf: make([]byte, 16<<10), todo: []place{{".", patterns.start()}},
	}
	for len(w.todo) > 0 && !w.outcome.More && !c.abandoned() {
		last := len(w.todo) - 1
		next := w.todo[last]
		w.todo = w.todo[:last]
		w.directory(next)
	}
	w.flush()
	return w.outcome
}

// walk is one glob under way.
type walk struct {
	a        *agent
	c        *channel
	base     int
	patterns patterns
	room     int // matches that may still be listed
	left     int // entries that may still be looked at
	bytes    int // of the paths listed so far
	buf      []byte
	todo     []place
	found    []wire.FileEntry
	outcome  wire.Outcome
}

// place is a directory to look into, and how far the patterns are there.
type place struct {
	path string
	at   states
}

// directory looks at every entry of one directory.
func (w *walk) directory(p place) {
	fd, err := w.a.openAt(w.base, p.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0, noLinks)
	if err != nil {
		return // gone, replaced by a link, or closed to us: nothing to list
	}
	defer sysClose(fd) //nolint:errcheck // a directory
	for {
		list, err := readEntries(fd, w.buf)
		if err != nil || len(list) == 0 {
			return
		}
		for _, e := range list {
			if w.left--; w.left < 0 || w.room < 0 {
				w.outcome.More = true
				return
			}
			w.entry(fd, p, e)
		}
	}
}

// entry decides about one directory entry.
func (w *walk) entry(dir int, p place, e entry) {
	at := w.patterns.step(p.at, e.name)
	if len(at) == 0 {
		return
	}
	rel := e.name
	if p.path != "." {
		rel = p.path + "/" + e.name
	}
	var st unix.Stat_t
	if sysFstatat(dir, e.name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return // gone
	}
	kind := typeOf(st.Mode)
	inside := kind == wire.TypeDir && w.patterns.goesOn(at)
	matches, literal := w.patterns.accepts(at)
	listed := literal || (matches && kind == wire.TypeFile)
	if (inside || listed) && sandbox.CheckGuestPath("", rel) != nil {
		w.outcome.Unprintable++
		return
	}
	if inside {
		w.todo = append(w.todo, place{rel, at})
	}
	if !listed {
		return
	}
	w.bytes += len(rel)
	if w.room--; w.room < 0 || w.bytes > wire.MaxListBytes {
		w.outcome.More = true
		return
	}
	w.found = append(w.found, wire.FileEntry{Path: rel, Type: kind, Size: st.Size, MtimeNS: st.Mtim.Nano()})
	if len(w.found) == filesPerEvent {
		w.flush()
	}
}

// flush sends the matches found so far.
func (w *walk) flush() {
	if len(w.found) > 0 {
		w.c.event(wire.Event{Kind: wire.EventFiles, Files: w.found})
		w.found = nil
	}
}
