package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"pinfold/internal/archive"
	"pinfold/internal/engine/records"
	"pinfold/internal/engine/runs"
	"pinfold/sandbox"
)

// Answers as they look, for readers of the document. They are values of the
// types themselves, so that they cannot be of another form.

var (
	sampleTime  = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	sampleLater = sampleTime.Add(5 * time.Minute)
	zero        = 0
)

const (
	sampleRunID     = "run_2hqlkdw7mzqv5q3xg6y4cvb7ne"
	sampleSandboxID = "sbx_k3zqv7w5dlhx2ymc6bfa4tn7ge"
)

func sampleIsolation() sandbox.Isolation {
	return sandbox.Isolation{
		Driver: "native", Enforced: []string{"network:none", "memory", "processes", "seccomp"},
		NotEnforced: []sandbox.Gap{{What: "io", Why: "the io controller is not there", Fix: "boot with cgroup version 2"}},
	}
}

func sampleResult() sandbox.Result {
	return sandbox.Result{
		ID: sampleRunID, Status: sandbox.StatusSucceeded, ExitCode: &zero, Cause: sandbox.Cause{Kind: sandbox.CauseExited, Evidence: "exit status 0"},
		Stdout: "42\n", StdoutBytes: 3, Results: []sandbox.Rich{}, Artifacts: []sandbox.Artifact{},
		Usage:     sandbox.Usage{WallMS: 14, CPUMS: 11, MemoryPeakBytes: 7340032, ProcessesPeak: 1, InodesPeak: 2},
		Isolation: sampleIsolation(), Timings: sandbox.Timings{CreateMS: 4.1, ExecMS: 14.2, DestroyMS: 1.9}, Language: "python",
	}
}

func sampleRun(finished bool) Run {
	r := Run{ID: sampleRunID, State: sandbox.RunRunning, CreatedAt: sampleTime, StartedAt: sampleTime, Language: "python", Metadata: map[string]string{"job": "7"}}
	if finished {
		result := sampleResult()
		result.Metadata = r.Metadata
		r.State, r.StartedAt, r.FinishedAt = sandbox.RunFinished, time.Time{}, sampleTime.Add(20*time.Millisecond)
		r.Status, r.Cause, r.Result = result.Status, result.Cause.Kind, &result
	}
	return r
}

func sampleSandbox() sandbox.Info {
	limits := sandbox.Limits{}.WithDefaults()
	limits.WallTimeMS, limits.CPUTimeMS = 0, 0 // a living sandbox has them only where they are asked for
	return sandbox.Info{
		ID: sampleSandboxID, State: sandbox.StateRunning, Template: "host", Limits: limits, Isolation: sampleIsolation(),
		CreatedAt: sampleTime, ExpiresAt: sampleLater, IdleMS: 300_000, UsedAt: sampleTime, Usage: sandbox.Usage{WallMS: 1200, CPUMS: 30, MemoryPeakBytes: 5242880, ProcessesPeak: 2},
		Timings: sandbox.Timings{CreateMS: 5.2}, Processes: 1,
	}
}

func sampleProcess() sandbox.Process {
	ended := sampleTime.Add(3 * time.Millisecond)
	return sandbox.Process{
		ID: "prc_q5xg6y4cvb7ne2hqlkdw7mzqv3", Args: []string{"/bin/sh", "-c", "uname -s"}, PID: 4, StartedAt: sampleTime, EndedAt: &ended,
		Status: sandbox.StatusSucceeded, ExitCode: &zero, Cause: &sandbox.Cause{Kind: sandbox.CauseExited, Evidence: "exit status 0"}, StdoutBytes: 6, WallMS: 3, HasOutput: true, Stdout: "Linux\n",
	}
}

// listedProcess is a process as lists have it.
func listedProcess() sandbox.Process {
	p := sampleProcess()
	p.HasOutput, p.Stdout = false, ""
	return p
}

// startedProcess is one that has just begun.
func startedProcess() sandbox.Process {
	p := listedProcess()
	p.Running, p.EndedAt, p.Status, p.ExitCode, p.Cause, p.StdoutBytes, p.WallMS = true, nil, "", nil, nil, 0, 0
	return p
}

// newSandboxSample is a sandbox that was just made, endedSandbox one that is gone.
func newSandboxSample() sandbox.Info {
	i := sampleSandbox()
	i.Usage, i.Processes = sandbox.Usage{}, 0
	return i
}

