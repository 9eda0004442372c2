package engine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"pinfold/internal/engine/stdio"
	"pinfold/internal/guest"
	"pinfold/internal/language"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
)

// loadTimeout bounds how long an interpreter may take to load its modules.
const loadTimeout = 2 * time.Minute

// interpreter is an interpreter that waits in a sandbox of a pool for its one
// program. It was started in that sandbox, or forked into it from a zygote; it has
// loaded the modules that the pool declares, and has run nothing of anybody's. What is said about the
// program counts from the moment in which it is handed over.
type interpreter struct {
	process running
	forked  bool
	stdin   io.WriteCloser
	stdout  *relay
	stderr  *relay
}

// warmKey is which interpreters can take a program.
type warmKey struct {
	language string
	modules  string // sorted, joined by commas
}

func keyOf(lang string, modules []string) warmKey {
	sorted := slices.Compact(slices.Sorted(slices.Values(modules)))
	return warmKey{lang, strings.Join(sorted, ",")}
}

// relay passes on what an interpreter writes once there is somebody to have it.
// Before, it looks for the line that says that the interpreter is ready, and
// keeps a little of the rest, to say why one is not.
type relay struct {
	mu     sync.Mutex
	to     io.Writer
	marker []byte
	ready  chan struct{}
	before []byte
}

// maxBefore is how much is kept of what loading modules prints.
const maxBefore = 4 << 10

func newRelay(marker string) *relay {
	return &relay{marker: []byte(marker), ready: make(chan struct{})}
}

// Write implements io.Writer. It is called from one goroutine and never fails.
func (r *relay) Write(p []byte) (int, error) {
	r.mu.Lock()
	to := r.to
	if to == nil {
		r.look(p)
	}
	r.mu.Unlock()
	if to != nil {
		_, _ = to.Write(p)
	}
	return len(p), nil
}

// look searches for the marker in what has come so far.
func (r *relay) look(p []byte) {
	select {
	case <-r.ready:
		return // between being ready and having a program nobody listens
	default:
	}
	r.before = append(r.before, p...)
	if len(r.marker) > 0 && bytes.Contains(r.before, r.marker) {
		close(r.ready)
		return
	}
	if over := len(r.before) - maxBefore; over > 0 {
		r.before = append(r.before[:0], r.before[over:]...)
	}
}

func (r *relay) connect(to io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
}

func (r *relay) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.before)
}

// startInterpreter starts an interpreter in a fresh machine and waits until it
// has loaded its modules.
func startInterpreter(ctx context.Context, s *session, step language.Wait, rlimit sandbox.Limits) (*interpreter, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	p := &parcel{session: s}
	for _, f := range step.Files {
		if err := p.add(ctx, "", f.Path, 0o644, f.Content); err != nil {
			return nil, err
		}
	}
	if err := p.send(ctx); err != nil {
		return nil, err
	}
	marker := zygote.ReadyMarker()
	i := &interpreter{stdout: newRelay(marker + "\n"), stderr: newRelay("")}
	stdin, theirs := io.Pipe()
	i.stdin = theirs
	args := append(slices.Clone(step.Args), marker)
	g, err := s.agent(ctx)
	if err != nil {
		return nil, err
	}
	i.process, err = g.Start(ctx, guest.Command{
		Args: append(args, step.Modules...), Env: step.Env, Dir: sandbox.Home, UID: sandbox.UID, GID: sandbox.GID, Rlimits: rlimits(rlimit),
	}, guest.Streams{Stdin: stdin, Stdout: i.stdout, Stderr: i.stderr})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(doneContext(i.process), func() { _ = stdin.CloseWithError(stdio.InputClosed()) })
	select {
	case <-i.stdout.ready:
		return i, nil
	case <-i.process.Done():
		if s.machine.Usage().OOMKills > 0 {
			return nil, zygote.TooLittleMemory(rlimit.MemoryBytes)
		}
		return nil, i.notLoaded("it ended")
	case <-ctx.Done():
		return nil, i.notLoaded("it took too long")
	}
}

// doneContext ends with a process.
func doneContext(p running) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-p.Done()
		cancel()
	}()
	return ctx
}

// notLoaded says why an interpreter cannot wait for programs.
func (i *interpreter) notLoaded(what string) error {
	return notLoaded(what+": ", complaint(i.stderr.said()))
}

// complaint is the line in what an interpreter said that tells why it ended:
// the last that names an error, or else the last. Python ends with it; Node goes
// on with where it was, and with its version.
func complaint(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	for _, line := range slices.Backward(lines) {
		name, _, ok := strings.Cut(line, ": ")
		name, _, _ = strings.Cut(name, " [") // TypeError [ERR_SOMETHING]: …
		if ok && strings.HasSuffix(name, "Error") && !strings.ContainsAny(name, " \t") {
			return line
		}
	}
	return lines[len(lines)-1]
}

func notLoaded(what, said string) error {
	return &sandbox.Error{
		Code: sandbox.CodeSpecInvalid, Field: "warm",
		Message: fmt.Sprintf("the interpreter could not load its modules: %s%s", what, sandbox.SafeText(said, 300)),
		Hint:    "import the modules in a run to see what they say",
	}
}

// dead says whether the interpreter has ended.
func (i *interpreter) dead() bool {
	select {
	case <-i.process.Exited():
		return true
	default:
		return false
	}
}

// begin hands the program over. From now on what the interpreter writes is the
// program's.
func (i *interpreter) begin(h zygote.Handover, cpus []int, st guest.Streams) (running, error) {
	if agents, ok := i.process.(*guest.Process); !ok {
		h.CPUs = cpus
	} else if len(cpus) > 0 {
		if err := agents.Place(cpus); err != nil {
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
