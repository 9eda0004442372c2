//go:build !lean

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"pinfold/client"
	"pinfold/internal/config"
	"pinfold/internal/policy"
	"pinfold/sandbox"
)

const policyLong = `A policy decides by rules which wall a run gets, who is asked about it and what is
refused (docs/policy.md). It stands under "policy" in a server's configuration; FILE is
one, or has that part of it alone.`

func (a *app) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "policy", Short: "Check a policy, and try it on runs that were", Long: policyLong, Args: unknownCommand, RunE: helpOnly,
		Example: "  pinfold policy check pinfold.yaml\n  pinfold policy test pinfold.yaml --last 1000 --server URL",
	}
	cmd.AddCommand(a.policyCheckCommand(), a.policyTestCommand())
	return cmd
}

// readPolicy reads the policy of a configuration.
func readPolicy(name string) (*policy.Policy, sandbox.Policy, error) {
	c, err := config.Load(name)
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		return nil, sandbox.Policy{}, err
	}
	p, err := c.Policy.Ready()
	if err == nil && p.Empty() {
		err = (&sandbox.Error{Code: sandbox.CodeConfigInvalid, Field: "policy.rules", Message: sandbox.SafeText(name, 200) + " has no rules"}).
			WithHint("they stand below policy: in a list, rules:")
	}
	return p, c.Policy.Spec(), err
}

func (a *app) policyCheckCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "check [flags] FILE", Short: "Say whether a policy is right", Long: policyLong, Args: needArgs(1, 1, "a file"), Example: "  pinfold policy check pinfold.yaml",
		RunE: func(_ *cobra.Command, args []string) error {
			p, _, err := readPolicy(args[0])
			if err != nil {
				return err
			}
			return a.writeLine(asJSON, map[string]any{"digest": p.Digest(), "rules": p.Rules()}, fmt.Sprintf("%d rules: %s\ndigest %s", len(p.Rules()), strings.Join(p.Rules(), ", "), p.Digest()))
		},
		Annotations: map[string]string{localOnly: "true"},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) policyTestCommand() *cobra.Command {
	var asJSON bool
	var last int
	cmd := &cobra.Command{
		Use: "test [flags] FILE", Short: "Say what a policy would have done to a server's last runs", Args: needArgs(1, 1, "a file"), Example: "  pinfold policy test pinfold.yaml --last 1000 --server URL",
		Long: policyLong + `

Nothing is changed. Of runs that nobody scanned the findings are not known: rules
about findings match none of them. It takes a key with the scope admin.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, p, err := readPolicy(args[0])
			switch {
			case err != nil:
				return err
			case last < 1 || last > sandbox.MaxTrial:
				return usageError("--last: %d is outside 1 to %d", last, sandbox.MaxTrial)
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				r, err := c.TestPolicy(ctx, sandbox.PolicyTrial{Policy: p, Last: last})
				if err != nil || asJSON {
					return cmpErr(err, func() error { return a.writeJSON(r) })
				}
				return a.writeTrial(r)
			})
		},
	}
	cmd.Flags().IntVar(&last, "last", sandbox.MaxTrial, "how many runs to look at, the newest first")
	group(cmd.Flags(), "Trial", "last N")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) writeTrial(r sandbox.PolicyReport) error {
	a.say("of %d runs %d would have been refused, a person asked about %d, and %d held more strongly", r.Runs, r.Refused, r.Asked, r.Changed)
	if r.Unscanned > 0 {
		a.say("%d of them nobody scanned: what rules about findings would have done to these is not known", r.Unscanned)
	}
	for _, one := range r.Rules {
		a.say("rule %s: %d runs", sandbox.SafeText(one.Rule, 60), one.Matched)
	}
	t := newTable("RUN", "TENANT", "CREATED", "RULE", "BECAUSE", "EFFECT")
	for _, run := range r.Touched {
		for _, m := range run.Rules {
			effect := changesOf(m)
			if m.Ask != "" {
				effect = append(effect, "asks: "+m.Ask)
			}
			if m.Refuse != "" {
				effect = append(effect, "refuses: "+m.Refuse)
			}
			t.row(run.Run, run.Tenant, since(run.CreatedAt), m.Rule, strings.Join(m.Because, "; "), strings.Join(effect, "; "))
		}
	}
	return a.writeTable(t, false)
}
