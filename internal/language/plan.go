package language

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"pinfold/internal/image"
	"pinfold/internal/interpreter"
	"pinfold/sandbox"
)

// Steps is what it takes to run one program in a sandbox whose working
// directory is Places.Home and holds the program's file.
type Steps struct {
	// Dir must be made first, as the user's, when it is not empty.
	Dir   string
	Files []File // to write before the first step
	// Results is where the program's harness writes values at its end, as
	// package interpreter reads them. Empty means nowhere.
	Results string

	Compile *Step // nil for interpreted languages
	Run     Step
}

// Step is one command. Env is its whole environment, K=V, sorted; a caller's
// own variables go on top. Limits are complete.
type Step struct {
	Args   []string
	Env    []string
	Limits sandbox.Limits
}

// BaseEnv returns the environment of every process in a sandbox, but for what names its
// user. Caches go to the temporary files, so that the working directory holds only what
// the program made. pip may
// install for the user, which Debian's refuses so that nobody breaks the system:
// here nobody can. Neither it nor npm tries again for a network that there is not, which
// npm would do for minutes, or asks whether there is a newer one.
// Sanitizers do not look for leaks, for which they would need ptrace(2), and fail
// without. That variable is heeded by AddressSanitizer, too, after its own, so that
// one who sets ASAN_OPTIONS for another reason need not know.
func BaseEnv(p Places) []string {
	env := []string{
		"LANG=C.UTF-8",
		"LSAN_OPTIONS=detect_leaks=0",
		"PATH=" + image.SearchPath,
		"PIP_BREAK_SYSTEM_PACKAGES=1",
		"PIP_DISABLE_PIP_VERSION_CHECK=1",
		"PIP_RETRIES=0",
		"TERM=dumb",
		"TMPDIR=" + p.Tmp,
		"XDG_CACHE_HOME=" + p.Tmp + "/.cache",
		"npm_config_fetch_retries=0",
		"npm_config_update_notifier=false",
	}
	if p.HostRoot { // its /etc is there, and what is in it may not be read
		env = append(env, "OPENSSL_CONF=/dev/null")
	}
	for _, kv := range p.Env {
		name, _, _ := strings.Cut(kv, "=")
		env = slices.DeleteFunc(env, func(have string) bool { return strings.HasPrefix(have, name+"=") })
		env = append(env, kv)
	}
	return env
}

// Plan says how to run the program in mainFile (a path relative to the working
// directory; empty means the language's File) with the arguments, under the
// run's limits, in the template that lookup looks into. Zero limits are the
// defaults.
//
// The error is a *sandbox.Error: language_missing when the template lacks a
// program, with the command that installs it as the hint, or bad_path.
func (l Language) Plan(mainFile string, args []string, limits sandbox.Limits, lookup Lookup) (Steps, error) {
	mainFile = cmp.Or(mainFile, l.File)
	if err := sandbox.CheckGuestPath("entrypoint", mainFile); err != nil {
		return Steps{}, err
	}
	words, err := l.words(lookup)
	if err != nil {
		return Steps{}, err
	}
	words["file"] = notAnOption(mainFile)
	limits = limits.WithDefaults()

	files, err := l.supportFiles(l.Support)
	if err != nil {
		return Steps{}, sandbox.Errorf(sandbox.CodeInternal, "support files of %s: %w", l.Name, err)
	}
	steps := Steps{Files: files, Run: l.step(l.Run, args, words, limits)}
	if l.results {
		steps.Results = path.Join(l.at().Support(), interpreter.ResultsFile)
	}
	if l.Compile != nil {
		step := l.step(l.Compile, nil, words, l.CompileStep(limits))
		steps.Compile = &step
	}
	if steps.Compile != nil || len(files) > 0 {
		steps.Dir = l.at().Support()
	}
	return steps, nil
}

// Wait is how a warm interpreter is started, or the zygote of forked ones. Package
// zygote describes how each is told its modules and its program.
type Wait struct {
	Args, Env, Modules []string
	Files              []File
	Dir                string
}

// WaitStep says how to start a waiting interpreter. ok is false when the
// language has none.
func (l Language) WaitStep(modules []string, limits sandbox.Limits, lookup Lookup) (w Wait, ok bool, err error) {
	return l.wait(l.Wait, l.WaitWith, modules, limits, lookup)
}

