//go:build !lean

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"pinfold/internal/compare"
)

const compareName = "compare"

const compareLong = `Measure on this machine what each way of making a sandbox holds and costs: attacks
that are tried while the host watches, cold and warm starts, what a run costs,
throughput, memory, what it takes to have it. "docker run" and "runsc run" of the
same program stand beside the drivers that make containers and use gVisor.

Drivers that need programs of this host find them as "pinfold run" does: runsc in
PATH ($PINFOLD_RUNSC), QEMU and a kernel ($PINFOLD_KERNEL). Containers are made by
the engine that answers ($DOCKER_HOST), of an image that you name, in which Python
must lie where it lies here; no engine is started. What does not work here is left
out and named, with the reason and what would help.

Attacks are harmless where they get through: they read, change and end only what
was made for them. Expect some minutes of load: nothing else should go on.

Numbers are never an error. Exit status: 0, or 1 when something could not be
measured.`

const compareExamples = `  pinfold compare --quick                    does it all work? (a minute)
  pinfold compare                            tables on the terminal
  pinfold compare --docker-image debian-python   with containers of that image, too
  pinfold compare --only native,process --json out.json --markdown out.md --svg charts`

// CompareOptions are compare.Options, and what says which drivers there are.
type CompareOptions struct {
	compare.Options

	Kernel string // of virtual machines; empty: the one that is found
}

func (a *app) compareCommand() *cobra.Command {
	var o CompareOptions
	var out reportFlags
	cmd := &cobra.Command{
		Use: compareName + " [flags]", Short: "Measure what each way of making a sandbox holds and costs here", Long: compareLong, Example: compareExamples, Args: noArgs,
		Annotations: map[string]string{localOnly: "true"},
		RunE:        func(cmd *cobra.Command, _ []string) error { return a.compare(cmd.Context(), o, &out) },
	}
	set := cmd.Flags()
	set.BoolVar(&o.Quick, "quick", false, "few rounds: coarse numbers")
	set.StringSliceVar(&o.Only, "only", nil, "only these drivers")
	set.IntVar(&o.Rounds, "rounds", 0, "how often each driver takes its turn (default 20)")
	set.StringVar(&o.Image, "docker-image", "", "compare containers, too, of this image of the engine's")
	set.StringVar(&o.Runsc, "runsc", "", "gVisor's program (default $PINFOLD_RUNSC, or runsc in PATH)")
	set.StringVar(&o.Kernel, "kernel", "", "what virtual machines boot (default $PINFOLD_KERNEL, or the newest in /boot)")
	group(set, "What", "quick", "only DRIVER,...", "rounds N", "docker-image IMAGE", "runsc PATH", "kernel FILE")
	out.bind(set, compareName)
	out.complete(cmd)
	return cmd
}

func (a *app) compare(ctx context.Context, o CompareOptions, out *reportFlags) error {
	if o.Rounds < 0 {
		return usageError("--rounds takes more than nothing")
	}
	o.Version, o.Progress, o.Section = a.Version, a.timed(), a.sections(out)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer cancelOnSignal(cancel)()
	defer catchBrokenPipe()() // who reads the tables may go away; what was started must be ended
	report, err := a.Whole.Compare(ctx, o)
	if err != nil {
		return err
	}
	return a.writeReport(out, report)
}
