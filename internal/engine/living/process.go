package living

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/stdio"
	"pinfold/internal/engine/verdict"
	"pinfold/internal/failpoint"
	"pinfold/internal/guest"
	"pinfold/internal/language"
	"pinfold/internal/profile"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// What a living sandbox remembers of processes that have ended.
const (
	maxEndedProcesses = 100
	maxEndedOutput    = 16 << 20
)

// maxShown is more than a gate can make of what is kept of an output: the readers of what it
// has let out, of which all is there at once, are not waited for.
const maxShown = 1 << 40

// Process is a command in a living sandbox. It is safe for concurrent use.
type Process struct {
	id      string
	sandbox *Sandbox
	key     string // of who started it
	asks    bool   // whether the sandbox is ready, and no more
	command sandbox.Command
	limits  sandbox.Limits
	guest   *guest.Process
	output  *stdio.Spool // as it comes
	shown   *stdio.Spool // to whoever reads it: the same, or what the gate lets out, at the end
	base    driver.Usage
	started time.Time
	passed  time.Duration // of its wall time, in the sandbox from whose memory it goes on
	wall    stopwatch     // guarded by the sandbox's lock
	done    chan struct{} // closed when all is known

	stdin *stdio.Inlet // nil without one

	mu      sync.Mutex
	trigger *verdict.Trigger
	over    bool
	result  sandbox.Process // filled at the end
	held    *checked        // what is known of an output that was held back; set with result
}

// Start starts a command and returns when its exec has succeeded.
func (s *Sandbox) Start(ctx context.Context, c sandbox.Command) (*Process, error) {
	p, outs, err := s.launch(ctx, c, launching{})
	for _, o := range outs {
		o.Close()
	}
	return p, err
}

// Exec starts a command, waits for its end and returns it with what is kept of
// its output. When ctx ends before it, the process goes on; the error is then the
// context's, and the process is found under the id that is returned.
func (s *Sandbox) Exec(ctx context.Context, c sandbox.Command) (sandbox.Process, error) {
	p, _, err := s.launch(ctx, c, launching{})
	if err != nil {
		return sandbox.Process{}, err
	}
	if info, err := p.Wait(ctx); err != nil {
		return info, err
	}
	return p.InfoWithOutput(), nil
}

// launching is how a process is started.
type launching struct {
	attach bool // readers of both streams are there before its first byte
	asks   bool // it only asks whether the sandbox is ready: it is not in the audit log
}

// launch starts a process.
func (s *Sandbox) launch(ctx context.Context, c sandbox.Command, how launching) (*Process, []*stdio.Reader, error) {
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	if err := s.manager.policy.Command(c); err != nil {
		return nil, nil, err
	}
	if err := profile.Command(s.request.Profile, s.request.Limits, c); err != nil {
		return nil, nil, err
	}
	if err := s.allows(c); err != nil {
		return nil, nil, err
	}
	if c.Terminal != nil {
		if err := s.Unchecked("a terminal"); err != nil {
			return nil, nil, sandbox.AsError(err).WithField("terminal")
		}
	}
	if err := s.manager.recordable(); err != nil && !how.asks {
		return nil, nil, err
	}
	done, err := s.use()
	if err != nil {
		return nil, nil, err
	}
	p := s.newProcess(c)
	p.key, p.asks = records.KeyOf(ctx), how.asks
	var outs []*stdio.Reader
	if how.attach {
		outs = []*stdio.Reader{p.shown.Open(wire.Stdout, 0, nil), p.shown.Open(wire.Stderr, 0, nil)}
	}
	streams := guest.Streams{Stdout: p.output.Writer(wire.Stdout), Stderr: p.output.Writer(wire.Stderr), Arrived: p.output.Arrived}
	if c.Stdin || c.Terminal != nil {
		p.stdin = stdio.NewInlet()
		streams.Stdin = p.stdin.Program()
	}
	startCtx, stop := execution.Starting(ctx)
	defer stop()
	command := s.guestCommand(c)
	command.CPUs = s.occupy()
	p.guest, err = s.guest.Start(startCtx, command, streams)
	if err != nil {
		s.vacate()
		done()
		for _, o := range outs {
			o.Close()
		}
		return nil, nil, s.explain(ctx, s.machine.ProcessError(err, verdict.Own(s.read(), p.base)))
	}
	p.started = time.Now()
	failpoint.Hit("process.started")
	s.keep(p)
	if how.asks { // whoever waits for the answer would wait as long as it stood still
		go func() {
			defer done()
			p.await()
		}()
		return p, outs, nil
	}
	done() // from here on only its own calls make the sandbox busy
	go p.await()
	return p, outs, nil
}

