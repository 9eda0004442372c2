//go:build !lean

package cli

import (
	"cmp"
	"context"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"pinfold/client"
	"pinfold/internal/secret/vault"
	"pinfold/sandbox"
)

const secretLong = `A secret is kept on the server, encrypted, and nothing gives it back. A program that
was declared an endpoint with it (pinfold run --allow https://HOST --secret NAME)
makes its requests without it: the host puts it in on the way, for the secret's hosts
alone. The program never has it.`

const secretExamples = `  pinfold secret set github --host api.github.com <token.txt
  pinfold secret set wiki --host wiki.example.com --basic robot --from-env WIKI_PASSWORD
  pinfold secret set maps --host maps.example.com --query key --from-file key.txt
  pinfold secret set other --host api.example.com --header 'X-Api-Key: {}' <token.txt
  pinfold run --allow 'GET https://api.github.com/repos/**' --secret github fetch.py
  pinfold secret list
  pinfold secret remove github`

func (a *app) secretCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "secret", Short: "Keep secrets that programs use and never have", Long: secretLong, Example: secretExamples,
		Args: unknownCommand, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.secretSetCommand(), a.secretListCommand(), a.secretRemoveCommand(), a.secretNewKeyCommand())
	return cmd
}

func (a *app) secretSetCommand() *cobra.Command {
	var s sandbox.SetSecret
	var file, env string
	cmd := &cobra.Command{
		Use: "set [flags] NAME", Short: "Keep a secret, whose value comes from stdin, a file or a variable", Long: secretLong, Example: secretExamples,
		Args: needArgs(1, 1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := sandbox.CheckSecretName(args[0]); err != nil {
				return err
			}
			if len(s.Hosts) == 0 {
				return usageError("--host is missing: a secret is for 1 to %d hosts", sandbox.MaxSecretHosts).WithHint("pinfold secret set " + args[0] + " --host api.example.com <token.txt")
			}
			var err error
			if s.Value, err = a.secretValue(file, env); err != nil {
				return err
			}
			if _, err := s.Canonical(); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				_, err := c.SetSecret(ctx, args[0], s)
				return err
			})
		},
	}
	set := cmd.Flags()
	set.StringArrayVar(&s.Hosts, "host", nil, "a host to which it may be sent; may be repeated")
	set.StringVar(&s.Header, "header", "", "the header that it stands in, with {} for it (default \""+sandbox.DefaultSecretHeader+"\")")
	set.StringVar(&s.Basic, "basic", "", "instead: the user of basic authentication, whose password it is")
	set.StringVar(&s.Query, "query", "", "instead: the name of the URL's parameter that it is")
	set.StringVar(&file, "from-file", "", "read the value from this file, without a line's end behind it")
	set.StringVar(&env, "from-env", "", "take the value of this variable")
	group(set, "Secret", "host HOST", "header FORMAT", "basic USER", "query NAME", "from-file FILE", "from-env VARIABLE")
	return cmd
}

// secretValue reads the value: never from an argument, which everybody on this machine
// could read.
func (a *app) secretValue(file, env string) (string, error) {
	switch {
	case file != "" && env != "":
		return "", usageError("--from-file and --from-env: the value comes from one of them")
	case env != "":
		value, ok := os.LookupEnv(env)
		if !ok {
			return "", usageError("--from-env: there is no variable %s", sandbox.SafeText(env, 60))
		}
		return value, nil
	case file == "" && a.Stdin == nil:
		return "", usageError("there is no stdin to read the value from")
	}
	var from io.Reader = a.Stdin
	if file != "" {
		f, err := os.Open(file) //nolint:gosec // the user's own
		if err != nil {
			return "", usageError("--from-file: %s", sandbox.SafeText(err.Error(), maxMessage))
		}
		defer f.Close() //nolint:errcheck // only read
		from = f
	}
	content, err := io.ReadAll(io.LimitReader(from, sandbox.MaxSecretValue+3))
	if err != nil {
		return "", usageError("the value cannot be read: %s", sandbox.SafeText(err.Error(), maxMessage))
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r"), nil
}

func (a *app) secretListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list [flags]", Aliases: []string{"ls"}, Short: "List the secrets, without their values", Args: noArgs, Example: "  pinfold secret list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				all, err := c.Secrets(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return writeList(a, "secrets", all)
				}
				t := newTable("SECRET", "HOSTS", "PLACE", "SET")
				for _, s := range all {
					place := s.Header
					if s.Basic != "" {
						place = "basic: " + s.Basic
					}
					if s.Query != "" {
						place = "query: " + s.Query
					}
					t.row(s.Name, strings.Join(s.Hosts, ","), cmp.Or(place, "-"), since(s.UpdatedAt))
				}
				return a.writeTable(t, false)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) secretRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "remove [flags] NAME...", Aliases: []string{"rm"}, Short: "Remove secrets; what runs already goes on with them", Args: needArgs(1, -1, "at least one name"), Example: "  pinfold secret remove github",
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				if err := sandbox.CheckSecretName(name); err != nil {
					return err
				}
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				_, err := endAll(a, args, func(name string) (struct{}, error) { return struct{}{}, c.RemoveSecret(ctx, name) })
				return err
			})
		},
	}
}

func (a *app) secretNewKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "new-key", Short: "Make the key under which a server keeps secrets, for secrets.key_file", Args: noArgs, Example: "  (umask 077; pinfold secret new-key >/etc/pinfold/secrets.key)",
		RunE: func(*cobra.Command, []string) error {
			key, err := vault.NewKey()
			if err != nil {
				return err
			}
			return a.writeLine(false, nil, key)
		},
	}
}
