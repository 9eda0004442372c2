package gvisor

import (
	"context"
	"os"

	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/linux/cgroup"
	"pinfold/internal/linux/failure"
	"pinfold/sandbox"
)

// usableHere says who cannot make machines.
func usableHere() *sandbox.Error {
	if os.Geteuid() == 0 {
		return nil
	}
	return unavailable("the gvisor driver needs root: it gives each sandbox user ids of its own, and a control group").
		WithAdvice(sandbox.Advice{sandbox.HostCommand("sudo -s")})
}

// Probe reports what can be enforced here. A runsc that it has not met yet it tries.
func (d *Driver) Probe(ctx context.Context, _ image.Template) (driver.Report, error) {
	r := driver.Report{Driver: Name, Level: sandbox.LevelKernel, Blocked: usableHere(), SwitchUser: true}
	if r.Blocked != nil {
		return r, nil //nolint:nilerr // the report says so
	}
	common, err := d.prepare()
	if err != nil {
		return r, err
	}
	if !common.hierarchy.Usable() {
		s := common.hierarchy.Support(cgroup.Memory)
		r.Blocked = unavailable("no control group can be made, and nothing else limits a sentry: " + s.Because).WithAdvice(sandbox.Advice{fix(s)})
		return r, nil
	}
	p := d.prove(ctx)
	switch {
	case ctx.Err() != nil:
		return r, failure.Of("try runsc", context.Cause(ctx))
	case p.refusal != nil:
		r.Blocked = p.refusal
	default:
		r.Findings = common.findings(p.version)
	}
	return r, nil
}

func (l *common) findings(version string) []driver.Finding {
	var all []driver.Finding
	for _, f := range always {
		all = append(all, driver.Finding{Feature: f, Answer: driver.Yes, Because: "part of every sandbox"})
	}
	for _, f := range bySentry {
		all = append(all, driver.Finding{Feature: f.feature, Answer: driver.Yes, Because: f.because})
	}
	all = append(all, driver.Finding{Feature: sandbox.FeatureUserNS, Answer: driver.Yes, Because: "runsc " + version + " and all that it starts are in one, in which the host's root does not exist"})
	for _, f := range never {
		all = append(all, driver.Finding{Feature: f.feature, Answer: driver.No, Because: f.because, Fix: f.fix})
	}
	return append(all,
		l.byController(sandbox.FeatureMemory, cgroup.Memory), l.byController(sandbox.FeatureSwap, cgroup.Swap), l.byController(sandbox.FeatureCPUs, cgroup.CPU))
}

func (l *common) byController(feature string, c cgroup.Controller) driver.Finding {
	s := l.hierarchy.Support(c)
	return driver.Finding{Feature: feature, Answer: driver.Answer(s.Answer), Because: s.Because, Fix: fix(s)}
}

func fix(s cgroup.Support) sandbox.Fix {
	switch {
	case s.Command:
		return sandbox.HostCommand(s.Fix)
	case s.Fix != "":
		return sandbox.Text(s.Fix)
	}
	return sandbox.Fix{}
}

// always lists what every machine has: making one fails otherwise.
var always = []string{
	sandbox.FeatureNetworkNone, sandbox.FeatureNetNS, sandbox.FeatureNoNewPrivs, sandbox.FeatureCapabilities,
	sandbox.FeatureReadOnlyRoot, sandbox.FeatureAgentSealed, sandbox.FeatureUIDBlock,
	sandbox.FeatureWallTime, sandbox.FeatureCPUTime, sandbox.FeatureDisk, sandbox.FeatureInodes,
	sandbox.FeatureOutput, sandbox.FeatureOpenFiles, sandbox.FeatureFileSize,
}

type said struct {
	feature, because string
	fix              sandbox.Fix
}

// bySentry lists what programs have since they meet a kernel of the sandbox's own, in which
// there is nobody else.
var bySentry = []said{
	{feature: sandbox.FeatureMountNS, because: "the sandbox's own kernel knows no other files"},
	{feature: sandbox.FeaturePIDNS, because: "the sandbox's own kernel knows no other processes"},
	{feature: sandbox.FeatureIPCNS, because: "the sandbox's own kernel has nobody else's"},
	{feature: sandbox.FeatureUTSNS, because: "the sandbox's own kernel has its own name"},
	{feature: sandbox.FeatureCgroupNS, because: "the sandbox's own kernel shows no control groups"},
	{feature: sandbox.FeatureTimeNS, because: "the clocks of the sandbox's own kernel begin with it"},
	{feature: sandbox.FeatureProcesses, because: "RLIMIT_NPROC of the sandbox's own kernel, to within six"},
	{feature: sandbox.FeatureFilesOwn, because: "the sentry opens the host's files to read; locks, watches and times are its own"},
	{feature: sandbox.FeatureDevicesOwn, because: "the sentry has its own"},
	{feature: sandbox.FeatureNetwork, because: "the agent listens in the sandbox's own kernel, which has loopback alone, and hands each connection to the host"},
	{feature: sandbox.FeatureASLR, because: "the sandbox's own kernel gives every program that is started a layout of its own"},
}

// never lists what there is not.
var never = []said{
	{sandbox.FeatureSeccomp, "programs may make every call that the sandbox's own kernel has, which a filter would slow down by half; the host's kernel it meets by a list of runsc's own", sandbox.Set("driver", "native")},
	{sandbox.FeatureLandlock, "programs meet the sandbox's own kernel, which has none", sandbox.Set("driver", "native")},
	{sandbox.FeatureIO, "the sandbox's disk is memory, and reading the host's read-only files is not throttled; this driver has no means to", sandbox.Fix{}},
}
