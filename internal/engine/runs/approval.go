package runs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/records"
	"pinfold/internal/policy"
	"pinfold/sandbox"
)

// # Approval
//
// A run that a rule has a person asked about waits here, without a sandbox and without a
// place in the queue. What waits is the very job that will run: nobody can change it
// meanwhile. It is nowhere but in memory: with the server it ends, and never runs.

// Approver asks a person about a run by other means than a server's API.
type Approver func(ctx context.Context, a sandbox.Approval) (sandbox.PolicyDecision, error)

// pendings are the runs that wait for a person. It is safe for concurrent use.
type pendings struct {
	mu  sync.Mutex
	all map[string]*pending // by run
}

// pending is one of them.
type pending struct {
	sandbox.Approval

	spec   sandbox.Spec
	own    bool   // the key that asked may decide
	policy string // its digest

	mu       sync.Mutex    // held while a decision is recorded
	over     bool          // it is decided, or does not wait any more
	decided  chan struct{} // closed when there is a decision
	decision sandbox.PolicyDecision
}

// add enters a run, unless so many of the tenant's wait.
func (p *pendings) add(one *pending, most int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, other := range p.all {
		if other.Tenant == one.Tenant {
			n++
		}
	}
	if n >= most {
		return admission.Busy(sandbox.CodeQuotaExceeded, fmt.Sprintf("%d runs wait for a person's approval already", n), "have some of them decided (pinfold approvals), or cancel them", 5*time.Second)
	}
	if p.all == nil {
		p.all = map[string]*pending{}
	}
	p.all[one.Run] = one
	return nil
}

func (p *pendings) remove(run string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, run)
}

// find is a run that waits, of a tenant or, without one, of any.
func (p *pendings) find(tenant, run string) (*pending, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.all[run]; one != nil && (tenant == "" || one.Tenant == tenant) {
		return one, nil
	}
	return nil, &sandbox.Error{Code: sandbox.CodeNotFound, Message: "no such run waits for approval", Hint: "pinfold approvals lists those that do"}
}

// Approvals are the runs of a tenant that wait for a person, or of all where it is empty,
// the oldest first.
func (rn *Runner) Approvals(tenant string) []sandbox.Approval {
	rn.pendings.mu.Lock()
	defer rn.pendings.mu.Unlock()
	all := []sandbox.Approval{}
	for _, one := range rn.pendings.all {
		if tenant == "" || one.Tenant == tenant {
			all = append(all, one.Approval)
		}
	}
	slices.SortFunc(all, func(a, b sandbox.Approval) int { return a.AskedAt.Compare(b.AskedAt) })
	return all
}

// maxShown is how much of a request an approval shows whole, in bytes.
const maxShown = 1 << 20

// Approval is one of Approvals, with what will run. What is large is left out of it.
func (rn *Runner) Approval(tenant, run string) (sandbox.Approval, error) {
	one, err := rn.pendings.find(tenant, run)
	if err != nil {
		return sandbox.Approval{}, err
	}
	a, spec := one.Approval, one.spec
	size := len(spec.Code) + len(spec.Stdin)
	for _, f := range spec.Files {
		size += len(f.Content) + len(f.ContentBase64)
	}
	if size > maxShown {
		a.Cut = true
		spec.Stdin, spec.Files = "", slices.Clone(spec.Files)
		for i := range spec.Files {
			spec.Files[i].Content, spec.Files[i].ContentBase64 = "", ""
		}
		spec.Code = strings.ToValidUTF8(spec.Code[:min(len(spec.Code), maxShown)], "")
	}
	a.Spec = &spec
	return a, nil
}

