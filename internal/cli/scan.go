//go:build !lean

package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"pinfold/client"
	"pinfold/internal/engine/runs"
	"pinfold/internal/scan"
	"pinfold/sandbox"
)

const scanLong = `Look at a program before it runs: calls to the network, files outside the working
directory, code that is hidden, and the like, by rules that "pinfold scan --rules"
lists. FILE - reads it from stdin. Nothing of the program is run. Python is read by
Python's own parser, inside a sandbox.

It is advice: a program that wants to hide what it does can. What holds it is the
sandbox (docs/scan.md).

Exit status: 0 when there is nothing of --fail-on or worse; 1 when there is; 2 when
there is not, but the program could not be read as its language is; 125 and above as
for "pinfold run".`

const scanExamples = `  pinfold scan job.py
  pinfold scan --json --fail-on danger - -l bash < install.sh
  pinfold scan job.py && pinfold run job.py
  pinfold scan --rules`

// Exit statuses of "scan".
const (
	exitScanned = 1
	exitUnread  = 2
)

const failNever = "never"

type scanFlags struct {
	language, failOn string
	json, rules      bool
}

func (a *app) scanCommand() *cobra.Command {
	var f scanFlags
	cmd := &cobra.Command{
		Use: "scan [flags] FILE|-", Short: "Look at a program before it runs", Long: scanLong, Example: scanExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuseEmpty(cmd.Flags()); err != nil {
				return err
			}
			if f.failOn != failNever && scan.Rank(sandbox.Severity(f.failOn)) < 0 {
				return usageError("--fail-on takes info, notice, warning, danger or %s", failNever)
			}
			switch {
			case f.rules && len(args) > 0:
				return usageError("--rules takes no program")
			case f.rules:
				return a.writeRules(f.json)
			case len(args) != 1 || args[0] == "":
				return usageError("scan takes one program").WithHint("pinfold scan FILE, or - to read it from stdin")
			}
			return a.scan(cmd.Context(), f, args[0])
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault // file names
		},
	}
	set := cmd.Flags()
	set.StringVarP(&f.language, "language", "l", "", "the language (default from the #! line or the file name)")
	set.StringVar(&f.failOn, "fail-on", string(sandbox.SeverityWarning), "the least severity that makes the exit status 1, or never")
	set.BoolVar(&f.json, "json", false, "print JSON")
	set.BoolVar(&f.rules, "rules", false, "list the rules instead")
	return cmd
}

func (a *app) scan(ctx context.Context, f scanFlags, name string) error {
	// More than is looked at: that it is too large is for the report to say.
	text, err := a.readBounded(name, sandbox.MaxCodeBytes)
	if err != nil {
		return err
	}
	spec := sandbox.Spec{Language: f.language, Code: string(text)}
	if err := resolveLanguage(&spec, name); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer cancelOnSignal(cancel)()
	if name == fromStdin {
		name = ""
	}
	report, err := a.look(ctx, sandbox.ScanRequest{File: name, Language: spec.Language, Code: string(text)})
	switch {
	case err != nil && ctx.Err() != nil:
		return cancelled()
	case err != nil:
		return err
	}
	a.exit = scanStatus(report, f.failOn)
	if f.json {
		return a.writeJSON(report)
	}
	return a.writeReportOfScan(report)
}

// look asks the server, or looks here.
func (a *app) look(ctx context.Context, req sandbox.ScanRequest) (report *sandbox.ScanReport, err error) {
	if a.remote() && utf8.ValidString(req.Code) { // what is no text is told here: JSON would change it
		err = a.with(ctx, func(ctx context.Context, c *client.Client) error {
			report, err = c.Scan(ctx, req)
			return err
		})
		return report, err
	}
	s := scan.Scanner{Python: scan.InSandbox(func(ctx context.Context, spec sandbox.Spec) (*sandbox.Result, error) {
		runner, closeRunner, err := a.runner(ctx)
		if err != nil {
			return nil, err
		}
		defer closeRunner()
		return runner.Run(ctx, runs.Request{Spec: spec, NoArtifacts: true, NoResults: true})
	})}
	return s.Scan(ctx, scan.Source{File: req.File, Language: req.Language, Text: []byte(req.Code)})
}

// scanStatus is the exit status for a report.
func scanStatus(r *scan.Report, failOn string) int {
	switch {
	case failOn != failNever && r.Worst != "" && scan.Rank(r.Worst) >= scan.Rank(sandbox.Severity(failOn)):
		return exitScanned
	case r.Unread != "":
		return exitUnread
	}
	return 0
}

func (a *app) writeReportOfScan(r *scan.Report) error {
	if r.Unread != "" {
		a.say("%s", sandbox.SafeText(r.Unread, maxMessage))
	}
	if r.Truncated {
		a.say("there is more than is said here")
	}
	if len(r.Findings) == 0 {
		if r.Unread == "" {
			a.say("nothing found; that is no proof: the sandbox is what holds a program")
		}
		return nil
	}
	t := &table{head: []string{"LINE", "SEVERITY", "RULE", "TEXT"}}
	for _, f := range r.Findings {
		t.rows = append(t.rows, []string{fmt.Sprintf("%d:%d", f.Line, f.Column), string(f.Severity), f.Rule, f.Text})
	}
	return a.writeTable(t, false)
}

func (a *app) writeRules(asJSON bool) error {
	if asJSON {
		return writeList(a, "rules", scan.Rules())
	}
	var b bytes.Buffer
	for _, r := range scan.Rules() {
		fmt.Fprintf(&b, "%s (%s, %s): %s\n  sees: %s\n  why:  %s\n", r.ID, r.Class, r.Severity, r.Title, r.Sees, r.Why)
		if len(r.Languages) > 0 {
			fmt.Fprintf(&b, "  in:   %s\n", strings.Join(r.Languages, ", "))
		}
	}
	return a.write(b.Bytes())
}
