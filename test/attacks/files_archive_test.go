//go:build linux

package attacks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"pinfold/internal/archive"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// sparseTree makes files that look ten times as large as their sandbox's disk, and
// packs them in every format under a bound, 0 for the sandbox's own.
func (t *trial) sparseTree(bound int64, judge func(f archive.Format, s archive.Summary, out int64, err error) error) error {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	const disk = 16 << 20
	x, err := t.engine.Create(ctx, records.LocalTenant, sandbox.Create{Limits: sandbox.Limits{DiskBytes: disk}})
	if err != nil {
		return err
	}
	defer x.Destroy(context.WithoutCancel(ctx))
	p, err := x.Exec(ctx, sandbox.Command{Shell: "mkdir holes few; for i in $(seq 20); do truncate -s 8M holes/$i || exit; done; truncate -s 8M few/hole; echo text > few/text"})
	if err != nil || p.Status != sandbox.StatusSucceeded {
		return fmt.Errorf("making the tree: %w %+v", err, p)
	}
	if bound == 0 {
		bound = x.Holds()
	}
	files, err := x.Files(ctx)
	if err != nil {
		return err
	}
	for _, f := range archive.Formats() {
		var out counter
		sum, err := archive.Pack(ctx, files, "holes", f, archive.Limits{Bytes: bound}, &out)
		if err := judge(f, sum, int64(out), err); err != nil {
			return err
		}
		if sum, err = archive.Pack(ctx, files, "few", f, archive.Limits{Bytes: bound}, io.Discard); err != nil || sum.Bytes != 8<<20+5 {
			return fmt.Errorf("%s: a tree that the disk can hold: %+v, %w", f, sum, err)
		}
	}
	return nil
}

func packsNothing(f archive.Format, _ archive.Summary, out int64, err error) error {
	var known *sandbox.Error
	if !errors.As(err, &known) || known.Code != sandbox.CodeTooLarge || out != 0 {
		return fmt.Errorf("%s: %d bytes came out, %w", f, out, err)
	}
	return nil
}

func packsMore(f archive.Format, s archive.Summary, _ int64, err error) error {
	if err != nil || s.Bytes != 20*(8<<20) {
		return fmt.Errorf("%s: %+v, %w", f, s, err)
	}
	return nil
}

// counter counts what is written.
type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }
