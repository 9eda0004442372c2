package cli

import (
	"cmp"
	"context"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/runs"
	"pinfold/internal/hostfiles"
	"pinfold/sandbox"
)

const runLong = `Run one program in a fresh sandbox that is used once.

FILE - reads the program from stdin. The program's own stdin is ours when that
is a pipe or a file and FILE is not -; a terminal is passed on only with
--stdin -, and --stdin /dev/null gives none. With --detach all of it is sent
first, and a pipe from which nothing comes within a second is left alone.
stdout and stderr pass through as they come. On a terminal, control characters
and escape sequences in them are shown as text; --raw passes them on.

Exit status: the program's own; 128+n when it died of its own signal n; 124
when its time ran out; 137 when memory or another limit ended it; 125 when
Pinfold failed or the request was wrong; 126 when a requirement cannot be met;
130 when it was cancelled; 141 when nobody reads our output.`

const runExamples = `  pinfold run script.py
  pinfold run --timeout 2s --memory 64MiB job.js -- --depth 3
  echo 'print(6*7)' | pinfold run --language python --json -
  pinfold run --file data.csv --artifact '*.svg' --artifacts-dir out plot.py
  pinfold run --require memory,network:none,seccomp untrusted.py
  pinfold run --spec request.json --json`

func (a *app) runCommand() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:     "run [flags] FILE|- [-- ARGS]",
		Short:   "Run one program in a fresh sandbox",
		Long:    runLong,
		Example: runExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuseEmpty(cmd.Flags()); err != nil {
				return err
			}
			if err := a.checkReceipt(f); err != nil {
				return err
			}
			program, rest, err := splitArgs(sortWords(cmd.Flags(), a.Args), args, cmd.ArgsLenAtDash(), f.spec != "")
			if err != nil {
				return err
			}
			return a.run(cmd.Context(), f, program, rest)
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault // file names
		},
	}
	f.bind(cmd.Flags())
	completeRunFlags(cmd)
	return cmd
}

// splitArgs separates the program's file from its arguments. dash is how many
// arguments stand before "--", or -1. line is the whole command line, for hints.
func splitArgs(line typed, args []string, dash int, hasSpec bool) (program string, rest []string, err error) {
	before := args
	if dash >= 0 {
		before, rest = args[:dash], args[dash:]
	}
	switch {
	case len(before) > 1:
		return "", nil, usageError("the " + afterDashes).WithHint(line.strayHint())
	case len(before) == 1 && before[0] == "":
		return "", nil, usageError("the name of the program is empty")
	case len(before) == 1:
		return before[0], rest, nil
	case !hasSpec && len(rest) > 0 && rest[0] != "": // "--" ended our own flags only
		program, rest = rest[0], rest[1:]
		if len(rest) > 0 && rest[0] == "--" {
			rest = rest[1:]
		}
		return program, rest, nil
	case !hasSpec:
		return "", nil, usageError("no program given").WithHint("pinfold run FILE, or - to read it from stdin")
	}
	return "", rest, nil
}

// run is the command once its words are sorted out.
func (a *app) run(ctx context.Context, f *runFlags, program string, args []string) error {
	spec, named, err := a.asked(f, program, args)
	if err != nil {
		return err
	}
	if err := checkArtifacts(f, spec.Artifacts); err != nil {
		return err
	}
	in, err := collectInputs(f.files, programOf(spec, program), spec.Mounts)
	if err != nil {
		return err
	}
	defer in.Close()
	stdin, closeStdin, err := a.programStdin(f, spec, program)
	if err != nil {
		return err
	}
	defer closeStdin()
	if f.artifactsDir != "" && len(spec.Artifacts) == 0 && a.remote() {
		spec.Artifacts = []string{everyFile} // a server keeps only what is asked for
	}
	if f.detach {
		return a.detach(ctx, f, runs.Request{Spec: spec, Inputs: in.List, Streams: execution.Streams{Stdin: stdin}})
	}
	sink, err := openArtifacts(f.artifactsDir)
	if err != nil {
		return err
	}
	defer sink.Close()

	req := runs.Request{
		Spec: spec, Inputs: in.List, Streams: execution.Streams{Stdin: stdin},
		Profile: named, NoArtifacts: !f.json && f.artifactsDir == "", NoResults: !f.json,
	}
	if len(spec.Artifacts) > 0 || f.artifactsDir != "" {
		req.Artifact = sink.Take
	}
	return a.execute(ctx, f, req, sink)
}

// everyFile is the pattern of all files; those that are not new stay where they are.
const everyFile = "**"

// checkArtifacts refuses artifacts that would go nowhere.
func checkArtifacts(f *runFlags, patterns []string) error {
	switch {
	case f.detach && f.artifactsDir != "":
		how := "leave it out"
		if len(patterns) == 0 {
			how = "name the files with --artifact PATTERN"
		}
		return usageError("--artifacts-dir: a run with --detach has no files yet when the command ends").
			WithHint(how + "; afterwards: pinfold result --wait --artifacts-dir " + shellQuote(f.artifactsDir) + " RUN")
	case len(patterns) > 0 && f.artifactsDir == "" && !f.json && !f.detach:
		return usageError("artifacts would be thrown away").WithHint("add --artifacts-dir out, or --json to get them in the result")
	}
	return nil
}

