package living

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"pinfold/internal/engine/execution"
	"pinfold/internal/engine/snapshots"
	"pinfold/internal/failpoint"
	"pinfold/sandbox"
)

// origin is what a new sandbox begins with.
type origin struct {
	content *snapshots.Content
	image   string // of its template
	limits  sandbox.Limits
	memory  bool   // and it goes on from there
	forkOf  string // the sandbox that it was forked of, if it was
	// packages are those that the sandbox had, where the new one is to have the same.
	packages sandbox.Packages
	secrets  []string // names of those that can be in what it begins with
}

// knew are the secrets that can be in what a sandbox with this origin, of which there may be
// none, begins with.
func (o *origin) knew() []string {
	if o == nil {
		return nil
	}
	return o.secrets
}

// had are the packages that a sandbox with this origin, of which there may be none, has.
func (o *origin) had() sandbox.Packages {
	if o == nil {
		return sandbox.Packages{}
	}
	return o.packages
}

// goesOn says whether a sandbox with this origin, of which there may be none, goes on.
func (o *origin) goesOn() bool { return o != nil && o.memory }

// forksAtOnce is how many sandboxes of one fork are made at the same time.
const forksAtOnce = 4

// Fork makes sandboxes that begin with what one of the tenant's holds at this moment: all of
// them, or none. What they are made of is as in that one.
func (mg *Manager) Fork(ctx context.Context, s *Sandbox, f sandbox.ForkSandbox) ([]*Sandbox, error) {
	made, err := mg.fork(ctx, s, f)
	if err != nil {
		err = execution.CallerGone(ctx, err)
		mg.observer.Refused(sandbox.AsError(err).Code)
	}
	return made, err
}

func (mg *Manager) fork(ctx context.Context, s *Sandbox, f sandbox.ForkSandbox) ([]*Sandbox, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	w, err := mg.snapshots.Begin(ctx, s.tenant, false)
	if err != nil {
		return nil, err
	}
	defer w.Drop()
	done, err := s.copyTo(ctx, w)
	if err != nil {
		return nil, err
	}
	c := s.asked()
	c.Driver, c.TTLMS = s.machine.Plan.Posture.Driver, f.TTLMS
	if f.Metadata != nil {
		c.Metadata = f.Metadata
	}
	from := &origin{content: w.Content(), image: s.machine.Plan.Template.ID, limits: s.info.Limits, memory: done.memory, forkOf: s.info.ID, packages: s.hasPackages(), secrets: s.hasSecrets()}
	return mg.forked(ctx, s.tenant, c, from, max(f.Count, 1))
}

// forked makes so many, all or none.
func (mg *Manager) forked(ctx context.Context, tenant string, c sandbox.Create, from *origin, count int) ([]*Sandbox, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	made, errs := make([]*Sandbox, count), make([]error, count)
	room := make(chan struct{}, forksAtOnce)
	var all sync.WaitGroup
	for i := range count {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			if made[i], errs[i] = mg.make(ctx, tenant, c, from, false); errs[i] != nil {
				cancel() // the others are of no use any more
			}
		})
	}
	all.Wait()
	var why error
	for _, err := range errs {
		if err != nil && (why == nil || errors.Is(why, context.Canceled)) {
			why = err
		}
	}
	if why == nil {
		return made, nil
	}
	for _, s := range made {
		if s == nil {
			continue
		}
		all.Go(func() { _, _ = s.Destroy(context.WithoutCancel(ctx)) })
	}
	all.Wait()
	return nil, why
}

