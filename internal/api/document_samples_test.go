package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"pinfold/internal/archive"
	"pinfold/internal/engine"
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
	return sandbox.Info{
		ID: sampleSandboxID, State: sandbox.StateRunning, Template: "host", Limits: sandbox.Limits{}.WithDefaults(), Isolation: sampleIsolation(),
		CreatedAt: sampleTime, ExpiresAt: sampleLater, IdleMS: 300_000, UsedAt: sampleTime, Usage: sandbox.Usage{WallMS: 1200, CPUMS: 30, MemoryPeakBytes: 5242880, ProcessesPeak: 2},
		Timings: sandbox.Timings{CreateMS: 5.2}, Processes: 1,
	}
}

func sampleProcess() sandbox.Process {
	ended := sampleTime.Add(3 * time.Millisecond)
	return sandbox.Process{
		ID: "prc_q5xg6y4cvb7ne2hqlkdw7mzqv3", Args: []string{"/bin/sh", "-c", "uname -s"}, PID: 4, StartedAt: sampleTime, EndedAt: &ended,
		Status: sandbox.StatusSucceeded, ExitCode: &zero, Cause: &sandbox.Cause{Kind: sandbox.CauseExited, Evidence: "exit status 0"}, StdoutBytes: 6, WallMS: 3, Stdout: "Linux\n",
	}
}

func sampleFile() sandbox.FileInfo {
	return sandbox.FileInfo{Path: "/home/user/data.csv", Type: sandbox.FileRegular, Size: 5120, Mode: 0o644, MTime: sampleTime, UID: sandbox.UID, GID: sandbox.GID}
}

func samplePool() sandbox.PoolInfo {
	return sandbox.PoolInfo{
		PoolSpec: sandbox.PoolSpec{Name: "python", Language: "python", Min: 4}, Available: 4, Total: 4, Hits: 120, Forked: 7, Interpreters: "forked",
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
		sampleProcess(),
		List[sandbox.Process]{Items: []sandbox.Process{sampleProcess()}},
		sampleFile(),
		sandbox.Listing[sandbox.FileInfo]{Items: []sandbox.FileInfo{sampleFile()}},
		sandbox.Listing[sandbox.Change]{Items: []sandbox.Change{{Kind: "added", File: sampleFile()}}},
		samplePool(),
		List[sandbox.PoolInfo]{Items: []sandbox.PoolInfo{samplePool()}},
		Link{Path: "/p/9tZ…/", Port: 8000, ExpiresAt: sampleLater},
		List[string]{Items: []string{"host"}},
		List[engine.DayUsage]{Items: []engine.DayUsage{{Day: "2026-11-22", Consumption: engine.Consumption{Runs: 12, Sandboxes: 1, CPUMS: 4100, WallMS: 9000, MemoryMiBMS: 81000, OutputBytes: 2048}}}},
		List[engine.LanguageInfo]{Items: []engine.LanguageInfo{{Name: "python", Title: "Python", Available: true, Version: "3.11.2", Aliases: []string{"py", "python3"}, Extensions: []string{".py"}}}},
		List[driverInfo]{Items: []driverInfo{{Name: "native", Available: true, Features: []driverFeature{{Feature: "memory", Answer: "yes", Because: "a cgroup was made and limited"}}}}},
		whoami{Tenant: "local", KeyID: "k5xg6y4cvb", Scopes: []string{"run", "sandbox"}},
		health{Status: "ok"},
		written{Written: 6},
		archive.Summary{Files: 12, Directories: 3, Bytes: 40960},
	} {
		all[reflect.TypeOf(v)] = v
	}
	return all
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
