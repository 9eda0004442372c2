//go:build !lean

package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"pinfold/client"
	"pinfold/internal/audit"
	"pinfold/internal/profile"
	"pinfold/sandbox"
)

const manifestLong = `Prints the profiles that a server has for your key, each as a tool: what it takes
and gives, and the most that it can touch and cost. With --form they are what
OpenAI's and Anthropic's APIs and MCP take; .manifest.tools is the list.

With --profiles FILE it shows those of a file, as a server that has it as its
configuration would, but for the signature.`

const manifestExamples = `  pinfold manifest >tools.json
  pinfold manifest --form openai | jq .manifest.tools
  pinfold manifest verify tools.json --key key.pub`

// maxManifest bounds a manifest, in bytes.
const maxManifest = 16 << 20

func (a *app) manifestCommand() *cobra.Command {
	var form, file string
	cmd := &cobra.Command{
		Use: "manifest [flags]", Short: "Show profiles as tools, with their limits", Long: manifestLong, Example: manifestExamples, Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.manifest(cmd.Context(), form, file) },
	}
	set := cmd.Flags()
	set.StringVar(&form, "form", sandbox.FormPinfold, "of the tools: "+strings.Join(sandbox.ManifestForms(), ", "))
	set.StringVar(&file, "profiles", "", "show those of this file")
	group(set, "Manifest", "form FORM", "profiles FILE")
	completeChoices(cmd, map[string]func() []string{"form": sandbox.ManifestForms})
	cmd.AddCommand(a.manifestVerifyCommand())
	return cmd
}

func (a *app) manifest(ctx context.Context, form, file string) error {
	if file == "" {
		return a.with(ctx, func(ctx context.Context, c *client.Client) error {
			m, err := c.Manifest(ctx, form)
			if err != nil {
				return err
			}
			return a.writeJSON(m)
		})
	}
	set, err := readProfiles(file)
	if err != nil {
		return err
	}
	m, err := profile.Manifest(form, set.Tools(profile.Anyone, nil, func(string) string { return "" }))
	if err != nil {
		return err
	}
	signed, err := profile.Seal(m, nil)
	if err != nil {
		return err
	}
	return a.writeJSON(signed)
}

func (a *app) manifestVerifyCommand() *cobra.Command {
	var key string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "verify FILE|- --key KEY|FILE", Short: "Check that a manifest is what a server has signed, offline", Args: needArgs(1, 1, "a manifest"),
		Long: `Checks the signature of a manifest, and in Pinfold's form that each digest is of
the profile beside it. KEY is the server's public key or a file with it:
manifest/key.pub in the server's state directory. Get it from whoever runs the
server, not with the manifest.

Exit status: 0 when it is what was signed, otherwise 125.`,
		Example: "  pinfold manifest verify tools.json --key key.pub",
		RunE: func(_ *cobra.Command, args []string) error {
			const where = "it is the file manifest/key.pub in the server's state directory; add --key key.pub"
			if key == "" {
				return usageError("--key is missing: without the server's public key nothing is proved").WithHint(where)
			}
			public, err := a.auditKey(key)
			if e := sandbox.AsError(err); e != nil && e.Field == "key" {
				return usageError("--key: this is no public key").WithHint(where)
			}
			if err != nil {
				return err
			}
			data, err := a.readBounded(args[0], maxManifest)
			if err != nil {
				return err
			}
			m, err := profile.Verify(data, public.Open)
			if err != nil {
				return err
			}
			return a.showManifest(m, public, asJSON)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "the server's public key, or a file with it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the manifest that was signed, as JSON")
	group(cmd.Flags(), "Check", "key KEY|FILE", "json")
	cmd.Annotations = map[string]string{localOnly: "true"}
	return cmd
}

func (a *app) showManifest(m sandbox.Manifest, key audit.Key, asJSON bool) error {
	if asJSON {
		return a.writeJSON(m)
	}
	t := newTable("PROFILE", "DIGEST", "SIGNED BY", "FORM")
	for _, p := range m.Profiles {
		t.row(p.Name, p.Digest, key.Name(), m.Form)
	}
	return a.writeTable(t, false)
}
