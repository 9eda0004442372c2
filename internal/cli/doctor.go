//go:build !lean

package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"pinfold/internal/probe"
	"pinfold/sandbox"
)

const doctorLong = `Ask this host what Pinfold can enforce on it, by trying. Nothing is changed.

With --threat it says which isolation is enough against whom, what of that this
host has, and what to do: agent (your own code and your agent's), students
(people whom you know), internet (anybody).

Exit status: 0, or 1 when something makes the native driver impossible, or, with
--threat, when nothing here is enough.`

func (a *app) doctorCommand() *cobra.Command {
	var asJSON, all bool
	var threat string
	cmd := &cobra.Command{
		Use:     "doctor [flags]",
		Short:   "Find out what this host can enforce, and how to fix what it cannot",
		Long:    doctorLong,
		Example: "  pinfold doctor\n  pinfold doctor --threat students\n  pinfold doctor --json | jq '.findings[] | select(.severity == \"problem\")'",
		Args:    noArgs,

		Annotations: map[string]string{localOnly: "true"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if threat != "" {
				return a.adviseAgainst(cmd.Context(), threat, asJSON)
			}
			found := a.Whole.Probe(cmd.Context())
			if probe.Impossible(found) {
				a.exit = 1
			}
			if asJSON {
				return writeList(a, "findings", found)
			}
			return a.write(doctorReport(found, a.style(), all))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&threat, "threat", "", "say what is enough against these: "+strings.Join(probe.Threats(), ", "))
	completeChoices(cmd, map[string]func() []string{"threat": probe.Threats})
	cmd.Flags().BoolVar(&all, "all", false, "say for every finding what was tried")
	return cmd
}

// adviseAgainst says what to do about a threat.
func (a *app) adviseAgainst(ctx context.Context, threat string, asJSON bool) error {
	if _, err := probe.Advise(threat, nil); err != nil { // before the host is looked at
		return err
	}
	advice, err := probe.Advise(threat, a.Whole.Probe(ctx))
	if err != nil {
		return err
	}
	if advice.Driver == "" {
		a.exit = 1
	}
	if asJSON {
		return a.writeJSON(advice)
	}
	return a.write(adviceReport(advice, a.style()))
}

// adviceReport is the advice for people.
func adviceReport(advice probe.Advice, s style) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s: %s.\n\nenough:  isolation %s, or a stronger one\n", advice.Threat, advice.Means, advice.Isolation)
	sev, here := probe.OK, "the "+advice.Driver+" driver gives it"
	if advice.Driver == "" {
		sev, here = probe.Problem, "nothing gives it"
	}
	fmt.Fprintf(&b, "here:    %s %s\nwhy:     %s\n", s.mark(sev), here, advice.Why)
	if len(advice.First) > 0 {
		b.WriteString("\nfirst mend these, or accept them:\n")
	}
	for _, f := range advice.First {
		fmt.Fprintf(&b, "  %s not so: %s\n      %s\n", s.mark(f.Severity), f.Title, f.Means)
		if f.Fix != "" {
			fmt.Fprintf(&b, "      fix: %s\n", sandbox.SafeText(f.Fix, maxMessage))
		}
	}
	if len(advice.Do) > 0 {
		b.WriteString("\nthen:\n")
	}
	for _, do := range advice.Do {
		fmt.Fprintf(&b, "  %s\n", do)
	}
	return b.Bytes()
}

// style is how a report may look on this terminal.
type style struct {
	marks  map[probe.Severity]string
	colour bool
}

var (
	unicodeMarks = map[probe.Severity]string{probe.Problem: "✗", probe.Warning: "!", probe.Info: "·", probe.OK: "✓"}
	asciiMarks   = map[probe.Severity]string{probe.Problem: "x", probe.Warning: "!", probe.Info: "-", probe.OK: "+"}
	colours      = map[probe.Severity]string{probe.Problem: "31", probe.Warning: "33", probe.Info: "36", probe.OK: "32"}
	order        = []probe.Severity{probe.Problem, probe.Warning, probe.Info, probe.OK}
)

// style follows the locale's character set (locale(7)), and uses colour on a
// terminal unless NO_COLOR says otherwise (no-color.org).
func (a *app) style() style {
	s := style{marks: asciiMarks}
	locale := cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG"))
	if locale = strings.ToLower(locale); strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8") {
		s.marks = unicodeMarks
	}
	s.colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(a.Stdout)
	return s
}

func (s style) mark(sev probe.Severity) string {
	if !s.colour {
		return s.marks[sev]
	}
	return "\x1b[" + colours[sev] + "m" + s.marks[sev] + "\x1b[0m"
}

// doctorReport is the table for people, the worst first.
func doctorReport(found []probe.Finding, s style, all bool) []byte {
	found = slices.Clone(found)
	slices.SortStableFunc(found, func(x, y probe.Finding) int {
		return slices.Index(order, x.Severity) - slices.Index(order, y.Severity)
	})
	width, count := 0, map[probe.Severity]int{}
	for _, f := range found {
		width = max(width, len(f.Title))
		count[f.Severity]++
	}
	var b bytes.Buffer
	fixes := map[string]string{} // by command: the finding at which it was said
	for _, f := range found {
		fmt.Fprintf(&b, "%s %-*s  %s\n", s.mark(f.Severity), width, f.Title, strings.ReplaceAll(string(f.Answer), "-", " "))
		if all || f.Severity != probe.OK {
			fmt.Fprintf(&b, "    tried: %s\n", sandbox.SafeText(f.Probed, maxMessage))
		}
		if f.Severity != probe.OK {
			fmt.Fprintf(&b, "    means: %s\n", f.Means)
		}
		if f.Fix != "" {
			fix := sandbox.SafeText(f.Fix, maxMessage)
			if first, said := fixes[f.Fix]; said {
				fix = "as above, for: " + first
			} else {
				fixes[f.Fix] = f.Title
			}
			fmt.Fprintf(&b, "    fix:   %s\n", fix)
		}
	}
	verdict := "the native driver can work here"
	if count[probe.Problem] > 0 {
		verdict = "the native driver cannot work here" + plainProcesses(found)
	}
	fmt.Fprintf(&b, "\n%s: %s, %s\n", verdict, plural(count[probe.Problem], "problem"), plural(count[probe.Warning], "warning"))
	return b.Bytes()
}

// plainProcesses says what there is instead of the native driver.
func plainProcesses(found []probe.Finding) string {
	for _, code := range []string{"landlock", "seccomp.filter"} {
		if !slices.ContainsFunc(found, func(f probe.Finding) bool { return f.Code == code && f.Answer == probe.Yes }) {
			return ""
		}
	}
	return " (--isolation process may, which is weaker)"
}
