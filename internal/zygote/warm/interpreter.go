// Package warm has interpreters that have been made before their program comes: they
// wait in a sandbox of a pool, started there, forked into it from a zygote or copied with it,
// have loaded the modules that the pool declares, and have run nothing of anybody's. Each takes
// one program.
//
// It makes no sandbox and keeps no pool; its caller does.
package warm

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
)

// LoadTimeout bounds how long an interpreter may take to load its modules.
const LoadTimeout = 2 * time.Minute

// Program is a program that runs in a sandbox: started by its agent (*guest.Process), or
// forked into it. A copied one is a process of its agent's.
type Program interface {
	// Exited is closed when the program has ended, while its output may still come.
	Exited() <-chan struct{}
	// Done is closed when its output has been passed on, too.
	Done() <-chan struct{}
	// Wait waits for Done and says how the program ended.
	Wait(ctx context.Context) (guest.Exit, error)
	// PipesHeld says whether another process holds its output. It is valid after Done.
	PipesHeld() bool
}

// Interpreter waits for its one program. What is said about the program counts from the
// moment in which it is handed over.
type Interpreter struct {
	process Program
	forked  bool
	stdin   io.WriteCloser
	stdout  *output
	stderr  *output
}

// Start starts an interpreter in a fresh sandbox, whose files are there, and waits until
// it has loaded its modules. The command is what starts it: language.Wait.
func Start(ctx context.Context, g *guest.Guest, command guest.Command, modules []string) (*Interpreter, error) {
	marker := zygote.ReadyMarker()
	i := &Interpreter{stdout: newOutput(marker + "\n"), stderr: newOutput("")}
	stdin, ours := io.Pipe()
	i.stdin = ours
	command.Args = slices.Concat(command.Args, []string{marker}, modules)
	var err error
	if i.process, err = g.Start(ctx, command, guest.Streams{Stdin: stdin, Stdout: i.stdout, Stderr: i.stderr}); err != nil {
		return nil, err
	}
	go func() {
		<-i.process.Done()
		_ = stdin.Close()
	}()
	select {
	case <-i.stdout.ready:
		return i, nil
	case <-i.process.Done():
		return nil, i.notLoaded("it ended")
	case <-ctx.Done():
		return nil, i.notLoaded("it took too long")
	}
}

// State returns what a copy of the interpreter is taken over by (Copied), once it is
// ready. It must have been started in this process. dir is a directory in its sandbox.
func (i *Interpreter) State(ctx context.Context, dir string) (guest.State, error) {
	started, ok := i.process.(*guest.Process)
	if !ok {
		return guest.State{}, sandbox.Errorf(sandbox.CodeInternal, "a forked interpreter is copied")
	}
	return started.State(ctx, dir)
}

// Copied returns the copy of an interpreter, in a copy of its machine, over a fresh
// connection to the agent there. It begins anew before anything else.
func Copied(conn guest.Link, hello wire.Hello, of guest.State) (*guest.Guest, *Interpreter) {
	i := &Interpreter{stdout: newOutput(""), stderr: newOutput("")}
	stdin, ours := io.Pipe()
	i.stdin = ours
	g, p := guest.Copied(conn, hello, of, guest.Streams{
		Stdin: io.MultiReader(strings.NewReader(zygote.BeginAnew), stdin), Stdout: i.stdout, Stderr: i.stderr,
	})
	i.process = p
	go func() {
		<-p.Done()
		_ = stdin.Close()
	}()
	return g, i
}

// Forked returns the interpreter that a zygote's child is. It closes the child's
// descriptors when the child has ended.
func Forked(c *zygote.Child) *Interpreter {
	i := &Interpreter{stdin: c.Stdin, stdout: newOutput(""), stderr: newOutput(""), forked: true}
	i.process = follow(c, i.stdout, i.stderr)
	return i
}

// Forked says whether the interpreter was forked, not started by an agent.
func (i *Interpreter) Forked() bool { return i.forked }

// Dead says whether the interpreter has ended.
func (i *Interpreter) Dead() bool {
	select {
	case <-i.process.Exited():
		return true
	default:
		return false
	}
}

// Begin hands the program over. From now on what the interpreter writes is the
// program's. cpus are the host's processors on which it is to run.
func (i *Interpreter) Begin(h zygote.Handover, cpus []int, st guest.Streams) (Program, error) {
	if started, ok := i.process.(*guest.Process); !ok {
		h.CPUs = cpus
	} else if len(cpus) > 0 {
		if err := started.Place(cpus); err != nil {
			return nil, err
		}
	}
	b, err := h.Encode()
	if err != nil {
		return nil, err
	}
	i.stdout.connect(st.Stdout)
	i.stderr.connect(st.Stderr)
	go func() {
		defer i.stdin.Close() //nolint:errcheck // never fails
		if _, err := i.stdin.Write(b); err == nil && st.Stdin != nil {
			_, _ = io.Copy(i.stdin, st.Stdin) // ends with the process, or its reader's end
		}
	}()
	return i.process, nil
}

// unfitLine begins what an interpreter says last that was to be copied and cannot be.
const unfitLine = "UnfitError: "

// notLoaded says why an interpreter cannot wait for programs.
func (i *Interpreter) notLoaded(what string) error {
	line := ErrorLine(i.stderr.before())
	if why, unfit := strings.CutPrefix(line, unfitLine); unfit {
		return &zygote.UnfitError{Why: sandbox.SafeText(why, 500)}
	}
	return zygote.NotLoaded(fmt.Sprintf("%s: %s", what, line))
}

// ErrorLine returns the line in what an interpreter wrote that tells why it ended:
// the last that names an error, or else the last. Python ends with it; Node goes
// on with where it was, and with its version.
func ErrorLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for _, line := range slices.Backward(lines) {
		name, _, ok := strings.Cut(line, ": ")
		name, _, _ = strings.Cut(name, " [") // TypeError [ERR_SOMETHING]: …
		if ok && strings.HasSuffix(name, "Error") && !strings.ContainsAny(name, " \t") {
			return line
		}
	}
	return lines[len(lines)-1]
}
