package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"pinfold/internal/engine"
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

// languageState is one language as "languages" shows it.
type languageState struct {
	Name       string   `json:"name"`
	Title      string   `json:"title"`
	Available  bool     `json:"available"`
	Version    string   `json:"version,omitempty"`
	Aliases    []string `json:"aliases"`
	Extensions []string `json:"extensions"`
	// Reason says why a language is not available.
	Reason string `json:"reason,omitempty"`
}

// Bounds on asking one language for its version.
const (
	versionTimeMS  = 10_000
	versionAtOnce  = 4
	maxVersionText = 120
)

const languagesExamples = `  pinfold languages
  pinfold languages --json | jq -r '.languages[] | select(.available) | .name'`

func (a *app) languagesCommand() *cobra.Command {
	var asJSON bool
	var template, driver string
	cmd := &cobra.Command{
		Use:     "languages [flags]",
		Short:   "List the languages, and which of them the template has",
		Long:    "The versions are asked inside a sandbox, each by a run of its own.",
		Example: languagesExamples,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			states, err := a.askLanguages(cmd.Context(), sandbox.Spec{Template: template, Driver: driver})
			if err != nil {
				return err
			}
			if asJSON {
				return a.writeJSON(struct {
					Languages []languageState `json:"languages"`
				}{states})
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

// askLanguages runs each language's version command in a sandbox, a few at a
// time. An error means that nothing could be asked at all.
func (a *app) askLanguages(ctx context.Context, base sandbox.Spec) ([]languageState, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer cancelOnSignal(cancel)()
	runner, closeRunner, err := a.runner(ctx)
	if err != nil {
		return nil, err
	}
	defer closeRunner()

	all := language.Table()
	states, failures := make([]languageState, len(all)), make([]error, len(all))
	slots := make(chan struct{}, versionAtOnce)
	var wait sync.WaitGroup
	for i, l := range all {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			states[i], failures[i] = askLanguage(ctx, runner, base, l)
		})
	}
	wait.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}
	return states, nil
}

// askLanguage asks one. That a program is not there is an answer, not an error.
func askLanguage(ctx context.Context, runner Runner, base sandbox.Spec, l language.Language) (languageState, error) {
	state := languageState{
		Name: l.Name, Title: l.Title,
		Aliases: append([]string{}, l.Aliases...), Extensions: append([]string{}, l.Extensions...),
	}
	result, err := runner.Run(ctx, engine.Request{Spec: versionSpec(base, l)})
	if err != nil {
		return state, err
	}
	switch {
	case result.Cause.Kind == sandbox.CauseCancelled:
		return state, &sandbox.Error{Code: sandbox.CodeInternal, Message: "cancelled", Err: context.Canceled}
	case result.Status == sandbox.StatusSucceeded:
		state.Available = true
		state.Version, _ = l.Version.Parse([]byte(result.Stdout + result.Stderr))
	case result.ExitCode != nil && *result.ExitCode == commandNotFound:
		state.Reason = "not in the template: needs " + sandbox.SafeText(strings.TrimSpace(result.Stdout), maxVersionText)
	default:
		state.Reason = "asking for the version ended with: " + sandbox.SafeText(string(result.Cause.Kind), 40)
	}
	return state, nil
}

// commandNotFound is what a shell returns for a program that is not there.
const commandNotFound = 127

// versionSpec is the request for a language's version: a shell program that
// finds, inside the sandbox, the programs that the language needs, and then
// runs its version command.
func versionSpec(base sandbox.Spec, l language.Language) sandbox.Spec {
	var script strings.Builder
	script.WriteString("find() { for p; do command -v \"$p\" && return; done; return 1; }\n")
	lookup := func(candidates []string) (string, bool) {
		return "\x00" + candidates[0] + "\x00", true // replaced by a variable below
	}
	replace := []string{"'", `'\''`}
	for i, p := range l.Programs {
		variable := fmt.Sprintf("p%d", i)
		fmt.Fprintf(&script, "%s=$(find %s) || { echo %s; exit %d; }\n", variable,
			shellWords(p.Candidates, "'", `'\''`), shellWords([]string{strings.Join(p.Candidates, " or ")}, "'", `'\''`), commandNotFound)
		path, _ := lookup(p.Candidates)
		replace = append(replace, path, `'"$`+variable+`"'`)
	}
	spec := base
	spec.Language = "sh"
	spec.Limits.WallTimeMS = versionTimeMS
	step, stdin, ok := l.VersionStep(lookup)
	if ok {
		fmt.Fprintf(&script, "exec %s\n", shellWords(step.Args, replace...))
		spec.Stdin, spec.Env = stdin, map[string]string{}
		for _, kv := range step.Env {
			k, v, _ := strings.Cut(kv, "=")
			spec.Env[k] = v
		}
	}
	spec.Code = script.String()
	return spec
}

// shellWords quotes words for a shell, after the replacements.
func shellWords(words []string, replace ...string) string {
	r := strings.NewReplacer(replace...)
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + r.Replace(w) + "'"
	}
	return strings.Join(quoted, " ")
}

func languageTable(states []languageState) []byte {
	var b bytes.Buffer
	for _, s := range states {
		what := s.Version
		switch {
		case !s.Available:
			what = "- (" + s.Reason + ")"
		case what == "":
			what = "yes"
		}
		fmt.Fprintf(&b, "%-12s %s\n", s.Name, what)
	}
	return b.Bytes()
}
