package execution

import (
	"context"

	"pinfold/internal/secret"
	"pinfold/sandbox"
)

// Gates makes the gate of one output, which may have these secrets in it.
type Gates func(g sandbox.Gate, secrets []secret.Secret) (Gate, error)

// Gate checks one output: a run's, that of a process, or files. It is for one goroutine.
type Gate interface {
	ArtifactGate
	// Holds says that nobody may have the output before all of it is checked.
	Holds() bool
	// Result checks a run's result, but for its artifacts, and changes it. It is called
	// once, after them. What of the bytes that were printed may be seen comes back.
	Result(r *sandbox.Result, stdout, stderr []byte) (out, errs []byte)
	// Printed checks what a process has printed, of which the beginning may be missing, and
	// returns what of it may be seen.
	Printed(stdout, stderr []byte, cut bool) (out, errs []byte)
	// Said is a text without what must not come out of it.
	Said(text string) string
	// Name says whether the name of a file may be seen.
	Name(name string) bool
	// Outcome is what has come of the checks so far; the excerpts in it are cut of what a
	// process has printed, whose id is given.
	Outcome(id, stdout, stderr string) *sandbox.GateResult
}

// SecretsFor finds the secrets that a gate looks for, by their names. One that was removed
// is not looked for.
func SecretsFor(ctx context.Context, f secret.Finder, tenant string, names []string) (found []secret.Secret, err error) {
	if f == nil {
		return nil, nil
	}
	for _, name := range names {
		s, err := f.Find(ctx, tenant, name)
		switch {
		case err == nil:
			found = append(found, s)
		case sandbox.AsError(err).Code != sandbox.CodeNotFound:
			return nil, err
		}
	}
	return found, nil
}
