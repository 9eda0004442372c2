package runs

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"

	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/execution"
	"pinfold/internal/language"
	"pinfold/sandbox"
)

// ScanFunc looks at a program. run makes a sandbox for a part of that.
type ScanFunc func(ctx context.Context, req sandbox.ScanRequest, run func(context.Context, sandbox.Spec) (*sandbox.Result, error)) (*sandbox.ScanReport, error)

// scansAtOnce bounds what parsers of hostile source take of this process's memory.
func scansAtOnce() int { return max(2, runtime.NumCPU()/2) }

// newScans returns the places for scans, for which the tenants take turns.
func newScans(like admission.Capacity) *admission.Gate {
	return admission.NewGate(admission.Capacity{Sandboxes: scansAtOnce(), Queue: like.Queue, QueueTimeout: like.QueueTimeout}, nil)
}

// Scan looks at a program and runs nothing of it. What it makes a sandbox for is not
// recorded.
func (rn *Runner) Scan(ctx context.Context, tenant string, req sandbox.ScanRequest) (*sandbox.ScanReport, error) {
	return rn.scanned(ctx, tenant, req, false)
}

// scanned is Scan; late says that nobody waits for it.
func (rn *Runner) scanned(ctx context.Context, tenant string, req sandbox.ScanRequest, late bool) (*sandbox.ScanReport, error) {
	switch {
	case rn.scan == nil:
		return nil, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "scan", Message: "this program cannot look at others"}
	case len(req.Code) > sandbox.MaxCodeBytes:
		return nil, &sandbox.Error{Code: sandbox.CodeTooLarge, Field: "code", Message: "is larger than " + sandbox.FormatSize(sandbox.MaxCodeBytes)}
	}
	leave := func() {}
	enter := func() error {
		place, err := rn.scans.Enter(tenant, admission.Demand{}, late)
		if err != nil {
			return err
		}
		left, err := place.Wait(ctx)
		if err == nil {
			leave = left
		}
		return err
	}
	if err := enter(); err != nil {
		return nil, execution.CallerGone(ctx, err)
	}
	defer func() { leave() }()
	report, err := rn.scan(ctx, req, func(ctx context.Context, spec sandbox.Spec) (*sandbox.Result, error) {
		leave() // what waits for room in its tenant's line keeps no scan of others waiting
		r, err := rn.unrecorded(ctx, Request{Spec: spec, Tenant: tenant, NoArtifacts: true, NoResults: true, Own: true}, late)
		if err == nil {
			err = enter()
		}
		return r, err
	})
	if err != nil {
		return nil, execution.CallerGone(ctx, err)
	}
	return report, nil
}

// unrecorded runs what is the engine's own business.
func (rn *Runner) unrecorded(ctx context.Context, req Request, late bool) (*sandbox.Result, error) {
	j, err := rn.prepare(ctx, req)
	if err != nil {
		return nil, err
	}
	j.late = late
	defer close(j.told)
	return rn.perform(ctx, j)
}

// look scans the job's program. It comes before the job has room: the scan takes some of
// its own, and must not wait for what waits for it.
func (j *job) look(ctx context.Context) error {
	req := sandbox.ScanRequest{Language: j.language.Name, Code: j.spec.Code, File: j.spec.Entrypoint}
	found := j.spec.Code != ""
	for _, f := range j.spec.Files {
		if !found && f.Path == j.spec.Entrypoint {
			content, err := f.Bytes()
			if err != nil {
				return err
			}
			req.Code, found = string(content), true
		}
	}
	if !found {
		j.result.Findings, j.result.FindingsUnread = []sandbox.Finding{}, "could not be read: the program is not in the request"
		return nil
	}
	report, err := j.runner.scanned(ctx, j.request.Tenant, req, j.late)
	if err != nil {
		return err
	}
	j.result.Findings, j.result.FindingsUnread, j.result.FindingsMissed = report.Findings, report.Unread, report.Missed
	for _, name := range slices.Sorted(maps.Keys(j.spec.Env)) {
		if language.Steers(name) && report.Unread == "" {
			j.result.FindingsUnread = fmt.Sprintf("could not be read whole: the variable %s can have other code run", sandbox.SafeText(name, 60))
			break
		}
	}
	return nil
}