// fromSnapshot completes a request that names a snapshot of the tenant's.
func (mg *Manager) fromSnapshot(ctx context.Context, tenant string, c sandbox.Create) (sandbox.Create, *origin, error) {
	r, content, err := mg.snapshots.Open(ctx, tenant, c.Snapshot)
	if err != nil {
		e := sandbox.AsError(err).WithField("snapshot")
		if e.Code == sandbox.CodeNotFound {
			e = e.WithAdvice(sandbox.Advise("list yours with %s", sandbox.Call(sandbox.CallListSnapshots)))
		}
		return c, nil, e
	}
	from := &origin{content: content, image: r.Image, limits: r.Info.Limits, memory: hasMemory(r.Info), secrets: named(r.Secrets, r.Request.Network)}
	if c.Packages.IsZero() {
		from.packages = r.Packages
	}
	if c.Template != "" && c.Template != r.Info.Template {
		content.Close()
		return c, nil, (&sandbox.Error{
			Code: sandbox.CodeConflict, Field: "template", Message: fmt.Sprintf("the snapshot is of a sandbox of the template %s", sandbox.SafeText(r.Info.Template, 80)),
		}).WithAdvice(sandbox.Advise("%s", sandbox.Omit("template")))
	}
	if from.memory {
		if c.Driver != "" && c.Driver != r.Info.Driver {
			content.Close()
			return c, nil, (&sandbox.Error{
				Code: sandbox.CodeConflict, Field: "driver", Message: fmt.Sprintf("the snapshot holds memory, with which only a sandbox of the %s driver can go on", r.Info.Driver),
			}).WithAdvice(sandbox.Advise("%s", sandbox.Omit("driver")))
		}
		c.Driver = r.Info.Driver
		if was := cmp.Or(r.Request.OnOutOfMemory, sandbox.OutOfMemorySandbox); cmp.Or(c.OnOutOfMemory, was) != was {
			content.Close()
			return c, nil, (&sandbox.Error{
				Code: sandbox.CodeConflict, Field: "on_out_of_memory", Message: fmt.Sprintf("a machine that goes on does what it did when its memory is full, which is %s", was),
			}).WithAdvice(sandbox.Advise("%s", sandbox.Omit("on_out_of_memory")))
		}
	}
	return c.Like(r.Request), from, nil
}

// gone is the error where the template is not there as it was.
func (o *origin) gone(template string) error {
	return &sandbox.Error{
		Code: sandbox.CodeConflict, Field: "snapshot", Message: fmt.Sprintf("the template %s is not what it was when the snapshot was made", sandbox.SafeText(template, 80)),
		Hint: "bring that version of the template back, or make the files anew in a sandbox of the template as it is now",
	}
}

// suits says why what a sandbox is to begin with does not go into it, as far as that is
// known beforehand.
func (o *origin) suits(limits sandbox.Limits, image, template string) error {
	if image != o.image {
		return o.gone(template)
	}
	if o.memory {
		return o.asItWas(limits)
	}
	for _, l := range []struct {
		field      string
		need, have int64
	}{{"limits.disk_bytes", o.limits.DiskBytes, limits.DiskBytes}, {"limits.inodes", o.limits.Inodes, limits.Inodes}} {
		if l.have < l.need {
			return (&sandbox.Error{
				Code: sandbox.CodeLimitInvalid, Field: l.field, Message: fmt.Sprintf("what it is to begin with may take up to %d, and %d are asked for", l.need, l.have),
			}).WithAdvice(sandbox.Advise("ask for at least as much: %s", sandbox.Set(l.field, l.need)))
		}
	}
	return nil
}

// fill makes the files with which a new sandbox begins: those that it is given, or those of
// its image's home. Nothing runs in it yet, and nobody knows it. After an error its machine
// is gone.
func (s *Sandbox) fill(ctx context.Context, from *origin) (err error) {
	switch {
	case from.goesOn(): // they are in its memory
	case from == nil:
		err = s.machine.FillHome(ctx, s.manager.home)
	default:
		failpoint.Hit("restore.machine")
		err = s.machine.Restore(ctx, from.content.Reader())
		failpoint.Hit("restore.files")
	}
	if err == nil {
		return nil
	}
	err = execution.CallerGone(ctx, err)
	if s.manager.pools.Destroy(s.machine, s.manager.quit) {
		s.machine.Gone()
	}
	s.finish(sandbox.Cause{Kind: sandbox.CauseLost, Evidence: "its files could not be made"}, sandbox.AsError(err))
	return err
}
