package runs

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
func (rn *Runner) fingerprint(t image.Template) (sum [sha256.Size]byte, ok bool) {
	rn.toolchains.mu.Lock()
	defer rn.toolchains.mu.Unlock()
	if rn.toolchains.known == nil {
		rn.toolchains.known = map[string]*toolchain{}
	}
	known := rn.toolchains.known[t.Name]
	if known == nil {
		known = &toolchain{}
		rn.toolchains.known[t.Name] = known
	}
	age := time.Since(known.at)
	if age > fingerprintFresh && !known.making {
		known.making = true
		rn.background.Go(func() { rn.look(t, known) })
	}
	return known.sum, age < fingerprintCounts
}

// look makes a fingerprint, until the engine closes.
func (rn *Runner) look(t image.Template, known *toolchain) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-rn.quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	start := time.Now()
	sum, err := t.Fingerprint(ctx, rn.host)
	if err != nil && ctx.Err() == nil {
		rn.log.Warn("a template cannot be looked at: nothing that is compiled in it is cached", "template", t.Name, "error", err)
	}
	rn.toolchains.mu.Lock()
	defer rn.toolchains.mu.Unlock()
	known.making = false
	if err == nil {
		known.sum, known.at = sum, start
	}
}
