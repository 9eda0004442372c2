package living

import (
	"context"
	"fmt"
	"slices"
	"time"

	"pinfold/internal/engine/stdio"
	"pinfold/internal/engine/verdict"
	"pinfold/internal/image"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// # What a template starts
//
// The command is a process of the sandbox like any other, started when nobody has the
// sandbox yet. Whether it is ready is asked with further processes, of which none stays.

const (
	// tryTimeout is how long one asking may take.
	tryTimeout = 10 * time.Second
	// firstPause and longestPause lie between two askings.
	firstPause, longestPause = 20 * time.Millisecond, 500 * time.Millisecond
	// lastWords is how much of what a command printed an error may show, in bytes.
	lastWords = 4 << 10
)

// begin starts what the sandbox's template starts and waits until it is ready. A sandbox
// that ends meanwhile, and a command that fails before it is ready, are errors.
func (s *Sandbox) begin(ctx context.Context, with image.Start) error {
	if with.Command == "" {
		return nil
	}
	p, err := s.Start(ctx, shellCommand(with.Command))
	if err != nil {
		return s.notStarted("start: ", err, "")
	}
	if with.Ready == "" {
		return nil
	}
	within := time.Duration(with.WithinMS) * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var last *Process
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		asked, err := s.ask(ctx, with.Ready)
		if err != nil && ctx.Err() == nil {
			return s.notStarted("ready: ", err, p.lastLines())
		}
		if asked != nil { // else there was no time left for it, and the one before says more
			last = asked
		}
		if last != nil && last.Info().Status == sandbox.StatusSucceeded {
			return nil
		}
		select {
		case <-ctx.Done():
			return s.notReady(p, last, within)
		case <-s.life.Done():
			return s.endedMeanwhile(p)
		case <-time.After(pause):
		}
		if info := p.Info(); !info.Running && info.Status != sandbox.StatusSucceeded {
			return s.endedMeanwhile(p)
		}
	}
}

// shellCommand is a line for the sandbox's shell, in the directory and with the
// environment of any other command.
func shellCommand(line string) sandbox.Command {
	return sandbox.Command{Args: []string{"/bin/sh", "-c", line}}
}

// ask runs the template's command that says whether it is ready, once. It returns nil where
// that was not known in time.
func (s *Sandbox) ask(ctx context.Context, line string) (*Process, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	p, _, err := s.launch(ctx, shellCommand(line), launching{asks: true})
	if err != nil {
		if ctx.Err() != nil {
			err = nil
		}
		return nil, err
	}
	defer s.drop(p)
	select {
	case <-p.done:
	case <-ctx.Done():
		p.stop(&verdict.Trigger{Kind: sandbox.CauseCancelled, Evidence: fmt.Sprintf("it was not over within %s", tryTimeout)})
		<-p.done
	}
	return p, nil
}

// drop forgets a process that has ended, which nobody knows.
func (s *Sandbox) drop(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.processes, p.id)
	s.order = slices.DeleteFunc(s.order, func(id string) bool { return id == p.id })
}

// lastLines is what people are shown of what a process printed last: its errors, or what
// else there is; nothing where a gate would have to look at it first.
func (p *Process) lastLines() string {
	if p.sandbox.holds() {
		return ""
	}
	for _, stream := range []uint8{wire.Stderr, wire.Stdout} {
		if text := stdio.LastLines(p.output.Last(stream, lastWords)); text != "" {
			return text
		}
	}
	return ""
}

// ended says how a process ended.
func ended(i sandbox.Process) string {
	switch {
	case i.Running:
		return "it still runs"
	case i.Cause != nil && i.Cause.Kind != sandbox.CauseExited && i.Cause.Kind != sandbox.CauseSignaled:
		return fmt.Sprintf("%s (%s)", i.Cause.Kind, i.Cause.Evidence)
	case i.Signal != "":
		return i.Signal
	case i.ExitCode != nil:
		return fmt.Sprintf("exit status %d", *i.ExitCode)
	}
	return string(i.Status)
}

// endedMeanwhile is the error where the command, or the whole sandbox, ended too soon.
func (s *Sandbox) endedMeanwhile(p *Process) error {
	select {
	case <-p.done:
	case <-s.life.Done():
	}
	if err := s.endedByOthers(); err != nil {
		return err
	}
	return startFailed("start: it ended before it was ready: "+ended(p.Info()), nil, p.lastLines())
}

// notReady is the error where the time is over.
func (s *Sandbox) notReady(p, last *Process, within time.Duration) error {
	why, printed := "", ""
	if last != nil {
		why, printed = ", the last time with "+ended(last.Info()), last.lastLines()
	}
	if printed == "" {
		printed = p.lastLines()
	}
	return startFailed(fmt.Sprintf("ready: it did not succeed within %s%s", sandbox.FormatQuantity(within.Milliseconds(), sandbox.UnitMilliseconds), why), nil, printed)
}

// notStarted is the error where a process could not be started: the template's fault, but
// where the server could not, or others have paused or ended the sandbox.
func (s *Sandbox) notStarted(what string, err error, printed string) error {
	switch sandbox.AsError(err).Code {
	case sandbox.CodeAuditUnavailable, sandbox.CodeConflict, sandbox.CodeResourceUnavailable:
		return err
	case sandbox.CodeGone:
		if err := s.endedByOthers(); err != nil {
			return err
		}
	}
	return startFailed(what+sandbox.AsError(err).Message, err, printed)
}

// endedByOthers is why nothing can be started in a sandbox that has ended, or is about to,
// and not for a limit that it has reached.
func (s *Sandbox) endedByOthers() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stays() || s.info.Cause == nil {
		return nil
	}
	switch s.info.Cause.Kind {
	case sandbox.CauseDestroyed, sandbox.CauseTTL, sandbox.CauseIdle, sandbox.CauseCancelled, sandbox.CauseLost:
		return s.notRunning()
	}
	return nil
}

// startFailed is the error of a sandbox that did not begin as its template says.
func startFailed(why string, err error, printed string) error {
	e := &sandbox.Error{Code: sandbox.CodeStartFailed, Field: "template", Err: err, Message: "what its sandboxes begin with failed: " + sandbox.SafeText(why, 400)}
	if printed != "" {
		e.Message += "; the last that it printed:\n" + printed
	}
	return e.WithHint("give the sandbox more, if a limit is why; otherwise mend start and ready in the template's declaration and build it again")
}
