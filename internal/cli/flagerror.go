package cli

import (
	"cmp"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pinfold/internal/nearest"
	"pinfold/sandbox"
)

// flagError turns a complaint of the flag parser into an Error with a hint.
func (a *app) flagError(cmd *cobra.Command, err error) error {
	var e *sandbox.Error
	var invalid *pflag.InvalidValueError
	if errors.As(err, &e) && errors.As(err, &invalid) {
		c := *e
		c.Message = "--" + invalid.GetFlag().Name + ": " + e.Message
		return &c
	}
	var nothing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &nothing):
		return lacksValue(cmd, nothing.GetFlag())
	case errors.As(err, &invalid):
		return badValue(invalid.GetFlag(), invalid.GetValue(), err)
	}
	out := usageError("%s", sandbox.SafeText(err.Error(), maxMessage))
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) {
		return out
	}
	name := missing.GetSpecifiedName()
	out.Message = "no such flag: --" + sandbox.SafeText(name, 60)
	out.Hint = cmd.CommandPath() + " --help lists the flags"
	mine := ""
	if cmd.Name() == "run" {
		mine = sortWords(cmd.Flags(), a.Args).unknownHint()
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	near := ""
	if len(name) == 1 {
		out.Message = "no such flag: -" + sandbox.SafeText(name, 60)
	} else {
		near = nearest.Word(name, names)
	}
	switch {
	case near != "" && mine != "":
		out.Hint = "did you mean --" + near + "? The " + afterDashes
	case near != "":
		out.Hint = "did you mean --" + near + "?"
	case mine != "":
		out.Hint = afterDashes + ": " + mine
	}
	return out
}

// badValue says what a flag of one of Go's own types takes: what Go says of it names its
// functions.
func badValue(f *pflag.Flag, value string, err error) *sandbox.Error {
	shown := sandbox.SafeText(value, 40)
	switch f.Value.Type() {
	case "int":
		return usageError("--%s: \"%s\" is no whole number, or too large a one", f.Name, shown).WithHint("write digits only: --" + f.Name + " " + cmp.Or(strings.TrimPrefix(f.DefValue, "0"), "10"))
	case "bool":
		return usageError("--%s: \"%s\" is neither true nor false", f.Name, shown).WithHint("write --" + f.Name + " alone, or leave it out")
	case "duration":
		meant := "2h"
		if value != "" && strings.Trim(value, "0123456789") == "" { // its unit was forgotten
			meant = value + "m"
		}
		return usageError("--%s: \"%s\" is not a time", f.Name, shown).WithHint("write times as 30s, 10m or 2h: --" + f.Name + " " + sandbox.SafeText(meant, 40))
	}
	return usageError("%s", sandbox.SafeText(err.Error(), maxMessage))
}

// lacksValue is for a flag at the end of the line that takes a value.
func lacksValue(cmd *cobra.Command, f *pflag.Flag) *sandbox.Error {
	e := usageError("--%s lacks its value", f.Name)
	if limit, ok := f.Value.(limitValue); ok {
		return e.WithHint("--" + f.Name + " " + sandbox.FormatQuantity(sandbox.DefaultLimits().Get(limit.info.Field), limit.info.Unit) + " is the default")
	}
	placeholder := strings.ToUpper(f.Name)
	if p := f.Annotations[placeholderKey]; len(p) > 0 && p[0] != "" {
		placeholder = p[0]
	}
	return e.WithHint("write --" + f.Name + " " + placeholder + "; " + cmd.CommandPath() + " --help says more")
}
