//go:build !lean

package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pinfold/internal/template"
	"pinfold/sandbox"
)

func (a *app) templateListCommand() *cobra.Command {
	f := &templateFlags{}
	cmd := &cobra.Command{
		Use: "list [flags]", Aliases: []string{"ls"}, Short: "List the templates", Args: noArgs, Example: "  pinfold template list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.templates(cmd.Context(), func(ctx context.Context, s *template.Store) error {
				all, err := s.List(ctx)
				if err != nil {
					return err
				}
				if f.json {
					return writeList(a, "templates", all)
				}
				t := newTable("TEMPLATE", "IMAGE", "SIZE", "LAYERS", "ADDED", "FROM")
				for _, e := range all {
					t.row(e.Name, e.Image.ID.Hex()[:12], megabytes(e.Image.Bytes()), strconv.Itoa(len(e.Image.Layers)), since(e.Added), cmp.Or(e.From.Reference, e.From.Kind))
				}
				return a.writeTable(t, false)
			})
		},
	}
	f.bind(cmd.Flags())
	return cmd
}

// megabytes is a size for people.
func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// shownTemplate is what "template show --json" prints.
type shownTemplate struct {
	template.Template

	Account *template.Account `json:"account"` // null when the image's user is not in it
	Bytes   int64             `json:"bytes"`   // of all files
}

func (a *app) templateShowCommand() *cobra.Command {
	f := &templateFlags{}
	cmd := &cobra.Command{
		Use: "show [flags] NAME", Short: "Say what is known of a template", Args: needArgs(1, 1, "the name of a template"), Example: "  pinfold template show python",
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.templates(cmd.Context(), func(_ context.Context, s *template.Store) error {
				u, err := s.Use(args[0])
				if err != nil {
					return err
				}
				defer u.Close()
				shown := shownTemplate{Template: u.Template, Bytes: u.Template.Image.Bytes()}
				account, accountErr := u.Account()
				if accountErr == nil {
					shown.Account = &account
				}
				if f.json {
					return a.writeJSON(shown)
				}
				return a.writeTable(showTable(shown, accountErr), false)
			})
		},
	}
	f.bind(cmd.Flags())
	return cmd
}

func showTable(s shownTemplate, accountErr error) *table {
	image := s.Image
	var user string
	if accountErr != nil {
		user = sandbox.AsError(accountErr).Message
	} else {
		user = fmt.Sprintf("%s, uid %d, gid %d, home %s", cmp.Or(s.Account.Name, "without a name"), s.Account.UID, s.Account.GID, s.Account.Home)
	}
	t := newTable("NAME", s.Name)
	t.row("image", string(image.ID))
	t.row("architecture", image.Architecture)
	t.row("size", megabytes(s.Bytes)+" in "+strconv.Itoa(len(image.Layers))+" layers")
	t.row("from", strings.TrimSpace(s.From.Kind+" "+s.From.Reference))
	t.row("digest", s.From.Digest)
	for _, kind := range sandbox.PackageKinds() {
		for _, p := range s.From.Packages.Of(kind) {
			t.row("package", kind+":"+p)
		}
	}
	t.row("added", s.Added.Format(time.RFC3339))
	t.row("user", user)
	t.row("directory", cmp.Or(image.Config.WorkingDir, "/"))
	if s := image.Config.Start; s.Command != "" {
		t.row("start", s.Command)
		t.row("ready", s.Ready)
	}
	for _, kv := range image.Config.Env {
		t.row("environment", kv)
	}
	return t
}

func (a *app) templateCheckCommand() *cobra.Command {
	f := &templateFlags{}
	cmd := &cobra.Command{
		Use: "check [flags] NAME", Short: "Read every byte of a template: is it as it was unpacked?", Args: needArgs(1, 1, "the name of a template"), Example: "  pinfold template check python",
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.templates(cmd.Context(), func(ctx context.Context, s *template.Store) error {
				p := a.progress()
				found, err := s.Check(ctx, args[0], p.show)
				p.end()
				if err != nil {
					return err
				}
				text := "whole"
				if len(found) > 0 {
					a.exit = 1
					text = strings.Join(found, "\n")
				}
				return a.writeLine(f.json, map[string]any{"whole": len(found) == 0, "findings": append([]string{}, found...)}, text)
			})
		},
	}
	f.bind(cmd.Flags())
	return cmd
}

func (a *app) templateRemoveCommand() *cobra.Command {
	f := &templateFlags{}
	cmd := &cobra.Command{
		Use: "remove [flags] NAME...", Aliases: []string{"rm"}, Short: "Remove templates; one that is in use is gone from the disk when it is not",
		Args: needArgs(1, -1, "names of templates"), Example: "  pinfold template remove python",
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.templates(cmd.Context(), func(ctx context.Context, s *template.Store) error {
				for _, name := range args {
					err := s.Remove(ctx, name)
					if e := sandbox.AsError(err); e != nil && e.Code == sandbox.CodeTemplateUnknown {
						err = e.WithHint("pinfold template list lists those that can be removed")
					}
					if err != nil {
						return err
					}
				}
				if f.json {
					return a.writeJSON(map[string][]string{"removed": args})
				}
				return nil
			})
		},
	}
	f.bind(cmd.Flags())
	return cmd
}

// progress shows on a terminal how far something has come, and nothing elsewhere.
type progress struct {
	app   *app
	begun time.Time
	shown time.Time
	wide  bool // something stands on the line
}

func (a *app) progress() *progress { return &progress{app: a, begun: time.Now()} }

// begin says on stderr what takes long, also where that is no terminal.
func (a *app) begin(format string, args ...any) *progress {
	a.say("%s", sandbox.SafeText(fmt.Sprintf(format, args...), maxMessage))
	return a.progress()
}

// done says what became of a template, unless there is an error, which says it.
func (p *progress) done(t template.Template, what string, err error) error {
	p.end()
	if err == nil {
		layers := "layers"
		if len(t.Image.Layers) == 1 {
			layers = "layer"
		}
		p.app.say("%s %s: %s in %d %s, after %s", sandbox.SafeText(t.Name, maxMessage), what, megabytes(t.Image.Bytes()), len(t.Image.Layers), layers, time.Since(p.begun).Round(100*time.Millisecond))
	}
	return err
}

const progressEvery = 100 * time.Millisecond

func (p *progress) show(e template.Event) {
	if time.Since(p.shown) < progressEvery || !isTerminal(p.app.Stderr) {
		return
	}
	p.shown, p.wide = time.Now(), true
	text := fmt.Sprintf("layer %d of %d: %s", e.Layer, e.Layers, megabytes(e.Bytes))
	if e.Size > 0 {
		text += " of " + megabytes(e.Size)
	}
	_, _ = fmt.Fprintf(p.app.Stderr, "\r%-60s", text)
}

// end clears the line.
func (p *progress) end() {
	if p.wide {
		_, _ = fmt.Fprintf(p.app.Stderr, "\r%-60s\r", "")
	}
}
