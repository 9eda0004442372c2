package cli

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"pinfold/sandbox"
)

// runFlags are the flags of "run" as they were given.
type runFlags struct {
	language, driver, isolation, template string
	profile, profiles                     string
	network                               sandbox.Network
	limits                                sandbox.Limits // zero: not given
	stdin                                 string
	env, metadata                         map[string]string
	files, mounts                         []string
	artifacts                             []string
	artifactsDir                          string
	require                               []string
	imports                               []string
	warm                                  []string
	packages                              sandbox.Packages
	cold, scan                            bool
	policy                                string
	spec                                  string
	json, base64, raw, verbose, detach    bool
	receipt                               string
	gate                                  []string
	outputSchema                          string
	validators                            []string
	contextBytes                          byteSize
}

// The groups under which help shows the flags of "run".
const (
	groupProgram   = "Program"
	groupLimits    = "Limits"
	groupFiles     = "Files"
	groupIsolation = "Isolation"
	groupOutput    = "Output"
	groupGate      = "Output gate"
)

// bind declares the flags.
func (f *runFlags) bind(set *pflag.FlagSet) {
	f.env, f.metadata = map[string]string{}, map[string]string{}

	set.StringVarP(&f.language, "language", "l", "", "the language (default from the #! line or the file name)")
	set.StringVar(&f.profile, "profile", "", "run it as this profile says, or narrower: a server's, or one of --profiles")
	set.StringVar(&f.profiles, "profiles", "", "without a server: the file that has profiles, as a server's configuration")
	set.StringVar(&f.stdin, "stdin", "", "the program's stdin (default ours when it is a pipe or a file)")
	set.VarP(pairs{f.env, "a variable"}, "env", "e", "set a variable; may be repeated")
	set.StringVar(&f.spec, "spec", "", "read the whole request, in JSON; other flags override it")
	set.StringSliceVar(&f.warm, "warm", nil, "modules that the interpreter shall have loaded already, where a server keeps such interpreters")
	set.BoolVar(&f.cold, "cold", false, "start the interpreter, or compile the program, for this run")
	set.BoolVar(&f.scan, "scan", false, "look at the program before it runs, and say what was seen (advice, not isolation)")
	bindPackages(set, &f.packages)
	set.StringArrayVar(&f.imports, "allow-import", nil, "let the program import this module and only those named (advice, not isolation); may be repeated")
	set.Var(pairs{f.metadata, "metadata"}, "metadata", "a note of yours on the run, to find it by; may be repeated")
	set.StringVar(&f.policy, "policy", "", "hold the run by the policy of this configuration, as a server would (docs/policy.md)")
	group(set, groupProgram, "language NAME", "profile NAME", "profiles FILE", "stdin FILE|-", "env K=V", "spec FILE|-", "warm MODULE,...", "cold", "scan", "policy FILE", packageFlag+" KIND:NAME=VERSION", "allow-import NAME", "metadata K=V")

	bindLimits(set, &f.limits, true)

	set.StringArrayVarP(&f.files, "file", "f", nil, "copy a file or a directory in; may be repeated")
	set.StringArrayVar(&f.mounts, "mount", nil, "show a host directory inside (default ro); may be repeated; for root, one with :rw must not be root's own")
	set.StringArrayVarP(&f.artifacts, "artifact", "a", nil, "bring out the files that match, but no links, pipes and devices; may be repeated")
	set.StringVarP(&f.artifactsDir, "artifacts-dir", "o", "", "write artifacts here, replacing; without --artifact, every new file")
	group(set, groupFiles, "file HOST[:GUEST]", "mount HOST:GUEST[:ro|rw]", "artifact GLOB", "artifacts-dir DIR")

	bindIsolation(set, &f.driver, &f.isolation, &f.template, &f.network, &f.require)

	set.BoolVar(&f.json, "json", false, "print one JSON result and nothing else")
	set.BoolVar(&f.base64, "base64", false, "with --json, the exact bytes of the output as well")
	set.BoolVar(&f.raw, "raw", false, "do not escape control characters on a terminal")
	set.BoolVarP(&f.verbose, "verbose", "v", false, "say on stderr what was used and what was not enforced")
	set.BoolVarP(&f.detach, "detach", "d", false, "on a server: print the run's id and leave; pinfold result prints what came of it")
	set.StringVar(&f.receipt, "receipt", "", "on a server with an audit log: write the run's receipt to this file")
	group(set, groupOutput, "json", "base64", "raw", "verbose", "detach", "receipt FILE")

	set.StringArrayVar(&f.gate, "gate", nil, gateUsage)
	set.StringVar(&f.outputSchema, schemaFlag, "", "withhold stdout that does not match the JSON Schema in this file")
	set.Var(&f.contextBytes, "context", "print at most so much of stdout and of stderr: their beginnings and their ends")
	set.StringArrayVar(&f.validators, validatorFlag, nil, "withhold output that the program in this file, in a sandbox of its own, does not let pass; may be repeated")
	group(set, groupGate, "gate CHECK=ACTION|FILE", schemaFlag+" FILE", validatorFlag+" FILE", "context SIZE")
}

// Annotations of flags for help.
const (
	groupKey       = "pinfold_group"
	placeholderKey = "pinfold_placeholder"
)

// group puts flags, each "name" or "name PLACEHOLDER", into a group of help.
// The flags exist: they were just declared.
func group(set *pflag.FlagSet, name string, flags ...string) {
	for _, f := range flags {
		flag, placeholder, _ := strings.Cut(f, " ")
		err := errors.Join(
			set.SetAnnotation(flag, groupKey, []string{name}),
			set.SetAnnotation(flag, placeholderKey, []string{placeholder}))
		if err != nil {
			panic(err)
		}
	}
}

