package engine

import (
	"context"
	"io"

	"pinfold/internal/engine/stdio"
)

// WriteRunStdin writes to the standard input of a run that goes on, which was
// asked for with Request.OpenStdin, and says how much the program's side has
// taken. It blocks while the program does not read.
func (e *Engine) WriteRunStdin(ctx context.Context, tenant, id string, r io.Reader) (int64, error) {
	in, err := e.runInlet(ctx, tenant, id)
	if err != nil {
		return 0, err
	}
	n, err := in.Write(ctx, r)
	if err != nil {
		err = cancelledOr(ctx, err)
	}
	return n, err
}

// CloseRunStdin ends the standard input of such a run. It is idempotent.
func (e *Engine) CloseRunStdin(ctx context.Context, tenant, id string) error {
	in, err := e.runInlet(ctx, tenant, id)
	if err == nil {
		in.Close()
	}
	return err
}

func (e *Engine) runInlet(ctx context.Context, tenant, id string) (*stdio.Inlet, error) {
	if l := e.live(tenant, id); l != nil && l.stdin != nil {
		return l.stdin, nil
	}
	if _, err := e.RunRecord(ctx, tenant, id); err != nil {
		return nil, err
	}
	return nil, stdio.InputClosed().WithHint("only a run that was started with ?stdin=true has one to write to, until it ends")
}
