package guest

import (
	"context"
	"slices"
	"strings"

	"pinfold/internal/headroom"
	"pinfold/internal/wire"
)

// Entries is what List found.
type Entries struct {
	// Items are in path order, without doubles. Paths are relative to the
	// directory and have passed sandbox.CheckGuestPath; a link's target is the
	// guest's word and may hold anything.
	Items []wire.Entry
	// More says that there were more than asked for, which are the ones that
	// are missing: those here are the first. Or there were too many to look at
	// (wire.MaxWalk); then which ones are missing is left to chance.
	More bool
	// Unprintable counts entries left out because of their names.
	Unprintable int
}

// List lists at most limit entries of a directory and, with a depth above 1,
// of those below it. Links are listed, not followed. depth and limit are
// brought within 1 to wire.MaxDepth and 0 to wire.MaxFiles.
func (g *Guest) List(ctx context.Context, dir string, depth, limit int) (Entries, error) {
	if err := sendable(dir); err != nil {
		return Entries{}, err
	}
	l := &entryLister{limit: min(max(limit, 0), wire.MaxFiles), depth: min(max(depth, 1), wire.MaxDepth)}
	l.take = func(bytes int64) error { return headroom.Take(ctx, bytes) }
	req := wire.Request{Op: wire.OpList, List: &wire.ListRequest{Dir: dir, Depth: l.depth, Max: l.limit}}
	c, o, err := g.do(ctx, req, l)
	switch {
	case c == nil:
		return Entries{}, err
	case err != nil:
		return Entries{}, named(dir, err)
	case l.refused != nil:
		return Entries{}, l.refused
	}
	if !sortByPath(l.items, func(e wire.Entry) string { return e.Path }) {
		return Entries{}, c.violated("an entry listed twice")
	}
	return Entries{Items: l.items, More: o.More, Unprintable: o.Unprintable}, nil
}

// sortByPath brings what was listed into order. It says whether every path is there once.
func sortByPath[T any](items []T, path func(T) string) bool {
	slices.SortFunc(items, func(a, b T) int { return strings.Compare(path(a), path(b)) })
	for i := 1; i < len(items); i++ {
		if path(items[i]) == path(items[i-1]) {
			return false
		}
	}
	return true
}

// entryLister collects a listing.
type entryLister struct {
	plain
	limit, depth int
	bytes, count int
	items        []wire.Entry
	take         func(bytes int64) error
	refused      error // by take: what comes then is checked, and not kept
}

func (l *entryLister) event(e wire.Event) error {
	if e.Kind != wire.EventEntries || len(e.Entries) == 0 {
		return broken("an event where none belongs")
	}
	if l.count += len(e.Entries); l.count > l.limit {
		return broken("more entries than were asked for")
	}
	before := l.bytes
	for _, x := range e.Entries {
		if err := checkListed(x); err != nil {
			return err
		}
		if strings.Count(x.Path, "/") >= l.depth {
			return broken("an entry deeper than was asked for")
		}
		if l.bytes += len(x.Path) + len(x.Target); l.bytes > wire.MaxListBytes {
			return broken("a listing with too many bytes")
		}
	}
	if l.refused == nil {
		l.refused = l.take(int64(listedCopies*(l.bytes-before) + listedEntry*len(e.Entries)))
	}
	if l.refused != nil {
		l.items = nil
		return nil //nolint:nilerr // List says it, when all has come
	}
	l.items = append(l.items, e.Entries...)
	return nil
}

// What a listing costs until it has been answered: its texts as they came, with
// their directory before them, and in the answer; and for each entry everything
// else of it, likewise.
const (
	listedCopies = 4
	listedEntry  = 700
)

// Move gives a file or directory another name and makes missing directories
// above that. A regular file there is replaced; anything else there is an error
// of code bad_path or not_regular_file. No link is followed.
func (g *Guest) Move(ctx context.Context, from, to string) error {
	if err := sendable(from, to); err != nil {
		return err
	}
	c, _, err := g.do(ctx, wire.Request{Op: wire.OpMove, Move: &wire.MoveRequest{From: from, To: to}}, plain{})
	if c == nil {
		return err
	}
	return named(from+" to "+to, err)
}
