package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pinfold/client"
	"pinfold/sandbox"
)

const poolLong = `A pool keeps sandboxes ready, so that a request finds one waiting. It serves
every request of its shape: the same template, driver and limits. When it is
empty a sandbox is made on the spot. With --language an interpreter waits in each
of them, and with --warm it has loaded these modules; such a pool serves runs. A
pool that is set here is gone when the server ends; the configuration keeps them.`

const poolExamples = `  pinfold pool set python --language python --min 4
  pinfold pool ls
  pinfold pool rm python`

func (a *app) poolCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "pool", Short: "Keep sandboxes ready on a server", Long: poolLong, Example: poolExamples, Args: unknownCommand, RunE: helpOnly}
	cmd.AddCommand(a.poolLsCommand(), a.poolSetCommand(), a.poolRmCommand())
	return cmd
}

func (a *app) poolLsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls [flags]", Aliases: []string{"list"}, Short: "List the pools and how they do", Args: noArgs, Example: "  pinfold pool ls",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				pools, err := c.Pools(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return writeList(a, "pools", pools)
				}
				return a.writeTable(poolTable(pools), false)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func poolTable(pools []sandbox.PoolInfo) *table {
	t := newTable("POOL", "TEMPLATE", "LANGUAGE", "MODULES", "AVAILABLE", "IN USE", "TOTAL", "MIN", "MAX", "FROM WAITING", "FORKED", "COLD", "INTERPRETERS", "PROBLEM")
	for _, p := range pools {
		most, problem := "-", ""
		if p.Max > 0 {
			most = fmt.Sprint(p.Max)
		}
		if p.Error != nil {
			problem = p.Error.Error()
		}
		if p.RetryAt != nil {
			problem += "; tried again " + until(*p.RetryAt)
		}
		t.row(p.Name, p.Template, cmp.Or(p.Language, "-"), cmp.Or(strings.Join(p.Warm, ","), "-"), fmt.Sprint(p.Available), fmt.Sprint(p.InUse), fmt.Sprint(p.Total), fmt.Sprint(p.Min), most,
			fmt.Sprint(p.Hits), fmt.Sprint(p.Forked), fmt.Sprint(p.Misses), cmp.Or(p.Interpreters, "-"), problem)
	}
	return t
}

func (a *app) poolSetCommand() *cobra.Command {
	var spec sandbox.PoolSpec
	var asJSON bool
	cmd := &cobra.Command{
		Use: "set [flags] NAME", Short: "Add a pool, or change the one of that name", Args: needArgs(1, 1, "a name"),
		Example: "  pinfold pool set data --language python --warm numpy,pandas --min 4\n  pinfold pool set small --min 8 --max 16 --memory 64MiB",
		RunE: func(cmd *cobra.Command, args []string) error {
			spec.Name = args[0]
			if spec.Min == 0 { // which would be the default
				return usageError("--min: a pool keeps at least one waiting").WithHint("pinfold pool rm " + sandbox.SafeText(spec.Name, 60))
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				info, err := c.SetPool(ctx, spec)
				if err != nil || !asJSON {
					return err
				}
				return a.writeJSON(info)
			})
		},
	}
	set := cmd.Flags()
	set.IntVar(&spec.Min, "min", sandbox.DefaultPoolMin, "how many are kept waiting")
	set.IntVar(&spec.Max, "max", 0, "how many there are at most, in use too (default no bound of its own)")
	set.StringVar(&spec.Template, "template", "", "what is inside (default host)")
	set.StringVar(&spec.Driver, "driver", "", "the way to make the sandboxes (default auto)")
	set.StringVarP(&spec.Language, "language", "l", "", "keep an interpreter of this language waiting in each, for runs")
	set.StringSliceVar(&spec.Warm, "warm", nil, "modules that the interpreters shall have loaded")
	group(set, "Pool", "min N", "max N", "template NAME", "driver NAME", "language NAME", "warm MODULE,...")
	bindLimits(set, &spec.Limits, false)
	set.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) poolRmCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm [flags] NAME", Aliases: []string{"remove"}, Short: "Remove a pool; what it has handed out lives on", Args: needArgs(1, 1, "a name"), Example: "  pinfold pool rm python",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error { return c.RemovePool(ctx, args[0]) })
		},
	}
}

func (a *app) usageCommand() *cobra.Command {
	var asJSON bool
	var from, to string
	cmd := &cobra.Command{
		Use: "usage [flags]", Short: "Show what the key's tenant has used, day by day", Args: noArgs,
		Example: "  pinfold usage --from 2026-01-01 --to 2026-01-31",
		RunE: func(cmd *cobra.Command, _ []string) error {
			first, err := day("--from", from)
			if err != nil {
				return err
			}
			last, err := day("--to", to)
			if err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				days, err := c.Usage(ctx, first, last)
				if err != nil {
					return err
				}
				if asJSON {
					return writeList(a, "days", days)
				}
				return a.writeTable(usageTable(days), false)
			})
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the first day, in UTC")
	cmd.Flags().StringVar(&to, "to", "", "the last day, in UTC")
	group(cmd.Flags(), "Flags", "from DAY", "to DAY")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func day(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return t, usageError("%s: \"%s\" is not a day", flag, sandbox.SafeText(text, 40)).WithHint("write days as 2026-01-31")
	}
	return t, nil
}

func usageTable(days []client.Day) *table {
	ms := func(v int64) string { return (time.Duration(v) * time.Millisecond).Round(time.Millisecond).String() }
	t := newTable("DAY", "RUNS", "SANDBOXES", "CPU", "WALL", "OUTPUT", "ARTIFACTS")
	for _, d := range days {
		t.row(d.Day, fmt.Sprint(d.Runs), fmt.Sprint(d.Sandboxes), ms(d.CPUMS), ms(d.WallMS), size(d.OutputBytes), size(d.ArtifactBytes))
	}
	return t
}

// helpOnly is what a command does that has only subcommands.
func helpOnly(cmd *cobra.Command, _ []string) error { return cmd.Help() }
