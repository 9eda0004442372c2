//go:build linux

package inside

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pinfold"
	"pinfold/client"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/sandbox"
	"pinfold/test/asuser"
	"pinfold/test/ledger"
)

//go:embed testdata/facts.py
var facts string

//go:embed testdata/Facts.java
var javaFacts string

// numcpu is a program that asks Go.
const numcpu = "pinfold/test/inside/numcpu"

// classEnv has the class of Facts.java, for the run that has no checkout and no time
// for the compiler.
const classEnv = "PINFOLD_TEST_FACTS_CLASS"

// limits are other than the defaults, and other than any host's.
func limits(cpus float64) sandbox.Limits {
	return sandbox.Limits{CPUs: cpus, MemoryBytes: 700 << 20, DiskBytes: 300 << 20, Processes: 128, WallTimeMS: 120_000, CPUTimeMS: 120_000}
}

// What the tools say is right for the limits: in a cold run, in a warm one, in a
// sandbox that lives; as root and as an ordinary user.
func TestTools(t *testing.T) {
	ledger.Check(t)
	local := open(t)
	with := programs(t)
	for _, cpus := range []float64{0.5, 2} {
		l := limits(cpus)
		var want map[string]any
		decode(t, wanted(t, l), &want)
		for name, ask := range map[string]func(*testing.T, *pinfold.Local, sandbox.Limits, []sandbox.File) []byte{"cold": cold, "warm": warm, "living": living} {
			t.Run(fmt.Sprintf("%s with %v CPUs", name, cpus), func(t *testing.T) {
				var got map[string]any
				decode(t, ask(t, local, l, with), &got)
				lacking(t, got, want)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("what programs find (-want +got):\n%s", diff)
				}
			})
		}
	}
	if os.Geteuid() == 0 {
		t.Run("as user", func(t *testing.T) { asuser.Rerun(t, "TestTools", []string{agenttest.Agent, numcpu}, classOf(with)) })
	}
}

// programs are those that a sandbox gets: one of Go, and one of Java where the host has
// its compiler.
func programs(t *testing.T) []sandbox.File {
	t.Helper()
	all := []sandbox.File{{Path: "numcpu", Executable: true, ContentBase64: base64.StdEncoding.EncodeToString(agenttest.Program(t, numcpu))}}
	class := os.Getenv(classEnv)
	if _, err := exec.LookPath("javac"); err == nil && class == "" {
		class = base64.StdEncoding.EncodeToString(compiled(t))
	}
	if class != "" {
		all = append(all, sandbox.File{Path: "Facts.class", ContentBase64: class})
	}
	return all
}

func compiled(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "Facts.java")
	if err := os.WriteFile(source, []byte(javaFacts), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "javac", "-d", dir, source).CombinedOutput(); err != nil { //nolint:gosec // a file of ours
		t.Fatalf("javac: %v\n%s", err, out)
	}
	class, err := os.ReadFile(filepath.Join(dir, "Facts.class"))
	if err != nil {
		t.Fatal(err)
	}
	return class
}

// classOf hands the class on.
func classOf(files []sandbox.File) (env []string) {
	for _, f := range files {
		if f.Path == "Facts.class" {
			env = append(env, classEnv+"="+f.ContentBase64)
		}
	}
	return env
}

// wanted is what tools should say.
func wanted(t *testing.T, l sandbox.Limits) []byte {
	t.Helper()
	n := max(1, min(int(math.Ceil(l.CPUs)), runtime.NumCPU()))
	want := map[string]any{
		"os.cpu_count": n, "affinity": n, "nproc": n, "available": n, "sysconf online": n, "lscpu": n, "lscpu sockets": 1, "r": n, "go": n,
		"free": l.MemoryBytes >> 10, "top": fmt.Sprintf("%.1f", float64(l.MemoryBytes)/(1<<20)),
		"node": []any{n, l.MemoryBytes, true, true}, "java": []any{n, "tmpfs", true},
		"uuid": 2,
	}
	for _, holds := range []string{
		"ps", "ps etimes", "uptime", "lsof", "mount", "mtab", "df of all", "vm.overcommit_memory", "memory in use is seen", "memory given back is seen", "time in use is seen",
		"time passes", "load is seen", "age", "boot time",
	} {
		want[holds] = true
	}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// lacking takes from what is wanted what the host has no tool for, where that may
// be, and judges what is only near to the limits.
func lacking(t *testing.T, got, want map[string]any) {
	t.Helper()
	for key := range want {
		if _, ok := got[key]; ok {
			continue
		}
		if os.Getenv("CI") == "true" || os.Getenv("PINFOLD_TEST_ALL") == "1" {
			t.Errorf("the host has no tool for %s; see scripts/setup", key)
		}
		delete(want, key)
	}
	const spare = 4 << 10 // of what lies in the root beside the user's files
	disk := float64(limits(1).DiskBytes >> 10)
	near := func(key string, kib any) {
		if size, ok := kib.(float64); !ok || size < disk || size > disk+spare {
			t.Errorf("%s says that the disk has %v KiB, not about %v", key, kib, disk)
		}
	}
	near("df", got["df"])
	delete(got, "df")
	if _, has := want["java"]; has {
		near("Java's file store", got["java df"])
	}
	delete(got, "java df")
}

func open(t *testing.T) *pinfold.Local {
	t.Helper()
	agent := filepath.Join(t.TempDir(), "pinfold-agent")
	if err := os.WriteFile(agent, agenttest.Bytes(t), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	local, err := pinfold.Open(t.Context(), pinfold.Options{Agent: agent})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.Close(); err != nil {
			t.Error(err)
		}
	})
	return local
}

