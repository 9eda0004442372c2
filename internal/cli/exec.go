package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"pinfold/client"
	"pinfold/sandbox"
)

const execLong = `Run a command in a living sandbox. Its output passes through as it comes, every
byte once, also over connections that break; when nobody reads our stdout any
more, it gets SIGPIPE. From a sandbox whose gate can take something out it comes
at the end, at most the output limit of each stream. Its stdin is empty, or ours with -i. With -t it gets a
terminal: ours shows what it sends, as ssh does, escape sequences included; so
use -t with programs that you would run in ssh.

Ctrl-C, Ctrl-\, SIGTERM and SIGHUP are passed to the command; the second one ends
pinfold only. A command does not end when pinfold does: pinfold kill does that.

Exit status: the command's own; 127 when there is no such command, 126 when it
cannot be executed; and otherwise as "pinfold run" has it.`

const execExamples = `  pinfold exec $box -- ls -l /tmp
  tar c src | pinfold exec -i $box -- tar x
  pinfold exec -it $box -- bash
  server=$(pinfold exec --detach $box -- python3 -m http.server 8000)`

// execFlags are the flags of "exec" as they were given.
type execFlags struct {
	command             sandbox.Command
	stdin, terminal     bool
	detach, raw, json   bool
	base64              bool
	timeout, outputKept sandbox.Limits // only one field of each is used
	shell               bool
	id                  string
}

func (a *app) execCommand() *cobra.Command {
	f := &execFlags{}
	f.command.Env, f.command.Metadata = map[string]string{}, map[string]string{}
	cmd := &cobra.Command{
		Use:               "exec [flags] SANDBOX [--] COMMAND [ARGS]",
		Short:             "Run a command in a living sandbox",
		Long:              execLong,
		Example:           execExamples,
		Args:              needArgs(2, -1, "a sandbox and a command"),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			words, err := commandWords(args)
			if err != nil {
				return err
			}
			return a.exec(cmd.Context(), f, args[0], words)
		},
	}
	set := cmd.Flags()
	set.SetInterspersed(false) // what follows the sandbox is the command's
	set.BoolVarP(&f.stdin, "interactive", "i", false, "the command's stdin is ours")
	set.BoolVarP(&f.terminal, "tty", "t", false, "give it a terminal")
	set.VarP(pairs{f.command.Env, "a variable"}, "env", "e", "set a variable; may be repeated")
	set.StringVarP(&f.command.Dir, "dir", "w", "", "the working directory (default /home/user, or the image's)")
	set.BoolVar(&f.shell, "shell", false, "COMMAND is one line for /bin/sh")
	set.BoolVarP(&f.detach, "detach", "d", false, "start it, print its id and go")
	set.Var(pairs{f.command.Metadata, "metadata"}, "metadata", "a note of yours on the process; may be repeated")
	group(set, groupProgram, "interactive", "tty", "env K=V", "dir DIR", "shell", "detach", "metadata K=V")
	for _, info := range sandbox.LimitTable() {
		switch info.Field {
		case "wall_time_ms":
			set.Var(limitValue{info, &f.timeout}, info.Flag, "end it after this time (default the sandbox's)")
			group(set, groupLimits, info.Flag+" TIME")
		case "output_bytes":
			set.Var(limitValue{info, &f.outputKept}, info.Flag, "how much of each stream is kept, the last of it (default the sandbox's)")
			group(set, groupLimits, info.Flag+" SIZE")
		}
	}
	set.BoolVar(&f.json, "json", false, "wait, then print the process with its output as JSON")
	set.BoolVar(&f.base64, "base64", false, "with --json, the exact bytes of the output as well")
	set.BoolVar(&f.raw, "raw", false, "do not escape control characters on a terminal")
	group(set, groupOutput, "json", "base64", "raw")
	return cmd
}