func endedSandbox() sandbox.Info {
	i := sampleSandbox()
	i.State, i.EndedAt, i.Processes = sandbox.StateEnded, &sampleLater, 0
	i.Cause = &sandbox.Cause{Kind: sandbox.CauseDestroyed, Evidence: "somebody asked for it"}
	return i
}

// cancelledRun is a run that somebody has cancelled.
func cancelledRun() Run {
	r := sampleRun(true)
	c := *r.Result
	c.Status, c.ExitCode, c.Cause = sandbox.StatusKilled, nil, sandbox.Cause{Kind: sandbox.CauseCancelled, Evidence: "somebody asked for it"}
	c.Signal, c.Stdout, c.StdoutBytes = "SIGKILL", "", 0
	r.Status, r.Cause, r.Result = c.Status, c.Cause.Kind, &c
	return r
}

// queuedRun is a run that was just accepted.
func queuedRun() Run {
	r := sampleRun(false)
	r.State, r.StartedAt = sandbox.RunQueued, time.Time{}
	return r
}

// answerKey is one answer of one operation.
type answerKey struct {
	id     string
	status int
}

// ownSamples are those of answers that tell of another moment than others of their
// type do.
func ownSamples() map[answerKey]any {
	return map[answerKey]any{
		{"createSandbox", http.StatusCreated}: newSandboxSample(),
		{"destroySandbox", http.StatusOK}:     endedSandbox(),
		{"createRun", http.StatusAccepted}:    queuedRun(),
		{"cancelRun", http.StatusOK}:          cancelledRun(),
		{"startProcess", http.StatusCreated}:  startedProcess(),
	}
}

// sampleOf is the sample of an answer, nil where there is none.
func sampleOf(id string, a reply) any {
	if v, ok := ownSamples()[answerKey{id, a.status}]; ok {
		return v
	}
	return samples()[a.json]
}

func sampleFile() sandbox.FileInfo {
	return sandbox.FileInfo{Path: "/home/user/data.csv", Type: sandbox.FileRegular, Size: 5120, Mode: 0o644, MTime: sampleTime, UID: sandbox.UID, GID: sandbox.GID}
}

func samplePool() sandbox.PoolInfo {
	return sandbox.PoolInfo{
		PoolSpec: sandbox.PoolSpec{Name: "python", Language: "python", Min: 4}, Available: 4, Total: 4, Hits: 120, Forked: 7, Interpreters: "forked",
	}
}

func sampleSecret() sandbox.Secret {
	return sandbox.Secret{Name: "github", Hosts: []string{"api.github.com"}, Header: sandbox.DefaultSecretHeader, UpdatedAt: sampleTime}
}

func sampleSnapshot() sandbox.Snapshot {
	limits := sampleSandbox().Limits
	return sandbox.Snapshot{
		ID: "snp_q5xg6y4cvb7ne2hqlkdw7mzqv3", Name: "before the upgrade", Sandbox: sampleSandboxID, Holds: []string{sandbox.SnapshotFiles}, Driver: "native", Template: "host",
		Limits: limits, CreatedAt: sampleTime, ExpiresAt: sampleLater, Bytes: 40960, Files: 15, PausedMS: 1.4,
	}
}

func sampleEntry() sandbox.AuditEntry {
	i := sampleIsolation()
	return sandbox.AuditEntry{
		V: 1, Index: 17, SaltSHA256: "ZLxt5fIImqRdZVsgR5rXiSjwhWZfmwKI70IL8eHDCrM", Time: sampleLater, Kind: sandbox.AuditRun, Tenant: "local", Key: "k5xg6y4cvb",
		ID: "run_q5xg6y4cvb7ne2hqlkdw7mzqv3", Language: "python", Template: "host", Isolation: &sandbox.AuditIsolation{Driver: i.Driver, Level: sandbox.LevelNamespace, Enforced: i.Enforced},
		Status: sandbox.StatusSucceeded, Cause: sandbox.CauseExited, Evidence: "exit status 0", ExitCode: &zero, StartedAt: sampleTime, WallMS: 17, CPUMS: 19, Memory: 4710400,
		Digests: map[string]string{"code": "L6LjjjvsGODS4kvQPOhJCaScZLHegJ_o1S7pb3cnZDw", "stdout": "_QC8U6lwmpjOaT9wLZFoFXVd1OJ5f6tymJpmqtS-3Hg"},
	}
}

const sampleCheckpoint = "audit.example.com\n18\nrnWX+7ns5fLPs4XMSCeluJPYrIIrJ2Juc2N4p+kgrnI=\n\n— audit.example.com 1uTC0L9SBMAr…\n"

