//go:build linux

package native

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/language"
	"pinfold/internal/linux/idblock"
	"pinfold/internal/wire"
	"pinfold/sandbox"
	"pinfold/test/ledger"
)

// look is a Python program that prints what it finds out about itself.
//
//go:embed testdata/look.py
var look string

// sight is a Python program seen from outside and from inside.
type sight struct {
	Agent   posture
	Program posture
	Mounts  mountSet
	Inside  map[string]string
}

// What differs between a program that the agent starts and a fork, and nothing
// else does.
var forkedDiffers = []struct {
	field, started, forked, why string
}{
	{"Inside parent", "1", "0", "its parent is outside its pid namespace"},
	{"Inside status PPid", "1", "0", "the same"},
	{"Agent.Status NSpid", "2 deep", "3 deep", "the machine's pid namespace lies below the zygote's"},
	{"Program.Status NSpid", "2 deep", "3 deep", "the same"},
	{"Program.Args", "[python3 harness main]", "[python3 zygote]", "the command line is what was executed"},
}

// How the init stub differs from the agent, and nothing else does.
var stubDiffers = []struct {
	field, agent, stub, why string // stub: the beginning
}{
	{"Agent.Executable", "/memfd:pinfold-agent (deleted)", "/memfd:pinfold-initstub (deleted)", "it is another program"},
	{
		"Agent.Descriptors", "[/ /dev/null /dev/null /dev/null anon_inode:[eventfd] anon_inode:[eventfd] anon_inode:[eventpoll] socket:]",
		"[/dev/null /dev/null /dev/null /memfd:pinfold-agent (deleted) socket:]", "it holds what it will become",
	},
	{"Agent.Limits Max open files", "as outside", "4 ", "the agent raises what makes its start cheaper"},
	{"Agent.Status SigIgn", "ffffffffffbafeff", "0000000000010000", "it has no handler, so as process 1 none but SIGKILL from outside reaches it; SIGCHLD for orphans"},
}

// A fork is in every way confined as a program that the agent starts.
func TestForkedPosture(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	agenttest.Bytes(t)
	ledger.Check(t, state)
	t.Setenv("PINFOLD_CANARY", "must not be seen inside")
	d := newDriver(t, state)
	p, plan, err := newPythonZygote(t, d, "json", "ctypes", "locale", "socket", "threading")
	if errors.Is(err, errors.ErrUnsupported) {
		return // not root
	}
	if err != nil {
		t.Fatal(err)
	}
	started, forked, stub := flat(t, lookAtStarted(t, d, plan)), flat(t, lookAtForked(t, d, p, plan, true)), flat(t, lookAtForked(t, d, p, plan, false))
	for _, differs := range stubDiffers {
		if forked[differs.field] != differs.agent || !strings.HasPrefix(stub[differs.field], differs.stub) {
			t.Errorf("%s is %q beside the agent and %q beside the init stub, not %q and %q",
				differs.field, forked[differs.field], stub[differs.field], differs.agent, differs.stub)
		}
		stub[differs.field] = forked[differs.field]
	}
	if diff := cmp.Diff(forked, stub); diff != "" {
		t.Errorf("a fork beside an init stub (+) is not what it is beside the agent (-):\n%s", diff)
	}
	for _, differs := range forkedDiffers {
		if started[differs.field] != differs.started || forked[differs.field] != differs.forked {
			t.Errorf("%s is %q for a program that was started and %q for a fork, not %q and %q",
				differs.field, started[differs.field], forked[differs.field], differs.started, differs.forked)
		}
		delete(started, differs.field)
		delete(forked, differs.field)
	}
	if len(started) < 150 {
		t.Errorf("only %d things were looked at: %v", len(started), slices.Sorted(maps.Keys(started)))
	}
	if diff := cmp.Diff(started, forked); diff != "" {
		t.Errorf("a fork (+) is not what a program is that was started (-):\n%s", diff)
	}
}

// flat has one line for each thing.
func flat(t *testing.T, s sight) map[string]string {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var parts map[string]map[string]any
	if err := json.Unmarshal(b, &parts); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for part, fields := range parts {
		for name, value := range fields {
			lines, ok := value.(map[string]any)
			switch {
			case part == "Inside":
				found["Inside "+name] = value.(string) //nolint:forcetypeassert // it is a map of strings
			case ok:
				for k, v := range lines {
					found[part+"."+name+" "+k] = fmt.Sprint(v)
				}
			default:
				found[part+"."+name] = fmt.Sprint(value)
			}
		}
	}
	return found
}

