//go:build linux

package e2e

import (
	"os"
	"testing"

	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// A refused fork or thread is an answer that a program may live with. Each of
// these is refused some, and does its work all the same.
var copes = []struct{ name, language, code, want string }{
	{
		"fewer threads than it wanted, and work", "python", `
import threading, time
n, over = 0, threading.Event()
for i in range(70):
    try: threading.Thread(target=over.wait).start(); n += 1
    except RuntimeError: break
end = time.monotonic() + 3
while time.monotonic() < end: pass
over.set()
print("coped", n < 40)`, "coped True\n",
	},
	{
		"a thousand refused threads, and waiting", "python", `
import threading, time
refused, over = 0, threading.Event()
for i in range(1000):
    try: threading.Thread(target=over.wait).start()
    except RuntimeError: refused += 1
time.sleep(3)
over.set()
print("coped", refused > 900)`, "coped True\n",
	},
	{ // what counts is not what it was refused before it ended well
		"many refused processes, and a child that stays", "python", `
import os, subprocess, time
made, refused = [], 0
for i in range(150):
    try:
        if (pid := os.fork()) == 0: time.sleep(1); os._exit(0)
        made.append(pid)
    except OSError: refused += 1
for pid in made: os.waitpid(pid, 0)
subprocess.Popen(["sleep", "60"])
print("coped", refused > 100)`, "coped True\n",
	},
	{ // Bash sleeps for one second and then for two; nothing of its own ends meanwhile
		"a shell that tries again", "bash", `
( for i in $(seq 26); do sleep 2 & done; wait; exec sleep 30 ) &
sleep .5
for i in 1 2 3 4 5 6; do sleep 9 & done
echo coped; kill $(jobs -p)`, "coped\n",
	},
	{
		"workers that come when there is room", "python", `
import subprocess, time
todo, run, refused = 60, [], 0
while todo or run:
    run = [p for p in run if p.poll() is None]
    if todo:
        try: run.append(subprocess.Popen(["sleep", "1.5"])); todo -= 1; continue
        except OSError: refused += 1
    time.sleep(.2)
print("coped", refused > 0)`, "coped True\n",
	},
}

func TestRefusedForks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("without a pids cgroup the kernel does not count what it refuses")
	}
	ledger.Check(t)
	bin := pinfold(t)
	t.Run("all", func(t *testing.T) {
		for _, c := range copes {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				r, o := run(t, bin, c.language, c.code, "--processes", "32")
				if r.Status != sandbox.StatusSucceeded || o.code != 0 || r.Stdout != c.want {
					t.Fatalf("%s by %+v\nstdout %q, stderr: %.300s", r.Status, r.Cause, r.Stdout, r.Stderr)
				}
			})
		}
	})
}