// Decide is a person's word on a run that waits, under the key of the context. It holds
// once it is in the audit log, where there is one that must have everything.
func (rn *Runner) Decide(ctx context.Context, tenant, run string, v sandbox.Verdict, reason string) (sandbox.Approval, error) {
	if len(reason) > sandbox.MaxReason {
		return sandbox.Approval{}, &sandbox.Error{Code: sandbox.CodeTooLarge, Field: "reason", Message: fmt.Sprintf("has more than %d bytes", sandbox.MaxReason)}
	}
	one, err := rn.pendings.find(tenant, run)
	if err != nil {
		return sandbox.Approval{}, err
	}
	key := records.KeyOf(ctx)
	if key == one.Key && !one.own {
		return sandbox.Approval{}, &sandbox.Error{
			Code: sandbox.CodeForbidden, Message: "the key that asked for a run does not decide on it", Hint: "use another key with the scope approve; policy.approval.own in the server's configuration lets it",
		}
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.over {
		return sandbox.Approval{}, &sandbox.Error{Code: sandbox.CodeConflict, Message: "the run does not wait any more", Hint: "pinfold approvals lists those that do"}
	}
	d := sandbox.PolicyDecision{Verdict: v, By: cmp.Or(key, records.LocalTenant), Reason: reason, AskedAt: one.AskedAt, At: time.Now().UTC().Round(0)}
	if rn.auditor != nil {
		_, err := rn.auditor.Record(context.WithoutCancel(ctx), records.DecisionEvent(one.Approval, d, one.policy))
		if err != nil && rn.auditor.Strict() {
			return sandbox.Approval{}, sandbox.AsError(err)
		}
	}
	one.decision, one.over = d, true
	close(one.decided)
	return one.Approval, nil
}

// approved waits until a person has approved the job. After an error it must not run.
func (j *job) approved(ctx context.Context, rules *policy.Policy) error {
	now := time.Now().UTC().Round(0)
	one := &pending{
		Approval: sandbox.Approval{
			Run: j.result.ID, Tenant: j.request.Tenant, Key: records.KeyOf(ctx), AskedAt: now, ExpiresAt: now.Add(rules.Timeout()),
			Language: j.language.Name, Driver: j.plan.Posture.Driver, Isolation: j.runner.level(j.plan.Posture.Driver), Network: policy.Words(j.spec.Network),
			Rules: j.result.Policy.Rules, Findings: j.result.Findings, FindingsUnread: j.result.FindingsUnread,
			OpenStdin: j.request.Streams.Stdin != nil,
		},
		spec: j.request.Spec, own: rules.Own(), policy: rules.Digest(), decided: make(chan struct{}),
	}
	ctx, cancel := context.WithTimeoutCause(ctx, rules.Timeout(), errUndecided)
	defer cancel()
	decision, err := j.ask(ctx, one, rules)
	if err != nil {
		return err
	}
	decision.AskedAt = one.AskedAt
	j.result.Policy.Approval = &decision
	switch decision.Verdict { //nolint:exhaustive // below
	case sandbox.VerdictApproved:
		return nil
	case sandbox.VerdictTimeout:
		return &sandbox.Error{
			Code: sandbox.CodeApprovalTimeout, Message: fmt.Sprintf("nobody approved it within %s", rules.Timeout()), Hint: "ask somebody who may approve (pinfold approvals), and run it again",
		}
	}
	message := "a person denied it"
	if decision.Reason != "" {
		message += ": " + decision.Reason
	}
	return &sandbox.Error{Code: sandbox.CodeApprovalDenied, Message: message} // whatever else there is, it is no approval
}

var errUndecided = &sandbox.Error{Code: sandbox.CodeApprovalTimeout, Message: "nobody decided in time"}

// ask asks a person. The error is that nobody can be asked, or that the run does not wait
// any more.
func (j *job) ask(ctx context.Context, one *pending, rules *policy.Policy) (d sandbox.PolicyDecision, err error) {
	rn := j.runner
	switch {
	case rn.approver != nil:
		return rn.approver(ctx, one.Approval)
	case rn.records == nil:
		return d, &sandbox.Error{Code: sandbox.CodeApprovalDenied, Message: "a rule of the operator's has a person asked about it, and there is nobody to ask"}
	}
	if err := rn.pendings.add(one, rules.Pending()); err != nil {
		return d, err
	}
	defer rn.pendings.remove(one.Run)
	j.live.waits(true)
	defer j.live.waits(false)
	j.stands()
	j.begun()
	if j.request.Pending != nil {
		j.request.Pending(one.Approval)
	}
	select {
	case <-one.decided:
		return one.decision, nil
	case <-rn.ending:
		err = admission.ShuttingDown()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	one.mu.Lock() // a decision that is being recorded holds
	defer one.mu.Unlock()
	if one.over {
		return one.decision, nil
	}
	one.over = true
	if err == error(errUndecided) { //nolint:errorlint // the very error
		return sandbox.PolicyDecision{Verdict: sandbox.VerdictTimeout, At: time.Now().UTC().Round(0)}, nil
	}
	return sandbox.PolicyDecision{}, err
}
