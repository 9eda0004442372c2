//go:build !lean

package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"pinfold/client"
	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

const approvalsLong = `Lists runs that wait because a rule of the server's operator has a person asked
(docs/policy.md), or shows one with the program. It takes a key with the scope
approve for its own tenant's runs, or admin for all. A run that nobody decides on in
time is refused.`

func (a *app) approvalsCommand() *cobra.Command {
	var asJSON, raw bool
	cmd := &cobra.Command{
		Use: "approvals [flags] [RUN]", Short: "List runs of a server that wait for a person, or show one", Long: approvalsLong,
		Example: "  pinfold approvals\n  pinfold approvals $run\n  pinfold approve $run --reason \"looked at it\"",
		Args:    needArgs(0, 1, "at most one run"), ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkIDs("run", args...); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if len(args) == 1 {
					one, err := c.Approval(ctx, args[0])
					if err != nil || asJSON {
						return cmpErr(err, func() error { return a.writeJSON(one) })
					}
					return a.showApproval(one, raw)
				}
				all, err := c.Approvals(ctx)
				if err != nil || asJSON {
					return cmpErr(err, func() error { return writeList(a, "approvals", all) })
				}
				t := newTable("RUN", "TENANT", "KEY", "ASKED", "REFUSED", "LANGUAGE", "DRIVER", "NETWORK", "RULES", "ASKS")
				for _, one := range all {
					t.row(one.Run, one.Tenant, one.Key, since(one.AskedAt), until(one.ExpiresAt), one.Language, one.Driver, strings.Join(one.Network, " "), ruleNames(one.Rules), asks(one.Rules))
				}
				return a.writeTable(t, false)
			})
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "do not escape control characters of the program on a terminal")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// cmpErr is an error, or what comes of going on.
func cmpErr(err error, then func() error) error {
	if err != nil {
		return err
	}
	return then()
}

func ruleNames(rules []sandbox.PolicyMatch) string {
	var names []string
	for _, m := range rules {
		names = append(names, m.Rule)
	}
	return strings.Join(names, ",")
}

// asks are the reasons for which a person is asked.
func asks(rules []sandbox.PolicyMatch) string {
	var reasons []string
	for _, m := range rules {
		if m.Ask != "" {
			reasons = append(reasons, m.Ask)
		}
	}
	return strings.Join(reasons, "; ")
}

// showApproval prints what a person has to know to decide.
func (a *app) showApproval(one sandbox.Approval, raw bool) error {
	t := newTable("RUN", one.Run)
	for _, row := range [][2]string{
		{"tenant", one.Tenant},
		{"key", one.Key},
		{"asked", since(one.AskedAt)},
		{"expires", until(one.ExpiresAt)},
		{"language", one.Language},
		{"behind", one.Driver + " (" + one.Isolation + ")"},
		{"network", strings.Join(one.Network, " ")},
		{"not scanned", one.FindingsUnread},
	} {
		if row[1] != "" {
			t.row(row[0], row[1])
		}
	}
	for _, m := range one.Rules {
		t.row("rule "+m.Rule, strings.Join(append(m.Because, changesOf(m)...), "; "))
		if m.Ask != "" {
			t.row("asks", m.Ask)
		}
	}
	for _, f := range one.Findings {
		t.row(fmt.Sprintf("line %d", f.Line), fmt.Sprintf("%s: %s: %s", f.Severity, f.Rule, f.Text))
	}
	if err := a.writeTable(t, false); err != nil || one.Spec == nil {
		return err
	}
	if one.OpenStdin {
		a.say("its standard input comes while it runs")
	}
	if one.Cut {
		a.say("not all of its contents are shown: they are too large")
	}
	out := forReader(a.Stdout, raw)
	err := writeBeside(out, *one.Spec)
	if err == nil {
		_, err = io.WriteString(out, one.Spec.Code)
	}
	finishVisible(out)
	return err
}

