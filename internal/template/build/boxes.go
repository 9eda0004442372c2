package build

import (
	"context"
	"errors"
	"io"
	"sync"

	"pinfold/internal/engine/living"
	"pinfold/internal/engine/runs"
	"pinfold/internal/engine/stdio"
	"pinfold/internal/packages"
	"pinfold/sandbox"
)

// Sandboxes makes the sandboxes in which a build's steps run.
type Sandboxes interface {
	// Create makes a living sandbox, which the caller destroys.
	Create(ctx context.Context, c sandbox.Create) (Sandbox, error)
	// Packages has packages of the operator's indexes here, until they are released, for the
	// programs of an image, of which sandboxes can be made as template.
	Packages(ctx context.Context, p sandbox.Packages, template, image string) (*packages.Use, error)
}

// Sandbox is a living sandbox.
type Sandbox interface {
	WriteFile(ctx context.Context, name string, mode uint32, size int64, r io.Reader) error
	// Exec runs a command to its end. What it prints is written as it comes; an error of
	// a writer ends the call, and with it the build.
	Exec(ctx context.Context, c sandbox.Command, stdin io.Reader, stdout, stderr io.Writer) (sandbox.Process, error)
	Destroy(ctx context.Context) (sandbox.Info, error)
}

// In has a tenant's sandboxes of an engine.
func In(m *living.Manager, r *runs.Runner, tenant string) Sandboxes {
	return engineBoxes{m, r, tenant}
}

type engineBoxes struct {
	manager *living.Manager
	runner  *runs.Runner
	tenant  string
}

// Packages implements Sandboxes.
func (e engineBoxes) Packages(ctx context.Context, p sandbox.Packages, template, image string) (*packages.Use, error) {
	in := sandbox.Spec{Template: template, Driver: stepDriver}.WithDefaults().Machine()
	return e.runner.PackagesOf(ctx, e.tenant, p, in, image)
}

// Create implements Sandboxes.
func (e engineBoxes) Create(ctx context.Context, c sandbox.Create) (Sandbox, error) {
	s, err := e.manager.CreateOwn(ctx, e.tenant, c)
	if err != nil {
		return nil, err
	}
	return engineBox{s}, nil
}

type engineBox struct{ *living.Sandbox }

// Exec implements Sandbox.
func (e engineBox) Exec(ctx context.Context, c sandbox.Command, stdin io.Reader, stdout, stderr io.Writer) (sandbox.Process, error) {
	c.Stdin = stdin != nil
	p, out, err := e.attach(ctx, c)
	if err != nil {
		return sandbox.Process{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if stdin != nil {
		go feed(ctx, p, stdin, cancel)
	}
	var both sync.WaitGroup
	for i, to := range []io.Writer{stdout, stderr} {
		both.Go(func() {
			defer out[i].Close()
			if err := pour(ctx, out[i], to); err != nil {
				cancel(err)
			}
		})
	}
	both.Wait()
	if err := context.Cause(ctx); err != nil {
		return p.Info(), err
	}
	return p.Wait(ctx)
}

func (e engineBox) attach(ctx context.Context, c sandbox.Command) (*living.Process, [2]*stdio.Reader, error) {
	p, stdout, stderr, err := e.StartAttached(ctx, c)
	return p, [2]*stdio.Reader{stdout, stderr}, err
}

// feed sends all of r to a process. One that does not want it, or has ended, is no error:
// its exit status tells.
func feed(ctx context.Context, p *living.Process, r io.Reader, cancel context.CancelCauseFunc) {
	_, err := p.WriteStdin(ctx, r)
	if err == nil {
		err = p.CloseStdin()
	}
	var e *sandbox.Error
	if err == nil || errors.As(err, &e) && (e.Code == sandbox.CodeConflict || e.Code == sandbox.CodeGone) {
		return
	}
	cancel(err)
}

// pour copies a stream to its end.
func pour(ctx context.Context, from *stdio.Reader, to io.Writer) error {
	for {
		chunk, _, err := from.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			_, err = to.Write(chunk)
		}
		if err != nil {
			return err
		}
	}
}
