package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionInfo is what "version --json" prints.
type versionInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"` // built from a tree with changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version [flags]",
		Short: "Print the version",
		Args:  noArgs,

		Annotations: map[string]string{localOnly: "true"},
		RunE: func(*cobra.Command, []string) error {
			v := a.versionInfo()
			return a.writeLine(asJSON, v, v.line())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// line is the version for people.
func (v versionInfo) line() string {
	line := "pinfold " + v.Version
	if v.Commit != "" {
		line += fmt.Sprintf(" (%.12s)", v.Commit)
	}
	return line + " " + v.Go + " " + v.Platform
}

func (a *app) versionInfo() versionInfo {
	v := versionInfo{Version: a.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// noArgs is the argument check of commands that take flags only.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError("%s takes no arguments", cmd.Name()).WithHint(cmd.CommandPath() + " --help")
}
