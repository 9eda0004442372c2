package engine_test

import (
	"slices"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/driver/fake"
	"pinfold/internal/engine"
	"pinfold/internal/engine/admission"
	"pinfold/internal/engine/runs"
	"pinfold/internal/profile"
	"pinfold/sandbox"
)

// tools are profiles for tests: one with a gate, one with living sandboxes.
func tools(t *testing.T) profile.Set {
	t.Helper()
	s := profile.Set{}
	for _, e := range []profile.Entry{
		{Profile: sandbox.Profile{Name: "quiet", Language: "shell", Limits: sandbox.Limits{MemoryBytes: 64 << 20}, Gate: &sandbox.Gate{Keys: sandbox.GateRedact}}},
		{Profile: sandbox.Profile{Name: "box", Language: "shell", TTLMS: 60_000, Limits: sandbox.Limits{WallTimeMS: 2000, MemoryBytes: 64 << 20}}},
		{Profile: sandbox.Profile{Name: "theirs", Language: "shell"}, Tenants: []string{"bob"}},
	} {
		if err := s.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// A run with a profile is what the profile says: its plan, its gate, its result, its record
// and its entry in the audit log; a wider one is refused.
func TestRunOfAProfile(t *testing.T) {
	a := newAudited(t, true)
	s := leaking(t, engine.Options{Auditor: a, Policy: admission.Policy{Profiles: tools(t)}})
	want := s.Tools("alice", nil)[1]
	r, err := s.Run(soon(t), runs.Request{Tenant: "alice", Spec: sandbox.Spec{Profile: "quiet", Code: "scripted"}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Language != "shell" && r.Language != "bash" && r.Language != "sh" || r.Stdout != "before [github_token] after\n" || r.Profile == nil || *r.Profile != (sandbox.ProfileRef{Name: "quiet", Digest: want.Digest}) {
		t.Errorf("%+v %+v", r, r.Profile)
	}
	if record, err := s.RunRecord(soon(t), "alice", r.ID); err != nil || record.Result.Profile == nil || *record.Result.Profile != *r.Profile {
		t.Errorf("%+v %v", record.Result, err)
	}
	for field, spec := range map[string]sandbox.Spec{
		"limits.memory_bytes": {Profile: "quiet", Code: "x", Limits: sandbox.Limits{MemoryBytes: 65 << 20}},
		"gate.keys":           {Profile: "quiet", Code: "x", Gate: &sandbox.Gate{Keys: sandbox.GateFlag}},
		"template":            {Profile: "quiet", Code: "x", Template: "other"},
	} {
		for _, ask := range []func() error{
			func() error { _, err := s.Run(soon(t), runs.Request{Tenant: "alice", Spec: spec}); return err },
			func() error { _, err := s.Start(soon(t), runs.Request{Tenant: "alice", Spec: spec}); return err },
		} {
			if e := sandbox.AsError(ask()); e == nil || e.Code != sandbox.CodeProfileDenied || e.Field != field {
				t.Errorf("%s: %v", field, e)
			}
		}
	}
	for _, name := range []string{"theirs", "none"} {
		if _, err := s.Run(soon(t), runs.Request{Tenant: "alice", Spec: sandbox.Spec{Profile: name, Code: "x"}}); code(err) != sandbox.CodeProfileUnknown {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What a profile lets pass the operator can refuse all the same.
	strict := leaking(t, engine.Options{Policy: admission.Policy{Profiles: tools(t), Max: sandbox.Limits{MemoryBytes: 32 << 20}}})
	if _, err := strict.Run(soon(t), runs.Request{Tenant: "alice", Spec: sandbox.Spec{Profile: "quiet", Code: "x"}}); code(err) != sandbox.CodeLimitInvalid {
		t.Error(err)
	}
}

// Who is confined to profiles has to name one of them, whatever is asked for.
func TestConfinedRequests(t *testing.T) {
	s := leaking(t, engine.Options{Policy: admission.Policy{Profiles: tools(t)}})
	ctx := admission.Confine(soon(t), []string{"quiet"})
	for _, name := range []string{"", "box", "theirs"} {
		if _, err := s.Run(ctx, runs.Request{Tenant: "bob", Spec: sandbox.Spec{Profile: name, Language: "shell", Code: "x"}}); code(err) != sandbox.CodeProfileDenied || sandbox.AsError(err).Field != "profile" || sandbox.AsError(err).Hint == "" {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := s.Create(ctx, "bob", sandbox.Create{Profile: name}); code(err) != sandbox.CodeProfileDenied {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := s.Run(soon(t), runs.Request{Tenant: "bob", Spec: sandbox.Spec{Profile: name, Language: "shell", Code: "x"}}); err != nil {
			t.Errorf("%q, of somebody else: %v", name, err)
		}
	}
	if _, err := s.Run(ctx, runs.Request{Tenant: "bob", Spec: sandbox.Spec{Profile: "quiet", Code: "x"}}); err != nil {
		t.Error(err)
	}
	if _, err := s.Run(admission.Confine(soon(t), []string{}), runs.Request{Spec: sandbox.Spec{Language: "shell", Code: "x"}}); code(err) != sandbox.CodeProfileDenied {
		t.Error("a list that is empty confines nobody:", err)
	}
}

// A living sandbox of a profile stays within it: its limits, its processes', its time, and
// what is forked of it.
func TestLivingSandboxOfAProfile(t *testing.T) {
	s := serve(t, engine.Options{Policy: admission.Policy{Profiles: tools(t)}, DefaultTTL: time.Hour}, func(driver.Plan) fake.Script {
		return fake.Script{Program: func(*fake.Process) fake.Exit { return fake.Exit{} }}
	})
	x := s.create(t, sandbox.Create{Profile: "box"})
	info := x.Info()
	if info.Profile == nil || info.Profile.Name != "box" || info.Limits.MemoryBytes != 64<<20 || info.Limits.WallTimeMS != 2000 || info.ExpiresAt.Sub(info.CreatedAt) > time.Minute+time.Second {
		t.Errorf("%+v", info)
	}
	if _, err := x.Exec(soon(t), sandbox.Command{Shell: "true", WallTimeMS: 2001}); code(err) != sandbox.CodeProfileDenied {
		t.Error(err)
	}
	if _, err := x.Exec(soon(t), sandbox.Command{Shell: "true", WallTimeMS: 2000}); err != nil {
		t.Error(err)
	}
	if _, err := x.Extend(61_000); code(err) != sandbox.CodeProfileDenied {
		t.Error(err)
	}
	if _, err := x.Extend(1000); err != nil {
		t.Error(err)
	}
	fork, err := s.Fork(soon(t), x, sandbox.ForkSandbox{TTLMS: 1000})
	if err != nil || fork[0].Info().Profile == nil || *fork[0].Info().Profile != *info.Profile || fork[0].Info().Limits != info.Limits {
		t.Errorf("%+v %v", fork, err)
	}
	if _, err := s.Fork(soon(t), x, sandbox.ForkSandbox{TTLMS: 61_000}); code(err) != sandbox.CodeProfileDenied {
		t.Error(err)
	}
	again := s.create(t, sandbox.Create{Snapshot: snapshot(t, x).ID})
	if again.Info().Profile == nil || *again.Info().Profile != *info.Profile {
		t.Errorf("%+v", again.Info())
	}
	free := s.create(t, sandbox.Create{TTLMS: 60_000}) // the same attacks, where nothing is fixed
	if _, err := free.Exec(soon(t), sandbox.Command{Shell: "true", WallTimeMS: 2001}); err != nil {
		t.Error(err)
	}
	if _, err := free.Extend(61_000); err != nil {
		t.Error(err)
	}
	for field, c := range map[string]sandbox.Create{
		"profile": {Profile: "quiet"}, "ttl_ms": {Profile: "box", TTLMS: 60_001}, "limits.memory_bytes": {Profile: "box", Limits: sandbox.Limits{MemoryBytes: 65 << 20}},
	} {
		if _, err := s.Create(soon(t), "alice", c); code(err) != sandbox.CodeProfileDenied || sandbox.AsError(err).Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// A run of a profile that has a person asked waits as one that a rule has somebody asked about,
// with a policy of the operator's, without one, and with one that only says how people are
// asked; result and audit log name the profile, and who decided.
func TestApprovalOfAProfile(t *testing.T) {
	set := profile.Set{}
	if err := set.Add(profile.Entry{Profile: sandbox.Profile{Name: "pay", Language: "sh", Approval: "whom does it pay?"}}); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]sandbox.Policy{
		"no rules":     {Approval: sandbox.PolicyApproval{TimeoutMS: 60_000}},
		"another rule": one(sandbox.PolicyRule{ID: "vm", Then: sandbox.PolicyThen{Isolation: "vm"}}),
		"it asks, too": one(sandbox.PolicyRule{ID: "ask", Then: sandbox.PolicyThen{Ask: "who?"}}),
		"no policy":    {},
	} {
		a := newAudited(t, true)
		s, ran := ruled(t, p, func(o *engine.Options) {
			o.Auditor, o.Policy = a, admission.Policy{Profiles: set}
			if name == "no policy" {
				o.Rules = nil
			}
		})
		pays := runs.Request{Tenant: "alice", Spec: sandbox.Spec{Profile: "pay", Code: "x"}}
		r, err := s.Start(by("asker"), pays)
		if err != nil || r.State != sandbox.RunPending {
			t.Fatalf("%s: %+v, %v", name, r, err)
		}
		waits, err := s.Approval("alice", r.ID)
		if err != nil || waits.Rules[len(waits.Rules)-1].Rule != "profile:pay" || waits.Rules[len(waits.Rules)-1].Ask != "whom does it pay?" || len(waits.Rules[len(waits.Rules)-1].Because) == 0 {
			t.Errorf("%s: %+v, %v", name, waits, err)
		}
		if left := time.Until(waits.ExpiresAt); (left < 2*time.Minute) != (name == "no rules") {
			t.Errorf("%s: %s to decide", name, left)
		}
		if _, err := s.Decide(by("asker"), "alice", r.ID, sandbox.VerdictApproved, ""); code(err) != sandbox.CodeForbidden {
			t.Errorf("%s: who asked decides: %v", name, err)
		}
		if _, err := s.Decide(by("boss"), "alice", r.ID, sandbox.VerdictApproved, "a supplier"); err != nil || ran.Load() != 0 {
			t.Errorf("%s: %v, %d ran", name, err, ran.Load())
		}
		done, err := s.AwaitRun(soon(t), "alice", r.ID)
		if err != nil || done.Result.Status != sandbox.StatusSucceeded || done.Result.Policy.Approval.By != "boss" || done.Result.Profile.Name != "pay" || ran.Load() != 1 {
			t.Errorf("%s: %+v, %v", name, done.Result, err)
		}
		events := a.last()
		if entry := events[len(events)-1].Entry; entry.Policy == nil || entry.Policy.By != "boss" || !slices.Contains(entry.Policy.Rules, "profile:pay") || *entry.Profile != *done.Result.Profile {
			t.Errorf("%s: %+v", name, events)
		}
		// One that nobody has approved has not run, nor one that is denied.
		r, err = s.Start(by("asker"), pays)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Decide(by("boss"), "alice", r.ID, sandbox.VerdictDenied, "no"); err != nil {
			t.Error(err)
		}
		if done, err := s.AwaitRun(soon(t), "alice", r.ID); err != nil || done.Result.Error == nil || done.Result.Error.Code != sandbox.CodeApprovalDenied || ran.Load() != 1 {
			t.Errorf("%s: %+v, %v, %d ran", name, done.Result, err, ran.Load())
		}
		// Nobody is asked about others, but where a rule wants that.
		other, err := s.Start(by("asker"), runs.Request{Tenant: "alice", Spec: sandbox.Spec{Language: "sh", Code: "x"}})
		if err != nil || (other.State == sandbox.RunPending) != (name == "it asks, too") {
			t.Errorf("%s: %+v, %v", name, other, err)
		}
		if other.State == sandbox.RunPending {
			if _, err := s.CancelRun(soon(t), "alice", other.ID); err != nil {
				t.Error(err)
			}
			continue
		}
		if done, err := s.AwaitRun(soon(t), "alice", other.ID); err != nil || (done.Result.Policy == nil) != (name == "no rules" || name == "no policy") {
			t.Errorf("%s: %+v, %v", name, done.Result, err)
		}
	}
}
