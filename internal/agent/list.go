//go:build linux

package agent

import (
	"strings"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// eventBytes is how much a listing gathers before it sends an event; one more
// entry of the longest kind still fits into a frame.
const eventBytes = 24 << 10

// list lists what is below a directory.
func (a *agent) list(c *channel, req wire.Request) wire.Outcome {
	l := &listing{a: a, c: c, req: req.List, left: wire.MaxWalk, buf: make([]byte, 16<<10)}
	if err := l.walk(); err != nil {
		return failed(fileFault(err))
	}
	l.flush()
	return l.outcome
}

// listing is one list under way.
type listing struct {
	a       *agent
	c       *channel
	req     *wire.ListRequest
	left    int // entries that may still be looked at
	listed  int
	bytes   int // of paths and targets so far
	buf     []byte
	todo    []folder
	found   []wire.Entry
	size    int // of found, at most, as JSON
	outcome wire.Outcome
}

// folder is a directory to look into.
type folder struct {
	path  string
	depth int
}

// walk goes through the directories, the upper ones first.
func (l *listing) walk() error {
	rel, err := l.a.relative(l.req.Dir)
	if err != nil {
		return err
	}
	base, err := l.a.openAt(l.a.root, rel, unix.O_PATH|unix.O_DIRECTORY, 0, noLinks)
	if err != nil {
		return err
	}
	defer unix.Close(base) //nolint:errcheck // a directory
	if err := l.directory(base, folder{".", 1}); err != nil {
		return err
	}
	for len(l.todo) > 0 && !l.outcome.More && !l.c.abandoned() {
		next := l.todo[0]
		l.todo = l.todo[1:]
		_ = l.directory(base, next) // gone, replaced by a link, or closed to us: nothing to list
	}
	return nil
}

// directory lists one directory.
func (l *listing) directory(base int, d folder) error {
	defer l.a.slot()()
	fd, err := l.a.openAt(base, d.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0, noLinks)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // a directory
	for {
		list, err := readEntries(fd, l.buf)
		if err != nil || len(list) == 0 {
			return err
		}
		for _, e := range list {
			if l.left--; l.left < 0 {
				l.outcome.More = true
			}
			if l.outcome.More {
				return nil
			}
			l.entry(fd, d, e)
		}
	}
}

// entry describes one entry.
func (l *listing) entry(dir int, d folder, e entry) {
	rel := e.name
	if d.path != "." {
		rel = d.path + "/" + e.name
	}
	var st unix.Stat_t
	if unix.Fstatat(dir, e.name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return // gone
	}
	if sandbox.CheckGuestPath("", rel) != nil {
		l.outcome.Unprintable++
		return
	}
	x := wire.Entry{
		Path: rel, Type: typeOf(st.Mode), Size: st.Size, Mode: st.Mode & 0o7777,
		MtimeNS: st.Mtim.Nano(), UID: int(st.Uid), GID: int(st.Gid),
	}
	if x.Type == wire.TypeSymlink {
		x.Target = readLink(dir, e.name)
	}
	l.bytes += len(x.Path) + len(x.Target)
	if l.listed++; l.listed > l.req.Max || l.bytes > wire.MaxListBytes {
		l.outcome.More = true
		return
	}
	if x.Type == wire.TypeDir && d.depth < l.req.Depth {
		l.todo = append(l.todo, folder{rel, d.depth + 1})
	}
	l.found = append(l.found, x)
	if l.size += 300 + 2*len(x.Path) + 6*len(x.Target); l.size > eventBytes {
		l.flush()
	}
}

// readLink returns what a symbolic link points to, as text.
func readLink(dir int, name string) string {
	b := make([]byte, wire.MaxPath)
	n, err := unix.Readlinkat(dir, name, b)
	if err != nil {
		return ""
	}
	return text(b[:n])
}

// text makes valid UTF-8 of what a guest wrote: JSON carries nothing else.
func text(b []byte) string {
	s := strings.ToValidUTF8(string(b), "?")
	return s[:min(len(s), wire.MaxPath)]
}

// flush sends what was found so far.
func (l *listing) flush() {
	if len(l.found) > 0 {
		l.c.event(wire.Event{Kind: wire.EventEntries, Entries: l.found})
		l.found, l.size = nil, 0
	}
}
