//go:build linux

package agent

import (
	"sync"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Bounds of what waits to be sent for one watch.
const (
	maxQueued      = 1024
	maxQueuedBytes = 64 << 10
)

// watch is one watch that the host asked for.
type watch struct {
	root      string // relative to "/"
	recursive bool
	// The watched directories by their path below root, and the moves of
	// directories of which one half was seen; with watcher.mu.
	dirs   map[string]int32
	moving map[uint32]string

	wake chan struct{} // there is something in the queue

	mu    sync.Mutex
	queue []wire.WatchEvent
	bytes int
	lost  bool // changes were dropped since the queue was last empty
	gone  bool // the directory itself is gone
}

// watchDir sends what changes in a directory until the host closes.
func (a *agent) watchDir(c *channel, req wire.Request) wire.Outcome {
	rel, err := a.relative(req.Watch.Dir)
	if err != nil {
		return failed(a.fileFault(err))
	}
	w := &watch{root: rel, recursive: req.Watch.Recursive, dirs: map[string]int32{}, moving: map[uint32]string{}, wake: make(chan struct{}, 1)}
	if f := a.watch.add(w); f != nil {
		return failed(f)
	}
	defer a.watch.remove(w)
	if !c.sendEvents([]wire.WatchEvent{{Kind: wire.WatchReady}}) {
		return failed(a.fileFault(unix.ECANCELED))
	}
	for {
		select {
		case <-c.gone:
			return failed(a.fileFault(unix.ECANCELED))
		case <-w.wake:
		}
		events, gone := w.take()
		if !c.sendEvents(events) {
			return failed(a.fileFault(unix.ECANCELED))
		}
		if gone {
			return failed(fault(sandbox.CodeFileNotFound, "the directory is gone"))
		}
	}
}

// push adds a change for the host. When the host is too slow changes are lost,
// which it learns once it has taken the rest.
func (w *watch) push(kind, path string, dir bool) {
	e := wire.WatchEvent{Kind: kind, Path: path, Dir: dir}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.queue)
	switch {
	case w.lost || n > 0 && w.queue[n-1] == e: // a file that is written piece by piece
		return
	case n >= maxQueued || w.bytes+len(path) > maxQueuedBytes || sandbox.CheckGuestPath("", path) != nil:
		w.lost = true
	default:
		w.queue = append(w.queue, e)
		w.bytes += len(path)
	}
	w.notify()
}

// lose says that changes were lost.
func (w *watch) lose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = true
	w.notify()
}

// end says that the directory itself is gone.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = true
	w.notify()
}

func (w *watch) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns what has happened since the last take.
func (w *watch) take() (events []wire.WatchEvent, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events = w.queue
	if w.lost {
		events = append(events, wire.WatchEvent{Kind: wire.WatchOverflow})
	}
	w.queue, w.bytes, w.lost = nil, 0, false
	return events, w.gone
}

// sendEvents sends changes on stream 1, as fast as the host takes
// them. false: the host is gone.
func (c *channel) sendEvents(events []wire.WatchEvent) bool {
	for _, e := range events {
		for b := wire.AppendWatchEvent(nil, &e); len(b) > 0; {
			n := c.out[wire.Stdout].Take(len(b))
			if n == 0 {
				return false
			}
			c.a.frame(wire.AppendData(nil, c.id, wire.Stdout, b[:n]))
			b = b[n:]
		}
	}
	return true
}
