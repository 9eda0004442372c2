package runs

import (
	"context"
	"runtime"

	"pinfold/internal/engine/execution"
	"pinfold/sandbox"
)

// ScanFunc looks at a program. run makes a sandbox for a part of that.
type ScanFunc func(ctx context.Context, req sandbox.ScanRequest, run func(context.Context, sandbox.Spec) (*sandbox.Result, error)) (*sandbox.ScanReport, error)

// scansAtOnce bounds what parsers of hostile source take of this process's memory.
func scansAtOnce() int { return max(2, runtime.NumCPU()/2) }

// Scan looks at a program and runs nothing of it. What it makes a sandbox for is not
// recorded.
func (rn *Runner) Scan(ctx context.Context, tenant string, req sandbox.ScanRequest) (*sandbox.ScanReport, error) {
	switch {
	case rn.scan == nil:
		return nil, &sandbox.Error{Code: sandbox.CodeSpecInvalid, Field: "scan", Message: "this program cannot look at others"}
	case len(req.Code) > sandbox.MaxCodeBytes:
		return nil, &sandbox.Error{Code: sandbox.CodeTooLarge, Field: "code", Message: "is larger than " + sandbox.FormatSize(sandbox.MaxCodeBytes)}
	}
	select {
	case rn.scans <- struct{}{}:
	case <-ctx.Done():
		return nil, execution.CallerGone(ctx, context.Cause(ctx))
	}
	defer func() { <-rn.scans }()
	report, err := rn.scan(ctx, req, func(ctx context.Context, spec sandbox.Spec) (*sandbox.Result, error) {
		return rn.unrecorded(ctx, Request{Spec: spec, Tenant: tenant, NoArtifacts: true, NoResults: true, Own: true})
	})
	if err != nil {
		return nil, execution.CallerGone(ctx, err)
	}
	return report, nil
}

// unrecorded runs what is the engine's own business.
func (rn *Runner) unrecorded(ctx context.Context, req Request) (*sandbox.Result, error) {
	j, err := rn.prepare(ctx, req)
	if err != nil {
		return nil, err
	}
	defer close(j.told)
	return rn.perform(ctx, j)
}

// look scans the job's program, where the request says so. It comes before the job has
// room: the scan takes some of its own, and must not wait for what waits for it.
func (j *job) look(ctx context.Context) error {
	if !j.spec.Scan {
		return nil
	}
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
	report, err := j.runner.Scan(ctx, j.request.Tenant, req)
	if err != nil {
		return err
	}
	j.result.Findings, j.result.FindingsUnread = report.Findings, report.Unread
	return nil
}
