package runs

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"

	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/records"
	"pinfold/internal/language"
	"pinfold/sandbox"
)

// LanguageInfo is one language of the table, and whether a template has it.
type LanguageInfo struct {
	Name      string `json:"name"`
	Title     string `json:"title"`
	Available bool   `json:"available"`
	Version   string `json:"version,omitempty"`
	// Programs are what runs it, where they lie inside.
	Programs   []string `json:"programs,omitempty"`
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

// RunFunc runs one program, here or on a server.
type RunFunc func(ctx context.Context, req Request) (*sandbox.Result, error)

// Languages lists the languages of the host's template with their versions. It
// asks once.
func (rn *Runner) Languages(ctx context.Context) ([]LanguageInfo, error) {
	rn.languages.Lock()
	defer rn.languages.Unlock()
	if rn.languages.known != nil {
		return rn.languages.known, nil
	}
	// The versions are the host's business, not an account's, and they are not
	// recorded.
	unrecorded := func(ctx context.Context, req Request) (*sandbox.Result, error) {
		req.Tenant = records.LocalTenant
		return rn.unrecorded(ctx, req, false)
	}
	known, err := AskLanguages(ctx, unrecorded, sandbox.Spec{})
	if err != nil {
		return nil, execution.CallerGone(ctx, err)
	}
	rn.languages.known = known
	return known, nil
}

// languages are what was found out about them.
type languages struct {
	sync.Mutex
	known []LanguageInfo
}

// AskLanguages runs each language's version command in a sandbox, a few at a
// time. An error means that nothing could be asked at all.
func AskLanguages(ctx context.Context, run RunFunc, base sandbox.Spec) ([]LanguageInfo, error) {
	all := language.Table()
	states, failures := make([]LanguageInfo, len(all)), make([]error, len(all))
	slots := make(chan struct{}, versionAtOnce)
	var wait sync.WaitGroup
	for i, l := range all {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			states[i], failures[i] = askLanguage(ctx, run, base, l)
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
func askLanguage(ctx context.Context, run RunFunc, base sandbox.Spec, l language.Language) (LanguageInfo, error) {
	state := LanguageInfo{
		Name: l.Name, Title: l.Title,
		Aliases: append([]string{}, l.Aliases...), Extensions: append([]string{}, l.Extensions...),
	}
	result, err := run(ctx, Request{Spec: versionSpec(base, l), NoArtifacts: true, NoResults: true, Own: true})
	if err != nil {
		return state, err
	}
	switch {
	case result.Cause.Kind == sandbox.CauseCancelled:
		return state, &sandbox.Error{Code: sandbox.CodeInternal, Message: "cancelled", Err: context.Canceled}
	case result.Status == sandbox.StatusSucceeded:
		state.Available = true
		found, said, _ := strings.Cut(result.Stdout, "\n")
		state.Programs = programsFound(found, len(l.Programs))
		state.Version, _ = l.Version.Parse([]byte(said + result.Stderr))
	case result.ExitCode != nil && *result.ExitCode == commandNotFound:
		state.Reason = "not in the template: needs " + sandbox.SafeText(strings.TrimSpace(result.Stdout), maxVersionText)
	default:
		state.Reason = "asking for the version ended with: " + sandbox.SafeText(string(result.Cause.Kind), 40)
	}
	return state, nil
}

// programsFound reads the first line of the answer. It comes from inside a
// sandbox.
func programsFound(line string, most int) []string {
	var found []string
	for _, word := range strings.Fields(line) {
		if len(found) < most && path.IsAbs(word) && sandbox.SafeText(word, maxVersionText) == word {
			found = append(found, word)
		}
	}
	return found
}

// commandNotFound is what a shell returns for a program that is not there.
const commandNotFound = 127

// versionSpec is the request for a language's version: a shell program that
// finds, inside the sandbox, the programs that the language needs, prints where
// they lie in one line, and then runs its version command.
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
		word, _ := lookup(p.Candidates)
		replace = append(replace, word, `'"$`+variable+`"'`)
	}
	script.WriteString("echo")
	for i := range l.Programs {
		fmt.Fprintf(&script, " \"$p%d\"", i)
	}
	script.WriteString("\n")
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