// ZygoteStep says how to start a zygote. ok is false when the language has none.
func (l Language) ZygoteStep(modules []string, limits sandbox.Limits, lookup Lookup) (w Wait, ok bool, err error) {
	return l.wait(l.Zygote, l.ZygoteWith, modules, limits, lookup)
}

// CopiedStep says how to start an interpreter that waits in a machine of which copies are
// made. ok is false when the language has none.
func (l Language) CopiedStep(modules []string, limits sandbox.Limits, lookup Lookup) (w Wait, ok bool, err error) {
	return l.wait(l.Copied, l.CopiedWith, modules, limits, lookup)
}

func (l Language) wait(args, with, modules []string, limits sandbox.Limits, lookup Lookup) (w Wait, ok bool, err error) {
	if args == nil {
		return w, false, nil
	}
	words, err := l.words(lookup)
	if err != nil {
		return w, false, err
	}
	files, err := l.supportFiles(slices.Concat(l.Support, with, l.Harness.Files, l.Harness.Limiter))
	if err != nil {
		return w, false, sandbox.Errorf(sandbox.CodeInternal, "support files of %s: %w", l.Name, err)
	}
	step := l.step(args, nil, words, limits.WithDefaults())
	return Wait{Args: step.Args, Env: step.Env, Modules: modules, Files: files, Dir: l.at().Support()}, true, nil
}

// VersionStep says how to ask for the version, like Plan. ok is false when the
// language has no version or the template lacks it.
func (l Language) VersionStep(lookup Lookup) (step Step, stdin string, ok bool) {
	words, err := l.words(lookup)
	if err != nil || l.Version.Args == nil {
		return Step{}, "", false
	}
	return l.step(l.Version.Args, nil, words, sandbox.DefaultLimits()), l.Version.Stdin, true
}

// words returns what the words in braces stand for, as far as the template
// decides it.
func (l Language) words(lookup Lookup) (map[string]string, error) {
	words := map[string]string{"out": l.at().program(), "support": l.at().Support(), "tmp": l.at().Tmp}
	for _, p := range l.Programs {
		found, ok := lookup(p.Candidates)
		if !ok {
			return nil, missing(l, l.Missing(lookup))
		}
		words[p.Candidates[0]] = found
	}
	return words, nil
}

func missing(l Language, programs []Program) *sandbox.Error {
	var names, packages []string
	for _, p := range programs {
		names = append(names, strings.Join(p.Candidates, " or "))
		packages = append(packages, p.Package)
	}
	slices.Sort(packages)
	return &sandbox.Error{
		Code: sandbox.CodeLanguageMissing, Field: "language",
		Message: fmt.Sprintf("%s is not in the template: it needs %s", l.Title, strings.Join(names, " and ")),
		Hint:    "apt-get install " + strings.Join(slices.Compact(packages), " "),
	}
}

// step fills in one step's arguments and environment.
func (l Language) step(template, args []string, words map[string]string, limits sandbox.Limits) Step {
	pairs := []string{
		"{cpus}", strconv.Itoa(max(1, int(math.Ceil(limits.CPUs)))),
		"{heap_mib}", strconv.FormatInt(max(1, limits.MemoryBytes>>20*3/4), 10),
	}
	for k, v := range words {
		pairs = append(pairs, "{"+k+"}", v)
	}
	fill := strings.NewReplacer(pairs...)
	step := Step{Limits: limits}
	for _, a := range template {
		if a == "{args}" {
			step.Args = append(step.Args, args...)
			continue
		}
		step.Args = append(step.Args, fill.Replace(a))
	}
	step.Env = BaseEnv(l.at())
	for _, kv := range l.Env {
		step.Env = append(step.Env, fill.Replace(kv))
	}
	slices.Sort(step.Env)
	return step
}

// notAnOption keeps a file name that begins like an option ("-c") or a list of
// arguments ("@x") from being read as one.
func notAnOption(file string) string {
	if strings.HasPrefix(file, "-") || strings.HasPrefix(file, "@") {
		return "./" + file
	}
	return file
}

// CompileStep are the limits of the compile step of a run with these limits.
func (l Language) CompileStep(limits sandbox.Limits) sandbox.Limits {
	return overlay(limits, l.CompileLimits)
}

// overlay returns limits with every field that over sets.
func overlay(limits, over sandbox.Limits) sandbox.Limits {
	for _, info := range sandbox.LimitTable() {
		if v := over.Get(info.Field); v != 0 {
			limits.Set(info.Field, v)
		}
	}
	if over.CPUs != 0 {
		limits.CPUs = over.CPUs
	}
	return limits
}
