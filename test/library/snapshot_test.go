//go:build linux

package library

import (
	"fmt"
	"slices"
	"testing"

	"pinfold"
	"pinfold/client"
	"pinfold/sandbox"
)

// says runs a line of shell and wants it to print something.
func says(t *testing.T, b box, line, want string) {
	t.Helper()
	p := must(b.Exec(t.Context(), sandbox.Command{Shell: line}, client.ExecOptions{}))(t)
	if p.ExitCode == nil || *p.ExitCode != 0 || p.Stdout != want {
		t.Errorf("%s: %q in %s says %q %q, want %q", p.Status, line, b.ID(), p.Stdout, p.Stderr, want)
	}
}

// What a sandbox's files are at one moment is where others begin, and what runs in it goes
// on in it alone.
func TestSnapshots(t *testing.T) {
	both(t, func(t *testing.T, w way) {
		b := w.create(t, sandbox.Create{TTLMS: 300_000, Limits: sandbox.Limits{DiskBytes: 32 << 20}})
		says(t, b, "umask 77; mkdir -p d; echo first >d/said; ln -s d/said link; ln link hard 2>/dev/null || ln -P link hard; echo tmp >/tmp/there; truncate -s 20M holes", "")
		running := w.start(t, b, sandbox.Command{Shell: "while :; do echo x >>d/log; sleep 0.01; done"})
		snap := must(b.Snapshot(t.Context(), sandbox.TakeSnapshot{Name: "first"}))(t)
		if !slices.Equal(snap.Holds, []string{sandbox.SnapshotFiles}) || snap.Bytes > 1<<20 || snap.Files < 6 {
			t.Errorf("%+v", snap)
		}
		if p := must(running.Info(t.Context()))(t); !p.Running {
			t.Errorf("what ran in it has ended: %+v", p)
		}
		says(t, b, "echo second >d/said", "")
		forks := w.fork(t, b, sandbox.ForkSandbox{Count: 2})
		for i, f := range forks {
			says(t, f, fmt.Sprintf("cat link /tmp/there; stat -c %%a d/said; stat -c %%s:%%b holes; echo %d >d/said", i), "second\ntmp\n600\n20971520:0\n")
			if n := must(f.Info(t.Context()))(t).Processes; n > 0 {
				t.Errorf("in a fork %d processes go on", n)
			}
			size := func() string {
				return must(f.Exec(t.Context(), sandbox.Command{Shell: "cat d/log | wc -c"}, client.ExecOptions{}))(t).Stdout
			}
			if before := size(); size() != before {
				t.Error("what ran in the first one goes on in a fork")
			}
		}
		for i, f := range forks {
			says(t, f, "cat d/said", fmt.Sprintf("%d\n", i))
		}
		says(t, w.create(t, sandbox.Create{Snapshot: snap.ID, TTLMS: 300_000}), "cat link", "first\n")
		says(t, b, "cat d/said", "second\n")
		if all := must(w.Snapshots(t.Context()))(t); len(all) != 1 || all[0].ID != snap.ID {
			t.Errorf("%+v", all)
		}
		if one := must(w.Snapshot(t.Context(), snap.ID))(t); one.Name != "first" {
			t.Errorf("%+v", one)
		}
		ok(t, w.RemoveSnapshot(t.Context(), snap.ID))
		if _, err := w.Snapshot(t.Context(), snap.ID); code(err) != sandbox.CodeNotFound {
			t.Error(err)
		}
	})
}

// A snapshot of one process is there for the next.
func TestSnapshotsOutlive(t *testing.T) {
	o := pinfold.Options{Agent: agentFile(t), StateDir: t.TempDir()}
	first := must(pinfold.Open(t.Context(), o))(t)
	b := must(first.Create(t.Context(), sandbox.Create{}))(t)
	says(t, b, "echo kept >file", "")
	snap := must(b.Snapshot(t.Context(), sandbox.TakeSnapshot{}))(t)
	ok(t, first.Close())
	next := must(pinfold.Open(t.Context(), o))(t)
	defer next.Close()
	says(t, must(next.Create(t.Context(), sandbox.Create{Snapshot: snap.ID}))(t), "cat file", "kept\n")
}