func (s *Sandbox) newProcess(c sandbox.Command) *Process {
	p := &Process{id: records.NewID("prc_"), sandbox: s, command: c, limits: s.info.Limits, done: make(chan struct{})}
	if c.WallTimeMS > 0 {
		p.limits.WallTimeMS = c.WallTimeMS
	}
	if c.OutputBytes > 0 {
		p.limits.OutputBytes = c.OutputBytes
	}
	p.output = stdio.NewSpool(p.limits.OutputBytes)
	p.shown = p.output
	if s.holds() {
		p.shown = stdio.NewSpool(maxShown)
	}
	s.mu.Lock()
	p.base = s.last
	s.mu.Unlock()
	return p
}

// guestCommand is what the agent is asked to start.
func (s *Sandbox) guestCommand(c sandbox.Command) guest.Command {
	terminal := map[string]string{}
	if c.Terminal != nil {
		terminal["TERM"] = "xterm-256color"
	}
	g := s.machine.Command(c.Argv(), language.BaseEnv(execution.Places(s.machine.Plan)), s.info.Limits, terminal, s.env(c))
	g.Dir = cmp.Or(c.Dir, s.machine.Plan.Template.WorkDir, g.Dir)
	if c.Terminal != nil {
		g.Terminal = &wire.TerminalSize{Cols: c.Terminal.Cols, Rows: c.Terminal.Rows}
	}
	return g
}

// explain prefers the reason why a sandbox ended to the broken connection that
// this caused.
func (s *Sandbox) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return execution.CallerGone(ctx, err)
	}
	if !errors.Is(err, guest.ErrGone) && !errors.Is(err, guest.ErrClosed) {
		return sandbox.AsError(s.most().Error(err, s.info.Limits))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.info.State != sandbox.StateRunning {
		return s.notRunning()
	}
	return sandbox.AsError(err)
}

// keep enters a process in the sandbox's table.
func (s *Sandbox) keep(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.wall.set(p.passed, time.Duration(p.limits.WallTimeMS)*time.Millisecond, p.timeUp)
	s.processes[p.id] = p
	s.order = append(s.order, p.id)
	s.watch()
}

// forget drops the oldest processes that have ended when there are too many of
// them, or when they hold too much output.
func (s *Sandbox) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended, output := 0, int64(0)
	kept := s.order[:0:0]
	for _, id := range slices.Backward(s.order) {
		p := s.processes[id]
		if !p.running() {
			ended++
			output += p.shown.Held()
			if ended > maxEndedProcesses || output > maxEndedOutput && ended > 1 {
				delete(s.processes, id)
				continue
			}
		}
		kept = append(kept, id)
	}
	slices.Reverse(kept)
	s.order = kept
}

// timeUp ends a process whose wall time is over.
func (p *Process) timeUp() {
	elapsed := p.elapsed().Milliseconds()
	p.stop(&verdict.Trigger{Kind: sandbox.CauseWallTime, Observed: elapsed, Evidence: fmt.Sprintf("still running after %dms", elapsed)})
}

// elapsed is how long it has run, without the time in which its sandbox was paused.
func (p *Process) elapsed() time.Duration {
	p.sandbox.mu.Lock()
	defer p.sandbox.mu.Unlock()
	return p.wall.elapsed()
}

// stop ends the process, for the first reason that there is.
func (p *Process) stop(t *verdict.Trigger) {
	p.mu.Lock()
	if p.trigger == nil {
		p.trigger = t
	}
	p.mu.Unlock()
	_ = p.guest.Signal(syscall.SIGKILL, true) // the connection's end ends it too
}

// await waits for the end and decides what it was.
func (p *Process) await() {
	e, err := p.guest.Wait(context.Background())
	p.sandbox.vacate()
	p.sandbox.mu.Lock()
	p.wall.stop()
	p.wall.over = true
	p.sandbox.mu.Unlock()
	if p.stdin != nil {
		p.stdin.End()
	}
	result := p.judge(e, err)
	p.check(&result)
	p.attest(&result)
	p.mu.Lock()
	p.result, p.over = result, true
	p.mu.Unlock()
	p.output.Close()
	p.shown.Close()
	close(p.done)
	failpoint.Hit("process.ended")
	p.sandbox.forget()
}

// judge puts together how a process ended.
func (p *Process) judge(e guest.Exit, err error) sandbox.Process {
	wall := p.elapsed()
	p.mu.Lock()
	ev := verdict.Evidence{Limits: p.limits, Trigger: p.trigger, Living: true}
	p.mu.Unlock()
	if err == nil {
		ev.Exit = &verdict.Exit{Code: e.Code, Signal: int(e.Signal)}
	}
	if err == nil && ev.Trigger == nil && (e.Code != 0 || e.Signal != 0) {
		ev.Usage = verdict.Own(p.sandbox.read(), p.base)
	}
	if err != nil && ev.Trigger == nil {
		ev.Trigger = p.sandbox.endTrigger()
	}
	r := p.describe()
	var cause sandbox.Cause
	r.Status, cause = verdict.Of(ev)
	cause = p.sandbox.most().Cause(cause, ev.Limits)
	cause = execution.Advise(r.Status, cause, "", p.sandbox.machine.Network(), p.output.Last(p.speaks(), execution.LastWords))
	r.Cause, r.TimedOut = &cause, verdict.TimedOut(cause.Kind)
	r.ExitCode, r.Signal = ev.Ending()
	r.PipesHeld = p.guest.PipesHeld()
	ended := time.Now().UTC().Round(0)
	r.EndedAt, r.Running, r.WallMS = &ended, false, wall.Milliseconds()
	return r
}

