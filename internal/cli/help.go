package cli

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pinfold/sandbox"
)

// help prints what a command does, its examples first and its flags in groups.
func (a *app) help(cmd *cobra.Command, _ []string) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s.\n\nUsage:\n  %s\n", cmd.Short, usageLine(cmd))
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.Long != "" {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(cmd.Long))
	}
	writeCommands(&b, cmd)
	writeFlags(&b, cmd)
	var broken *brokenPipeError
	if err := a.write(b.Bytes()); err != nil && !errors.As(err, &broken) { // a closed pipe (| head) is no error here
		a.exit = a.fail(sandbox.AsError(err))
	}
}

// helpAbout is "help COMMAND".
func helpAbout(cmd *cobra.Command, args []string) error {
	about, rest, err := cmd.Root().Find(args)
	if err != nil {
		return err
	}
	if about.HasAvailableSubCommands() {
		if err := unknownCommand(about, rest); err != nil {
			return err
		}
	}
	about.InitDefaultHelpFlag()
	return about.Help()
}

func usageLine(cmd *cobra.Command) string {
	switch {
	case !cmd.HasAvailableSubCommands():
		return cmd.UseLine() // with "[flags]"
	case doesSomething(cmd):
		return cmd.UseLine() + "\n  " + cmd.CommandPath() + " COMMAND"
	}
	return cmd.CommandPath() + " COMMAND"
}

// doesSomething says whether a command does something by itself, without any of those
// below it.
func doesSomething(cmd *cobra.Command) bool {
	return !cmd.HasAvailableSubCommands() || strings.Contains(cmd.Use, " ")
}

func writeCommands(b *bytes.Buffer, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	b.WriteString("\nCommands:\n")
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			fmt.Fprintf(b, "  %-12s %s\n", c.Name(), c.Short)
		}
	}
	fmt.Fprintf(b, "\nMore about one command: %s COMMAND --help\n", cmd.CommandPath())
}

// writeFlags prints the flags by group, in the order in which they were
// declared; flags without a group come last.
func writeFlags(b *bytes.Buffer, cmd *cobra.Command) {
	const rest = "Flags"
	lines, order := map[string][]string{}, []string{}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.VisitAll(func(f *pflag.Flag) {
		name := rest
		if g := f.Annotations[groupKey]; len(g) > 0 {
			name = g[0]
		}
		if f.Hidden || name == groupServer && (cmd.Annotations[localOnly] != "" || !doesSomething(cmd)) {
			return
		}
		if _, known := lines[name]; !known && name != rest {
			order = append(order, name)
		}
		lines[name] = append(lines[name], flagLine(f))
	})
	order = slices.DeleteFunc(order, func(name string) bool { return name == groupServer })
	for _, name := range append(order, rest, groupServer) {
		if len(lines[name]) > 0 {
			fmt.Fprintf(b, "\n%s:\n%s", name, strings.Join(lines[name], ""))
		}
	}
}

func flagLine(f *pflag.Flag) string {
	left := "      --" + f.Name
	if f.Shorthand != "" {
		left = "  -" + f.Shorthand + ", --" + f.Name
	}
	if p := f.Annotations[placeholderKey]; len(p) > 0 && p[0] != "" {
		left += " " + p[0]
	}
	return fmt.Sprintf("%-34s %s\n", left, f.Usage+defaultText(f))
}

// defaultText is the default of a flag whose text does not say it already.
// Values of our own types say it, or have none.
func defaultText(f *pflag.Flag) string {
	def := strings.Trim(f.DefValue, "[]")
	switch f.Value.Type() {
	case "int", "string", "stringSlice":
		if def != "" && def != "0" && !strings.Contains(f.Usage, "(default ") {
			return " (default " + def + ")"
		}
	}
	return ""
}
