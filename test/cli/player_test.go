package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"pinfold/internal/engine/runs"
	"pinfold/internal/engine/verdict"
	"pinfold/sandbox"
)

// player is a runner whose programs say what becomes of them: one word with
// its arguments on each line, texts quoted as in Go.
//
//	print "text"            writes to stdout
//	warn "text"             writes to stderr
//	cat                     copies stdin to stdout
//	spec                    writes the spec as JSON to stdout
//	inputs                  writes the inputs to stdout
//	exit N                  ends
//	signal NAME             dies of a signal
//	cause KIND LIMIT SEEN   is killed by a limit
//	compile N "text"        does not compile
//	cut STREAM N            had printed N bytes in all on stdout or stderr
//	skip "path" "reason"    leaves a file that does not come out
//	artifact "path" "text"  leaves a file
//	big "path" N            leaves a file of N bytes
//	error CODE "message"    could not be started
//	hang FILE               makes a file, and waits to be cancelled
//	shout                   writes until it is cancelled
//	stubborn FILE THEN      makes a file, and another one when cancelled, and does not end
//	held                    leaves a process behind
//	lost                    its sandbox vanishes
type player struct{}

// play is one program as it runs.
type play struct {
	ctx    context.Context
	req    runs.Request
	result *sandbox.Result
	err    error
	over   bool
}

func (player) Run(ctx context.Context, req runs.Request) (*sandbox.Result, error) {
	zero := 0
	p := &play{ctx: ctx, req: req, result: &sandbox.Result{
		ID: "run_1", Status: sandbox.StatusSucceeded, ExitCode: &zero, Cause: sandbox.Cause{Kind: sandbox.CauseExited},
		Results: []sandbox.Rich{}, Artifacts: []sandbox.Artifact{}, Language: req.Spec.Language, Metadata: req.Spec.Metadata,
		Isolation: sandbox.Isolation{Driver: "player", Enforced: []string{}, NotEnforced: []sandbox.Gap{{What: "io", Why: "no \x1b[2J kernel", Fix: "get one"}}},
	}}
	if strings.HasPrefix(req.Spec.Code, "find()") {
		p.shell()
		return p.result, nil
	}
	known := words()
	for line := range strings.Lines(req.Spec.Code) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if do, ok := known[word]; ok && !p.over {
			do(p, rest)
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	return p.result, nil
}

// words is what programs can say.
func words() map[string]func(p *play, rest string) {
	return map[string]func(p *play, rest string){
		"print":  func(p *play, rest string) { p.out(unquote(rest)) },
		"warn":   func(p *play, rest string) { p.warn(unquote(rest)) },
		"cat":    func(p *play, _ string) { p.cat() },
		"spec":   func(p *play, _ string) { b, _ := json.Marshal(p.req.Spec); p.out(string(b) + "\n"); p.mounts() },
		"inputs": func(p *play, _ string) { p.inputs() },
		"exit":   func(p *play, rest string) { p.exit(number(rest)) },
		"signal": func(p *play, rest string) { p.end(sandbox.StatusFailed, sandbox.CauseSignaled); p.result.Signal = rest },
		"cause":  func(p *play, rest string) { p.cause(strings.Fields(rest)) },
		"cut": func(p *play, rest string) {
			stream, n, _ := strings.Cut(rest, " ")
			if stream == "stderr" {
				p.result.StderrTruncated, p.result.StderrBytes = true, int64(number(n))
				return
			}
			p.result.StdoutTruncated, p.result.StdoutBytes = true, int64(number(n))
		},
		"skip": func(p *play, rest string) {
			name, why := twoQuoted(rest)
			p.result.ArtifactsSkipped = append(p.result.ArtifactsSkipped, sandbox.SkippedArtifact{Path: name, Code: sandbox.CodePathInvalid, Reason: why})
		},
		"compile":  func(p *play, rest string) { p.compile(rest) },
		"artifact": func(p *play, rest string) { name, text := twoQuoted(rest); p.artifact(name, text) },
		"big": func(p *play, rest string) {
			name, n := twoQuoted(rest)
			p.artifact(name, strings.Repeat("x", number(n)))
		},
		"error":   func(p *play, rest string) { code, text, _ := strings.Cut(rest, " "); p.fail(code, unquote(text)) },
		"warm":    func(p *play, _ string) { p.result.Warm = true },
		"notwarm": func(p *play, rest string) { p.result.ColdBecause = rest },
		"held":    func(p *play, _ string) { p.result.PipesHeld = true },
		"stubborn": func(p *play, rest string) {
			begun, told, _ := strings.Cut(rest, " ")
			p.mark(begun)
			<-p.ctx.Done()
			p.mark(told)
			time.Sleep(time.Hour)
		},
		"lost": func(p *play, _ string) {
			p.end(sandbox.StatusError, sandbox.CauseLost)
			p.result.Cause.Evidence = "gone\x1b"
		},
		"hang": func(p *play, rest string) {
			p.out("waiting\n")
			p.mark(rest)
			<-p.ctx.Done()
			p.end(sandbox.StatusKilled, sandbox.CauseCancelled)
		},
		"shout": func(p *play, _ string) {
			for p.ctx.Err() == nil {
				p.out("y\n")
			}
			p.end(sandbox.StatusKilled, sandbox.CauseCancelled)
		},
	}
}

// mark makes a file outside, where the script waits for it.
func (p *play) mark(name string) {
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		p.err = err
	}
}