func run(t *testing.T, local *pinfold.Local, l sandbox.Limits, with []sandbox.File) []byte {
	t.Helper()
	r, err := local.Run(t.Context(), sandbox.Spec{Language: "python", Code: facts, Limits: l, Files: with}, pinfold.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != sandbox.StatusSucceeded {
		t.Fatalf("the run %s: %+v\n%s", r.Status, r.Cause, r.Stderr)
	}
	return []byte(r.Stdout)
}

func cold(t *testing.T, local *pinfold.Local, l sandbox.Limits, with []sandbox.File) []byte {
	t.Helper()
	return run(t, local, l, with)
}

// warm waits until a pool has a sandbox ready; it has waited for a while then.
func warm(t *testing.T, local *pinfold.Local, l sandbox.Limits, with []sandbox.File) []byte {
	t.Helper()
	pool := sandbox.PoolSpec{Name: "facts", Language: "python", Limits: l, Min: 1}
	pool.Limits.WallTimeMS, pool.Limits.CPUTimeMS = 0, 0
	if _, err := local.SetPool(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := local.RemovePool(context.WithoutCancel(t.Context()), pool.Name); err != nil {
			t.Error(err)
		}
	})
	until(t, "a warm sandbox", func() bool { return info(t, local).Available > 0 })
	out := run(t, local, l, with)
	if used := info(t, local); used.Hits+used.Forked != 1 {
		t.Errorf("control: the run was not warm: %+v", used)
	}
	return out
}

func info(t *testing.T, local *pinfold.Local) sandbox.PoolInfo {
	t.Helper()
	pools, err := local.Pools(t.Context())
	if err != nil || len(pools) != 1 {
		t.Fatalf("pools %+v: %v", pools, err)
	}
	return pools[0]
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for tick := time.NewTicker(5 * time.Millisecond); !done(); {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("%s never came", what)
		}
	}
}

func living(t *testing.T, local *pinfold.Local, l sandbox.Limits, with []sandbox.File) []byte {
	t.Helper()
	l.WallTimeMS, l.CPUTimeMS = 0, 0
	box, err := local.Create(t.Context(), sandbox.Create{Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := box.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	for _, f := range with {
		content, err := f.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if err := box.WriteFile(t.Context(), f.Path, 0o755, int64(len(content)), bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	var out, errs bytes.Buffer
	p, err := box.Exec(t.Context(), sandbox.Command{Args: []string{"python3", "-c", facts}}, client.ExecOptions{Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	if out.Len() == 0 {
		t.Fatalf("%+v: %s", p, errs.String())
	}
	return out.Bytes()
}

func decode(t *testing.T, b []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%v: %.500s", err, b)
	}
}

// A Node that has waited finds as many processors as one that is started.
func TestWaitingNode(t *testing.T) {
	ledger.Check(t)
	local, l := open(t), limits(0.5)
	pool := sandbox.PoolSpec{Name: "node", Language: "javascript", Limits: l, Min: 1}
	pool.Limits.WallTimeMS, pool.Limits.CPUTimeMS = 0, 0
	if _, err := local.SetPool(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	until(t, "a warm sandbox", func() bool { return info(t, local).Available > 0 })
	code := `const os = require("os"); console.log(os.availableParallelism(), require("child_process").execFileSync("env", ["-u", "OMP_NUM_THREADS", "nproc"]).toString().trim())`
	r, err := local.Run(t.Context(), sandbox.Spec{Language: "javascript", Code: code, Limits: l}, pinfold.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Stdout != "1 1\n" || !r.Warm {
		t.Errorf("it printed %q (warm: %v, %+v): %s", r.Stdout, r.Warm, r.Cause, r.Stderr)
	}
	if err := local.RemovePool(context.WithoutCancel(t.Context()), pool.Name); err != nil {
		t.Error(err)
	}
}