// lookAtStarted has the agent start the program.
func lookAtStarted(t *testing.T, d *Driver, plan driver.Plan) sight {
	t.Helper()
	plan.ID = fmt.Sprintf("started-%d", forkCount.Add(1))
	made, err := d.Create(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	m := made.(*machine)
	defer destroy(t, m)
	template := imagetest.Host(t)
	python, err := language.Find("python")
	if err == nil {
		python, err = python.WithHarness(nil, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	steps, err := python.Plan("main.py", nil, sandbox.DefaultLimits(), func(names []string) (string, bool) { return template.Lookup(os.DirFS("/"), names) })
	if err != nil {
		t.Fatal(err)
	}
	p, g, err := startIn(t.Context(), m, plan, guest.Command{Args: []string{"/bin/mkdir", steps.Dir}}, guest.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close() // the machine is destroyed
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, f := range append(steps.Files, language.File{Path: "main.py", Content: []byte(look)}) {
		if err := g.WriteFile(t.Context(), f.Path, 0o644, int64(len(f.Content)), strings.NewReader(string(f.Content))); err != nil {
			t.Fatal(err)
		}
	}
	stdin, hold := io.Pipe()
	defer hold.Close() // ends the program
	out, printed := io.Pipe()
	if _, err := g.Start(t.Context(), guest.Command{
		Args: steps.Run.Args, Env: steps.Run.Env, Dir: sandbox.Home, UID: sandbox.UID, GID: sandbox.GID, Rlimits: []wire.Rlimit{{Resource: forkRlimit.Resource, Value: forkRlimit.Value}},
	}, guest.Streams{Stdin: stdin, Stdout: printed, Stderr: os.Stderr}); err != nil {
		t.Fatal(err)
	}
	return lookAt(t, d, m, out)
}

// lookAtForked hands the program to a forked interpreter, beside the agent or the
// init stub.
func lookAtForked(t *testing.T, d *Driver, p driver.Zygote, plan driver.Plan, agent bool) sight {
	t.Helper()
	plan.ID = fmt.Sprintf("forked-%d", forkCount.Add(1))
	made, f, err := p.Fork(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	m := made.(*machine)
	defer destroy(t, m)
	defer closeFiles([]*os.File{f.Stdin, f.Stdout, f.Stderr})
	if agent {
		conn, err := m.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		g, err := guest.New(t.Context(), conn, wire.Hello{UID: sandbox.UID, GID: sandbox.GID, SwitchUser: plan.SwitchUser, Home: sandbox.Home})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close() // the machine is destroyed
	}
	hand(t, f, look)
	return lookAt(t, d, m, f.Stdout)
}

func destroy(t *testing.T, m driver.Machine) {
	t.Helper()
	if err := m.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// lookAt takes what the program prints and looks at it while it waits.
func lookAt(t *testing.T, d *Driver, m *machine, out io.Reader) sight {
	t.Helper()
	line, err := bufio.NewReaderSize(out, 1<<20).ReadString('\n')
	if err != nil {
		t.Fatalf("%v after %.300q", err, line)
	}
	var s sight
	if err := json.Unmarshal([]byte(line), &s.Inside); err != nil {
		t.Fatal(err)
	}
	for k, v := range s.Inside {
		last := strconv.Itoa(m.block.Base + idblock.Size - 1)
		s.Inside[k] = strings.NewReplacer(strconv.Itoa(m.block.Base), "block", last, "block's last").Replace(v)
	}
	pids := insideOf(t, m.child.PID)
	if len(pids) != 1 {
		t.Fatalf("there are %v beside the agent", pids)
	}
	l := looker{t: t, block: m.block, agent: m.child.PID}
	s.Agent, s.Program, s.Mounts = l.posture(m.child.PID), l.posture(pids[0]), l.mounts(pids[0], m.plan.Template.Binds)
	s.Agent.Descriptors = slices.DeleteFunc(s.Agent.Descriptors, func(d string) bool { return d == "pipe:" }) // a fork's lead to the host at once
	for i, a := range s.Program.Args {
		s.Program.Args[i] = strings.TrimPrefix(strings.TrimSuffix(filepath.Base(a), ".py"), "pinfold_")
	}
	return s
}

// insideOf lists the processes of an agent's pid namespace beside it.
func insideOf(t *testing.T, agent int) (pids []int) {
	t.Helper()
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", agent))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == agent {
			continue
		}
		if its, err := os.Readlink("/proc/" + e.Name() + "/ns/pid"); err == nil && its == namespace {
			pids = append(pids, pid)
		}
	}
	return pids
}
