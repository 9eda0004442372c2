package runs

import (
	"context"
	"io"

	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/stdio"
)

// WriteRunStdin writes to the standard input of a run that goes on, which was
// asked for with Request.OpenStdin, and says how much the program's side has
// taken. It blocks while the program does not read.
func (rn *Runner) WriteRunStdin(ctx context.Context, tenant, id string, r io.Reader) (int64, error) {
	in, err := rn.runInlet(ctx, tenant, id)
	if err != nil {
		return 0, err
	}
	n, err := in.Write(ctx, r)
	if err != nil {
		err = execution.CallerGone(ctx, err)
	}
	return n, err
}

// CloseRunStdin ends the standard input of such a run. It is idempotent.
func (rn *Runner) CloseRunStdin(ctx context.Context, tenant, id string) error {
	in, err := rn.runInlet(ctx, tenant, id)
	if err == nil {
		in.Close()
	}
	return err
}

func (rn *Runner) runInlet(ctx context.Context, tenant, id string) (*stdio.Inlet, error) {
	if l := rn.live(tenant, id); l != nil && l.stdin != nil {
		return l.stdin, nil
	}
	if _, err := rn.RunRecord(ctx, tenant, id); err != nil {
		return nil, err
	}
	return nil, stdio.InputClosed().WithHint("only a run that was started with ?stdin=true has one to write to, until it ends")
}
