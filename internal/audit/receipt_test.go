package audit

import (
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"pinfold/internal/engine/records"
	"pinfold/sandbox"
)

// A receipt proves its entry with nothing but the key; under another log's key, or with
// any of its fields changed, it proves nothing.
func TestReceiptProvesItsEntryAlone(t *testing.T) {
	c := closed(t, 9, Options{})
	other := closed(t, 9, Options{})
	key, err := ParseKey(c.public)
	if err != nil {
		t.Fatal(err)
	}
	otherKey, err := ParseKey(other.public)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range c.receipts {
		e, _, err := VerifyReceipt(*r, key)
		if err != nil || e.Index != int64(i) || e.ID != event(i).Entry.ID || e.Tenant != event(i).Entry.Tenant {
			t.Fatalf("%d: %+v, %v", i, e, err)
		}
		if _, _, err := VerifyReceipt(*r, otherKey); code(err) != sandbox.CodeReceiptInvalid {
			t.Errorf("%d: proved under another key: %v", i, err)
		}
	}
	good := *c.receipts[6]
	for name, change := range map[string]func(r *sandbox.Receipt){
		"index":          func(r *sandbox.Receipt) { r.Index-- },
		"status":         func(r *sandbox.Receipt) { r.Leaf = strings.Replace(r.Leaf, "succeeded", "failed", 1) },
		"digest":         func(r *sandbox.Receipt) { r.Leaf = strings.Replace(r.Leaf, `"code":"`, `"code":"A`, 1) },
		"salt":           func(r *sandbox.Receipt) { r.Salt = c.receipts[5].Salt },
		"proof":          func(r *sandbox.Receipt) { r.Proof = append([]string{}, r.Proof[1:]...) },
		"more proof":     func(r *sandbox.Receipt) { r.Proof = append(append([]string{}, r.Proof...), r.Proof[0]) },
		"another proof":  func(r *sandbox.Receipt) { r.Proof = c.receipts[5].Proof },
		"size":           func(r *sandbox.Receipt) { r.Checkpoint = strings.Replace(r.Checkpoint, "\n7\n", "\n8\n", 1) },
		"no signature":   func(r *sandbox.Receipt) { r.Checkpoint, _, _ = strings.Cut(r.Checkpoint, "\n\n") },
		"another's head": func(r *sandbox.Receipt) { r.Checkpoint = other.receipts[6].Checkpoint },
		"leaf":           func(r *sandbox.Receipt) { r.Leaf = c.receipts[5].Leaf },
		"nothing":        func(r *sandbox.Receipt) { *r = sandbox.Receipt{} },
	} {
		r := good
		change(&r)
		if _, _, err := VerifyReceipt(r, key); code(err) != sandbox.CodeReceiptInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A result that says something else than its receipt is found out, each field of it.
func TestResultMustBeThatOfItsReceipt(t *testing.T) {
	l := open(t, Options{})
	zero := 0
	made := func() *sandbox.Result {
		return &sandbox.Result{
			ID: "run_a", Status: sandbox.StatusSucceeded, ExitCode: &zero, Cause: sandbox.Cause{Kind: sandbox.CauseExited, Evidence: "exit status 0"},
			Profile: &sandbox.ProfileRef{Name: "plots", Digest: "sha256:1"},
			Stdout:  "42\n", Stderr: "\uFFFD\n", ExactOutput: sandbox.ExactOutput{StdoutRaw: []byte("42\n"), StderrRaw: []byte("\xff\n")}, Results: []sandbox.Rich{}, Usage: sandbox.Usage{WallMS: 5},
			Artifacts: []sandbox.Artifact{{Path: "a.svg", Size: 3, SHA256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", Content: []byte("abc")}},
			Isolation: sandbox.Isolation{Driver: "native", Enforced: []string{"memory"}},
			Findings:  []sandbox.Finding{{Rule: "process-start", Severity: sandbox.SeverityNotice}},
			Policy:    &sandbox.PolicyResult{Digest: "0", Rules: []sandbox.PolicyMatch{{Rule: "vm"}}, Approval: &sandbox.PolicyDecision{Verdict: sandbox.VerdictApproved, By: "k", AskedAt: time.Now().UTC().Round(0)}},
		}
	}
	first := made()
	r, err := l.Record(t.Context(), records.RunEvent(first))
	if err != nil {
		t.Fatal(err)
	}
	key, _ := ParseKey(l.PublicKey())
	e, _, err := VerifyReceipt(*r, key)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(r *sandbox.Result){
		"":               func(*sandbox.Result) {},
		"id":             func(r *sandbox.Result) { r.ID = "run_b" },
		"status":         func(r *sandbox.Result) { r.Status = sandbox.StatusFailed },
		"exit_code":      func(r *sandbox.Result) { one := 1; r.ExitCode = &one },
		"cause.kind":     func(r *sandbox.Result) { r.Cause.Kind = sandbox.CauseMemory },
		"cause.evidence": func(r *sandbox.Result) { r.Cause.Evidence = "exit status 1" },
		"stdout":         func(r *sandbox.Result) { r.Stdout = "43\n" },
		"stderr":         func(r *sandbox.Result) { r.Stderr = "" },
		"stdout_base64":  func(r *sandbox.Result) { r.StdoutRaw = []byte("43\n") },
		"stderr_base64":  func(r *sandbox.Result) { r.StderrRaw = []byte("\xfe\n") }, // of the same text
		"both of stdout": func(r *sandbox.Result) { r.Stdout, r.StdoutRaw = "43\n", []byte("43\n") },
		"error":          func(r *sandbox.Result) { r.Error = &sandbox.Error{Code: sandbox.CodeInternal} },
		"language":       func(r *sandbox.Result) { r.Language = "python" },
		"profile":        func(r *sandbox.Result) { r.Profile = &sandbox.ProfileRef{Name: "plots", Digest: "sha256:2"} },
		"no profile":     func(r *sandbox.Result) { r.Profile = nil },
		"content":        func(r *sandbox.Result) { r.Artifacts[0].Content = []byte("abd") },
		"more content":   func(r *sandbox.Result) { r.Artifacts[0].Content = []byte("abcd") },
		"size":           func(r *sandbox.Result) { r.Artifacts[0].Size = 4 },
		"artifacts":      func(r *sandbox.Result) { r.Artifacts[0].SHA256 = strings.Repeat("1", 64) },
		"policy":         func(r *sandbox.Result) { r.Policy.Rules[0].Rule = "other" },
		"findings":       func(r *sandbox.Result) { r.Findings = nil },
		"isolation":      func(r *sandbox.Result) { r.Isolation.Enforced = append(r.Isolation.Enforced, "seccomp") },
	} {
		result := made()
		result.Receipt, result.Policy.Approval = r, first.Policy.Approval
		change(result)
		text, err := json.Marshal(result) // as it travels
		if err != nil {
			t.Fatal(err)
		}
		_, check, err := ParseReceipt(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(e); (err == nil) != (name == "") {
			t.Errorf("%q changed: %v", name, err)
		}
	}
}

// So is a process in a living sandbox, whose output need not be there.
func TestProcessMustBeThatOfItsReceipt(t *testing.T) {
	l := open(t, Options{})
	zero := 0
	made := func() *sandbox.Process {
		return &sandbox.Process{
			ID: "prc_a", Args: []string{"say"}, Status: sandbox.StatusSucceeded, ExitCode: &zero, Cause: &sandbox.Cause{Kind: sandbox.CauseExited, Evidence: "exit status 0"},
			Stdout: "4\uFFFD\n", ExactOutput: sandbox.ExactOutput{StdoutRaw: []byte("4\xff\n")}, HasOutput: true, WallMS: 5,
		}
	}
	r, err := l.Record(t.Context(), records.ProcessEvent(*made(), sandbox.Command{}))
	if err != nil {
		t.Fatal(err)
	}
	key, _ := ParseKey(l.PublicKey())
	e, _, err := VerifyReceipt(*r, key)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(p *sandbox.Process)
		good   bool
	}{
		"nothing":       {func(*sandbox.Process) {}, true},
		"no bytes":      {func(p *sandbox.Process) { p.StdoutRaw = nil }, true},
		"no output":     {func(p *sandbox.Process) { p.HasOutput, p.Stdout, p.StdoutRaw = false, "", nil }, true},
		"id":            {func(p *sandbox.Process) { p.ID = "prc_b" }, false},
		"args":          {func(p *sandbox.Process) { p.Args[0] = "tell" }, false},
		"status":        {func(p *sandbox.Process) { p.Status = sandbox.StatusFailed }, false},
		"exit_code":     {func(p *sandbox.Process) { p.ExitCode = nil }, false},
		"cause":         {func(p *sandbox.Process) { p.Cause.Kind = sandbox.CauseMemory }, false},
		"stdout":        {func(p *sandbox.Process) { p.Stdout, p.StdoutRaw = "43\n", nil }, false},
		"stderr":        {func(p *sandbox.Process) { p.Stderr = "x" }, false},
		"stdout_base64": {func(p *sandbox.Process) { p.StdoutRaw = []byte("4\xfe\n") }, false},
	} {
		process := made()
		process.Receipt = r
		c.change(process)
		text, err := json.Marshal(process)
		if err != nil {
			t.Fatal(err)
		}
		_, check, err := ParseReceipt(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(e); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A receipt has at most 4 KB, whatever a request has in it, in a log of 2^30 entries.
func TestReceiptIsSmall(t *testing.T) {
	l := open(t, Options{Name: strings.Repeat("n", maxName)})
	long := strings.Repeat("\"\x00é<", 1000)
	e := event(1)
	for _, s := range []*string{&e.Entry.Tenant, &e.Entry.Key, &e.Entry.ID, &e.Entry.Sandbox, &e.Entry.Origin, &e.Entry.Language, &e.Entry.Template, &e.Entry.Evidence, &e.Entry.Signal, &e.Entry.Error} {
		*s = long
	}
	for range 100 {
		e.Entry.Isolation.Required = append(e.Entry.Isolation.Required, "network:none")
		e.Entry.Isolation.Enforced = append(e.Entry.Isolation.Enforced, "network:none")
		e.Entry.Isolation.NotEnforced = append(e.Entry.Isolation.NotEnforced, "network:none")
	}
	e.Entry.Network = &sandbox.AuditNetwork{Connections: 1 << 62, Requests: 1 << 62, Denied: 1 << 62}
	for range sandbox.MaxEndpoints {
		e.Entry.Network.Secrets = append(e.Entry.Network.Secrets, strings.Repeat("s", 40))
	}
	e.Entry.Policy = &sandbox.AuditPolicy{Digest: strings.Repeat("0", 64), Verdict: sandbox.VerdictApproved, By: long}
	e.Entry.Severity = sandbox.SeverityWarning
	for range sandbox.MaxPolicyRules {
		e.Entry.Findings = append(e.Entry.Findings, strings.Repeat("f", 40))
		e.Entry.Policy.Rules = append(e.Entry.Policy.Rules, strings.Repeat("r", 60))
	}
	e.AddSpec(&sandbox.Spec{
		Code: long, Stdin: long, Args: []string{long}, Env: map[string]string{long: long}, Metadata: map[string]string{long: long}, Require: e.Entry.Isolation.Required,
		Files: []sandbox.File{{Path: long}}, Mounts: []sandbox.Mount{{Host: long}}, Network: sandbox.Network{Endpoints: []sandbox.Endpoint{{Host: long}}}, Template: long,
	})
	for _, name := range append(records.ResultParts(), "network_use", records.RawPart("stdout"), records.RawPart("stderr")) {
		e.Parts[name] = []byte(long)
	}
	r, err := l.Record(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	for range 30 {
		r.Proof = append(r.Proof, tlog.RecordHash(nil).String())
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, of which the leaf has %d", len(text), len(r.Leaf))
	if len(text) > sandbox.MaxReceiptBytes {
		t.Errorf("%d bytes", len(text))
	}
}

// What is read of a stranger's receipt never panics, and is never taken for good.
func FuzzReceipt(f *testing.F) {
	_, public, err := note.GenerateKey(rand.Reader, "test")
	if err != nil {
		f.Fatal(err)
	}
	key, err := ParseKey(public)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"index":0,"leaf":"{}","proof":["AAAA"],"checkpoint":"a\n1\nAAAA\n\n— a AAAA\n"}`))
	f.Add([]byte(`{"receipt":{"index":1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, _, err := ParseReceipt(b)
		if err != nil {
			return
		}
		if _, _, err := VerifyReceipt(r, key); err == nil {
			t.Error("taken for good")
		}
	})
}
