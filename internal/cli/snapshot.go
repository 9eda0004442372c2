package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"pinfold/client"
	"pinfold/sandbox"
)

const snapshotLong = `A snapshot is what a sandbox's files are at one moment, kept on the server: its
home, /tmp and the other places where programs can write. The sandbox stands
still for that moment and goes on. Sandboxes that are made of it (pinfold create
--snapshot) begin with these files; what ran in the first one does not go on. That
of a virtual machine (--driver qemu) holds its memory, too, so that it does.
It outlives the sandbox, until its time is over or it is removed.`

const snapshotExamples = `  snap=$(pinfold snapshot $box --name clean)
  pinfold create --snapshot $snap
  pinfold snapshot ls
  pinfold snapshot rm $snap`

func (a *app) snapshotCommand() *cobra.Command {
	var t sandbox.TakeSnapshot
	var asJSON bool
	cmd := &cobra.Command{
		Use: "snapshot [flags] SANDBOX", Short: "Keep what a sandbox's files are at this moment, and print its id", Long: snapshotLong, Example: snapshotExamples,
		Args: needArgs(1, 1, "a sandbox"), ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkIDs("sbx", args...); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				made, err := c.Sandbox(args[0]).Snapshot(ctx, t)
				if err != nil {
					return err
				}
				if asJSON {
					return a.writeJSON(made)
				}
				return a.writeID(made.ID)
			})
		},
	}
	set := cmd.Flags()
	t.Metadata = map[string]string{}
	set.StringVar(&t.Name, "name", "", "a name of yours for it")
	set.Var(keptValue{timeValue{&t.TTLMS, "ttl_ms"}}, "ttl", "how long it is kept (default as long as the server keeps one)")
	set.Var(pairs{t.Metadata, "metadata"}, "metadata", "a note of yours on it; may be repeated")
	group(set, "Snapshot", "name NAME", "ttl TIME", "metadata K=V")
	set.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(a.snapshotLsCommand(), a.snapshotRmCommand())
	return cmd
}

// keptValue is a time that may be longer than a sandbox lives: the server says how long.
type keptValue struct{ timeValue }

// Set implements pflag.Value.
func (v keptValue) Set(s string) error {
	ms, err := sandbox.ParseTime(s)
	if err != nil {
		return sandbox.AsError(err).WithField(v.field)
	}
	if ms == 0 {
		return usageError("zero does not mean unlimited").WithHint("leave it out: a snapshot is then kept as long as the server keeps one")
	}
	*v.into = ms
	return nil
}

func (a *app) snapshotLsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls [flags]", Aliases: []string{"list"}, Short: "List the snapshots", Args: noArgs, Example: "  pinfold snapshot ls",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				all, err := c.Snapshots(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return writeList(a, "snapshots", all)
				}
				return a.writeTable(snapshotTable(all), false)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func snapshotTable(all []sandbox.Snapshot) *table {
	t := newTable("SNAPSHOT", "NAME", "HOLDS", "SIZE", "FILES", "SANDBOX", "TEMPLATE", "CREATED", "REMOVED")
	for _, s := range all {
		files := fmt.Sprint(s.Files)
		if slices.Contains(s.Holds, sandbox.SnapshotMemory) {
			files = "-" // they are in the memory, and nobody has counted them
		}
		t.row(s.ID, cmp.Or(s.Name, "-"), strings.Join(s.Holds, ","), size(s.Bytes), files, s.Sandbox, s.Template,
			since(s.CreatedAt), until(s.ExpiresAt))
	}
	return t
}

func (a *app) snapshotRmCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm [flags] SNAPSHOT...", Aliases: []string{"remove"}, Short: "Remove snapshots; sandboxes that were made of them live on", Args: needArgs(1, -1, "at least one snapshot"), Example: "  pinfold snapshot rm $snap",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkIDs("snp", args...); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				_, err := endAll(a, args, func(id string) (struct{}, error) { return struct{}{}, c.RemoveSnapshot(ctx, id) })
				return err
			})
		},
	}
}

const forkLong = `Makes sandboxes that begin with the files that another one has at this moment,
all of them or none, and prints their ids. They are made as that one was made, and
each goes its own way. What runs in that one stands still for the moment, goes on
there, and not in them, unless it is a virtual machine (--driver qemu): then it goes
on in all of them, each with what it prints from then on.`

func (a *app) forkCommand() *cobra.Command {
	var f sandbox.ForkSandbox
	var asJSON bool
	cmd := &cobra.Command{
		Use: "fork [flags] SANDBOX", Short: "Make sandboxes with the files that another one has", Long: forkLong, Example: "  pinfold fork $box --count 3",
		Args: needArgs(1, 1, "a sandbox"), ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkIDs("sbx", args...); err != nil {
				return err
			}
			if len(f.Metadata) == 0 {
				f.Metadata = nil // as the first one's
			}
			if f.Count < 1 || f.Count > sandbox.MaxForks {
				return usageError("--count: %d is outside 1 to %d", f.Count, sandbox.MaxForks).WithHint("pinfold fork --count 3 " + args[0])
			}
			if err := f.Validate(); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error { return a.fork(ctx, c.Sandbox(args[0]), f, asJSON) })
		},
	}
	set := cmd.Flags()
	f.Metadata = map[string]string{}
	set.IntVar(&f.Count, "count", 1, "how many")
	set.Var(timeValue{&f.TTLMS, "ttl_ms"}, "ttl", fmt.Sprintf("time to live of each (default %s)", sandbox.FormatQuantity(sandbox.DefaultTTLMS, sandbox.UnitMilliseconds)))
	set.Var(pairs{f.Metadata, "metadata"}, "metadata", "a note of yours on each, in place of those of the first one; may be repeated")
	group(set, "Fork", "count N", "ttl TIME", "metadata K=V")
	set.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) fork(ctx context.Context, of *client.Sandbox, f sandbox.ForkSandbox, asJSON bool) error {
	made, err := of.Fork(ctx, f)
	if err != nil {
		return err
	}
	infos := []sandbox.Info{}
	for _, box := range made {
		if !asJSON {
			if err := a.writeID(box.ID()); err != nil {
				return err
			}
			continue
		}
		info, err := box.Info(ctx)
		if err != nil {
			return err
		}
		infos = append(infos, info)
	}
	if !asJSON {
		return nil
	}
	return writeList(a, "sandboxes", infos)
}
