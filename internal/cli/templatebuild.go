//go:build !lean

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pinfold/internal/hostfiles"
	"pinfold/internal/template"
	"pinfold/internal/template/build"
	"pinfold/sandbox"
)

const buildLong = `Make a template of a declaration, a file in YAML or JSON:

  name: data
  base: {debian: {suite: bookworm, packages: [python3-pip, python3-numpy]}}    # or the name of a template
  packages: {python: ["rich==13.9.4", wheels/tool-1.0-py3-none-any.whl]}    # and npm: ["left-pad@1.3.0", x.tgz], debian: [y.deb]
  files: [{path: /etc/tool.conf, content: "level = 3\n"}, {path: /opt/app, from: app}]
  env: {TOOL_CONFIG: /etc/tool.conf}
  run: ["python3 -m tool --self-test"]

Files are named relative to the declaration and lie beside it. Packages by name are fetched
first, of the indexes in PINFOLD_PYTHON_INDEX and PINFOLD_NPM_INDEX (docs/packages.md).
Those in files are installed and commands run in a sandbox, without a network; they can write to /usr/local, /opt, /srv and
what "writable" names. The same declaration over the same files gives the same image, and
a second build takes it. docs/templates.md says the rest.

Two declarations are part of Pinfold: python and node. Write ./python for a file.`

const buildExamples = `  pinfold template build python              numpy, pandas, matplotlib and more, as Debian has them
  pinfold template build app/template.yaml
  pinfold template build --fresh python      with the packages that Debian has today
  pinfold run --template python main.py`

// buildFlags are those of "template build".
type buildFlags struct {
	templateFlags

	fresh, verbose bool
}

func (a *app) templateBuildCommand() *cobra.Command {
	f := &buildFlags{}
	cmd := &cobra.Command{
		Use: "build [flags] FILE|NAME|-", Short: "Make a template of a declaration: a base, packages, files, commands", Long: buildLong, Example: buildExamples,
		Args: needArgs(1, 1, "a declaration, the name of one that Pinfold has, or -"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.buildTemplate(cmd.Context(), f, args[0]) },
	}
	set := cmd.Flags()
	f.bindName(set, "the declaration's")
	set.BoolVar(&f.fresh, "fresh", false, "take nothing from earlier builds: fetch Debian's packages anew")
	set.BoolVarP(&f.verbose, "verbose", "v", false, "write what the steps print to stderr")
	group(set, "Template", "name NAME", "fresh", "verbose")
	f.bind(set)
	return cmd
}

func (a *app) buildTemplate(ctx context.Context, f *buildFlags, from string) error {
	text, dir, err := a.declaration(from)
	if err != nil {
		return err
	}
	d, err := build.Parse(text)
	if err != nil {
		return err
	}
	return f.templates(ctx, func(ctx context.Context, s *template.Store) error {
		boxes, done, err := a.Whole.Sandboxes(ctx, f.imagesDir())
		if err != nil {
			return err
		}
		p := &buildProgress{progress: a.begin("build the template %s", cmp.Or(f.name, d.Name, from)), verbose: f.verbose}
		r, err := build.Build(ctx, s, boxes, d, build.Options{Name: f.name, Dir: dir, Fresh: f.fresh, Progress: p.show})
		what := "is built"
		if r.Cached {
			what = "is an earlier build's"
		}
		if err = p.done(r.Template, what, errors.Join(err, done())); err != nil {
			return err
		}
		return a.writeLine(f.json, r, string(r.Image.ID))
	})
}

// declaration reads the declaration, and says where the files are that it names.
func (a *app) declaration(from string) (text []byte, dir string, err error) {
	if text, ok := build.Shipped(from); ok {
		return text, "", nil
	}
	var r io.Reader = a.Stdin
	if from != fromStdin {
		file, err := hostfiles.Open(from)
		if err != nil {
			if e := sandbox.AsError(err); e.Code == sandbox.CodeFileNotFound && !strings.ContainsAny(from, "./") {
				return nil, "", e.WithHint("name a file, or one of those that Pinfold has: " + strings.Join(build.ShippedNames(), ", "))
			}
			return nil, "", err
		}
		defer file.Close() //nolint:errcheck // only read
		r, dir = file, filepath.Dir(from)
	}
	text, err = io.ReadAll(io.LimitReader(r, build.MaxDeclaration+1))
	if err != nil {
		return nil, "", hostfiles.OpenError(from, err)
	}
	return text, dir, nil
}

// buildProgress shows on a terminal which step a build is at, and what its steps print
// if that is asked for.
type buildProgress struct {
	*progress

	verbose bool
}

func (p *buildProgress) show(e sandbox.BuildEvent) {
	terminal := isTerminal(p.app.Stderr)
	switch {
	case e.Output != "":
		if p.verbose {
			p.end()
			_, _ = io.WriteString(&visible{w: p.app.Stderr}, e.Output)
		}
	case e.Says != "" && (terminal || p.verbose):
		p.end()
		_, _ = fmt.Fprintf(p.app.Stderr, "step %d of %d: %s\n", e.Number, e.Of, e.Says)
	case e.Bytes > 0 && terminal && time.Since(p.shown) >= progressEvery:
		p.shown, p.wide = time.Now(), true
		_, _ = fmt.Fprintf(p.app.Stderr, "\r%-60s", "keeping "+megabytes(e.Bytes))
	}
}
