//go:build !lean

package cli

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pinfold/internal/compare"
)

const (
	compareName = "compare"
	attackName  = "attack"
)

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

const attackLong = `Have programs attack each driver that works on this machine, while the host watches:
they read and change files, read environments, look for processes and end them,
connect, stay behind, take more than they may, ask the kernel for namespaces.

Each attack is first tried with nothing around it, where it must work: one that
does not would say nothing. Attacks are harmless where they get through: they read,
change and end only what was made for them. Afterwards the host is searched for
what the sandboxes have left. They are a small part of the attacks with which
Pinfold is tested, in a form that can be tried anywhere; that all are held is no
proof that nothing gets through.

Drivers are found as "pinfold compare" finds them.

Exit status: 0, or 1 when an attack got through that the driver claims to hold,
when one could not be tried, or when something was left.`

const attackExamples = `  pinfold attack                             all drivers that work here
  pinfold attack --only native,gvisor --json -`

// CompareOptions are compare.Options, and what says which drivers there are.
type CompareOptions struct {
	compare.Options

	Kernel string // of virtual machines; empty: the one that is found
	Attack bool   // try the attacks, and measure nothing
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
	set.IntVar(&o.Rounds, "rounds", 0, "how often each driver takes its turn (default 20)")
	o.bindDrivers(set)
	group(set, "What", "quick", "only DRIVER,...", "rounds N", "docker-image IMAGE", "runsc PATH", "kernel FILE")
	out.bind(set, compareName)
	out.complete(cmd)
	return cmd
}

func (a *app) attackCommand() *cobra.Command {
	o := CompareOptions{Attack: true}
	var out reportFlags
	cmd := &cobra.Command{
		Use: attackName + " [flags]", Short: "Attack the sandboxes of this machine, and see what holds", Long: attackLong, Example: attackExamples, Args: noArgs,
		Annotations: map[string]string{localOnly: "true"},
		RunE:        func(cmd *cobra.Command, _ []string) error { return a.compare(cmd.Context(), o, &out) },
	}
	o.bindDrivers(cmd.Flags())
	group(cmd.Flags(), "What", "only DRIVER,...", "docker-image IMAGE", "runsc PATH", "kernel FILE")
	out.bind(cmd.Flags(), attackName)
	out.complete(cmd)
	return cmd
}

// bindDrivers binds the flags that say which drivers there are.
func (o *CompareOptions) bindDrivers(set *pflag.FlagSet) {
	set.StringSliceVar(&o.Only, "only", nil, "only these drivers")
	set.StringVar(&o.Image, "docker-image", "", "containers, too, of this image of the engine's")
	set.StringVar(&o.Runsc, "runsc", "", "gVisor's program (default $PINFOLD_RUNSC, or runsc in PATH)")
	set.StringVar(&o.Kernel, "kernel", "", "what virtual machines boot (default $PINFOLD_KERNEL, or the newest in /boot)")
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
