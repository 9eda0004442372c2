package runs

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/pool"
	"pinfold/internal/engine/verdict"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// hashed makes an input's content known while it is read, where files come out.
func (j *job) hashed(in Input, content io.Reader) io.Reader {
	if !j.bringsOut() {
		return content
	}
	h := sha256.New()
	j.inputs[in.Path] = func() execution.Input { return execution.Input{Size: in.Size, Hash: h.Sum(nil)} }
	return io.TeeReader(content, h)
}

// bringsOut says whether files may come out of the run.
func (j *job) bringsOut() bool { return !j.request.NoArtifacts || len(j.spec.Artifacts) > 0 }

// checkLayout refuses files that would take each other's place, or the program's.
func (j *job) checkLayout() error {
	program := ""
	if j.spec.Code != "" {
		program = j.main
	}
	layout, err := sandbox.NewLayout(program, j.spec.Mounts)
	if err != nil {
		return err
	}
	for i, f := range j.spec.Files {
		if err := layout.AddFile(fmt.Sprintf("files[%d].path", i), f.Path); err != nil {
			return err
		}
	}
	for _, in := range j.request.Inputs {
		add := layout.AddFile
		if in.Dir {
			add = layout.AddDir
		}
		if err := add("files", in.Path); err != nil {
			return err
		}
	}
	_, err = layout.Check()
	return err
}

// fill copies everything into the sandbox that has to be there before the
// program starts.
func (j *job) fill(ctx context.Context, s *execution.Session) error {
	return j.ownRoom(j.fillAll(ctx, s))
}

// ownFiles is the field of errors of the language's own files.
const ownFiles = "language"

// ownRoom says an error of the language's own files, whose names nobody knows, as what it
// is: a limit too small for the language.
func (j *job) ownRoom(err error) error {
	e := sandbox.AsError(err)
	if e == nil || e.Field != ownFiles {
		return err
	}
	more, _ := e.Advice.Find(sandbox.FixSet)
	for _, info := range sandbox.LimitTable() {
		if more.Name == "limits."+info.Field {
			limit := j.spec.Limits.Get(info.Field)
			c := *e
			c.Field = more.Name
			c.Message = sandbox.FormatQuantity(limit, info.Unit) + " is too small for the files that " + j.language.Title + " itself needs"
			return c.WithAdvice(sandbox.Advise("%s", roomier(limit, info)))
		}
	}
	return err
}

func (j *job) fillAll(ctx context.Context, s *execution.Session) error {
	if err := s.FillHome(ctx, j.runner.home); err != nil {
		return err
	}
	steps := j.steps
	if j.warm != nil { // it has its own
		steps.Dir, steps.Files = "", nil
	}
	if steps.Dir != "" && len(steps.Files) == 0 { // else it comes with its files
		if err := s.Mkdir(ctx, steps.Dir, 0o755); err != nil {
			return err
		}
	}
	p := s.Parcel()
	for _, f := range steps.Files {
		if err := p.Add(ctx, ownFiles, f.Path, 0o644, f.Content); err != nil {
			return err
		}
	}
	if j.spec.Code != "" && !j.codeInHandover() {
		if err := p.Add(ctx, "", j.main, 0o644, []byte(j.spec.Code)); err != nil {
			return err
		}
	}
	for i, f := range j.spec.Files {
		content, err := f.Bytes()
		if err != nil {
			return err
		}
		mode := uint32(0o644)
		if f.Executable {
			mode = 0o755
		}
		if err := p.Add(ctx, fmt.Sprintf("files[%d]", i), f.Path, mode, content); err != nil {
			return err
		}
		j.inputs[f.Path] = func() execution.Input {
			sum := sha256.Sum256(content)
			return execution.Input{Size: int64(len(content)), Hash: sum[:]}
		}
	}
	if err := p.Send(ctx); err != nil {
		return err
	}
	for _, in := range j.request.Inputs {
		if err := j.putInput(ctx, s, in); err != nil {
			return err
		}
	}
	return nil
}

// putInput streams one file of the host's into the sandbox.
func (j *job) putInput(ctx context.Context, s *execution.Session, in Input) error {
	if in.Dir {
		return s.Mkdir(ctx, in.Path, in.Mode)
	}
	f, err := in.Open()
	if err != nil {
		return sandbox.Errorf(sandbox.CodeFileNotFound, "cannot read the input for %s: %w", sandbox.SafeText(in.Path, 80), err)
	}
	defer f.Close() //nolint:errcheck // only read
	return s.WriteFile(ctx, in.Path, in.Mode, in.Size, j.hashed(in, f))
}