// override puts the flags that were given over the spec.
func (f *runFlags) override(spec *sandbox.Spec) {
	for _, s := range []struct {
		to   *string
		from string
	}{
		{&spec.Profile, f.profile},
		{&spec.Language, f.language},
		{&spec.Driver, f.driver},
		{&spec.Isolation, f.isolation},
		{&spec.Template, f.template},
	} {
		if s.from != "" {
			*s.to = s.from
		}
	}
	spec.Network = withFlags(spec.Network, f.network)
	for _, info := range sandbox.LimitTable() {
		if v := f.limits.Get(info.Field); v != 0 {
			spec.Limits.Set(info.Field, v)
		}
	}
	if f.limits.CPUs != 0 {
		spec.Limits.CPUs = f.limits.CPUs
	}
	spec.Env = merge(spec.Env, f.env)
	spec.Metadata = merge(spec.Metadata, f.metadata)
	spec.Artifacts = append(spec.Artifacts, f.artifacts...)
	spec.AllowedImports = append(spec.AllowedImports, f.imports...)
	spec.Warm = append(spec.Warm, f.warm...)
	spec.Packages.Python = append(spec.Packages.Python, f.packages.Python...)
	spec.Packages.NPM = append(spec.Packages.NPM, f.packages.NPM...)
	spec.Cold = spec.Cold || f.cold
	spec.Scan = spec.Scan || f.scan
	spec.OutputBase64 = spec.OutputBase64 || f.base64
	spec.Require = append(spec.Require, f.require...)
}

// merge returns base with over put over it.
func merge(base, over map[string]string) map[string]string {
	if len(base) == 0 {
		return over
	}
	maps.Copy(base, over)
	return base
}

// limitValue is the flag of one whole-number limit.
type limitValue struct {
	info sandbox.LimitInfo
	into *sandbox.Limits
}

func (v limitValue) Set(s string) error {
	n, err := v.parse(s)
	if err != nil {
		e := sandbox.AsError(err).WithField("limits." + v.info.Field)
		return e.WithHint(e.Hint + " (" + v.span() + ")")
	}
	if err := v.info.Check(n); err != nil {
		e := *sandbox.AsError(err)
		e.Message = sandbox.SafeText(strings.TrimSpace(s), 40) + " is outside " + v.span()
		if meant := v.meant(s, n); meant != "" {
			e.Hint = "a number alone is bytes; did you mean --" + v.info.Flag + " " + meant + "?"
		}
		return &e
	}
	v.into.Set(v.info.Field, n)
	return nil
}

// meant is a size that was probably meant by a number without a unit, which is too
// small, or "".
func (v limitValue) meant(text string, n int64) string {
	text = strings.TrimSpace(text)
	if v.info.Unit != sandbox.UnitBytes || strings.Trim(text, "0123456789") != "" || n < 1 || n >= v.info.Min {
		return ""
	}
	size, err := sandbox.ParseSize(text + "MiB")
	if err != nil || v.info.Check(size) != nil {
		return ""
	}
	return sandbox.FormatSize(size)
}

// span is the range, in the form that users type.
func (v limitValue) span() string {
	return sandbox.FormatQuantity(v.info.Min, v.info.Unit) + " to " + sandbox.FormatQuantity(v.info.Max, v.info.Unit)
}

func (v limitValue) parse(s string) (int64, error) {
	switch v.info.Unit {
	case sandbox.UnitBytes:
		return sandbox.ParseSize(s)
	case sandbox.UnitMilliseconds:
		return sandbox.ParseTime(s)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return n, nil // the nearest that there is, which is outside every range
	case err != nil:
		return 0, &sandbox.Error{
			Code: sandbox.CodeLimitInvalid, Message: fmt.Sprintf(`"%s" is not a whole number`, sandbox.SafeText(s, 40)),
			Hint: "write digits only, such as 64",
		}
	}
	return n, nil
}

// String is empty for a limit that was not given; help shows the default.
func (v limitValue) String() string {
	if v.into == nil || v.into.Get(v.info.Field) == 0 {
		return ""
	}
	return sandbox.FormatQuantity(v.into.Get(v.info.Field), v.info.Unit)
}

// Type is the placeholder in help.
func (v limitValue) Type() string {
	switch v.info.Unit {
	case sandbox.UnitBytes:
		return "SIZE"
	case sandbox.UnitMilliseconds:
		return "TIME"
	}
	return "N"
}

// cpusValue is the flag of limits.cpus.
type cpusValue struct{ into *sandbox.Limits }

func (v cpusValue) Set(s string) error {
	n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil {
		return &sandbox.Error{
			Code: sandbox.CodeLimitInvalid, Field: "limits.cpus",
			Message: fmt.Sprintf(`"%s" is not a number`, sandbox.SafeText(s, 40)),
			Hint:    fmt.Sprintf("write how many CPUs, such as 2 or 0.5 (%v to %v)", sandbox.MinCPUs, sandbox.MaxCPUs),
		}
	}
	if err := sandbox.CheckCPUs(n); err != nil {
		return err
	}
	v.into.CPUs = n
	return nil
}

func (v cpusValue) String() string {
	if v.into == nil || v.into.CPUs == 0 {
		return ""
	}
	return strconv.FormatFloat(v.into.CPUs, 'g', -1, 64)
}

func (v cpusValue) Type() string { return "N" }

// pairs is a flag K=V that may be repeated.
type pairs struct {
	into map[string]string
	what string
}

func (p pairs) Set(s string) error {
	k, v, ok := strings.Cut(s, "=")
	if !ok || k == "" {
		return usageError(`"%s" is not %s: write NAME=value`, sandbox.SafeText(s, 60), p.what)
	}
	p.into[k] = v
	return nil
}

func (p pairs) String() string { return "" }
func (p pairs) Type() string   { return "K=V" }
