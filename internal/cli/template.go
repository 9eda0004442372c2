//go:build !lean

package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pinfold/internal/config/defaults"
	"pinfold/internal/hostfiles"
	"pinfold/internal/template"
	"pinfold/internal/template/engineimage"
	"pinfold/internal/template/registry"
)

const templateLong = `A template is what is inside a sandbox when it starts. These are made of images:
unpacked once, kept by their content, shared by all sandboxes that use them.

Pulling and importing go on where they stopped: layers that came whole are kept.
Nothing of an image is ever executed by these commands, but by build, which does so in a
sandbox. Run something in one with pinfold run --template NAME.

DIR is what the server was given as --state. Without it, that is $PINFOLD_STATE,
or /var/lib/pinfold for root and ~/.local/state/pinfold for others, where
pinfold run looks, too.`

const templateExamples = `  pinfold template pull python:3.13-slim
  pinfold template pull --docker my-app:latest      from the Docker of this machine
  pinfold template import --name base rootfs.tar.gz
  pinfold template build python                     of Debian's packages
  pinfold template list
  pinfold run --template base main.py
  pinfold template save python:3.13-slim > python.tar
  pinfold template load python.tar`

// templateFlags are the flags of the commands below "template".
type templateFlags struct {
	state, name, image, output string
	plainHTTP, docker, rootfs  bool
	json                       bool
}

func (a *app) templateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "template", Short: "Fetch, build, list and remove what can be inside a sandbox", Long: templateLong, Example: templateExamples,
		Args: unknownCommand, RunE: helpOnly,
	}
	cmd.AddCommand(a.templatePullCommand(), a.templateImportCommand(), a.templateBuildCommand(), a.templateListCommand(), a.templateShowCommand(),
		a.templateCheckCommand(), a.templateRemoveCommand(), a.templateSaveCommand(), a.templateLoadCommand())
	for _, c := range append(cmd.Commands(), cmd) {
		c.Annotations = map[string]string{localOnly: "true"}
	}
	return cmd
}

// bind declares the flags that every one of them has.
func (f *templateFlags) bind(set *pflag.FlagSet) {
	set.StringVar(&f.state, "state", "", "the server's state directory (default "+defaults.State()+")")
	group(set, "State", "state DIR")
	set.BoolVar(&f.json, "json", false, "print JSON")
}