// asked is what the command line asks for, with the profile that it names, and has this
// program be one that can do it.
func (a *app) asked(f *runFlags, program string, args []string) (spec sandbox.Spec, named *sandbox.ProfileRef, err error) {
	if err := cmp.Or(checkStdin(f, program), a.checkPolicy(f)); err != nil {
		return spec, nil, err
	}
	if err := a.prepareFor(wish{f.template, f.driver, f.isolation, f.profile, f.gates(), f.scan, f.policy, nil}, false); err != nil {
		return spec, nil, err
	}
	if spec, err = a.buildSpec(f, program, args); err != nil {
		return spec, nil, err
	}
	if err := a.prepareFor(wish{spec.Template, spec.Driver, spec.Isolation, spec.Profile, !spec.Gate.Empty(), spec.Scan, f.policy, nil}, f.spec == fromStdin || program == fromStdin); err != nil {
		return spec, nil, err
	}
	spec, named, rule, err := a.profiled(f, spec)
	if err == nil && named != nil { // it may want more than was said on the command line
		err = a.prepareFor(wish{template: spec.Template, driver: spec.Driver, isolation: spec.Isolation, policy: f.policy, rule: rule}, true)
	}
	return spec, named, err
}

// checkPolicy refuses a policy of our own for a server's run.
func (a *app) checkPolicy(f *runFlags) error {
	if f.policy == "" || !a.remote() {
		return nil
	}
	return usageError("--policy: a server has its operator's").WithHint("leave it out; pinfold policy test FILE says what one would have done")
}

// programStdin is what the program reads, or nil.
func (a *app) programStdin(f *runFlags, spec sandbox.Spec, program string) (io.Reader, func(), error) {
	nothing := func() {}
	switch f.stdin {
	case fromStdin:
		return a.Stdin, nothing, nil
	case "":
		if spec.Stdin != "" || program == fromStdin || f.spec == fromStdin || !passesOn(a.Stdin) {
			return nil, nothing, nil
		}
		return a.Stdin, nothing, nil
	}
	file, err := hostfiles.Open(f.stdin)
	if err != nil {
		return nil, nil, prefixed("--stdin", err)
	}
	return file, func() { _ = file.Close() }, nil
}

// passesOn says whether stdin is a pipe, a socket or a file with content that
// somebody may have meant for the program.
func passesOn(stdin *os.File) bool {
	info, err := stdin.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0 && !info.IsDir()
}

// execute runs the request and reports what became of it.
func (a *app) execute(ctx context.Context, f *runFlags, req runs.Request, sink *hostfiles.Sink) error {
	defer catchBrokenPipe()()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer cancelOnSignal(cancel)()

	req.Pending = a.waits
	runner, closeRunner, err := a.runner(ctx)
	if err != nil {
		return err
	}
	defer closeRunner()
	if err := receiptComes(ctx, f.receipt, runner); err != nil {
		return err
	}

	out := a.liveOutput(f, cancel)
	if f.contextBytes == 0 {
		req.Streams.Stdout, req.Streams.Stderr = out.writers()
	}
	result, err := runner.Run(ctx, req)
	if f.contextBytes > 0 && err == nil {
		out.excerpts(result)
	}
	out.finish(ctx)
	a.midLine = out.midLine()
	switch {
	case err != nil && out.gone(): // a server's run has no result when it is cancelled
		return &brokenPipeError{}
	case toldToGo(ctx, err):
		return cancelled()
	case err != nil:
		return a.roomForInputs(ctx, err, req)
	}
	if err := keepReceipt(f.receipt, result); err != nil {
		return err
	}
	complete := sink.Finish(result)
	a.exit = exitStatus(result)
	if !complete {
		a.exit = exitPinfold
	}
	if out.gone() {
		return &brokenPipeError{}
	}
	if f.json {
		return a.writeJSON(result)
	}
	a.report(a.speech.result(result), reportOptions{
		verbose: f.verbose, dir: f.artifactsDir, patterns: req.Spec.Artifacts, kept: req.Spec.Limits.WithDefaults().OutputBytes,
		here: true, inputs: req.Inputs, context: int64(f.contextBytes), asks: f.network.Mode == sandbox.NetworkAsk,
		keeps: a.keeps(ctx, result), unasked: req.Streams.Stdin == nil && f.stdin == "" && isTerminal(a.Stdin),
	})
	return out.lost()
}

// waits says that the run waits for a person, and who decides how.
func (a *app) waits(one sandbox.Approval) {
	var why []string
	for _, m := range one.Rules {
		if m.Ask != "" {
			why = append(why, sandbox.SafeText(m.Rule, 60)+": "+sandbox.SafeText(m.Ask, 200))
		}
	}
	a.say("it waits for a person's approval (%s), and is refused %s; who may decide does it with: pinfold approve %s",
		strings.Join(why, "; "), until(one.ExpiresAt), sandbox.SafeText(one.Run, maxID))
}

// openArtifacts is where artifacts go: a directory or, without a name, the result.
func openArtifacts(dir string) (*hostfiles.Sink, error) {
	sink, err := hostfiles.NewSink(dir)
	if err != nil {
		return nil, prefixed("--artifacts-dir", sandbox.AsError(err).WithHint("name a directory in which you may write: --artifacts-dir out"))
	}
	return sink, nil
}