func sampleRecord() sandbox.AuditRecord {
	leaf, err := json.Marshal(sampleEntry())
	if err != nil {
		panic(err) // strings and numbers: cannot happen
	}
	return sandbox.AuditRecord{Entry: sampleEntry(), Receipt: &sandbox.Receipt{
		Index: 17, Leaf: string(leaf), Salt: "70c8b1e4f5294d31e696edf02cd25cc6", Proof: []string{"rnWX+7ns5fLPs4XMSCeluJPYrIIrJ2Juc2N4p+kgrnI="}, Checkpoint: sampleCheckpoint,
	}}
}

const sampleDigest = "1f6c9a"

func sampleApproval() sandbox.Approval {
	return sandbox.Approval{
		Run: sampleRun(false).ID, Tenant: "team-x", Key: "7k2m", AskedAt: sampleTime, ExpiresAt: sampleLater, Language: "python", Isolation: sandbox.LevelVM, Driver: "qemu", Network: []string{"api.example.com:443"},
		Rules: []sandbox.PolicyMatch{{Rule: "danger-asks", Because: []string{"finding process-start (danger)"}, Ask: "does this need a shell?"}},
	}
}

// samples are answers by their type.
func samples() map[reflect.Type]any {
	all := map[reflect.Type]any{}
	for _, v := range []any{
		sampleResult(), sampleRun(true),
		List[Run]{Items: []Run{sampleRun(false)}, Next: "bjE3OTU3"},
		sampleSandbox(),
		List[sandbox.Info]{Items: []sandbox.Info{sampleSandbox()}},
		sandbox.ScanReport{Language: "bash", Findings: []sandbox.Finding{{Rule: "file-destroy", Severity: sandbox.SeverityDanger, Title: "removes or overwrites whole trees or disks", Line: 1, Column: 1, Text: "rm -rf /"}}, Worst: sandbox.SeverityDanger},
		sampleProcess(),
		List[sandbox.Process]{Items: []sandbox.Process{listedProcess()}},
		sampleFile(),
		sandbox.Listing[sandbox.FileInfo]{Items: []sandbox.FileInfo{sampleFile()}},
		sandbox.Listing[sandbox.Change]{Items: []sandbox.Change{{Kind: "added", File: sampleFile()}}},
		sampleSnapshot(),
		List[sandbox.Snapshot]{Items: []sandbox.Snapshot{sampleSnapshot()}},
		List[sandbox.Secret]{Items: []sandbox.Secret{sampleSecret()}},
		sampleSecret(),
		samplePool(),
		List[sandbox.PoolInfo]{Items: []sandbox.PoolInfo{samplePool()}},
		sandbox.BuiltTemplate{Name: "tools", Image: "sha256:84c061cb3e6d8a16176335a9b642c50c4268636a7567f1457235971936934804", Bytes: 187_800_000, Packages: sandbox.Packages{Python: []string{"rich==13.9.4 --hash=sha256:" + strings.Repeat("0a", 32)}}, WallMS: 41_000},
		List[sandbox.AuditEntry]{Items: []sandbox.AuditEntry{sampleEntry()}, Next: "18"},
		sampleRecord(),
		sampleApproval(),
		List[sandbox.Approval]{Items: []sandbox.Approval{sampleApproval()}},
		sandbox.PolicyReport{Digest: sampleDigest, Runs: 1000, Unscanned: 12, Refused: 3, Changed: 40, Rules: []sandbox.PolicyRuleCount{{Rule: "danger-in-vm", Matched: 40}}, Touched: []sandbox.PolicyTouched{}},
		sandbox.AuditCheckpoint{Entries: 18, Checkpoint: sampleCheckpoint, PublicKey: "audit.example.com+d6e4c2d0+AdV3PVISY55E4tyMFpPiB4Wrp0pcrSl0QVigtAUn8iT/"},
		sampleManifest(),
		Link{Path: "/p/9tZ…/", Port: 8000, ExpiresAt: sampleLater},
		List[string]{Items: []string{"host"}},
		List[records.DayUsage]{Items: []records.DayUsage{{Day: "2026-11-22", Consumption: records.Consumption{Runs: 12, Sandboxes: 1, CPUMS: 4100, WallMS: 9000, MemoryMiBMS: 81000, OutputBytes: 2048}}}},
		List[runs.LanguageInfo]{Items: []runs.LanguageInfo{{Name: "python", Title: "Python", Available: true, Version: "3.11.2", Aliases: []string{"py", "python3"}, Extensions: []string{".py"}}}},
		List[driverInfo]{Items: []driverInfo{{Name: "native", Level: sandbox.LevelNamespace, Available: true, Features: []driverFeature{{Feature: "memory", Answer: "yes", Because: "a cgroup was made and limited"}}}}},
		whoami{Tenant: "local", KeyID: "k5xg6y4cvb", Scopes: []string{"run", "sandbox"}, Allow: []string{"api.example.com"}, Most: sandbox.Limits{OutputBytes: 8 << 20}},
		health{Status: "ok"},
		written{Written: 6},
		archive.Summary{Files: 12, Directories: 3, Bytes: 40960},
	} {
		all[reflect.TypeOf(v)] = v
	}
	return all
}

