//go:build linux

package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"pinfold/internal/image"
	"pinfold/internal/language"
	"pinfold/internal/language/languagetest"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// Every language of the table, in real sandboxes, two at a time.
func TestLanguages(t *testing.T) {
	ledger.Check(t)
	bin := pinfold(t)
	host, err := image.Host(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	lookup := func(names []string) (string, bool) { return host.Lookup(os.DirFS("/"), names) }
	slots := make(chan struct{}, 2)
	for _, c := range languagetest.Cases() {
		l, err := language.Find(c.Language)
		if err != nil {
			t.Fatal(err)
		}
		if c.Language == "go" && c.Name != "hello" && c.Name != "broken" {
			continue // each builds the standard library anew; TestPrograms of package language has them all
		}
		t.Run(c.Language+"/"+c.Name, func(t *testing.T) {
			if missing := l.Missing(lookup); len(missing) > 0 {
				lacks(t, missing)
			}
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			checkCase(t, bin, l, c)
		})
	}
	again(t) // and then those above
}

// lacks skips on a user's machine and fails where everything must be there.
func lacks(t *testing.T, missing []language.Program) {
	t.Helper()
	var packages []string
	for _, p := range missing {
		packages = append(packages, p.Package)
	}
	message := "missing: apt-get install " + strings.Join(packages, " ")
	if os.Getenv("CI") == "true" || os.Getenv("PINFOLD_TEST_ALL") == "1" {
		t.Fatal(message)
	}
	t.Skip(message)
}

func checkCase(t *testing.T, bin string, l language.Language, c languagetest.Case) {
	t.Helper()
	file := c.File
	if file == "" {
		file = l.File
	}
	spec := sandbox.Spec{
		Language: c.Language, Entrypoint: file, Args: c.Args, Stdin: c.Stdin,
		Files: []sandbox.File{{Path: file, Content: c.Source}},
	}
	for name, content := range c.Files {
		spec.Files = append(spec.Files, sandbox.File{Path: name, Content: content})
	}
	request, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	o := start(t, bin, string(request), "run", "--json", "--spec", "-")
	var r sandbox.Result
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || r.ID == "" {
		t.Fatalf("no result: %v: %.500s %.500s", err, o.stdout, o.stderr)
	}
	if c.Want.NotCompile {
		if r.Cause.Phase != sandbox.PhaseCompile || r.Cause.Kind != sandbox.CauseExited || r.Compile == nil || r.Status != sandbox.StatusFailed || !strings.Contains(r.Stderr, c.Want.StderrHas) {
			t.Fatalf("not a compile error: %s %+v\n%s", r.Status, r.Cause, r.Stderr)
		}
		if c := r.Compile; c.ExitCode == nil || *c.ExitCode == 0 || o.code != *c.ExitCode || c.Stderr != r.Stderr {
			t.Fatalf("the compile step is %+v, exit status %d", c, o.code)
		}
		return
	}
	code := 128 + 9 // what a shell says of a program that killed itself
	if r.ExitCode != nil {
		code = *r.ExitCode
	} else if r.Signal != "SIGKILL" || r.Status != sandbox.StatusFailed {
		t.Fatalf("%s by %+v\nstderr: %s", r.Status, r.Cause, r.Stderr)
	}
	if code != c.Want.ExitCode && (c.Want.ExitCode != languagetest.AnyFailure || code == 0) {
		t.Fatalf("exit status %d, want %d\nstderr: %s", code, c.Want.ExitCode, r.Stderr)
	}
	if c.Want.Stdout != "" && r.Stdout != c.Want.Stdout || !strings.Contains(r.Stderr, c.Want.StderrHas) {
		t.Fatalf("stdout %q, want %q; stderr %q, want %q in it", r.Stdout, c.Want.Stdout, r.Stderr, c.Want.StderrHas)
	}
}

func TestLanguagesCommand(t *testing.T) {
	ledger.Check(t)
	o := start(t, pinfold(t), "", "languages", "--json")
	var shown struct {
		Languages []struct {
			Name      string
			Available bool
			Version   string
		}
	}
	if err := json.Unmarshal([]byte(o.stdout), &shown); err != nil || len(shown.Languages) != len(language.Table()) {
		t.Fatalf("%v: %s%s", err, o.stdout, o.stderr)
	}
	for _, l := range shown.Languages {
		if l.Name == "python" && (!l.Available || !strings.HasPrefix(l.Version, "3.")) {
			t.Fatalf("python is %+v", l)
		}
	}
	again(t)
}
