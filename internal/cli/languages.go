package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"pinfold/client"
	"pinfold/internal/engine/runs"
	"pinfold/internal/language"
	"pinfold/sandbox"
)

// resolveLanguage settles which language a program has: what was asked for, or
// what its #! line or its file name says.
func resolveLanguage(spec *sandbox.Spec, file string) error {
	if spec.Language != "" {
		l, err := language.Find(spec.Language)
		spec.Language = l.Name
		return err
	}
	if spec.Profile != "" { // which says it
		return nil
	}
	if file == "" || file == fromStdin {
		file = spec.Entrypoint
	}
	l, err := language.Detect(file, []byte(spec.Code[:min(len(spec.Code), maxFirstLine)]))
	if err != nil && file == "" {
		return &sandbox.Error{
			Code: sandbox.CodeLanguageUnknown, Field: "language", Message: "a program from stdin without a #! line does not say its language",
			Hint: "name it, as in --language python; pinfold languages lists them",
		}
	}
	spec.Language = l.Name
	return err
}

// maxFirstLine is how much of a program is looked at for a #! line.
const maxFirstLine = 512

func languageNames() []string {
	var names []string
	for _, l := range language.Table() {
		names = append(names, l.Name)
	}
	return names
}

const languagesExamples = `  pinfold languages
  pinfold languages --json | jq -r '.languages[] | select(.available) | .name'`

func (a *app) languagesCommand() *cobra.Command {
	var asJSON bool
	var template, driver string
	cmd := &cobra.Command{
		Use:   "languages [flags]",
		Short: "List the languages, and which of them the template has",
		Long: `The versions are asked inside a sandbox, each by a run of its own. Beside
them stand the programs that run the language: packages must be those of
these, not of another interpreter that you have.`,
		Example: languagesExamples,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.prepareFor(wish{template: template, driver: driver}, false); err != nil {
				return err
			}
			ask := a.askLanguages
			if a.remote() && template == "" && driver == "" {
				ask = a.askServerLanguages
			}
			states, err := ask(cmd.Context(), sandbox.Spec{Template: template, Driver: driver})
			if err != nil {
				return err
			}
			if asJSON {
				return writeList(a, "languages", states)
			}
			return a.write(languageTable(states))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&template, "template", "", "the template to ask (default host)")
	cmd.Flags().StringVar(&driver, "driver", "", "the way to make the sandbox (default auto)")
	group(cmd.Flags(), groupIsolation, "template NAME", "driver NAME")
	return cmd
}

// askServerLanguages takes the server's word for what its default template has.
func (a *app) askServerLanguages(ctx context.Context, _ sandbox.Spec) (states []runs.LanguageInfo, err error) {
	err = a.with(ctx, func(ctx context.Context, c *client.Client) error {
		all, err := c.Languages(ctx)
		for _, l := range all {
			states = append(states, runs.LanguageInfo(l))
		}
		return err
	})
	return states, err
}

// askLanguages asks by running programs, in this process or on the server.
func (a *app) askLanguages(ctx context.Context, base sandbox.Spec) ([]runs.LanguageInfo, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer cancelOnSignal(cancel)()
	runner, closeRunner, err := a.runner(ctx)
	if err != nil {
		return nil, err
	}
	defer closeRunner()
	return runs.AskLanguages(ctx, runner.Run, base)
}

const maxVersionText = 120 // runes

func languageTable(states []runs.LanguageInfo) []byte {
	var b bytes.Buffer
	for _, s := range states {
		what := sandbox.SafeText(s.Version, maxVersionText)
		switch {
		case !s.Available:
			what = "- (" + sandbox.SafeText(s.Reason, 2*maxVersionText) + ")"
		case what == "":
			what = "yes"
		}
		if len(s.Programs) > 0 && s.Available {
			what = fmt.Sprintf("%-12s %s", what, sandbox.SafeText(strings.Join(s.Programs, " "), 2*maxVersionText))
		}
		fmt.Fprintf(&b, "%-12s %s\n", s.Name, what)
	}
	return b.Bytes()
}
