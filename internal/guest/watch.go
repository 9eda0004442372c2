package guest

import (
	"bytes"
	"context"
	"slices"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Watch calls f with every change in a directory, and with recursive in all
// below it, until ctx or the connection ends, the directory goes (code
// file_not_found), or f returns an error, which is then returned. The first
// call has kind ready: what happens after it is seen. Changes are made known in
// their order; what f is too slow for, or what the agent cannot name, is lost
// and becomes one change of kind overflow. A change may be told twice.
func (g *Guest) Watch(ctx context.Context, dir string, recursive bool, f func(wire.WatchEvent) error) error {
	if err := sendable(dir); err != nil {
		return err
	}
	req := wire.Request{Op: wire.OpWatch, Watch: &wire.WatchRequest{Dir: dir, Recursive: recursive}}
	c, err := g.open(ctx, req, plain{}, shape{downloads: 1, prompt: true})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, c.abandon)()
	inbox := c.download[wire.Stdout]
	var r watchReader
	c.answer.wait()
	for b := inbox.Next(); b != nil; b = inbox.Next() {
		c.answer.end() // only the beginning is owed: later there may be nothing to tell
		events, err := r.read(b)
		if err != nil {
			g.end(gone(err))
			return g.Err()
		}
		c.received(wire.Stdout)
		for _, e := range events {
			if ctx.Err() != nil {
				break
			}
			if err := f(e); err != nil {
				c.abandon()
				return err
			}
		}
	}
	_, err = c.wait(ctx)
	if err == nil {
		return c.violated("a watch that ends without a reason")
	}
	return named(dir, err)
}

// watchReader takes the stream of a watch apart.
type watchReader struct {
	part  []byte // the beginning of a change
	ready bool
}

// read returns the changes in b, of which it keeps nothing.
func (r *watchReader) read(b []byte) ([]wire.WatchEvent, error) {
	var list []wire.WatchEvent
	if len(r.part) > 0 {
		b = append(r.part, b...)
	}
	for {
		message, rest, whole, err := wire.CutWatchEvent(b)
		if err != nil {
			return nil, err
		}
		if !whole {
			r.part = bytes.Clone(rest)
			return list, nil
		}
		var e wire.WatchEvent
		if err := wire.Decode(message, &e); err != nil {
			return nil, err
		}
		if err := r.check(e); err != nil {
			return nil, err
		}
		list = append(list, e)
		b = rest
	}
}

var watchKinds = []string{wire.WatchCreated, wire.WatchModified, wire.WatchRemoved, wire.WatchMovedFrom, wire.WatchMovedTo}

func (r *watchReader) check(e wire.WatchEvent) error {
	first := !r.ready
	r.ready = true
	switch {
	case first != (e.Kind == wire.WatchReady):
		return broken("a watch that is not ready first, and once")
	case e.Kind == wire.WatchReady || e.Kind == wire.WatchOverflow:
		if e.Path != "" || e.Dir {
			return broken("a change without a path that has one")
		}
	case !slices.Contains(watchKinds, e.Kind) || sandbox.CheckGuestPath("", e.Path) != nil:
		return broken("a change that cannot be")
	}
	return nil
}