// templates opens the store and gives it to do, whose context ends with Ctrl-C.
func (f *templateFlags) templates(ctx context.Context, do func(ctx context.Context, s *template.Store) error) error {
	if f.stateDir() == "" {
		return usageError("no directory for the state is known").WithHint("name one with --state DIR, or set HOME")
	}
	s, err := template.Open(f.imagesDir(), template.Limits{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer cancelOnSignal(cancel)()
	err = do(ctx, s)
	if toldToGo(ctx, err) {
		return cancelled()
	}
	return err
}

func (f *templateFlags) stateDir() string { return cmp.Or(f.state, defaults.State()) }

// imagesDir is the directory of the images.
func (f *templateFlags) imagesDir() string { return filepath.Join(f.stateDir(), "templates") }

func (a *app) templatePullCommand() *cobra.Command {
	f := &templateFlags{}
	cmd := &cobra.Command{
		Use: "pull [flags] IMAGE", Short: "Fetch an image from a registry, or from the Docker of this machine", Long: templateLong,
		Example: "  pinfold template pull python:3.13-slim\n  pinfold template pull ghcr.io/owner/app@sha256:DIGEST --name app\n  pinfold template pull --docker my-app",
		Args:    needArgs(1, 1, "the name of an image"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.templates(cmd.Context(), func(ctx context.Context, s *template.Store) error {
				name := cmp.Or(f.name, args[0])
				if err := template.CheckName(name); err != nil {
					return err
				}
				from := "its registry"
				if f.docker {
					from = "the container engine of this machine"
				}
				p := a.begin("fetch %s from %s", args[0], from)
				t, err := f.pull(ctx, s, args[0], name, p.show)
				if err = p.done(t, "is here", err); err != nil {
					return err
				}
				return a.writeLine(f.json, t, string(t.Image.ID))
			})
		},
	}
	set := cmd.Flags()
	f.bindName(set, "IMAGE")
	set.BoolVar(&f.docker, "docker", false, "take it from the Docker of this machine ($DOCKER_HOST)")
	set.BoolVar(&f.plainHTTP, "plain-http", false, "speak to the registry without TLS")
	group(set, "Template", "name NAME", "docker", "plain-http")
	f.bind(set)
	return cmd
}

func (f *templateFlags) bindName(set *pflag.FlagSet, usual string) {
	set.StringVar(&f.name, "name", "", "the template's name (default "+usual+")")
}

func (f *templateFlags) pull(ctx context.Context, s *template.Store, image, name string, progress func(template.Event)) (template.Template, error) {
	if f.docker {
		archive, err := engineimage.Save(ctx, engineimage.Host(), image)
		if err != nil {
			return template.Template{}, err
		}
		defer archive.Close() //nolint:errcheck // only read
		return s.Import(ctx, archive, template.Import{Name: name, Format: template.Images, Progress: progress})
	}
	c, err := registry.Image(ctx, image, registry.Options{PlainHTTP: f.plainHTTP})
	if err != nil {
		return template.Template{}, err
	}
	return s.Add(ctx, name, c, progress)
}

func (a *app) templateImportCommand() *cobra.Command {
	f := &templateFlags{}
	cmd := &cobra.Command{
		Use: "import [flags] FILE|DIR|-", Short: "Make a template of an archive: an OCI layout, what docker save writes, or a root file system", Long: templateLong,
		Example: "  pinfold template import --name base rootfs.tar.gz\n  docker export CONTAINER | pinfold template import --rootfs --name app -",
		Args:    needArgs(1, 1, "an archive, a directory, or -"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := f.name
			if name == "" && args[0] != fromStdin {
				name, _, _ = strings.Cut(filepath.Base(args[0]), ".")
			}
			return a.importTemplate(cmd.Context(), f, args[0], template.Import{Name: name, Reference: f.image})
		},
	}
	set := cmd.Flags()
	f.bindName(set, "FILE without what follows its first dot")
	set.StringVar(&f.image, "image", "", "which of several images of the archive")
	set.BoolVar(&f.rootfs, "rootfs", false, "it is a root file system: unpack it as it comes")
	group(set, "Template", "name NAME", "image IMAGE", "rootfs")
	f.bind(set)
	return cmd
}

func (a *app) templateLoadCommand() *cobra.Command {
	f := &templateFlags{}
	cmd := &cobra.Command{
		Use: "load [flags] FILE|-", Short: "Make a template of what \"template save\" or docker save wrote, under the name that it had", Long: templateLong,
		Example: "  pinfold template load python.tar\n  docker save my-app | pinfold template load -",
		Args:    needArgs(1, 1, "an archive, or -"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.importTemplate(cmd.Context(), f, args[0], template.Import{Name: f.name, Reference: f.image, Format: template.Images})
		},
	}
	set := cmd.Flags()
	f.bindName(set, "the one in the archive")
	set.StringVar(&f.image, "image", "", "which of several images of the archive")
	group(set, "Template", "name NAME", "image IMAGE")
	f.bind(set)
	return cmd
}

// importTemplate imports from a file, a directory or stdin.
func (a *app) importTemplate(ctx context.Context, f *templateFlags, from string, o template.Import) error {
	if f.rootfs {
		o.Format = template.Root
	}
	return f.templates(ctx, func(ctx context.Context, s *template.Store) error {
		p := a.begin("unpack %s", map[bool]string{true: "what comes", false: from}[from == fromStdin])
		o.Progress = p.show
		t, err := a.importFrom(ctx, s, from, o)
		if err = p.done(t, "is here", err); err != nil {
			return err
		}
		return a.writeLine(f.json, t, string(t.Image.ID))
	})
}

func (a *app) importFrom(ctx context.Context, s *template.Store, from string, o template.Import) (template.Template, error) {
	if from == fromStdin {
		return s.Import(ctx, a.Stdin, o)
	}
	info, err := os.Stat(from)
	switch {
	case err != nil:
		return template.Template{}, hostfiles.OpenError(from, err)
	case info.IsDir():
		return s.ImportDir(ctx, from, o)
	}
	file, err := hostfiles.Open(from)
	if err != nil {
		return template.Template{}, err
	}
	defer file.Close() //nolint:errcheck // only read
	return s.Import(ctx, file, o)
}

func (a *app) templateSaveCommand() *cobra.Command {
	f := &templateFlags{}
	cmd := &cobra.Command{
		Use: "save [flags] NAME", Short: "Write a template as a tar that holds an OCI layout, the same each time", Long: templateLong,
		Example: "  pinfold template save python > python.tar\n  pinfold template save --output python.tar python",
		Args:    needArgs(1, 1, "the name of a template"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.output == "" && isTerminal(a.Stdout) {
				return usageError("an archive is nothing for a terminal").WithHint("name a file with --output FILE, or write > FILE")
			}
			return f.templates(cmd.Context(), func(ctx context.Context, s *template.Store) error {
				return f.save(a.Stdout, func(w io.Writer) error { return s.Save(ctx, args[0], w) })
			})
		},
	}
	set := cmd.Flags()
	set.StringVarP(&f.output, "output", "o", "", "write a file instead of stdout")
	group(set, groupOutput, "output FILE")
	set.StringVar(&f.state, "state", "", "the server's state directory (default "+defaults.State()+")")
	group(set, "State", "state DIR")
	return cmd
}

// save writes to stdout or to the file that was named, which takes its name only when it
// is whole.
func (f *templateFlags) save(stdout *os.File, write func(io.Writer) error) error {
	if f.output == "" {
		defer catchBrokenPipe()()
		return write(stdout)
	}
	there, err := hostfiles.OpenDestination(f.output)
	if err != nil {
		return prefixed("--output", err)
	}
	if there.Special != nil {
		return errors.Join(write(there.Special), there.Special.Close())
	}
	file, err := os.CreateTemp(filepath.Dir(there.Path), ".pinfold-*")
	if err != nil {
		return cannotWrite("--output", err)
	}
	defer os.Remove(file.Name()) //nolint:errcheck // it is gone when all went well
	if err := write(file); err != nil {
		_ = file.Close()
		return err
	}
	if err = errors.Join(file.Chmod(cmp.Or(there.Mode, 0o644)), file.Close()); err == nil {
		err = os.Rename(file.Name(), there.Path)
	}
	if err != nil {
		return cannotWrite("--output", err)
	}
	return nil
}
