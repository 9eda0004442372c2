package api

import (
	"strings"
	"testing"

	"pinfold/internal/api"
	"pinfold/internal/policy"
	"pinfold/sandbox"
)

// askingAbout is a policy under which a person is asked, for a reason, about programs that
// remove files and get something to read.
func askingAbout(t *testing.T, reason string) func() *policy.Policy {
	t.Helper()
	p, err := policy.New(sandbox.Policy{Rules: []sandbox.PolicyRule{{ID: "asks", When: sandbox.PolicyWhen{Kinds: []string{"run"}, Findings: []string{"file-destroy"}, Data: []string{"inputs"}}, Then: sandbox.PolicyThen{Ask: reason}}}})
	if err != nil {
		t.Fatal(err)
	}
	return func() *policy.Policy { return p }
}

var asked = sandbox.Spec{Language: "sh", Code: "rm -rf /", Stdin: "canary-data"}

// useApprovals has runs wait, lists, approves and denies them, and tries a policy.
func useApprovals(w *world) {
	t := w.t
	t.Helper()
	start := func() string {
		var r api.Run
		w.must(202, request{key: "alpha", method: "POST", path: "/v1/runs?wait=false", body: asked}).json(t, &r)
		if r.State != sandbox.RunPending {
			t.Fatalf("%+v", r)
		}
		return r.ID
	}
	id := start()
	var all api.List[sandbox.Approval]
	w.must(200, request{key: "approve", method: "GET", path: "/v1/approvals"}).json(t, &all)
	if len(all.Items) != 1 || all.Items[0].Run != id || all.Items[0].Spec != nil {
		t.Fatalf("%+v", all)
	}
	var one sandbox.Approval
	w.must(200, request{key: "approve", method: "GET", path: "/v1/approvals/" + id}).json(t, &one)
	if one.Spec == nil || one.Spec.Code != asked.Code || one.Rules[0].Ask == "" {
		t.Fatalf("%+v", one)
	}
	w.must(200, request{key: "approve", method: "POST", path: "/v1/runs/" + id + "/approve", body: sandbox.Decide{Reason: "looked"}})
	var r api.Run
	w.must(200, request{key: "read", method: "GET", path: "/v1/runs/" + id + "/wait"}).json(t, &r)
	if r.Result == nil || r.Result.Policy == nil || r.Result.Policy.Approval.Reason != "looked" {
		t.Fatalf("%+v", r)
	}
	id = start()
	w.must(200, request{key: "approve", method: "POST", path: "/v1/runs/" + id + "/deny", body: sandbox.Decide{}})
	w.must(200, request{key: "read", method: "GET", path: "/v1/runs/" + id + "/wait"}).json(t, &r)
	if r.Result.Error == nil || r.Result.Error.Code != sandbox.CodeApprovalDenied {
		t.Fatalf("%+v", r.Result)
	}
	var report sandbox.PolicyReport
	w.must(200, request{key: "admin", method: "POST", path: "/v1/policy/test", body: sandbox.PolicyTrial{Policy: sandbox.Policy{
		Rules: []sandbox.PolicyRule{{ID: "no-rm", When: sandbox.PolicyWhen{Findings: []string{"file-destroy"}}, Then: sandbox.PolicyThen{Refuse: "no"}}},
	}}}).json(t, &report)
	if report.Refused < 2 {
		t.Fatalf("%+v", report)
	}
}

// Who may decide, and on what: keys of the tenant with the scope, the operator, and nobody
// else; who may not learns nothing of what waits.
func TestWhoMayApprove(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.engine.Rules = askingAbout(t, "please ask") })
	var r api.Run
	w.must(202, request{key: "alpha", method: "POST", path: "/v1/runs?wait=false", body: asked}).json(t, &r)
	decide := func(key, word string) request {
		return request{key: key, method: "POST", path: "/v1/runs/" + r.ID + "/" + word, body: sandbox.Decide{}}
	}
	for _, key := range []string{"run", "sandbox", "read"} {
		w.must(403, decide(key, "approve"))
	}
	w.must(403, request{key: "run", method: "GET", path: "/v1/approvals"})
	w.must(403, decide("alpha", "approve")) // it asked
	w.must(404, decide("beta", "approve"))  // another tenant's
	w.must(404, request{key: "beta", method: "GET", path: "/v1/approvals/" + r.ID})
	if a := w.must(200, request{key: "beta", method: "GET", path: "/v1/approvals"}); strings.Contains(a.body, r.ID) {
		t.Error("another tenant sees it")
	}
	w.must(403, request{key: "alpha", method: "POST", path: "/v1/policy/test", body: sandbox.PolicyTrial{Policy: sandbox.Policy{}}})
	w.must(400, request{key: "admin", method: "POST", path: "/v1/policy/test", body: sandbox.PolicyTrial{Policy: sandbox.Policy{Rules: []sandbox.PolicyRule{{ID: "x"}}}}})
	w.must(200, decide("admin", "deny"))
	w.must(200, request{key: "alpha", method: "GET", path: "/v1/runs/" + r.ID + "/wait"}) // until then it is a conflict
	w.must(404, decide("approve", "approve"))
}
