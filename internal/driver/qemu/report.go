//go:build linux

package qemu

import (
	"cmp"
	"context"
	"os"
	"runtime"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/image"
	"pinfold/internal/linux/seccomp"
	"pinfold/sandbox"
)

// retryAfter is for how long a machine that could not be booted is not tried again.
const retryAfter = time.Minute

// seen is what a machine of this host's has shown. It holds for all templates: what a
// kernel enforces it does whatever is on the disk.
type seen struct {
	report driver.Report
	at     time.Time
}

// Probe reports what a machine enforces: the first time it boots one and looks, which takes
// seconds. What it has seen holds for as long as this process lives; a machine that turns
// out to be another is not made.
func (d *Driver) Probe(ctx context.Context, t image.Template) (driver.Report, error) {
	r := driver.Report{Driver: Name, Level: sandbox.LevelVM}
	if r.Blocked = d.blocked(); r.Blocked != nil || t.ID == "" {
		return r, nil // of no template there are no machines
	}
	d.look.Lock()
	defer d.look.Unlock()
	if d.seen == nil || d.seen.report.Blocked != nil && time.Since(d.seen.at) > retryAfter {
		key, err := d.keyOf(ctx, t, shapeOf(driver.Plan{Limits: sandbox.Limits{}.WithDefaults()}))
		if err != nil {
			return d.cannot(ctx, r, err)
		}
		found, err := d.lookInside(ctx, key)
		if ctx.Err() != nil {
			return r, sandbox.Errorf(sandbox.CodeResourceUnavailable, "the virtual machine was not looked at to the end: %w", context.Cause(ctx))
		}
		if err != nil {
			found = r
			e := sandbox.AsError(createError(err))
			found.Blocked = unavailable("a virtual machine of "+d.host.kernel.file+" cannot be used here: "+e.Message, blockedHint(e))
		}
		d.seen = &seen{found, time.Now()}
	}
	return d.seen.report, nil
}

// cannot reports that there is no disk of a template, which says nothing of others.
func (d *Driver) cannot(ctx context.Context, r driver.Report, err error) (driver.Report, error) {
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	e := sandbox.AsError(createError(err))
	if e.Code == sandbox.CodeTemplateUnknown {
		return r, e
	}
	r.Blocked = unavailable("no virtual machine can be prepared: "+e.Message, blockedHint(e))
	return r, nil
}

func blockedHint(e *sandbox.Error) string {
	if e.Hint != "" && e.Code != sandbox.CodeSetupFailed {
		return e.Hint
	}
	return "name another kernel by drivers.qemu.kernel, such as that of " + installKernel
}

// blocked says what is known to be missing without a look into a machine.
func (d *Driver) blocked() *sandbox.Error {
	switch {
	case runtime.GOARCH != "amd64":
		return unavailable("virtual machines are made on amd64 only, and this is "+runtime.GOARCH, "take the native driver")
	case os.Geteuid() != 0:
		return unavailable("only root can give QEMU a user id of its own", "run it as root: sudo -s")
	}
	if support := seccomp.Probe(); support.Filter != nil {
		return unavailable("QEMU needs a system-call filter around it: "+support.Filter.Error(), "boot a kernel with CONFIG_SECCOMP_FILTER")
	}
	h, err := d.prepare()
	switch {
	case err != nil:
		e := sandbox.AsError(err)
		return &sandbox.Error{Code: sandbox.CodeDriverUnavailable, Message: e.Message, Hint: cmp.Or(e.Hint, "run pinfold doctor to see what this host lacks"), Advice: e.Advice, Err: err}
	case !h.hierarchy.Usable():
		return unavailable("QEMU needs a cgroup around it, and none can be made here", "run pinfold doctor to see what this host lacks")
	}
	return nil
}

// lookInside looks at the machine that others are made from.
func (d *Driver) lookInside(ctx context.Context, key baseKey) (driver.Report, error) {
	b, err := d.baseOf(ctx, key)
	if err != nil {
		return driver.Report{}, err
	}
	defer b.release()
	return d.reported(b.report), nil
}

// otherKernel is what to do about what a machine's kernel lacks.
var otherKernel = sandbox.Text("give virtual machines another kernel, by drivers.qemu.kernel")

// reported is a machine's report of itself as the driver's.
func (d *Driver) reported(inside driver.Report) driver.Report {
	r := driver.Report{Driver: Name, Level: sandbox.LevelVM, SwitchUser: inside.SwitchUser}
	if inside.Blocked != nil {
		r.Blocked = unavailable("the kernel "+d.host.kernel.file+" makes no sandboxes: "+sandbox.SafeText(inside.Blocked.Message, 500), "give virtual machines another kernel, by drivers.qemu.kernel")
		return r
	}
	where := "in the virtual machine, by KVM: "
	kvm, why := d.byKVM()
	if !kvm {
		where = "in the virtual machine, emulated: "
	}
	for _, f := range inside.Findings {
		if f.Feature == sandbox.FeatureNetwork {
			f.Because = "the agent listens in the sandbox, which has loopback alone, and hands each connection to the host"
		}
		f.Because = where + f.Because
		if f.Feature == sandbox.FeatureCPUs && !kvm {
			f.Because += "; KVM is not used: " + why
		}
		if f.Answer != driver.Yes && f.Fix.Kind != "" {
			f.Fix = otherKernel
		}
		r.Findings = append(r.Findings, f)
	}
	return r
}
