package api

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// maxTyped bounds what waits before a program that does not read, in bytes.
const maxTyped = 1 << 20

// inlet holds what a client has typed and the program has not taken yet. One
// goroutine puts, another takes.
type inlet struct {
	mu    sync.Mutex
	bytes []byte
	some  chan struct{} // holds a token when there may be bytes
	room  chan struct{} // holds a token when bytes were taken
	// stalls counts how often putting had to wait, and how often it went on.
	stalls atomic.Int64
}

func newInlet() *inlet {
	return &inlet{some: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// put adds a frame. Where there is no room it waits as long as the timeout
// lasts; false says that nothing was taken meanwhile, or that ctx has ended.
func (i *inlet) put(ctx context.Context, frame []byte, timeout time.Duration) bool {
	if i.add(frame) {
		return true
	}
	i.stalls.Add(1)
	defer i.stalls.Add(1)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for !i.add(frame) {
		select {
		case <-i.room:
			timer.Reset(timeout)
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// stalledSince says whether putting has waited at any time since stalls was read, or
// waits now.
func (i *inlet) stalledSince(stalls int64) bool {
	now := i.stalls.Load()
	return now != stalls || now%2 == 1
}

func (i *inlet) add(frame []byte) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.bytes)+len(frame) > maxTyped {
		return false
	}
	i.bytes = append(i.bytes, frame...)
	signal(i.some)
	return true
}

// take waits for bytes and returns all that there are.
func (i *inlet) take(ctx context.Context) ([]byte, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-i.some:
		}
		i.mu.Lock()
		typed := i.bytes
		i.bytes = nil
		i.mu.Unlock()
		if len(typed) > 0 {
			signal(i.room)
			return typed, nil
		}
	}
}

// signal leaves a token unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
