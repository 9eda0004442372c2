package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"
	"pinfold/client"
	"pinfold/sandbox"
)

const networkLong = `Without a flag it says what a sandbox can reach now, in flags of pinfold create.
With flags it changes that at once: what is not declared any more is cut. --deny
comes before --allow; none takes everything away. What the sandbox was made with
it can have again.`

const networkExamples = `  pinfold network $box                          what it can reach
  pinfold network $box none                     nothing any more
  pinfold network $box --deny api.example.com   not that any more
  pinfold network $box --deny api.example.com --allow 'GET https://api.example.com/repos/**'`

func (a *app) networkCommand() *cobra.Command {
	var change sandbox.NetworkChange
	var allow sandbox.Network
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "network [flags] SANDBOX [none]",
		Short:             "Show or change what a sandbox can reach",
		Long:              networkLong,
		Example:           networkExamples,
		Args:              needArgs(1, 2, "a sandbox"),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkIDs("sbx_", "sandbox", args[0]); err != nil {
				return err
			}
			if allow.Mode != "" {
				return usageError("--allow ask is for pinfold run and pinfold create").WithHint("pinfold network " + args[0] + " --allow HOST")
			}
			change.Allow = allow.Endpoints
			flags := len(change.Deny) > 0 || len(change.Allow) > 0
			if len(args) == 2 {
				if args[1] != sandbox.NetworkNone || flags {
					return usageError("behind the sandbox stands none, or flags").WithHint("pinfold network " + args[0] + " --allow HOST")
				}
				change.Network = &sandbox.Network{Mode: sandbox.NetworkNone}
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				ask := c.Sandbox(args[0]).Info
				if flags || change.Network != nil {
					ask = func(ctx context.Context) (sandbox.Info, error) { return c.Sandbox(args[0]).ChangeNetwork(ctx, change) }
				}
				info, err := ask(ctx)
				if err != nil {
					return err
				}
				n := cmp.Or(info.Declared, &sandbox.Network{})
				return a.writeLine(asJSON, n, sandbox.SafeText(networkFlags(*n), maxNetworkLine))
			})
		},
	}
	set := cmd.Flags()
	set.StringArrayVar(&change.Deny, "deny", nil, "take this name away, HOST[:PORT]; may be repeated")
	set.Var(endpointList{&allow}, allowFlag, "let programs reach this name, as in pinfold create; may be repeated")
	set.Var(endpointSecret{&allow}, secretFlag, "put this secret of the server's into the requests that the --allow before it lets pass")
	group(set, groupIsolation, "deny HOST[:PORT]", "allow [METHOD,… ]HOST[:PORT]|URL", "secret NAME")
	set.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// maxNetworkLine bounds what is printed of a declaration, in runes.
const maxNetworkLine = 32 << 10
