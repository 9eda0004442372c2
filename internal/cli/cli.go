// Package cli is Pinfold's command line: it reads flags and files, asks a
// Runner for a run, and says what happened. It decides nothing about sandboxes
// and imports no driver; what it needs is handed in through Deps.
//
// Everything that comes from a program, a file name or a request is escaped
// before it is part of one of our own messages.
//
// Exit status of "run": the program's own; 124 when its time ran out; 137 when
// memory or another limit ended it; 128+n when signal n of its own did; 125
// when Pinfold failed or the request was wrong; 126 when a requirement cannot
// be met; 130 when it was cancelled; 141 when nobody reads our output any more.
package cli

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// Runner runs programs: an *engine.Engine, or a stand-in for tests. A Runner
// that is also an io.Closer is closed before Main returns.
type Runner interface {
	Run(ctx context.Context, req runs.Request) (*sandbox.Result, error)
}

// Deps is what the command line works with. Every field must be set.
type Deps struct {
	Args    []string // without the program's name
	Stdin   *os.File
	Stdout  *os.File
	Stderr  *os.File
	Version string
	// NewRunner is called only when a command runs something.
	NewRunner func(ctx context.Context) (Runner, error)
	Whole     Whole
}

// Main runs one command line and returns the exit status of the process. It
// takes over SIGINT, SIGTERM, SIGHUP and SIGPIPE while a program runs.
func Main(ctx context.Context, deps Deps) int {
	a := &app{Deps: deps}
	if status, over := a.handOver(); over {
		return status
	}
	root := a.root()
	root.SetArgs(deps.Args)
	// Our own messages go through these; cobra must not print by itself.
	root.SetOut(deps.Stdout)
	root.SetErr(deps.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	var broken *brokenPipeError
	var stopped *stoppedError
	switch {
	case errors.As(err, &broken):
		return exitBrokenPipe
	case errors.As(err, &stopped):
		return exitCancelled
	case err != nil:
		return a.fail(flagWords{cmd.Flags(), cmd.Name()}.translate(err))
	}
	return a.exit
}

// app is one execution of the command line.
type app struct {
	Deps
	at      serverFlags
	exit    int  // status of a command that did not fail
	midLine bool // a program left stderr in the middle of a line
	speech  flagWords
}

func (a *app) root() *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:              "pinfold",
		Short:            "Run code nobody has read, in a fresh sandbox, and say honestly what happened",
		Example:          rootExamples,
		SilenceErrors:    true,
		SilenceUsage:     true,
		Args:             unknownCommand,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) { a.speech = flagWords{cmd.Flags(), cmd.Name()} },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return a.writeLine(false, nil, a.versionInfo().line())
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVarP(&version, "version", "v", false, "print the version")
	root.SetFlagErrorFunc(a.flagError)
	root.SetHelpFunc(a.help)
	root.SetUsageFunc(func(cmd *cobra.Command) error { a.help(cmd, nil); return nil })
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	a.bindServer(root)
	a.addCommands(root)
	return root
}

// addCommands adds the command that the line begins with. Only when it begins
// with something else (help, a flag, a mistyped word) all of them are added:
// making every command with its flags takes as long as the rest of a start.
func (a *app) addCommands(root *cobra.Command) {
	all := a.commands()
	if len(a.Args) > 0 {
		for _, c := range all {
			if c.name == a.Args[0] {
				root.AddCommand(c.make())
				root.CompletionOptions.DisableDefaultCmd = true
				return
			}
		}
	}
	for _, c := range all {
		root.AddCommand(c.make())
	}
	root.InitDefaultHelpCmd()
	if c, _, err := root.Find([]string{"help"}); err == nil {
		c.Run, c.RunE = nil, helpAbout
	}
	// What follows "completion" is a shell: one that we do not know is an error.
	root.InitDefaultCompletionCmd("run")
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.Args, c.RunE = unknownCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
}

// namedCommand makes the command of a name.
type namedCommand struct {
	name string
	make func() *cobra.Command
}

func (a *app) commands() []namedCommand {
	return append([]namedCommand{
		{"run", a.runCommand},
		{"create", a.createCommand},
		{"exec", a.execCommand},
		{"cp", a.cpCommand},
		{"ls", a.lsCommand},
		{"ps", a.psCommand},
		{"logs", a.logsCommand},
		{"port-forward", a.portForwardCommand},
		{"link", a.linkCommand},
		{"extend", a.extendCommand},
		{"network", a.networkCommand},
		{"pause", a.pauseCommand},
		{"resume", a.resumeCommand},
		{"snapshot", a.snapshotCommand},
		{"fork", a.forkCommand},
		{"kill", a.killCommand},
		{"runs", a.runsCommand},
		{"result", a.resultCommand},
		{"cancel", a.cancelCommand},
		{"replay", a.replayCommand},
		{"pool", a.poolCommand},
		{"usage", a.usageCommand},
		{"languages", a.languagesCommand},
		{"version", a.versionCommand},
	}, a.wholeCommands()...)
}

const rootExamples = `  pinfold run script.py                      run a file
  echo 'print(6*7)' | pinfold run -l python -
  pinfold run --json --memory 64MiB job.js   one JSON result
  box=$(pinfold create --server URL)         a sandbox that stays
  pinfold exec $box -- ls -l
  pinfold doctor                             what this host can enforce`

// runner makes the Runner, which is the server or an engine of our own, and
// returns it with the function that closes it.
func (a *app) runner(ctx context.Context) (Runner, func(), error) {
	r, err := a.newRunner(ctx)
	if err != nil {
		return nil, nil, err
	}
	return r, func() {
		if c, ok := r.(io.Closer); ok {
			if err := c.Close(); err != nil {
				a.say("%s", sandbox.SafeText(err.Error(), maxMessage))
			}
		}
	}, nil
}
