//go:build !lean

package cli

import (
	"cmp"
	"context"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"pinfold/internal/config/defaults"
	"pinfold/internal/hostfiles"
	"pinfold/internal/packages"
	"pinfold/sandbox"
)

const packagesLong = `Packages for machines that reach no index: bundle installs them in a sandbox, as a
run that names them does, and writes them to a file; load takes them in on another machine
with the same interpreter, for every tenant. A run that names any of them gets them
there. Nothing of a package is executed by these commands outside of a sandbox.

DIR is what the server was given as --state. Without it, that is $PINFOLD_STATE,
or /var/lib/pinfold for root and ~/.local/state/pinfold for others, where
pinfold run looks, too.`

const packagesExamples = `  export PINFOLD_PYTHON_INDEX='https://pypi.org/simple/ files.pythonhosted.org'
  pinfold packages bundle -o rich.tar python:rich==13.9.4
  pinfold packages load rich.tar                        on the other machine
  pinfold run --package python:rich==13.9.4 main.py
  pinfold packages list
  pinfold packages remove 1f0c2a3b4d5e`

// packagesFlags are the flags of the commands below "packages".
type packagesFlags struct {
	templateFlags

	template string
}

func (a *app) packagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "packages", Short: "Carry packages to machines that reach no index", Long: packagesLong, Example: packagesExamples,
		Args: unknownCommand, RunE: helpOnly,
	}
	cmd.AddCommand(a.packagesBundleCommand(), a.packagesLoadCommand(), a.packagesListCommand(), a.packagesRemoveCommand())
	for _, c := range append(cmd.Commands(), cmd) {
		c.Annotations = map[string]string{localOnly: "true"}
	}
	return cmd
}

// store is that of the state directory, which is never asked to fetch.
func (f *packagesFlags) store() (*packages.Store, error) {
	if f.stateDir() == "" {
		return nil, usageError("no directory for the state is known").WithHint("name one with --state DIR, or set HOME")
	}
	return packages.New(packages.Options{Dir: filepath.Join(f.stateDir(), packages.DirName)}), nil
}

func (a *app) packagesBundleCommand() *cobra.Command {
	f := &packagesFlags{}
	cmd := &cobra.Command{
		Use: "bundle [flags] KIND:NAME=VERSION...", Short: "Install packages of the indexes in the environment, and write them to a file", Long: packagesLong,
		Example: "  pinfold packages bundle -o data.tar python:pandas==2.2.3 python:rich==13.9.4",
		Args:    needArgs(1, 2*sandbox.MaxPackages, "packages, such as python:rich==13.9.4"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var wanted sandbox.Packages
			for _, text := range args {
				if err := (packageList{&wanted}).Set(text); err != nil {
					return err
				}
			}
			if _, err := wanted.Canonical(); err != nil {
				return err
			}
			if f.output == "" && isTerminal(a.Stdout) {
				return usageError("an archive is nothing for a terminal").WithHint("name a file with --output FILE, or write > FILE")
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			defer cancelOnSignal(cancel)()
			in := sandbox.Spec{Template: f.template}.WithDefaults().Machine()
			var all []packages.Loaded
			err := f.save(a.Stdout, func(w io.Writer) (err error) {
				all, err = a.Whole.Bundle(ctx, wanted, in, w)
				return err
			})
			if toldToGo(ctx, err) {
				return cancelled()
			}
			if err == nil && f.output != "" {
				err = a.writePackages(f.json, all)
			}
			return err
		},
	}
	set := cmd.Flags()
	set.StringVarP(&f.output, "output", "o", "", "write a file instead of stdout, and say what is in it")
	set.BoolVar(&f.json, "json", false, "say it as JSON")
	group(set, groupOutput, "output FILE", "json")
	set.StringVar(&f.template, "template", "", "the template whose sandboxes are to have them (default host)")
	group(set, "Template", "template NAME")
	return cmd
}

func (a *app) packagesLoadCommand() *cobra.Command {
	f := &packagesFlags{}
	cmd := &cobra.Command{
		Use: "load [flags] FILE|-", Short: "Take in what \"packages bundle\" wrote, for every tenant", Long: packagesLong,
		Example: "  pinfold packages load data.tar\n  pinfold packages load --state /var/lib/pinfold - <data.tar",
		Args:    needArgs(1, 1, "a bundle, or -"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.store()
			if err != nil {
				return err
			}
			from := io.Reader(a.Stdin)
			if args[0] != fromStdin {
				file, err := hostfiles.Open(args[0])
				if err != nil {
					return err
				}
				defer file.Close() //nolint:errcheck // only read
				from = file
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			defer cancelOnSignal(cancel)()
			all, err := s.Load(ctx, from)
			if toldToGo(ctx, err) {
				return cancelled()
			}
			if err != nil {
				return err
			}
			return a.writePackages(f.json, all)
		},
	}
	f.bind(cmd.Flags())
	return cmd
}

func (a *app) packagesListCommand() *cobra.Command {
	f := &packagesFlags{}
	cmd := &cobra.Command{
		Use: "list [flags]", Aliases: []string{"ls"}, Short: "List the packages that were loaded", Long: packagesLong, Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := f.store()
			if err != nil {
				return err
			}
			return a.writePackages(f.json, s.Loaded())
		},
	}
	f.bind(cmd.Flags())
	return cmd
}

func (a *app) packagesRemoveCommand() *cobra.Command {
	f := &packagesFlags{}
	cmd := &cobra.Command{
		Use: "remove [flags] ID...", Aliases: []string{"rm"}, Short: "Remove packages that were loaded", Long: packagesLong,
		Args: needArgs(1, sandbox.MaxPackages, "an id, as list says it"),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := f.store()
			for _, id := range args {
				if err == nil {
					err = s.Unload(id)
				}
			}
			return err
		},
	}
	set := cmd.Flags()
	set.StringVar(&f.state, "state", "", "the server's state directory (default "+defaults.State()+")")
	group(set, "State", "state DIR")
	return cmd
}

// writePackages says what is in a bundle, or was loaded.
func (a *app) writePackages(asJSON bool, all []packages.Loaded) error {
	if asJSON {
		return a.writeJSON(all)
	}
	t := newTable("ID", "KIND", "FOR", "SIZE", "PACKAGES")
	for _, one := range all {
		names := make([]string, 0, len(one.Packages))
		for _, p := range one.Packages {
			name, _, _ := strings.Cut(p, " ")
			names = append(names, name)
		}
		t.row(one.ID, one.Kind, cmp.Or(one.Platform, "-"), size(one.Bytes), strings.Join(names, " "))
	}
	return a.writeTable(t, false)
}
