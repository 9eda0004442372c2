package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"pinfold/client"
	"pinfold/sandbox"
)

const networkLong = `Without a flag it says what a sandbox can reach now, in flags of pinfold create.
With flags it changes that at once: what is not declared any more is cut. --deny
comes before --allow; none takes everything away. What the sandbox was made with
it can have again. --follow says what it reaches and what is denied, as it happens,
until it ends.`

const networkExamples = `  pinfold network $box                          what it can reach
  pinfold network --follow $box                 what it reaches, as it happens
  pinfold network $box none                     nothing any more
  pinfold network $box --deny api.example.com   not that any more
  pinfold network $box --deny api.example.com --allow 'GET https://api.example.com/repos/**'`

func (a *app) networkCommand() *cobra.Command {
	var change sandbox.NetworkChange
	var allow sandbox.Network
	var asJSON, follow bool
	cmd := &cobra.Command{
		Use:               "network [flags] SANDBOX [none]",
		Short:             "Show or change what a sandbox can reach",
		Long:              networkLong,
		Example:           networkExamples,
		Args:              needArgs(1, 2, "a sandbox"),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkIDs("sbx", args[0]); err != nil {
				return err
			}
			if allow.Mode != "" {
				return usageError("--allow ask is for pinfold run and pinfold create").WithHint("pinfold network " + args[0] + " --allow HOST")
			}
			change.Allow = allow.Endpoints
			flags := len(change.Deny) > 0 || len(change.Allow) > 0
			if len(args) == 2 {
				if args[1] != sandbox.NetworkNone || flags {
					return usageError(`behind the sandbox stands the word "none", or flags`).WithHint("pinfold network " + args[0] + " --allow HOST")
				}
				change.Network = &sandbox.Network{Mode: sandbox.NetworkNone}
			}
			if follow {
				if flags || change.Network != nil {
					return usageError("--follow changes nothing").WithHint("pinfold network --follow " + args[0])
				}
				return a.followNetwork(cmd.Context(), args[0], asJSON)
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
	set.BoolVarP(&follow, "follow", "f", false, "go on until the sandbox ends")
	set.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// followNetwork prints what goes on with a sandbox's endpoints: a line for each that is used
// and for each denial, or all of it in a line of JSON each time.
func (a *app) followNetwork(ctx context.Context, id string, asJSON bool) error {
	defer catchBrokenPipe()()
	return a.with(ctx, func(ctx context.Context, c *client.Client) error {
		var said networkSaid
		err := c.Sandbox(id).WatchNetwork(ctx, func(u sandbox.NetworkUse) error {
			if asJSON {
				return json.NewEncoder(a.Stdout).Encode(u)
			}
			for _, line := range said.news(u) {
				if _, err := fmt.Fprintln(a.Stdout, sandbox.SafeText(line, maxNetworkLine)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil && ctx.Err() != nil { // the sandbox goes on
			return &stoppedError{}
		}
		return err
	})
}

// networkSaid is what was said of a sandbox's network last.
type networkSaid struct{ sandbox.NetworkUse }

// news is what has changed since.
func (s *networkSaid) news(u sandbox.NetworkUse) (lines []string) {
	for _, e := range u.Endpoints {
		i := slices.IndexFunc(s.Endpoints, func(was sandbox.EndpointUse) bool { return was.Host == e.Host })
		var was sandbox.EndpointUse
		if i >= 0 {
			was = s.Endpoints[i]
		}
		if e.Connections != was.Connections || e.Requests != was.Requests || e.BytesUp != was.BytesUp || e.BytesDown != was.BytesDown || e.Errors != was.Errors {
			lines = append(lines, usedLine(e))
		}
	}
	for _, d := range u.Denied {
		known := func(was sandbox.Denial) bool {
			return was.Host == d.Host && was.Port == d.Port && was.Reason == d.Reason && was.Evidence == d.Evidence && was.Count == d.Count
		}
		if !slices.ContainsFunc(s.Denied, known) {
			lines = append(lines, deniedLine(d))
		}
	}
	if more := u.DeniedMore - s.DeniedMore; more > 0 {
		lines = append(lines, fmt.Sprintf("denied: and %d more", more))
	}
	s.NetworkUse = u
	return lines
}

// usedLine says what went on with an endpoint.
func usedLine(e sandbox.EndpointUse) string {
	line := fmt.Sprintf("%s: %s, %d bytes up, %d down", e.Host, plural(int(e.Connections), "connection"), e.BytesUp, e.BytesDown)
	if e.Requests > 0 {
		line += ", " + plural(int(e.Requests), "request")
	}
	if e.Errors > 0 {
		line += fmt.Sprintf(", %s: %s", plural(int(e.Errors), "error"), e.LastError)
	}
	return line
}

// deniedLine says what was denied.
func deniedLine(d sandbox.Denial) string {
	line := "denied: " + d.Host
	if d.Port != 0 {
		line += fmt.Sprintf(":%d", d.Port)
	}
	line += " (" + string(d.Reason)
	if d.Reason == sandbox.DeniedRequest {
		line += ": " + d.Evidence
	}
	if line += ")"; d.Count > 1 {
		line += fmt.Sprintf(", %d times", d.Count)
	}
	return line
}

// maxNetworkLine bounds what is printed of a declaration, in runes.
const maxNetworkLine = 32 << 10
