//go:build linux

package native

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
	"pinfold/test/asuser"
	"pinfold/test/ledger"
)

var update = flag.Bool("update", false, "rewrite the recorded postures")

// postureEnv names the file for the record of a test that was started again as
// an ordinary user.
const postureEnv = "PINFOLD_TEST_POSTURE"

// record is everything that the kernel tells about a sandbox.
type record struct {
	Agent  posture  // the sandbox's first process
	Guest  posture  // a program in it
	Mounts mountSet // of both
	Self   ownView  // what only a process itself can ask
}

// The posture of a live sandbox is exactly the recorded one. After a change that
// is meant, record it with: go test ./internal/driver/native -run Posture -update
func TestPosture(t *testing.T) {
	agenttest.Program(t, drivertest.Probe)
	state := filepath.Join(t.TempDir(), "state")
	ledger.Check(t, state)
	got := marshal(t, takeRecord(t, newDriver(t, state)))
	if out := os.Getenv(postureEnv); out != "" {
		if err := os.WriteFile(out, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	who := "root"
	if os.Geteuid() != 0 {
		who = "user"
	}
	if who == "user" && !bytes.Contains(got, []byte(`"UIDMap": "1000 user 1"`)) {
		who = "subids" // an ordinary user with subordinate ids and a delegated cgroup
	}
	compare(t, who, got)
}

func TestPostureAsUser(t *testing.T) {
	dir, err := os.MkdirTemp("", "pinfold-posture-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chown(dir, asuser.ID, asuser.ID); err != nil && os.Geteuid() == 0 {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "posture.json")
	asuser.Rerun(t, "TestPosture", []string{agenttest.Agent, drivertest.Probe}, []string{postureEnv + "=" + out})
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "user", got)
}

func compare(t *testing.T, who string, got []byte) {
	t.Helper()
	golden := filepath.Join("testdata", "posture-"+who+".json")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil { //nolint:gosec // a file of the source
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatalf("%v; it would be:\n%s", err, got)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("the posture differs from %s (-want +got):\n%s", golden, diff)
	}
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// ownView is what guestprobe says about itself.
type ownView struct {
	Env        []string
	FDs        []int
	UID, GID   int
	Dir        string
	Hostname   string
	Interfaces []string
	Securebits int
	Leader     bool
}

// takeRecord makes a sandbox with a program in it and looks at both.
func takeRecord(t *testing.T, d *Driver) record {
	t.Helper()
	t.Setenv("PINFOLD_CANARY", "must not be seen inside")
	ctx := t.Context()
	plan := planFor(t, d, fmt.Sprintf("posture-%d", os.Getpid()))
	made, err := d.Create(ctx, plan)
	if err != nil {
		t.Fatal(err)
	}
	m := made.(*machine)
	defer func() {
		if err := m.Destroy(ctx); err != nil {
			t.Error(err)
		}
	}()
	var own bytes.Buffer
	p, g, err := startIn(ctx, m, plan, guest.Command{Args: []string{"/bin/true"}}, guest.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close() // the machine is destroyed
	if _, err := p.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	program := agenttest.Program(t, drivertest.Probe)
	if err := g.WriteFile(ctx, "probe", 0o755, int64(len(program)), bytes.NewReader(program)); err != nil {
		t.Fatal(err)
	}
	start := func(stdin *os.File, out io.Writer, try string) *guest.Process {
		cmd := guest.Command{
			Args: []string{sandbox.Home + "/probe", try}, Env: []string{"HOME=" + sandbox.Home},
			Rlimits: []wire.Rlimit{{Resource: unix.RLIMIT_FSIZE, Value: 1 << 28}, {Resource: unix.RLIMIT_NOFILE, Value: 256}},
		}
		s := guest.Streams{Stdout: out, Stderr: os.Stderr}
		if stdin != nil {
			s.Stdin = stdin
		}
		p, err := g.Start(ctx, cmd, s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	var r record
	if _, err := start(nil, &own, "self").Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(own.Bytes(), &r.Self); err != nil {
		t.Fatalf("%v in %q", err, own.String())
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()  // the guest's stdin
	defer write.Close() // ends it
	start(read, nil, "hold")
	pid := child(t, m.child.PID)
	l := looker{t: t, block: m.block, agent: m.child.PID}
	r.Agent, r.Guest, r.Mounts = l.posture(m.child.PID), l.posture(pid), l.mounts(pid, m.plan.Template.Binds)
	if inner := l.mounts(m.child.PID, m.plan.Template.Binds); !cmp.Equal(inner, r.Mounts) {
		t.Errorf("the agent and the program have different mounts:\n%s", cmp.Diff(inner, r.Mounts))
	}
	return r
}

// child waits for the one process below another.
func child(t *testing.T, parent int) int {
	t.Helper()
	for range 200 {
		for _, name := range ledger.Living(ledger.Below(parent)) {
			var pid int
			if _, err := fmt.Sscan(name, &pid); err == nil && settled(pid) {
				return pid
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the program in the sandbox cannot be seen from outside")
	return 0
}

// settled says whether a Go program has all its threads.
func settled(pid int) bool {
	before, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	time.Sleep(50 * time.Millisecond)
	after, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	return len(before) > 1 && len(before) == len(after)
}