// compile runs the compile step in a sandbox of its own, under its own limits.
// ok says that the program may run; otherwise the result says why not. The
// session, unless it is nil, holds what was made and must be closed. clean says that nothing of it
// hung on luck: the same step would end in the same way.
func (j *job) compile(ctx context.Context) (s *execution.Session, ok, clean bool, err error) {
	plan := j.plan.Named(j.plan.ID + "-c")
	plan.Network, plan.Doors, plan.Authority = sandbox.Network{}, nil, nil // a compiler has none
	if err := j.move(plan); err != nil {
		return nil, false, false, err
	}
	step := *j.steps.Compile
	plan.Limits = step.Limits
	start := time.Now()
	s, err = execution.Open(ctx, j.driver, plan)
	if err != nil {
		return nil, false, false, err
	}
	if err := j.fill(ctx, s); err != nil {
		return s, false, false, err
	}
	command := j.command(s, step)
	command.CPUs = j.runner.processors.Take(plan.Processors, plan.Limits.CPUs)
	r, err := s.Run(ctx, execution.Program{Command: command, Limits: step.Limits})
	j.runner.processors.Give(command.CPUs)
	if err != nil {
		return s, false, false, err
	}
	j.result.Timings.CompileMS = execution.Milliseconds(time.Since(start))
	e := r.Evidence(step.Limits)
	c := &sandbox.Compile{
		Stdout: r.Output.Text(wire.Stdout), Stderr: r.Output.Text(wire.Stderr),
		StdoutTruncated: r.Output.Truncated(wire.Stdout), StderrTruncated: r.Output.Truncated(wire.Stderr),
		WallMS: r.Wall.Milliseconds(), CPUMS: r.Usage.CPUNanos / 1e6, Limits: step.Limits,
	}
	c.ExitCode, c.Signal = e.Ending()
	j.result.Compile = c
	status, _ := verdict.Of(e)
	if status == sandbox.StatusSucceeded {
		return s, true, isClean(r, c), nil
	}
	j.compileFailed(r, e)
	j.destroy(ctx, &pool.Machine{Session: s})
	return nil, false, false, nil
}

// compileFailed makes the compiler's words and fate those of the run.
func (j *job) compileFailed(r *execution.Outcome, e verdict.Evidence) {
	j.fillOutput(r)
	j.judge(e)
	j.result.Cause.Phase = sandbox.PhaseCompile
	if a := j.compileAdvice(e); a != nil {
		j.result.Cause = j.result.Cause.WithAdvice(a)
	}
	if !j.holds() {
		j.passOn([]byte(j.result.Stdout), []byte(j.result.Stderr))
	}
}

// compileAdvice is what to do about a compile step that failed; nil: what the cause has.
func (j *job) compileAdvice(e verdict.Evidence) sandbox.Advice {
	switch c := j.result.Cause; {
	case c.Kind == sandbox.CauseExited:
		if tight := j.tightCompile(e); tight != nil {
			return tight
		}
		return sandbox.Advise("the program does not compile; stderr has the compiler's messages")
	case c.Limit == 0:
		return nil
	default:
		for _, info := range sandbox.LimitTable() {
			if info.Cause == c.Kind && j.sharesLimit(info) {
				return sandbox.Advise("the compiler has as much as the program: %s", roomier(c.Limit, info))
			}
		}
	}
	return sandbox.Advise("the compiler needed more than the compile step's own limits allow; make the program smaller")
}

// tightCompile is advice where a compiler failed with a disk that was all but full: what
// asks for much at once, such as a linker, is refused before the last block is taken.
func (j *job) tightCompile(e verdict.Evidence) sandbox.Advice {
	for _, info := range sandbox.LimitTable() {
		var peak int64
		what := " inodes"
		switch info.Cause {
		case sandbox.CauseDisk:
			peak, what = e.Usage.DiskPeak, " of disk"
		case sandbox.CauseInodes:
			peak = e.Usage.InodesPeak
		}
		if limit := e.Limits.Get(info.Field); limit > 0 && peak >= limit-limit/8 && j.sharesLimit(info) {
			used := "the compiler used " + sandbox.FormatQuantity(peak, info.Unit) + " of " + sandbox.FormatQuantity(limit, info.Unit) + what
			return sandbox.Advise("%s; if its messages speak of space: %s", sandbox.Text(used), roomier(limit, info))
		}
	}
	return nil
}

// sharesLimit says whether the compile step's limit is the request's own, and can be raised.
func (j *job) sharesLimit(info sandbox.LimitInfo) bool {
	return j.language.CompileLimits.Get(info.Field) == 0 && j.steps.Compile.Limits.Get(info.Field) < info.Max
}

// roomier raises a limit that a compiler or a language's own files have met: they need much
// more than a small program does, and the default does for most.
func roomier(limit int64, info sandbox.LimitInfo) sandbox.Fix {
	return sandbox.Set("limits."+info.Field, min(max(verdict.Raised(limit, info), sandbox.DefaultLimits().Get(info.Field)), info.Max))
}

// fillOutput writes the output and the usage into the result.
func (j *job) fillOutput(r *execution.Outcome) {
	out := j.result
	j.output = r.Output
	out.Stdout, out.StdoutTruncated, out.StdoutBytes = r.Output.Text(wire.Stdout), r.Output.Truncated(wire.Stdout), r.Output.Total(wire.Stdout)
	out.Stderr, out.StderrTruncated, out.StderrBytes = r.Output.Text(wire.Stderr), r.Output.Truncated(wire.Stderr), r.Output.Total(wire.Stderr)
	out.ExactOutput = r.Output.Exact(j.spec.OutputBase64)
	out.PipesHeld = r.Held
	out.DeniedSyscalls = r.Usage.Denied
	out.Usage = verdict.UsageOf(r.Usage, r.Wall)
	out.Usage.ProcessesPeak = max(1, out.Usage.ProcessesPeak)
}

// fillPeaks takes the high-water marks that the kernel tells when all is over. That of
// memory is not among them: by now it includes what took files out.
func (j *job) fillPeaks(last driver.Usage) {
	u := &j.result.Usage
	u.ProcessesPeak = max(u.ProcessesPeak, last.ProcessesPeak)
	u.ReadBytes = max(u.ReadBytes, last.ReadBytes)
	u.WrittenBytes = max(u.WrittenBytes, last.WrittenBytes)
}
