//go:build linux

package agent

import (
	"slices"
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
		return failed(a.fileFault(err))
	}
	l.flush()
	l.outcome.More = l.outcome.More || l.missed
	return l.outcome
}

// listing is one list under way. It goes through the entries in the order of
// their paths, so that of too many it lists the first.
type listing struct {
	a       *agent
	c       *channel
	req     *wire.ListRequest
	base    int
	left    int  // entries that may still be looked at
	missed  bool // some were not
	listed  int
	bytes   int // of paths and targets so far
	buf     []byte
	found   []wire.Entry
	size    int // of found as a message, at most
	outcome wire.Outcome
}

func (l *listing) walk() error {
	rel, err := l.a.relative(l.req.Dir)
	if err != nil {
		return err
	}
	l.base, err = l.a.openAt(l.a.root, rel, unix.O_PATH|unix.O_DIRECTORY, 0, noLinks)
	if err != nil {
		return err
	}
	defer sysClose(l.base) //nolint:errcheck // a directory
	return l.directory(".", 1)
}

// directory lists one directory and, where the depth allows, what is below.
// One descriptor is open at a time, however deep it goes.
func (l *listing) directory(dir string, depth int) error {
	keys, err := l.keys(dir, depth)
	fd := -1
	leave := func() {
		if fd >= 0 {
			_ = sysClose(fd)
		}
		fd = -1
	}
	defer leave()
	for _, key := range keys {
		if l.outcome.More || l.c.abandoned() {
			break
		}
		if below, ok := strings.CutSuffix(key, "/"); ok {
			leave()
			_ = l.directory(within(dir, below), depth+1) // gone, replaced by a link, or closed to us: nothing to list
			continue
		}
		if fd < 0 {
			if fd, err = l.open(dir); err != nil {
				return err
			}
		}
		l.entry(fd, dir, key)
	}
	return err
}

func within(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}

func (l *listing) open(dir string) (int, error) {
	return l.a.openAt(l.base, dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0, noLinks)
}

// keys returns the names in a directory, in the order in which their paths and
// those below them stand: "x" is an entry, "x/" all that is below it. Of more
// than may be listed it keeps the first.
func (l *listing) keys(dir string, depth int) ([]string, error) {
	fd, err := l.open(dir)
	if err != nil {
		return nil, err
	}
	defer sysClose(fd)                     //nolint:errcheck // a directory
	room := 2 * (l.req.Max - l.listed + 1) // every "x/" has its "x"
	var keys []string
	keep := func() {
		slices.Sort(keys)
		keys = slices.Compact(keys) // of a directory that changes meanwhile, a name may come twice
		if len(keys) > room {
			keys, l.missed = keys[:room], true
		}
	}
	for {
		list, err := l.read(fd)
		if err != nil || len(list) == 0 {
			keep()
			return keys, err
		}
		for _, e := range list {
			if l.left--; l.left < 0 {
				l.missed = true
				keep()
				return keys, nil
			}
			if sandbox.CheckGuestPath("", within(dir, e.name)) != nil {
				l.outcome.Unprintable++
				continue
			}
			keys = append(keys, e.name)
			if depth < l.req.Depth && (e.kind == unix.DT_DIR || e.kind == unix.DT_UNKNOWN) {
				keys = append(keys, e.name+"/")
			}
		}
		if len(keys) > 2*room+len(l.buf) {
			keep()
		}
	}
}

func (l *listing) read(fd int) ([]entry, error) {
	return readEntries(fd, l.buf)
}

// entry describes one entry.
func (l *listing) entry(fd int, dir, name string) {
	var st unix.Stat_t
	err := sysFstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return // gone
	}
	x := wire.Entry{
		Path: within(dir, name), Type: typeOf(st.Mode), Size: st.Size, Mode: st.Mode & 0o7777,
		MtimeNS: st.Mtim.Nano(), UID: int(st.Uid), GID: int(st.Gid),
	}
	if x.Type == wire.TypeSymlink {
		x.Target = readLink(fd, name)
	}
	l.bytes += len(x.Path) + len(x.Target)
	if l.listed++; l.listed > l.req.Max || l.bytes > wire.MaxListBytes {
		l.outcome.More = true
		return
	}
	l.found = append(l.found, x)
	if l.size += 100 + len(x.Path) + len(x.Target); l.size > eventBytes {
		l.flush()
	}
}

// readLink returns what a symbolic link points to, as text.
func readLink(dir int, name string) string {
	b := make([]byte, wire.MaxPath)
	n, err := sysReadlinkat(dir, name, b)
	if err != nil {
		return ""
	}
	return text(b[:n])
}

// text makes valid UTF-8 of what a guest wrote: a message carries nothing else.
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
