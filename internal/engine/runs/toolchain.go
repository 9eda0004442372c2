package runs

import (
	"context"
	"crypto/sha256"
	"io/fs"
	"log/slog"
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
	host       fs.FS
	log        *slog.Logger
	background *sync.WaitGroup // of those who look
	quit       <-chan struct{} // ends them

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
func (ts *toolchains) fingerprint(t image.Template) (sum [sha256.Size]byte, ok bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	known := ts.known[t.ID]
	if known == nil {
		known = &toolchain{}
		ts.known[t.ID] = known
	}
	age := time.Since(known.at)
	if age > fingerprintFresh && !known.making {
		known.making = true
		ts.background.Go(func() { ts.look(t, known) })
	}
	return known.sum, age < fingerprintCounts
}

// look makes a fingerprint, until quit is closed.
func (ts *toolchains) look(t image.Template, known *toolchain) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-ts.quit:
			cancel()
		case <-ctx.Done():
		}
	}()
	start := time.Now()
	sum, err := t.Fingerprint(ctx, ts.host)
	if err != nil && ctx.Err() == nil {
		ts.log.Warn("a template cannot be looked at: nothing that is compiled in it is cached", "template", t.Name, "error", err)
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	known.making = false
	if err == nil {
		known.sum, known.at = sum, start
	}
}
