package engine

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"pinfold/internal/image"
)

// How old the fingerprint of a template may be: after the first time a new one is
// made while the old one still counts, after the second it does not.
const (
	fingerprintFresh  = 2 * time.Minute
	fingerprintCounts = time.Hour
)

// toolchains knows the fingerprints of templates, which take too long to make
// for each run. It never waits: without a fingerprint nothing is cached.
type toolchains struct {
	mu    sync.Mutex
	known map[string]*toolchain // by template
}

type toolchain struct {
	sum    [sha256.Size]byte
	at     time.Time // when the look began; zero: never
	making bool
}

// fingerprint returns what is known, and sees to it that something newer is
// known soon.
func (e *Engine) fingerprint(t image.Template) (sum [sha256.Size]byte, ok bool) {
	e.toolchains.mu.Lock()
	defer e.toolchains.mu.Unlock()
	if e.toolchains.known == nil {
		e.toolchains.known = map[string]*toolchain{}
	}
	known := e.toolchains.known[t.Name]
	if known == nil {
		known = &toolchain{}
		e.toolchains.known[t.Name] = known
	}
	age := time.Since(known.at)
	if age > fingerprintFresh && !known.making {
		known.making = true
		e.background.Go(func() { e.look(t, known) })
	}
	return known.sum, age < fingerprintCounts
}

// look makes a fingerprint, until the engine closes.
func (e *Engine) look(t image.Template, known *toolchain) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-e.quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	start := time.Now()
	sum, err := t.Fingerprint(ctx, e.options.Host)
	if err != nil && ctx.Err() == nil {
		e.log.Warn("a template cannot be looked at: nothing that is compiled in it is cached", "template", t.Name, "error", err)
	}
	e.toolchains.mu.Lock()
	defer e.toolchains.mu.Unlock()
	known.making = false
	if err == nil {
		known.sum, known.at = sum, start
	}
}