// speaks is the stream on which the program says what is wrong.
func (p *Process) speaks() uint8 {
	if p.command.Terminal != nil {
		return wire.Stdout
	}
	return wire.Stderr
}

// endTrigger is why the sandbox took its processes with it. It waits a little
// for the news: the connection ends before the machine's death is known.
func (s *Sandbox) endTrigger() *verdict.Trigger {
	deadline := time.Now().Add(execution.KillTimeout)
	for {
		s.mu.Lock()
		cause := s.info.Cause
		s.mu.Unlock()
		if cause != nil {
			return &verdict.Trigger{Kind: cause.Kind, Observed: cause.Observed, Evidence: "the sandbox ended: " + cause.Evidence}
		}
		if time.Now().After(deadline) {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

func (p *Process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// ID returns the process's id.
func (p *Process) ID() string { return p.id }

// Info describes the process now.
func (p *Process) Info() sandbox.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.result
	if !p.over {
		r = p.describe()
	}
	written := p.output.Written()
	if p.shown != p.output && !p.over {
		written = [2]int64{}
	}
	r.StdoutBytes, r.StderrBytes = written[0], written[1]
	return r
}

// InfoWithOutput describes the process and, when it has ended, what is kept of its
// output: the last limits.output_bytes of each stream. How both streams follow each
// other is known where they are whole.
func (p *Process) InfoWithOutput() sandbox.Process {
	info := p.Info()
	if info.Running {
		return info
	}
	stdout, cutOut := p.shown.Kept(wire.Stdout)
	stderr, cutErr := p.shown.Kept(wire.Stderr)
	order := p.shown.Order
	if h := p.held; h != nil { // which stands still since the end
		cutOut, cutErr = h.cut[0], h.cut[1]
		order = func() []sandbox.OutputPiece { return h.order }
	}
	info.HasOutput = true
	info.Stdout, info.StdoutTruncated = stdio.Text(stdout), cutOut
	info.Stderr, info.StderrTruncated = stdio.Text(stderr), cutErr
	if !cutOut && !cutErr {
		info.OutputOrder = order()
	}
	if p.command.OutputBase64 {
		info.StdoutRaw, info.StderrRaw = stdout, stderr
	}
	return info
}

func (p *Process) describe() sandbox.Process {
	return sandbox.Process{
		ID: p.id, Args: p.command.Argv(), PID: p.guest.PID(), Running: true, StartedAt: p.started.UTC().Round(0),
		Terminal: p.command.Terminal != nil, Metadata: p.command.Metadata, WallMS: p.elapsed().Milliseconds(),
	}
}

// Done is closed when the process has ended and its output is complete.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end. The error is the context's; the process goes on then.
func (p *Process) Wait(ctx context.Context) (sandbox.Process, error) {
	done, err := p.sandbox.attend() // somebody who waits uses the sandbox
	if err == nil {
		defer done()
	}
	select {
	case <-p.done:
		return p.Info(), nil
	case <-ctx.Done():
		return p.Info(), execution.CallerGone(ctx, context.Cause(ctx))
	}
}

// Output reads a stream (1 stdout, 2 stderr) from an offset on; -1 is the
// first byte that is still kept. What a gate holds back comes at the end. Close what it
// returns.
func (p *Process) Output(stream uint8, offset int64) *stdio.Reader {
	done, _ := p.sandbox.attend() // a reader uses the sandbox, if it still lives
	return p.shown.Open(stream, offset, done)
}

// Outputs reads both streams from those offsets on, in their order; a negative one is
// that of the first byte kept. Close what it returns.
func (p *Process) Outputs(from [2]int64) *stdio.Follower {
	return p.shown.Follow(p.Output(wire.Stdout, from[0]), p.Output(wire.Stderr, from[1]))
}

// Process finds a process of the sandbox.
func (s *Sandbox) Process(id string) (*Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.processes[id]; p != nil {
		return p, nil
	}
	return nil, &sandbox.Error{Code: sandbox.CodeNotFound, Message: "no such process", Hint: "list the sandbox's processes; of those that have ended only the last are kept"}
}

// Processes lists the sandbox's processes, the oldest first. Of those that have
// ended only the last are kept.
func (s *Sandbox) Processes() []sandbox.Process {
	s.mu.Lock()
	all := make([]*Process, 0, len(s.order))
	for _, id := range s.order {
		all = append(all, s.processes[id])
	}
	s.mu.Unlock()
	infos := make([]sandbox.Process, len(all))
	for i, p := range all {
		infos[i] = p.Info()
	}
	return infos
}
