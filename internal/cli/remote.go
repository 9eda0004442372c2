package cli

import (
	"context"
	"encoding/base64"
	"io"
	"math"
	"unicode/utf8"

	"pinfold/client"
	"pinfold/internal/engine/runs"
	"pinfold/internal/hostfiles"
	"pinfold/internal/language"
	"pinfold/sandbox"
)

// maxSentBytes bounds the files that go to a server with a run.
const maxSentBytes = 64 << 20

// remoteRunner is a Runner that asks a server. The files that a run has
// besides its spec are put into the spec; its stdin is passed on as it comes.
type remoteRunner struct{ client *client.Client }

// Close implements io.Closer.
func (r remoteRunner) Close() error { return r.client.Close() }

// Run implements Runner.
func (r remoteRunner) Run(ctx context.Context, req runs.Request) (*sandbox.Result, error) {
	spec := req.Spec
	if err := prepareRemote(&spec, req); err != nil {
		return nil, err
	}
	o := client.RunOptions{Artifact: req.Artifact, Pending: req.Pending}
	if req.Streams.Stdin != nil {
		o.Stdin, spec.Stdin = req.Streams.Stdin, ""
	}
	// A nil writer in an interface would not be nil.
	if req.Streams.Stdout != nil {
		o.Stdout, o.Stderr = req.Streams.Stdout, req.Streams.Stderr
	}
	return r.client.Run(ctx, spec, o)
}

// prepareRemote puts into the spec what else there is of the request.
func prepareRemote(spec *sandbox.Spec, req runs.Request) error {
	if len(spec.Mounts) > 0 {
		return usageError("--mount: a server shows no directories of this machine").WithHint("copy it in with --file")
	}
	if err := sendCode(spec); err != nil {
		return err
	}
	return sendInputs(spec, req.Inputs)
}

// sendCode makes a program that is not UTF-8 a file: JSON would change it.
func sendCode(spec *sandbox.Spec) error {
	if utf8.ValidString(spec.Code) {
		return nil
	}
	l, err := language.Find(spec.Language)
	if err != nil {
		return err
	}
	spec.Files = append(spec.Files, sandbox.File{Path: l.File, ContentBase64: base64.StdEncoding.EncodeToString([]byte(spec.Code))})
	spec.Code, spec.Entrypoint = "", l.File
	return nil
}

// sendInputs puts the --file flags' files into the spec.
func sendInputs(spec *sandbox.Spec, inputs []runs.Input) error {
	filled := map[string]bool{}
	if total := sizeOf(inputs); total > maxSentBytes {
		return filesTooLarge(total)
	}
	for _, in := range inputs {
		for i, c := range in.Path {
			if c == '/' {
				filled[in.Path[:i]] = true
			}
		}
		if in.Dir {
			continue
		}
		content, err := readInput(in)
		if err != nil {
			return err
		}
		spec.Files = append(spec.Files, sandbox.File{
			Path: in.Path, ContentBase64: base64.StdEncoding.EncodeToString(content), Executable: in.Mode&0o100 != 0,
		})
	}
	for _, in := range inputs {
		if in.Dir && !filled[in.Path] {
			e := hostfiles.PathError(sandbox.CodeNotRegularFile, in.Path, "is an empty directory, which cannot go to a server")
			return prefixed("--file", e.WithHint("put a file into it, or make it in the program"))
		}
	}
	return nil
}

// filesField is the field of an error of files that are too much for one request, however
// large the sandbox is.
const filesField = "files"

func filesTooLarge(total int64) error {
	disk := max(total+total/8, sandbox.DefaultLimits().DiskBytes) // some is for directories
	e := &sandbox.Error{
		Code: sandbox.CodeTooLarge, Field: filesField, Message: "more than " + sandbox.FormatSize(maxSentBytes) + " in all cannot go to a server with a run",
	}
	if room, ok := roomFor(disk, math.MaxInt64); ok {
		e = e.WithAdvice(sandbox.Advise("pinfold create %s, then pinfold cp DATA SANDBOX: and pinfold exec", room))
	}
	return prefixed("--file", e)
}

func readInput(in runs.Input) ([]byte, error) {
	f, err := in.Open()
	if err != nil {
		return nil, prefixed("--file", hostfiles.OpenError(in.Path, err))
	}
	defer f.Close() //nolint:errcheck // only read
	content, err := io.ReadAll(io.LimitReader(f, in.Size+1))
	switch {
	case err != nil:
		return nil, prefixed("--file", hostfiles.OpenError(in.Path, err))
	case int64(len(content)) != in.Size:
		return nil, prefixed("--file", hostfiles.PathError(sandbox.CodeSpecInvalid, in.Path, "changed while it was read"))
	}
	return content, nil
}

// newRunner is the server when one was named, else this process's own engine.
func (a *app) newRunner(ctx context.Context) (Runner, error) {
	if !a.remote() {
		return a.NewRunner(ctx)
	}
	c, err := a.connect()
	if err != nil {
		return nil, err
	}
	return remoteRunner{c}, nil
}
