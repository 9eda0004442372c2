package runs

import (
	"context"
	"strings"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine/admission"
	"pinfold/sandbox"
)

// scanning is a runner whose scan runs a program of its own, as that of Python does, and
// reports the source that it was given.
func scanning(t *testing.T) (rn *Runner, asked *[]sandbox.ScanRequest) {
	t.Helper()
	rn, _ = newRunner(t, hostFiles(), nil, func(driver.Plan) fake.Script { return fake.Script{Program: says("out", "")} })
	rn.gate = admission.NewGate(admission.Capacity{Sandboxes: 1}, nil)
	asked = &[]sandbox.ScanRequest{}
	rn.scan = func(ctx context.Context, req sandbox.ScanRequest, run func(context.Context, sandbox.Spec) (*sandbox.Result, error)) (*sandbox.ScanReport, error) {
		*asked = append(*asked, req)
		r, err := run(ctx, sandbox.Spec{Language: "sh", Code: "read the source"})
		if err != nil {
			return nil, err
		}
		return &sandbox.ScanReport{Findings: []sandbox.Finding{{Rule: "x", Text: r.Stdout}}, Unread: "half"}, nil
	}
	return rn, asked
}

// A run that asks for a scan has what was seen, also where there is room for one sandbox
// only; one that does not ask has nothing of it.
func TestScanOfARun(t *testing.T) {
	rn, asked := scanning(t)
	r := run(t, rn, Request{Spec: sandbox.Spec{Language: "sh", Code: "echo 1", Scan: true}})
	if r.Status != sandbox.StatusSucceeded || len(r.Findings) != 1 || r.Findings[0].Text != "out" || r.FindingsUnread != "half" {
		t.Errorf("%+v", r)
	}
	r = run(t, rn, Request{Spec: sandbox.Spec{Language: "sh", Entrypoint: "a.sh", Files: []sandbox.File{{Path: "a.sh", Content: "echo 2"}}, Scan: true}})
	if len(r.Findings) != 1 || len(*asked) != 2 || (*asked)[0].Code != "echo 1" || (*asked)[1].Code != "echo 2" || (*asked)[1].File != "a.sh" {
		t.Errorf("%+v was asked for", *asked)
	}
	r = run(t, rn, Request{Spec: sandbox.Spec{Language: "sh", Code: "echo 1"}})
	if r.Findings != nil || r.FindingsUnread != "" || len(*asked) != 2 {
		t.Errorf("without being asked: %+v", r.Findings)
	}
}

// A scan that fails refuses the run that asked for it: nothing runs unseen.
func TestScanThatFailsRefusesTheRun(t *testing.T) {
	rn, _ := scanning(t)
	rn.scan = func(context.Context, sandbox.ScanRequest, func(context.Context, sandbox.Spec) (*sandbox.Result, error)) (*sandbox.ScanReport, error) {
		return nil, sandbox.Errorf(sandbox.CodeInternal, "broken")
	}
	ask := Request{Spec: sandbox.Spec{Language: "sh", Code: "echo 1", Scan: true}}
	if _, err := rn.Run(t.Context(), ask); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("%v", err)
	}
	rn.scan = nil
	if _, err := rn.Run(t.Context(), ask); sandbox.AsError(err).Field != "scan" {
		t.Errorf("without a scan: %v", err)
	}
}
