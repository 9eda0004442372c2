package scan

import (
	"context"

	"pinfold/sandbox"
)

// Unread is an error of RunPython that says that the source ended its reader: the report
// says it, and what the words of the source tell.
type Unread string

func (u Unread) Error() string { return string(u) }

// limits are those of the run in which Python is read. A source of the largest size takes
// a part of them.
func limits() sandbox.Limits {
	return sandbox.Limits{
		WallTimeMS: 20_000, CPUTimeMS: 10_000, MemoryBytes: 256 << 20, CPUs: 1, Processes: 4,
		DiskBytes: 16 << 20, Inodes: 256, OutputBytes: maxPythonAnswer, OpenFiles: 32,
	}
}

// InSandbox runs the program that reads Python as an ordinary run: no network, limits of
// its own, the source as a file. run makes a sandbox, runs the spec and returns its result.
func InSandbox(run func(ctx context.Context, spec sandbox.Spec) (*sandbox.Result, error)) RunPython {
	return func(ctx context.Context, program, source []byte) ([]byte, error) {
		r, err := run(ctx, sandbox.Spec{
			Language: "python", Code: string(program), Args: []string{"source.txt"},
			Files: []sandbox.File{{Path: "source.txt", Content: string(source)}}, Limits: limits(),
		})
		switch {
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case r.Status == sandbox.StatusError && r.Error != nil:
			return nil, r.Error
		case r.Status == sandbox.StatusKilled:
			return nil, Unread("its reader was ended by a limit: " + string(r.Cause.Kind))
		case r.Status != sandbox.StatusSucceeded:
			return nil, Unread("its reader failed")
		}
		return []byte(r.Stdout), nil
	}
}