func (p *play) out(text string) {
	p.result.Stdout += text
	p.result.StdoutBytes += int64(len(text))
	if p.req.Streams.Stdout != nil {
		_, _ = io.WriteString(p.req.Streams.Stdout, text)
	}
}

func (p *play) warn(text string) {
	p.result.Stderr += text
	if p.req.Streams.Stderr != nil {
		_, _ = io.WriteString(p.req.Streams.Stderr, text)
	}
}

func (p *play) cat() {
	if p.req.Streams.Stdin == nil {
		p.out("no stdin\n" + p.req.Spec.Stdin)
		return
	}
	r := bufio.NewReader(p.req.Streams.Stdin)
	for {
		line, err := r.ReadString('\n')
		p.out(line)
		if err != nil {
			return
		}
	}
}

func (p *play) mounts() {
	for _, m := range p.req.Spec.Mounts {
		p.out(fmt.Sprintf("mount %s at %s writable=%v\n", m.Host, m.Guest, m.Writable))
	}
}

func (p *play) inputs() {
	for _, in := range p.req.Inputs {
		if in.Dir {
			p.out(fmt.Sprintf("dir %s %o\n", in.Path, in.Mode))
			continue
		}
		f, err := in.Open()
		if err != nil {
			p.fail(sandbox.CodeFileNotFound, err.Error())
			return
		}
		data, _ := io.ReadAll(f)
		_ = f.Close()
		p.out(fmt.Sprintf("file %s %o %d %q\n", in.Path, in.Mode, in.Size, data))
	}
}

func (p *play) exit(code int) {
	p.over = true
	p.result.ExitCode = &code
	if code != 0 {
		p.result.Status = sandbox.StatusFailed
	}
}

// shell really runs one of Pinfold's own scripts, which ask for versions, with
// the programs in $TOOLS as the only ones there are.
func (p *play) shell() {
	cmd := exec.CommandContext(p.ctx, "/bin/sh", "-c", p.req.Spec.Code)
	cmd.Env = []string{"HOME=" + sandbox.Home}
	for k, v := range p.req.Spec.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.Env = append(cmd.Env, "PATH="+os.Getenv("TOOLS"))
	cmd.Stdin = strings.NewReader(p.req.Spec.Stdin)
	var out, warnings strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &warnings
	err := cmd.Run()
	p.out(out.String())
	p.warn(warnings.String())
	if err != nil {
		p.exit(cmd.ProcessState.ExitCode())
	}
}

func (p *play) end(status sandbox.Status, kind sandbox.CauseKind) {
	p.over = true
	p.result.Status, p.result.ExitCode, p.result.Cause.Kind = status, nil, kind
}

func (p *play) cause(words []string) {
	p.end(sandbox.StatusKilled, sandbox.CauseKind(words[0]))
	if words[0] == "syscall" {
		p.result.Cause.Syscall = words[1]
		return
	}
	var limits sandbox.Limits
	for _, info := range sandbox.LimitTable() {
		if string(info.Cause) == words[0] {
			limits.Set(info.Field, int64(number(words[1])))
		}
	}
	p.result.Cause = verdict.Evidence{Limits: limits}.LimitCause(sandbox.CauseKind(words[0]), int64(number(words[2])), "")
	p.result.TimedOut = slices.Contains([]string{"wall_time", "cpu_time"}, words[0])
}

func (p *play) compile(rest string) {
	code, text, _ := strings.Cut(rest, " ")
	n := number(code)
	p.end(sandbox.StatusFailed, sandbox.CauseExited)
	p.result.Cause.Phase = sandbox.PhaseCompile
	p.warn(unquote(text)) // the compiler's words are the run's
	p.result.Compile = &sandbox.Compile{ExitCode: &n, Stderr: p.result.Stderr}
}

func (p *play) artifact(name, content string) {
	a := sandbox.Artifact{Path: name, Size: int64(len(content)), MediaType: "text/plain"}
	p.result.Artifacts = append(p.result.Artifacts, a)
	if err := p.req.Artifact(a, strings.NewReader(content)); err != nil {
		p.fail(sandbox.CodeInternal, err.Error())
	}
}

func (p *play) fail(code, message string) {
	p.over = true
	p.err = &sandbox.Error{Code: code, Message: message, Hint: "do \x1b[2J otherwise"}
}

func unquote(s string) string {
	text, err := strconv.Unquote(s)
	if err != nil {
		fmt.Fprintf(os.Stderr, "player: %s: %v\n", s, err)
		os.Exit(99)
	}
	return text
}

func twoQuoted(s string) (first, second string) {
	prefix, err := strconv.QuotedPrefix(s)
	if err != nil {
		fmt.Fprintf(os.Stderr, "player: %s: %v\n", s, err)
		os.Exit(99)
	}
	second = strings.TrimSpace(s[len(prefix):])
	if strings.HasPrefix(second, `"`) {
		second = unquote(second)
	}
	return unquote(prefix), second
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		fmt.Fprintf(os.Stderr, "player: %v\n", err)
		os.Exit(99)
	}
	return n
}
