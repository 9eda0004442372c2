package docker

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// helperEnv has this test program make machines until it is killed: a JSON of Options and
// a plan, and the agent's file.
const helperEnv = "PINFOLD_TEST_DOCKER_HELPER"

type helperInput struct {
	Engine, State, Agent string
	Plan                 driver.Plan
}

func runHelper() bool {
	text := os.Getenv(helperEnv)
	if text == "" {
		return false
	}
	var in helperInput
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		panic(err)
	}
	d := New(Options{Engine: in.Engine, Image: testImage, StateDir: in.State, Agent: func() ([]byte, error) { return os.ReadFile(in.Agent) }})
	for i := 0; ; i++ {
		in.Plan.ID = fmt.Sprintf("killed%d-%d", os.Getpid(), i)
		if _, err := d.Create(context.Background(), in.Plan); err != nil {
			panic(err)
		}
		fmt.Println("made " + in.Plan.ID)
	}
}

func planFor(t *testing.T, d *Driver, id string) driver.Plan {
	t.Helper()
	r, err := d.Probe(t.Context(), imagetest.Host(t))
	if err != nil || r.Blocked != nil {
		t.Fatalf("%v, %+v", err, r.Blocked)
	}
	p, err := driver.MakePlan(sandbox.Spec{Code: "x"}.WithDefaults().Machine(), imagetest.Host(t), r, id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// helper starts a process that makes machines, and returns when it has made so many and
// so long has passed. It is killed then.
func killedMaker(t *testing.T, where, state string, machines int, after time.Duration) {
	t.Helper()
	agent := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(agent, agenttest.Bytes(t), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(helperInput{Engine: where, State: state, Agent: agent, Plan: planFor(t, open(t, where, state), "x")})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env, cmd.Stderr = []string{helperEnv + "=" + string(in)}, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); machines > 0 && lines.Scan(); machines-- {
		if !strings.HasPrefix(lines.Text(), "made ") {
			t.Errorf("it says %q", lines.Text())
		}
	}
	time.Sleep(after)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// containers are the names of all that the engine has.
func containers(t *testing.T, where string) (names []string) {
	t.Helper()
	c, err := client.New(client.WithHost(where))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all, err := c.ContainerList(t.Context(), client.ContainerListOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all.Items {
		names = append(names, strings.Join(s.Names, " "))
	}
	return names
}

// A maker that is killed at any instant leaves machines that are whole, and are adopted,
// and parts of one, which are removed.
func TestKilledMaker(t *testing.T) {
	where, state := engineForTests(t), stateDir(t)
	for i := range 12 {
		killedMaker(t, where, state, i%3, time.Duration(i)*25*time.Millisecond)
		d := open(t, where, state)
		left, err := d.Leftovers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range left {
			if l.Err != nil {
				t.Errorf("%+v", l)
			}
		}
		ids, err := d.List(t.Context())
		if err != nil || len(ids) < i%3 {
			t.Fatalf("%q are listed, of at least %d: %v", ids, i%3, err)
		}
		for _, id := range ids {
			adoptAndUse(t, d, id)
		}
		if mounts, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(string(mounts), state) {
			t.Errorf("mounts are left:\n%s", mounts)
		}
		// What the engine was asked for in the last moment may come a moment later, and is
		// found the next time.
		eventually(t, "no container is left", func() bool {
			_, err := d.Leftovers(t.Context())
			return err == nil && len(containers(t, where)) == 0
		})
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if entries, err := os.ReadDir(state); err != nil || len(entries) > 0 {
		t.Errorf("of machines there are left %v: %v", entries, err)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func adoptAndUse(t *testing.T, d *Driver, id string) {
	t.Helper()
	m, plan, err := d.Adopt(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if out := run(t, m, plan, "/bin/echo", "adopted"); out != "adopted\n" {
		t.Errorf("%s says %q", id, out)
	}
	if err := m.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// run runs a command in a machine and returns what it prints.
func run(t *testing.T, m driver.Machine, plan driver.Plan, args ...string) string {
	t.Helper()
	conn, err := m.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g, err := guest.New(t.Context(), conn, wire.Hello{UID: plan.User.UID, GID: plan.User.GID, SwitchUser: plan.SwitchUser, Home: plan.User.Home})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var out strings.Builder
	p, err := g.Start(t.Context(), guest.Command{Args: args, Env: []string{"PATH=/usr/bin"}}, guest.Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
