package planner

import (
	"sync"
	"time"
)

// cacheTTL is for how long what was seen of the host is taken to be so still.
// A server looks for each run otherwise, hundreds of times a second.
const cacheTTL = time.Second

// ttlCache remembers for a moment what was found. It is safe for concurrent use;
// the zero value remembers nothing yet.
type ttlCache[K comparable, V any] struct {
	mu    sync.Mutex
	since time.Time
	found map[K]V
}

// get returns what was found lately, or looks. What is not found is not remembered.
func (l *ttlCache[K, V]) get(key K, look func() (V, bool)) (V, bool) {
	l.mu.Lock()
	if now := time.Now(); now.Sub(l.since) > cacheTTL {
		l.since, l.found = now, map[K]V{}
	}
	v, ok := l.found[key]
	l.mu.Unlock()
	if ok {
		return v, true
	}
	if v, ok = look(); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.found[key] = v
	}
	return v, ok
}

// forget has everything looked for anew.
func (l *ttlCache[K, V]) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = time.Time{}
}
