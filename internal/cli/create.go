package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pinfold/client"
	"pinfold/sandbox"
)

const createLong = `Make a sandbox that lives until you end it, its time is over or nobody has
used it for long. Its id is printed; the other commands take it.

wall time and output limits hold for each process, all others for the sandbox.
With --gate what its commands print, and files that are read from it, are
checked; where that can take something out, output comes when a command has
ended, and there are no terminals and ports.`

const createExamples = `  box=$(pinfold create --ttl 1h)
  pinfold exec $box -- python3 -c 'print(6*7)'
  pinfold kill $box`

// createFlags are the flags of "create" as they were given.
type createFlags struct {
	create sandbox.Create
	gate   []string
	json   bool
}

func (a *app) createCommand() *cobra.Command {
	f := &createFlags{}
	cmd := &cobra.Command{
		Use:     "create [flags]",
		Short:   "Make a living sandbox on a server, and print its id",
		Long:    createLong,
		Example: createExamples,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("snapshot") && f.create.Snapshot == "" { // a variable that nobody set is not a wish for no files
				return usageError("--snapshot: no snapshot is named").WithHint("pinfold snapshot ls lists them; leave --snapshot out to begin with none")
			}
			if err := refuseEmpty(cmd.Flags()); err != nil {
				return err
			}
			if len(f.gate) > 0 {
				f.create.Gate = &sandbox.Gate{}
				if err := a.addChecks(f.create.Gate, f.gate); err != nil {
					return err
				}
			}
			if err := f.create.Validate(); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error { return a.create(ctx, c, f) })
		},
	}
	set := cmd.Flags()
	f.create.Env, f.create.Metadata = map[string]string{}, map[string]string{}
	set.StringVar(&f.create.Profile, "profile", "", "make it as this profile of the server's says, or narrower")
	set.Var(timeValue{&f.create.TTLMS, "ttl_ms"}, "ttl", fmt.Sprintf("time to live (default %s)", sandbox.FormatQuantity(sandbox.DefaultTTLMS, sandbox.UnitMilliseconds)))
	set.Var(timeValue{&f.create.IdleMS, "idle_ms"}, "idle", "end it when nobody has used it for so long (default the time to live)")
	set.StringVar(&f.create.Snapshot, "snapshot", "", "begin with the files of this snapshot; what is not given is as in the sandbox of which it was made")
	set.StringVar(&f.create.OnOutOfMemory, "on-out-of-memory", "", "what ends when the memory limit is reached: sandbox (default) or process")
	set.VarP(pairs{f.create.Env, "a variable"}, "env", "e", "set a variable for every process; may be repeated")
	bindPackages(set, &f.create.Packages)
	set.Var(pairs{f.create.Metadata, "metadata"}, "metadata", "a note of yours on the sandbox, to find it by; may be repeated")
	group(set, "Sandbox", "profile NAME", "ttl TIME", "idle TIME", "snapshot SNAPSHOT", "on-out-of-memory WHAT", "env K=V", packageFlag+" KIND:NAME=VERSION", "metadata K=V")
	bindLimits(set, &f.create.Limits, false)
	bindIsolation(set, &f.create.Driver, &f.create.Isolation, &f.create.Template, &f.create.Network, &f.create.Require)
	set.StringArrayVar(&f.gate, "gate", nil, gateUsage)
	group(set, groupGate, "gate CHECK=ACTION|FILE")
	set.BoolVar(&f.json, "json", false, "print JSON")
	completeIsolation(cmd)
	return cmd
}

func (a *app) create(ctx context.Context, c *client.Client, f *createFlags) error {
	box, err := c.Create(ctx, f.create)
	if err != nil {
		return err
	}
	if !f.json {
		return a.writeID(box.ID())
	}
	info, err := box.Info(ctx)
	if err != nil {
		return err
	}
	return a.writeJSON(info)
}

// maxID bounds an id that a server sends, in runes.
const maxID = 60

// bindLimits declares the flags of all limits.
func bindLimits(set *pflag.FlagSet, into *sandbox.Limits, showDefaults bool) {
	defaults := sandbox.DefaultLimits()
	usage := func(meaning, value string) string {
		if !showDefaults {
			return meaning
		}
		return meaning + " (default " + value + ")"
	}
	for _, info := range sandbox.LimitTable() {
		value := limitValue{info, into}
		set.Var(value, info.Flag, usage(info.Meaning, sandbox.FormatQuantity(defaults.Get(info.Field), info.Unit)))
		group(set, groupLimits, info.Flag+" "+value.Type())
	}
	set.Var(cpusValue{into}, "cpus", usage("CPUs at once; 0.5 is half of one", fmt.Sprint(defaults.CPUs)))
	group(set, groupLimits, "cpus N")
}

