package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync/atomic"

	"pinfold/internal/engine/stdio"
	"pinfold/sandbox"
)

// A base of Debian's packages is made by mmdebstrap, which fetches them with the host's
// apt from the host's own sources (sources.go) and unpacks them; then their own scripts
// run. Whoever runs Debian trusts these packages with the host itself. They get much less
// here, see startDebian in debian_linux.go: no right and no user of the host, nothing to
// write to but a file system of their own whose size is the limit, no other process.
// What they have that sandboxes have not is the network, and the host's system to read.

// mmdebstrap is the program's name.
const mmdebstrap = "mmdebstrap"

// noMmdebstrap is the error where it is not installed.
func noMmdebstrap() error {
	return (&sandbox.Error{
		Code: sandbox.CodeSetupFailed, Field: "base.debian", Message: "a base of Debian's packages is made by the program mmdebstrap, which is not on this host",
	}).WithHint("sudo apt-get install mmdebstrap; or build where it is, and bring the template: pinfold template save, pinfold template load")
}

// tail keeps the last bytes that a step printed.
type tail struct {
	kept []byte
	to   io.Writer // may be nil
}

// keptOutput is how much of what a step prints is kept in memory.
const keptOutput = 64 << 10

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.kept = append(t.kept, b...)
	if len(t.kept) > 2*keptOutput {
		t.kept = append([]byte(nil), t.kept[len(t.kept)-keptOutput:]...)
	}
	if t.to != nil {
		_, _ = t.to.Write(b) // it is for people
	}
	return len(b), nil
}

// String is what people are shown of it.
func (t *tail) String() string { return stdio.LastLines(t.kept) }

// debianLayer makes the base's root file system and gives it to take, as a tar.
func (b *building) debianLayer(ctx context.Context, d *Debian, sources []string, take func(io.ReadCloser) error) error {
	program, err := exec.LookPath(mmdebstrap)
	if err != nil {
		return noMmdebstrap()
	}
	args := []string{program, "--mode=root", "--variant=minbase", "--format=tar"}
	if len(d.Packages) > 0 {
		args = append(args, "--include="+strings.Join(d.Packages, ","))
	}
	args = append(append(args, d.Suite, "-"), sources...)
	said := &tail{to: b.output}
	ctx, cancel := context.WithTimeoutCause(ctx, b.limits.time(), errTime)
	defer cancel()
	running, err := startDebian(ctx, args, b.limits, said)
	if err != nil {
		return err
	}
	archive := &toEnd{ReadCloser: running.stdout}
	took := take(archive)
	late := context.Cause(ctx)
	if took != nil && !archive.ended.Load() {
		cancel() // nobody takes the rest
	}
	ended := running.wait()
	switch {
	case late != nil:
		return b.stepError(late, "base", said)
	case took != nil && !archive.ended.Load():
		return took
	case ended != nil:
		return b.stepError(fmt.Errorf("mmdebstrap ended with %w", ended), "base", said)
	}
	return took
}

// toEnd notes whether a stream was read to its end.
type toEnd struct {
	io.ReadCloser

	ended atomic.Bool
}

// Read implements io.Reader.
func (t *toEnd) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	if errors.Is(err, io.EOF) {
		t.ended.Store(true)
	}
	return n, err
}