func (a *app) exec(ctx context.Context, f *execFlags, id string, words []string) error {
	f.id, f.command.Args = id, words
	if f.shell {
		f.command.Args, f.command.Shell = nil, strings.Join(words, " ")
	}
	f.command.WallTimeMS, f.command.OutputBytes = f.timeout.WallTimeMS, f.outputKept.OutputBytes
	f.command.Stdin = f.stdin
	if err := a.checkIDs("sbx", id); err != nil {
		return err
	}
	if err := a.checkExec(f); err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // idle connections only
	defer catchBrokenPipe()()
	do := a.execStreams
	switch {
	case f.detach:
		do = a.execDetached
	case f.terminal:
		do = a.execTerminal
	}
	return f.oneLine(do(ctx, c.Sandbox(id), f))
}

func (a *app) checkExec(f *execFlags) error {
	switch {
	case f.terminal && f.json:
		return usageError("--json and -t do not go together")
	case f.detach && (f.stdin || f.terminal):
		return usageError("--detach does not go with -i or -t").WithHint("start it, then: pinfold logs --follow " + f.id + " PROCESS")
	case f.terminal && f.stdin && !isTerminal(a.Stdin):
		return usageError("-t needs a terminal, and stdin is none").WithHint("leave -t out")
	}
	if f.terminal {
		cols, rows := windowSize(a.Stdout)
		if cols < 1 || rows < 1 {
			cols, rows = 80, 24
		}
		if _, given := f.command.Env["TERM"]; !given && os.Getenv("TERM") != "" {
			f.command.Env["TERM"] = os.Getenv("TERM")
		}
		f.command.Terminal = &sandbox.Terminal{Cols: min(cols, sandbox.MaxTerminal), Rows: min(rows, sandbox.MaxTerminal)}
	}
	return f.command.Validate()
}

func (a *app) execDetached(ctx context.Context, box *client.Sandbox, f *execFlags) error {
	p, err := box.Start(ctx, f.command)
	if err != nil {
		return err
	}
	if !f.json {
		return a.writeID(p.ID())
	}
	info, err := p.Info(ctx)
	if err != nil {
		return err
	}
	return a.writeJSON(info)
}

// execStreams runs the command with our own streams as its.
func (a *app) execStreams(ctx context.Context, box *client.Sandbox, f *execFlags) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	relay := newRelay(ctx, cancel)
	defer relay.stop()
	var process *client.Process
	o := client.ExecOptions{Started: func(id string) {
		process = box.Process(id)
		relay.to(process)
	}}
	if f.stdin {
		o.Stdin = a.Stdin
	}
	if f.json {
		return a.execJSON(ctx, box, f, o, &process)
	}
	out, warn := forReader(a.Stdout, f.raw), forReader(a.Stderr, f.raw)
	o.Stdout, o.Stderr = out, warn
	info, err := box.Exec(ctx, f.command, o)
	finishVisible(out, warn)
	switch {
	case errors.Is(err, syscall.EPIPE):
		_ = process.Signal(ctx, "PIPE") // as if it had written to the closed pipe itself; it may have ended
		return &brokenPipeError{}
	case toldToGo(ctx, err):
		return leftRunning(f.id, process)
	case err != nil:
		return unwritten(err, f.id, process)
	}
	a.reportProcess(ctx, box, info)
	return nil
}

// leftRunning says what became of a command when we were told to go.
func leftRunning(id string, p *client.Process) error {
	e := &sandbox.Error{
		Code: sandbox.CodeDisconnected, Message: "cancelled before the server said that the command had started", Err: context.Canceled,
		Hint: "pinfold ps " + sandbox.SafeText(id, maxID),
	}
	if p != nil {
		e.Message = "cancelled; the command goes on"
		e.Hint = "pinfold kill " + sandbox.SafeText(id, maxID) + " " + sandbox.SafeText(p.ID(), maxID)
	}
	return e
}

// unwritten is err; where that is that our stdout or stderr could not be written, as on a full
// disk, it says that the command goes on.
func unwritten(err error, id string, p *client.Process) error {
	var file *fs.PathError
	if p == nil || !errors.As(err, &file) {
		return err
	}
	e := lostOutput(path.Base(file.Path), err)
	e.Message += "; the command goes on"
	return e.WithHint("pinfold kill " + sandbox.SafeText(id, maxID) + " " + sandbox.SafeText(p.ID(), maxID))
}