// bindIsolation declares what says how a sandbox is made.
func bindIsolation(set *pflag.FlagSet, driver, isolation, template *string, network *sandbox.Network, require *[]string) {
	set.StringVar(driver, "driver", "", "the way to make the sandbox (default auto)")
	set.StringVar(isolation, "isolation", "", "the least level: process, namespace, container, kernel or vm (default namespace)")
	set.StringVar(template, "template", "", "what is inside (default host)")
	set.Var(featureList{require}, "require", "refuse to run unless these are enforced: memory,network:none,…")
	set.StringVar(&network.Mode, "network", "", "none, the default, says that nothing can be reached")
	set.Var(endpointList{network}, "allow", "let programs reach this name (default port 443), HOST[:PORT][=ADDRESS], *.HOST, or 'GET https://HOST/PATH/**', or @SET of a server's; ask allows nothing and says what was tried; may be repeated")
	set.Var(endpointSecret{network}, secretFlag, "put this secret of the server's into the requests that the --allow before it lets pass; programs do not get it")
	group(set, groupIsolation, "driver NAME", "isolation LEVEL", "template NAME", "require FEATURES", "network none", "allow [METHOD,… ]HOST[:PORT]|URL", "secret NAME")
}

// timeValue is a flag with a time, kept in milliseconds.
type timeValue struct {
	into  *int64
	field string
}

// Set implements pflag.Value.
func (v timeValue) Set(s string) error {
	ms, err := sandbox.ParseTime(s)
	if err == nil {
		err = sandbox.CheckTTL(ms)
	}
	if err != nil {
		return sandbox.AsError(err).WithField(v.field)
	}
	*v.into = ms
	return nil
}

// String implements pflag.Value.
func (v timeValue) String() string {
	if v.into == nil || *v.into == 0 {
		return ""
	}
	return sandbox.FormatQuantity(*v.into, sandbox.UnitMilliseconds)
}

// Type implements pflag.Value.
func (v timeValue) Type() string { return "TIME" }

func (a *app) extendCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "extend [flags] SANDBOX TIME",
		Short:             "Let a sandbox live longer: so long from now",
		Example:           "  pinfold extend $box 1h",
		Args:              needArgs(2, 2, "a sandbox and a time"),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkIDs("sbx", args[0]); err != nil {
				return err
			}
			ttl, err := sandbox.ParseTime(args[1])
			if err == nil {
				err = sandbox.CheckTTL(ttl)
			}
			if err != nil {
				e := *sandbox.AsError(err).WithHint("pinfold extend " + args[0] + " 1h")
				e.Field = "" // no flag has it
				return &e
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				info, err := c.Sandbox(args[0]).Extend(ctx, ttl)
				if err != nil {
					return err
				}
				return a.writeLine(asJSON, info, "lives until "+info.ExpiresAt.Local().Format(time.DateTime))
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

const killLong = `With sandboxes alone it destroys each of them, with its files and all that runs
in it, and returns when nothing of them is left on the host. With a sandbox and
one of its processes (pinfold ps lists them) only that process gets a signal;
the sandbox lives on. A run is ended with pinfold cancel.`

const killExamples = `  pinfold kill $box                     destroy a sandbox
  pinfold kill $(pinfold ls -q)         destroy all of yours
  pinfold kill --signal INT $box prc_…  send a signal to a process in it`

func (a *app) killCommand() *cobra.Command {
	var asJSON bool
	var signal string
	cmd := &cobra.Command{
		Use:               "kill [flags] SANDBOX... | SANDBOX PROCESS",
		Short:             "Destroy sandboxes; or send a signal to one process in one",
		Long:              killLong,
		Example:           killExamples,
		Args:              needArgs(1, -1, "at least one sandbox"),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			process := len(args) == 2 && strings.HasPrefix(args[1], "prc_")
			if signal != "" && !process {
				return usageError("--signal goes to a process").WithHint("pinfold kill --signal " + sandbox.SafeText(signal, 20) + " SANDBOX PROCESS")
			}
			boxes := args
			if process {
				boxes = args[:1]
			}
			if err := a.checkIDs("sbx", boxes...); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if process {
					if err := a.checkIDs("prc", args[1]); err != nil {
						return err
					}
					return c.Sandbox(args[0]).Process(args[1]).Signal(ctx, cmp.Or(signal, "TERM"))
				}
				return a.destroy(ctx, c, args, asJSON)
			})
		},
	}
	cmd.Flags().StringVarP(&signal, "signal", "s", "", "the process's signal, by name or number (default TERM)")
	group(cmd.Flags(), "Flags", "signal NAME")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) destroy(ctx context.Context, c *client.Client, ids []string, asJSON bool) error {
	ended, err := endAll(a, ids, func(id string) (sandbox.Info, error) { return c.Sandbox(id).Destroy(ctx) })
	if err != nil || !asJSON {
		return err
	}
	return writeList(a, "sandboxes", ended)
}
