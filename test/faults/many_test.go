//go:build linux

package faults

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pinfold/client"
	"pinfold/internal/probe"
	"pinfold/sandbox"
	"pinfold/test/ledger"
	"pinfold/test/server"
)

var living = flag.Int("living", 0, "how many sandboxes live at once in TestManyLiving: 600 by default, 1500 in continuous integration, 5000 with make soak")

// levels are the numbers of living sandboxes at which costs are logged.
var levels = []int{20, 520, 1020, 5000}

// As many sandboxes live at once as the host is said to carry, and each answers. The
// server holds three descriptors for each that is idle, nobody is told 500, and in
// the end nothing is left, and no memory is kept.
func TestManyLiving(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the ledger of what is left on the host needs root")
	}
	if *living == 0 {
		*living = 600
		if os.Getenv("CI") == "true" {
			*living = 1500
		}
	}
	for _, f := range probe.Room(probe.Demand{Sandboxes: *living + 20}) {
		if f.Severity == probe.Warning {
			t.Fatalf("this host does not carry them: %s; %s", f.Probed, f.Fix)
		}
	}
	ledger.Check(t)
	m := &many{t: t}
	var err error
	m.server, err = server.Start(t.Context(), server.Options{
		Program: server.Build(t), State: stateDir(t), Config: fmt.Sprintf("capacity: {sandboxes: %d}\nttl: {default: 2h}\n", *living+20),
	})
	if err != nil {
		t.Fatal(err)
	}
	before, begin := m.descriptors(), m.memory()
	for len(m.all) < *living {
		m.all = append(m.all, m.create())
		if slices.Contains(levels, len(m.all)) || len(m.all) == *living {
			m.measure()
		}
	}
	each := 0
	for m.descriptors() > before+*living*probe.Descriptors+*living/64+64 { // prepared mounts, and what the client and the database have open
		if each++; each > 300 {
			t.Fatalf("%d descriptors for %d idle sandboxes, %d without any", m.descriptors(), *living, before)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d descriptors for %d idle sandboxes, %d without any", m.descriptors(), *living, before)
	var wg sync.WaitGroup
	next := make(chan *client.Sandbox)
	for range 8 {
		wg.Go(func() {
			for x := range next {
				p, err := x.Exec(t.Context(), sandbox.Command{Args: []string{"/bin/sh", "-c", "echo $((6 * 7))"}}, client.ExecOptions{})
				if err != nil || p.Stdout != "42\n" {
					t.Errorf("%s answers %+v, %v", x.ID(), p, err)
				}
				if _, err := x.Destroy(t.Context()); err != nil {
					t.Errorf("%s cannot be destroyed: %v", x.ID(), err)
				}
			}
		})
	}
	for _, x := range m.all {
		next <- x
	}
	close(next)
	wg.Wait()
	m.givesBack(begin, int64(len(m.all)))
	if err := m.server.Stop(); err != nil {
		t.Error(err)
	}
}

// many is one server with many sandboxes.
type many struct {
	t      *testing.T
	server *server.Server
	all    []*client.Sandbox
	most   int64 // memory that the server was seen to have
}

func (m *many) create() *client.Sandbox {
	m.t.Helper()
	x, err := m.server.Client.Create(m.t.Context(), sandbox.Create{})
	if err != nil {
		m.t.Fatalf("with %d living: %v", len(m.all), err)
	}
	return x
}

func (m *many) descriptors() int {
	m.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.server.PID))
	if err != nil {
		m.t.Fatal(err)
	}
	return len(entries)
}

// measure logs what a new sandbox, a command in one that lives and a run cost.
func (m *many) measure() {
	m.t.Helper()
	const rounds = 21
	took := map[string][]time.Duration{}
	timed := func(what string, f func() error) {
		m.t.Helper()
		began := time.Now()
		if err := f(); err != nil {
			m.t.Fatalf("with %d living, %s: %v", len(m.all), what, err)
		}
		took[what] = append(took[what], time.Since(began))
	}
	ctx, cl := m.t.Context(), m.server.Client
	for i := range rounds {
		var x *client.Sandbox
		timed("create", func() (err error) { x, err = cl.Create(ctx, sandbox.Create{}); return err })
		if _, err := x.Destroy(ctx); err != nil {
			m.t.Fatal(err)
		}
		timed("true", func() error {
			p, err := m.all[len(m.all)*i/rounds].Exec(ctx, sandbox.Command{Args: []string{"/bin/true"}}, client.ExecOptions{})
			if err == nil && p.Status != sandbox.StatusSucceeded {
				err = fmt.Errorf("%+v", p)
			}
			return err
		})
		timed("run", func() error {
			r, err := cl.Run(ctx, sandbox.Spec{Language: "bash", Code: "echo hi"}, client.RunOptions{})
			if err == nil && r.Stdout != "hi\n" {
				err = fmt.Errorf("%+v", r)
			}
			return err
		})
	}
	median := func(what string) float64 {
		slices.Sort(took[what])
		return float64(took[what][rounds/2].Microseconds()) / 1000
	}
	m.t.Logf("%d living: create %.1f, true %.1f, run %.1f ms; the server %d KiB", len(m.all), median("create"), median("true"), median("run"), m.memory()>>10)
}

// A server may hold so much more memory than before when much work is over: code that
// was not read in before, and what it remembers of each sandbox that has ended.
const kept, keptEach = 24 << 20, 8 << 10

// givesBack waits until the server, which does nothing now, has given its memory back to
// the host. That takes it some ten seconds, or minutes where the clients' connections are
// closed so late that only the runtime's own collection finds it; without it a hundred and
// more MiB stay for as long as it lives.
func (m *many) givesBack(before, sandboxes int64) {
	m.t.Helper()
	begin, bound := time.Now(), before+kept+sandboxes*keptEach
	for now := m.memory(); ; now = m.memory() {
		if now <= bound {
			m.t.Logf("the server had %d KiB, then %d and now %d", before>>10, m.most>>10, now>>10)
			break
		}
		if time.Since(begin) > 8*time.Minute {
			m.t.Errorf("the server had %d KiB, then %d and keeps %d, more than %d", before>>10, m.most>>10, now>>10, bound>>10)
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if m.most <= bound {
		m.t.Errorf("control: from %d to %d KiB, the work has taken too little memory to tell", before>>10, m.most>>10)
	}
}

// memory is what the server has of the host's, in bytes.
func (m *many) memory() int64 {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(m.server.PID), "status"))
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			m.most = max(m.most, kib<<10)
			return kib << 10
		}
	}
	m.t.Fatalf("no VmRSS:\n%s", text)
	return 0
}