// execJSON waits for the end and prints the process with what was kept of its
// output. What is in process is known once the command has started.
func (a *app) execJSON(ctx context.Context, box *client.Sandbox, f *execFlags, o client.ExecOptions, process **client.Process) error {
	limit := cmp.Or(f.command.OutputBytes, sandbox.DefaultLimits().OutputBytes)
	out, warn := &tailBuffer{limit: int(limit)}, &tailBuffer{limit: int(limit)}
	o.Stdout, o.Stderr = out, warn
	info, err := box.Exec(ctx, f.command, o)
	switch {
	case toldToGo(ctx, err):
		return leftRunning(f.id, *process)
	case err != nil:
		return err
	}
	info = withTails(info, out, warn)
	if f.base64 {
		info.StdoutRaw, info.StderrRaw = out.bytes(), warn.bytes()
	}
	a.exit = processStatus(info)
	return a.writeJSON(a.speech.process(info))
}

// tailBuffer keeps the end of what is written, in at most twice the memory.
type tailBuffer struct {
	data  []byte
	limit int
	all   int64
}

// Write implements io.Writer. It never fails.
func (b *tailBuffer) Write(p []byte) (int, error) {
	b.all += int64(len(p))
	if b.data = append(b.data, p...); len(b.data) > 2*b.limit {
		b.data = append(b.data[:0], b.bytes()...)
	}
	return len(p), nil
}

func (b *tailBuffer) bytes() []byte { return b.data[max(0, len(b.data)-b.limit):] }

// text returns what is kept, and whether anything came before it.
func (b *tailBuffer) text() (string, bool) {
	return strings.ToValidUTF8(string(b.bytes()), "\ufffd"), b.all > int64(b.limit)
}

// withTails is a process with the end of its output.
func withTails(p sandbox.Process, stdout, stderr *tailBuffer) sandbox.Process {
	p.HasOutput = true
	p.Stdout, p.StdoutTruncated = stdout.text()
	p.Stderr, p.StderrTruncated = stderr.text()
	return p
}

// finishVisible writes what the escaping held back.
func finishVisible(all ...io.Writer) {
	for _, w := range all {
		if v, ok := w.(*visible); ok {
			_ = v.Close() // the last write: nothing left to stop
		}
	}
}

// relay passes signals that were meant for the command on to it. The second
// one ends the command line instead: the command may ignore them.
type relay struct {
	signals chan os.Signal
	process chan *client.Process
	grace   time.Duration // startGrace, or less in tests
	done    chan struct{}
	over    sync.WaitGroup
}

// startGrace is for the news that a command has started, before a signal that is for it
// ends us instead.
const startGrace = time.Second

func newRelay(ctx context.Context, cancel func()) *relay {
	r := &relay{signals: make(chan os.Signal, 4), process: make(chan *client.Process, 1), grace: startGrace, done: make(chan struct{})}
	notifyEnd(r.signals)
	r.over.Go(func() { r.run(ctx, cancel) })
	return r
}

func (r *relay) to(p *client.Process) { r.process <- p }

func (r *relay) run(ctx context.Context, cancel func()) {
	var p *client.Process
	var first os.Signal
	var late <-chan time.Time
	pass := func() {
		number, ok := first.(syscall.Signal)
		if !ok || p.Signal(ctx, signalName(number)) != nil {
			cancel()
		}
	}
	for {
		select {
		case <-r.done:
			return
		case p = <-r.process:
			if late = nil; first != nil {
				pass()
			}
		case <-late:
			cancel()
		case s := <-r.signals:
			switch {
			case first != nil:
				cancel()
			case p == nil: // it may have started, and we do not know it yet
				first, late = s, time.After(r.grace)
			default:
				first = s
				pass()
			}
		}
	}
}

func (r *relay) stop() {
	signal.Stop(r.signals)
	close(r.done)
	r.over.Wait()
}

// signalName is a signal's name as the table of exit statuses has it.
func signalName(s syscall.Signal) string {
	for name, n := range signalNumbers {
		if n == int(s) {
			return name
		}
	}
	return "SIGTERM"
}