// sampleManifest has one profile, as OpenAI's API takes it.
func sampleManifest() sandbox.SignedManifest {
	return sandbox.SignedManifest{
		Manifest:  json.RawMessage(`{"v":1,"form":"anthropic","profiles":[{"name":"plots","digest":"sha256:84c061cb3e6d8a16176335a9b642c50c4268636a7567f1457235971936934804"}],"tools":[{"name":"plots","description":"Draws charts of data.","input_schema":{"type":"object"}}]}`),
		Signature: "pinfold manifest v1\nsha256:5f1e…\n\n— pinfold-ab12cd34ef 1uTEwPnA…\n", PublicKey: "pinfold-ab12cd34ef+d6e4c2d0+AdV3PVISY55E4tyMFpPiB4Wrp0pcrSl0QVigtAUn8iT/",
	}
}

// Every answer in JSON has a sample, which is what the server would send.
func TestAnswersHaveSamples(t *testing.T) {
	all := samples()
	s := newServer(Options{Metrics: http.NotFoundHandler()})
	for _, rt := range s.routes() {
		for _, a := range rt.answers {
			if a.mediaType != typeJSON || a.json == nil {
				continue
			}
			v, ok := all[a.json]
			if !ok {
				t.Errorf("%s: no sample of %s", rt.id, a.json)
				continue
			}
			if _, err := json.Marshal(v); err != nil {
				t.Errorf("%s: %v", rt.id, err)
			}
		}
	}
	if text := string(pageText); strings.Count(text, "Sample answer") < 25 {
		t.Errorf("the page shows %d samples", strings.Count(text, "Sample answer"))
	}
}

// Samples do not contradict what is said of the answer.
func TestSamplesAgreeWithTheText(t *testing.T) {
	doc := buildDocument()
	for _, c := range []struct {
		path, method, status string
		want                 []string // what stands in it
		never                []string
	}{
		{"/v1/sandboxes", "POST", "201", []string{`"state":"running"`, `"processes":0`}, []string{"wall_time_ms"}},
		{"/v1/sandboxes/{id}", "DELETE", "200", []string{`"state":"ended"`, `"ended_at"`, `"kind":"destroyed"`}, []string{`"state":"running"`}},
		{"/v1/runs", "POST", "202", []string{`"state":"queued"`}, []string{`"result"`, `"finished_at"`}},
		{"/v1/runs/{run}/cancel", "POST", "200", []string{`"state":"finished"`, `"kind":"cancelled"`, `"status":"killed"`}, []string{"succeeded"}},
		{"/v1/sandboxes/{id}/processes", "POST", "201", []string{`"running":true`}, []string{`"stdout":`, `"ended_at"`}},
		{"/v1/sandboxes/{id}/processes", "POST", "200", []string{`"running":false`, `"stdout":"Linux\n"`}, nil},
		{"/v1/sandboxes/{id}/processes", "GET", "200", nil, []string{`"stdout":`}},
	} {
		item := doc.Paths[c.path]
		op := map[string]*huma.Operation{"POST": item.Post, "GET": item.Get, "DELETE": item.Delete}[c.method]
		b, err := json.Marshal(op.Responses[c.status].Content[typeJSON].Example)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range c.want {
			if !strings.Contains(string(b), text) {
				t.Errorf("%s %s: no %s in %s", c.method, c.path, text, b)
			}
		}
		for _, text := range c.never {
			if strings.Contains(string(b), text) {
				t.Errorf("%s %s: %s in %s", c.method, c.path, text, b)
			}
		}
	}
}

// The examples work with every curl: --json came with 7.82.
func TestExamplesNeedNoNewCurl(t *testing.T) {
	if strings.Contains(string(pageText), " --json ") {
		t.Error("an example has --json")
	}
}
