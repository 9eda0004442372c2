package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/engine/verdict"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// Linux's numbers for the resource limits that each process of the guest gets.
const (
	rlimitFileSize  = 1
	rlimitOpenFiles = 7
)

func rlimits(l sandbox.Limits) []wire.Rlimit {
	return []wire.Rlimit{
		{Resource: rlimitFileSize, Value: uint64(l.FileSizeBytes)}, //nolint:gosec // validated to be positive
		{Resource: rlimitOpenFiles, Value: uint64(l.OpenFiles)},    //nolint:gosec // as above
	}
}

// setEnv sets a variable in a list of K=V.
func setEnv(env []string, key, value string) []string {
	for i, kv := range env {
		if strings.HasPrefix(kv, key+"=") {
			env[i] = key + "=" + value
			return env
		}
	}
	return append(env, key+"="+value)
}

// known is a file that went in.
type known struct {
	size int64
	hash []byte // SHA-256
}

// hashed makes an input's content known while it is read, where files come out.
func (j *job) hashed(in Input, content io.Reader) io.Reader {
	if !j.bringsOut() {
		return content
	}
	h := sha256.New()
	j.inputs[in.Path] = func() known { return known{in.Size, h.Sum(nil)} }
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
func (j *job) fill(ctx context.Context, s *session) error {
	steps := j.steps
	if j.warm != nil { // it has its own
		steps.Dir, steps.Files = "", nil
	}
	if steps.Dir != "" && len(steps.Files) == 0 { // else it comes with its files
		if err := s.mkdir(ctx, steps.Dir, 0o755); err != nil {
			return err
		}
	}
	p := &parcel{session: s}
	for _, f := range steps.Files {
		if err := p.add(ctx, "", f.Path, 0o644, f.Content); err != nil {
			return err
		}
	}
	if j.spec.Code != "" && !j.codeInHandover() {
		if err := p.add(ctx, "", j.main, 0o644, []byte(j.spec.Code)); err != nil {
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
		if err := p.add(ctx, fmt.Sprintf("files[%d]", i), f.Path, mode, content); err != nil {
			return err
		}
		j.inputs[f.Path] = func() known {
			sum := sha256.Sum256(content)
			return known{int64(len(content)), sum[:]}
		}
	}
	if err := p.send(ctx); err != nil {
		return err
	}
	for _, in := range j.request.Inputs {
		if err := j.putInput(ctx, s, in); err != nil {
			return err
		}
	}
	return nil
}

// parcel gathers small files and sends them together: each journey to the agent
// and back costs more than they do.
type parcel struct {
	session *session
	files   []wire.PutFile
	fields  []string // of the request, for errors
	size    int
}

// add adds a file. A large one goes by itself, after those before it.
func (p *parcel) add(ctx context.Context, field, name string, mode uint32, content []byte) error {
	if p.size+len(content) > wire.MaxPut || len(p.files) == maxParcel {
		if err := p.send(ctx); err != nil {
			return err
		}
	}
	if len(content) > wire.MaxPut/4 {
		return inField(put(ctx, p.session, name, mode, content), field)
	}
	p.files = append(p.files, wire.PutFile{Path: name, Mode: mode, Content: content})
	p.fields = append(p.fields, field)
	p.size += len(content)
	return nil
}

// maxParcel bounds the files of a parcel, and so the size of their names.
const maxParcel = 256

// send sends what was gathered.
func (p *parcel) send(ctx context.Context) error {
	if len(p.files) == 0 {
		return nil
	}
	g, err := p.session.agent(ctx)
	if err != nil {
		return err
	}
	failed, err := g.Put(ctx, p.files)
	if err != nil && failed >= 0 {
		err = inField(err, p.fields[failed])
	}
	p.files, p.fields, p.size = nil, nil, 0
	return err
}

func inField(err error, field string) error {
	if err == nil || field == "" {
		return err
	}
	return sandbox.AsError(err).WithField(field)
}

func put(ctx context.Context, s *session, path string, mode uint32, content []byte) error {
	return s.writeFile(ctx, path, mode, int64(len(content)), bytes.NewReader(content))
}

func (s *session) mkdir(ctx context.Context, path string, mode uint32) error {
	g, err := s.agent(ctx)
	if err != nil {
		return err
	}
	return g.Mkdir(ctx, path, mode)
}

// putInput streams one file of the host's into the sandbox.
func (j *job) putInput(ctx context.Context, s *session, in Input) error {
	if in.Dir {
		return s.mkdir(ctx, in.Path, in.Mode)
	}
	f, err := in.Open()
	if err != nil {
		return sandbox.Errorf(sandbox.CodeFileNotFound, "cannot read the input for %s: %w", sandbox.SafeText(in.Path, 80), err)
	}
	defer f.Close() //nolint:errcheck // only read
	return s.writeFile(ctx, in.Path, in.Mode, in.Size, j.hashed(in, f))
}

// compile runs the compile step in a sandbox of its own, under its own limits.
// ok says that the program may run; otherwise the result says why not. The
// session, unless it is nil, holds what was made and must be closed. clean says that nothing of it
// hung on luck: the same step would end in the same way.
func (j *job) compile(ctx context.Context) (s *session, ok, clean bool, err error) {
	step := *j.steps.Compile
	plan := j.plan
	plan.ID += "-c"
	plan.Limits = step.Limits
	start := time.Now()
	s, err = openSession(ctx, j.driver, plan)
	if err != nil {
		return nil, false, false, err
	}
	if err := j.fill(ctx, s); err != nil {
		return s, false, false, err
	}
	command := j.command(step)
	command.CPUs = j.engine.processors.Take(plan.Processors, plan.Limits.CPUs)
	r, err := s.run(ctx, execution{command: command, limits: step.Limits})
	j.engine.processors.Give(command.CPUs)
	if err != nil {
		return s, false, false, err
	}
	j.result.Timings.CompileMS = milliseconds(time.Since(start))
	e := r.evidence(step.Limits)
	c := &sandbox.Compile{
		Stdout: r.output.Text(wire.Stdout), Stderr: r.output.Text(wire.Stderr),
		StdoutTruncated: r.output.Truncated(wire.Stdout), StderrTruncated: r.output.Truncated(wire.Stderr),
		WallMS: r.wall.Milliseconds(), CPUMS: r.usage.CPUNanos / 1e6, Limits: step.Limits,
	}
	c.ExitCode, c.Signal = e.Ending()
	j.result.Compile = c
	status, _ := verdict.Of(e)
	if status == sandbox.StatusSucceeded {
		return s, true, isClean(r, c), nil
	}
	j.compileFailed(r, e)
	j.destroy(ctx, s, nil)
	return nil, false, false, nil
}

// compileFailed makes the compiler's words and fate those of the run.
func (j *job) compileFailed(r *execResult, e verdict.Evidence) {
	j.fillOutput(r)
	j.judge(e)
	j.result.Cause.Phase = sandbox.PhaseCompile
	if j.result.Cause.Kind == sandbox.CauseExited {
		j.result.Cause.Hint = "the program does not compile; stderr has the compiler's messages"
	} else if j.result.Cause.Limit != 0 {
		j.result.Cause.Hint = "the compiler needed more than the compile step's own limits allow; make the program smaller"
	}
	streams := j.request.Streams
	if streams.Stdout != nil {
		_, _ = io.WriteString(streams.Stdout, j.result.Stdout)
	}
	if streams.Stderr != nil {
		_, _ = io.WriteString(streams.Stderr, j.result.Stderr)
	}
}

// fillOutput writes the output and the usage into the result.
func (j *job) fillOutput(r *execResult) {
	out := j.result
	out.Stdout, out.StdoutTruncated, out.StdoutBytes = r.output.Text(wire.Stdout), r.output.Truncated(wire.Stdout), r.output.Total(wire.Stdout)
	out.Stderr, out.StderrTruncated, out.StderrBytes = r.output.Text(wire.Stderr), r.output.Truncated(wire.Stderr), r.output.Total(wire.Stderr)
	out.ExactOutput = r.output.Exact(j.spec.OutputBase64)
	out.PipesHeld = r.held
	out.DeniedSyscalls = r.usage.Denied
	out.Usage = verdict.UsageOf(r.usage, r.wall)
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
