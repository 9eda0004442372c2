package cli

import (
	"github.com/spf13/cobra"

	"pinfold/sandbox"
)

// completeRunFlags tells shells what the flags of "run" take. Flags that are
// not named here take anything, or a file name.
func completeRunFlags(cmd *cobra.Command) {
	choices := map[string]func() []string{
		"language": languageNames,
		"driver":   func() []string { return []string{sandbox.DriverAuto, "native"} },
		"template": func() []string { return []string{sandbox.TemplateHost} },
		"network":  func() []string { return []string{sandbox.NetworkNone} },
		"require":  featureNames,
	}
	for flag, values := range choices {
		complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return values(), cobra.ShellCompDirectiveNoFileComp
		}
		if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
			panic(err) // bind declares every one of them
		}
	}
	for _, flag := range []string{"file", "spec", "stdin", "mount"} {
		if err := cmd.MarkFlagFilename(flag); err != nil {
			panic(err)
		}
	}
	if err := cmd.MarkFlagDirname("artifacts-dir"); err != nil {
		panic(err)
	}
}

func featureNames() []string {
	var names []string
	for _, f := range sandbox.Features() {
		names = append(names, f.Name+"\t"+f.Meaning)
	}
	return names
}
