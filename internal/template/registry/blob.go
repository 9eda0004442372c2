package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"pinfold/internal/template"
	"pinfold/sandbox"
)

// blob is a layer as it comes. When it breaks off it is asked for again, from there on.
// It belongs to one goroutine, but Close can be called by another.
type blob struct {
	ctx    context.Context //nolint:containedctx // the reader's own, ended by Close
	cancel context.CancelFunc
	repo   *repository
	d      template.Descriptor

	body  io.ReadCloser
	at    int64 // bytes so far
	since int64 // what at was when it was last asked for
	tries int   // that brought next to nothing, one after another
}

// enoughBytes is what a try must bring to count for something: otherwise a registry that
// sends a byte at a time and breaks off would be asked for ever.
const enoughBytes = 1 << 20

func newBlob(ctx context.Context, r *repository, d template.Descriptor) *blob {
	b := &blob{repo: r, d: d}
	b.ctx, b.cancel = context.WithCancel(ctx)
	return b
}

// Close implements io.Closer. A Read that waits ends.
func (b *blob) Close() error { b.cancel(); return nil }

// Read implements io.Reader. It ends where the registry ends, if that is not too early.
func (b *blob) Read(p []byte) (int, error) {
	for {
		if b.body == nil {
			if err := b.open(); err != nil {
				return 0, err
			}
		}
		n, err := b.body.Read(p)
		b.at += int64(n)
		switch {
		case err == nil || errors.Is(err, io.EOF) && b.at >= b.d.Size:
			return n, err
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		}
		_ = b.body.Close()
		b.body = nil
		if err := b.broke(err); err != nil {
			return n, err
		}
		if n > 0 {
			return n, nil
		}
	}
}

// broke returns the error with which the layer ends, or nil to try again.
func (b *blob) broke(err error) error {
	if b.at-b.since >= enoughBytes {
		b.tries = 0
	}
	b.tries++
	if b.tries >= b.repo.o.Tries || !transient(b.ctx, err) {
		return b.repo.unreachable(b.ctx, err)
	}
	return nil
}

// open asks for the layer from where it broke off.
func (b *blob) open() error {
	for {
		if err := b.repo.pause(b.ctx, b.tries); err != nil {
			return err
		}
		b.since = b.at
		ctx, cancel := context.WithCancel(b.ctx)
		resp, err := b.repo.get(ctx, "blobs/"+b.d.Digest, "", b.at) //nolint:bodyclose // Close and broke close it
		if err == nil {
			b.body = newPatient(resp.Body, cancel, b.repo.o.Patience)
			if err = b.skip(resp); err == nil {
				return nil
			}
			_ = b.body.Close()
			b.body = nil
		}
		cancel()
		if err := b.broke(err); err != nil {
			return err
		}
	}
}

// skip makes an answer begin where the layer broke off, and looks at how long it is.
func (b *blob) skip(resp *http.Response) error {
	rest := b.d.Size - b.at
	if resp.StatusCode == http.StatusPartialContent {
		if !strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", b.at)) {
			return b.lies("sends another part of a layer than was asked for")
		}
	} else if rest = b.d.Size; b.at > 0 { // it does not know parts
		if _, err := io.CopyN(io.Discard, b.body, b.at); err != nil {
			return err
		}
	}
	if resp.ContentLength >= 0 && resp.ContentLength != rest {
		return b.lies("has a layer of another length than the manifest says")
	}
	return nil
}

func (b *blob) lies(how string) error {
	return &sandbox.Error{
		Code: sandbox.CodeUnsafeArchive, Message: fmt.Sprintf("the registry %s %s", b.repo.ref.Context().RegistryStr(), how),
		Hint: "nothing of the layer was kept; ask whoever runs the registry",
	}
}

// patient is a body whose sender must not be too slow: it is ended when the next
// leastBytes take too long. What the reader does between two reads does not count.
type patient struct {
	body   io.ReadCloser
	cancel context.CancelFunc
	most   time.Duration
	timer  *time.Timer
	slow   atomic.Bool
	came   int           // of leastBytes
	spent  time.Duration // on them
}

func newPatient(body io.ReadCloser, cancel context.CancelFunc, most time.Duration) *patient {
	p := &patient{body: body, cancel: cancel, most: most}
	p.timer = time.AfterFunc(most, func() { p.slow.Store(true); cancel() })
	return p
}

// Read implements io.Reader.
func (p *patient) Read(b []byte) (int, error) {
	begin := time.Now()
	p.timer.Reset(p.most - p.spent)
	n, err := p.body.Read(b)
	p.timer.Stop()
	p.spent += time.Since(begin)
	if p.came += n; p.came >= leastBytes {
		p.came, p.spent = 0, 0
	}
	if p.slow.Load() && err != nil && !errors.Is(err, io.EOF) {
		err = errTooSlow
	}
	return n, err
}

// Close implements io.Closer.
func (p *patient) Close() error {
	p.timer.Stop()
	p.cancel()
	return p.body.Close()
}
