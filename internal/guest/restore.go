package guest

import (
	"context"
	"errors"
	"io"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Restore makes the files of a tree (package filetree) that r gives, of which each place is
// where places say, and says how many entries there were. Nothing may run in the sandbox
// yet. After an error there are some of them.
//
// r is read by the caller's goroutine, as WriteFile's.
func (g *Guest) Restore(ctx context.Context, places []wire.RestorePlace, r io.Reader) (entries int64, err error) {
	for _, p := range places {
		if err := sendable(p.Name, p.Path); err != nil {
			return 0, err
		}
	}
	c, err := g.open(ctx, wire.Request{Op: wire.OpRestore, Restore: &wire.RestoreRequest{Places: places}}, plain{}, shape{upload: true, prompt: true})
	if err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, c.abandon)()
	_, readErr := c.pump(r)
	if readErr != nil && !errors.Is(readErr, errSated) {
		c.giveUp(ctx)
		return 0, sandbox.Errorf(sandbox.CodeInternal, "reading the files to restore: %w", readErr)
	}
	o, err := c.wait(ctx)
	if err == nil && readErr != nil {
		return 0, c.violated("files restored before all of them had come")
	}
	return o.Size, err
}