// writeBeside prints what of a request a program may run besides its own text, which follows:
// variables have interpreters and shells run code, and so may what it reads. Each line is
// marked, so that none passes for another part.
func writeBeside(out io.Writer, s sandbox.Spec) error {
	var b strings.Builder
	part := func(lines []string, heading string) {
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(&b, "%s:\n", heading)
		for _, line := range lines {
			b.WriteString("| " + strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	var settings []string
	for _, one := range [][2]string{
		{"entrypoint", s.Entrypoint},
		{"template", s.Template},
		{"profile", s.Profile},
		{"warm", strings.Join(s.Warm, ",")},
		{"packages of Python", strings.Join(s.Packages.Python, ",")},
		{"packages of npm", strings.Join(s.Packages.NPM, ",")},
	} {
		if one[1] != "" {
			settings = append(settings, fmt.Sprintf("%s %q", one[0], one[1]))
		}
	}
	part(settings, "with")
	var words []string
	for _, arg := range s.Args {
		words = append(words, strconv.Quote(arg))
	}
	part(words, "arguments")
	words = nil
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		words = append(words, strconv.Quote(name+"="+s.Env[name]))
	}
	part(words, "variables")
	part(slices.Collect(strings.Lines(s.Stdin)), "standard input")
	for _, f := range s.Files {
		heading := "file " + sandbox.SafeText(f.Path, maxMessage)
		if f.Executable {
			heading += ", executable"
		}
		content, err := f.Bytes()
		switch {
		case err != nil:
			return err
		case !utf8.Valid(content):
			fmt.Fprintf(&b, "%s: %d bytes, no text\n", heading, len(content))
		default:
			part(append(slices.Collect(strings.Lines(string(content))), ""), heading)
		}
	}
	if b.Len() > 0 && s.Code != "" {
		b.WriteString("program:\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// changesOf says what a rule changed.
func changesOf(m sandbox.PolicyMatch) (lines []string) {
	for _, c := range m.Changes {
		lines = append(lines, fmt.Sprintf("%s: %s → %s", c.Field, orDash(c.From), orDash(c.To)))
	}
	return lines
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (a *app) approveCommand() *cobra.Command {
	return a.decideCommand("approve", "Let runs go on that wait for a person", (*client.Client).ApproveRun)
}

func (a *app) denyCommand() *cobra.Command {
	return a.decideCommand("deny", "Refuse runs that wait for a person", (*client.Client).DenyRun)
}

// decideCommand decides on each run that it is given, also where one fails.
func (a *app) decideCommand(name, short string, how func(c *client.Client, ctx context.Context, run, reason string) (sandbox.Approval, error)) *cobra.Command {
	var reason string
	var asJSON bool
	cmd := &cobra.Command{
		Use: name + " [flags] RUN...", Short: short, Long: approvalsLong, Example: "  pinfold " + name + " $run --reason \"looked at it\"",
		Args: needArgs(1, -1, "at least one run"), ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkIDs("run", args...); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				all, err := endAll(a, args, func(id string) (sandbox.Approval, error) { return how(c, ctx, id, reason) })
				if err != nil || !asJSON {
					return err
				}
				return writeList(a, "approvals", all)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the result and the audit log")
	group(cmd.Flags(), "Decision", "reason TEXT")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// askHere asks the person at the terminal, whichever of ours is one: standard input may be
// the program's.
func (a *app) askHere(ctx context.Context, one sandbox.Approval) (sandbox.PolicyDecision, error) {
	terminal, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return sandbox.PolicyDecision{}, &sandbox.Error{
			Code: sandbox.CodeApprovalDenied, Message: "a rule has a person asked, and there is no terminal: " + asks(one.Rules), Hint: "run it from a terminal",
		}
	}
	for _, m := range one.Rules {
		a.say("policy: %s: %s", sandbox.SafeText(m.Rule, 60), sandbox.SafeText(strings.Join(append(m.Because, changesOf(m)...), "; "), maxMessage))
	}
	answer := make(chan string, 1)
	go func() {
		defer terminal.Close() //nolint:errcheck // a question
		_, _ = fmt.Fprintf(terminal, "pinfold: %s Run it? [y/N] ", sandbox.SafeText(asks(one.Rules), maxMessage))
		line, _ := bufio.NewReader(io.LimitReader(terminal, 100)).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	d := sandbox.PolicyDecision{Verdict: sandbox.VerdictDenied, By: records.LocalTenant}
	select {
	case said := <-answer:
		if said == "y" || said == "yes" {
			d.Verdict = sandbox.VerdictApproved
		}
	case <-ctx.Done():
		return d, context.Cause(ctx)
	}
	d.At = time.Now().UTC().Round(0)
	return d, nil
}
