package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/internal/driver/native"
	"pinfold/internal/guest"
	"pinfold/internal/image"
	"pinfold/internal/linux/spawn"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// maker makes sandboxes in this process.
type maker struct {
	driver *native.Driver
	report driver.Report
	count  atomic.Int64
}

func newMaker(ctx context.Context, o options) (*maker, error) {
	agent := filepath.Join(filepath.Dir(o.pinfold), "pinfold-agent")
	d := native.New(native.Options{
		Agent:    func() ([]byte, error) { return os.ReadFile(agent) }, //nolint:gosec // the caller's own binary
		Template: func(string) (image.Template, error) { return image.Host(os.DirFS("/")) },
	})
	r, err := d.Probe(ctx)
	if err != nil {
		return nil, err
	}
	if r.Blocked != nil {
		return nil, r.Blocked
	}
	return &maker{driver: d, report: r}, nil
}

// open makes one sandbox and greets its agent.
func (m *maker) open(ctx context.Context) (driver.Machine, *guest.Guest, error) {
	spec := sandbox.Spec{Code: "-"}.WithDefaults()
	plan, err := driver.MakePlan(spec, m.report, fmt.Sprintf("bench-%d", m.count.Add(1)))
	if err != nil {
		return nil, nil, err
	}
	box, err := m.driver.Create(ctx, plan)
	if err != nil {
		return nil, nil, err
	}
	conn, err := box.Dial(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, box.Destroy(ctx))
	}
	g, err := guest.New(ctx, conn, wire.Hello{
		Version: wire.Version, UID: sandbox.UID, GID: sandbox.GID, SwitchUser: plan.SwitchUser, Home: sandbox.Home,
	})
	if err != nil {
		return nil, nil, errors.Join(err, box.Destroy(ctx))
	}
	return box, g, nil
}

// life is one sandbox from nothing to nothing, with /bin/true run in it.
func (m *maker) life(ctx context.Context) error {
	box, g, err := m.open(ctx)
	if err != nil {
		return err
	}
	p, err := g.Start(ctx, guest.Command{Args: []string{"/bin/true"}, Dir: sandbox.Home}, guest.Streams{})
	if err == nil {
		var e guest.Exit
		if e, err = p.Wait(ctx); err == nil && e.Code != 0 {
			err = fmt.Errorf("/bin/true ended with %d", e.Code)
		}
	}
	return errors.Join(err, box.Destroy(ctx), g.Close())
}

// driverAlone measures create → /bin/true → destroyed, without a new process of
// ours for each, beside the kernel's floor.
func driverAlone(ctx context.Context, o options, r *report) error {
	m, err := newMaker(ctx, o)
	if err != nil {
		return err
	}
	defer m.driver.Close() //nolint:errcheck // its machines are gone
	r.section("The native driver alone: create → `/bin/true` → destroyed, in process")
	var ours, floor sample
	for range max(50, 3*o.rounds) {
		began := time.Now()
		if err := m.life(ctx); err != nil {
			return err
		}
		ours = append(ours, time.Since(began))
		began = time.Now()
		if err := namespaces(); err != nil {
			return err
		}
		floor = append(floor, time.Since(began))
	}
	r.table([][]string{
		{"what", "median", "p95", "beside the floor"},
		{"clone with six namespaces, exec `/bin/true`, wait (the kernel's floor)", ms(floor.median()), ms(floor.at(0.95)), "1.00 ×"},
		{"a whole sandbox", ms(ours.median()), ms(ours.at(0.95)), ratio(ours.median(), floor.median())},
	})
	rows := [][]string{{"at a time", "per second", "beside one at a time"}}
	var single float64
	for _, n := range []int{1, 2, 4, 8, 16} {
		_, took, err := m.many(ctx, 100*min(n, 4), n)
		if err != nil {
			return err
		}
		rate := float64(100*min(n, 4)) / took.Seconds()
		if n == 1 {
			single = rate
		}
		rows = append(rows, []string{fmt.Sprint(n), fmt.Sprintf("%.0f", rate), fmt.Sprintf("%.2f ×", rate/single)})
	}
	r.line("")
	r.table(rows)
	r.line("")
	r.target("at most 6 ms", ours.median() <= 6*time.Millisecond, ms(ours.median()))
	return nil
}

// namespaces is what the kernel asks for the namespaces and an exec alone.
func namespaces() error {
	p := spawn.New()
	p.UnblockSignals()
	p.Exec("/bin/true", []string{"true"}, nil)
	child, err := p.Start(spawn.Clone{Flags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET})
	if err != nil {
		return err
	}
	if err := child.WaitExec(); err != nil {
		return err
	}
	_, err = unix.Wait4(child.PID, nil, unix.WALL, nil)
	child.Release()
	return err
}

// many lives total lives, n at a time, and returns how long each took.
func (m *maker) many(ctx context.Context, total, n int) (sample, time.Duration, error) {
	took := make(sample, total)
	var next atomic.Int64
	var failures atomic.Int64
	var first error
	var once sync.Once
	var wg sync.WaitGroup
	began := time.Now()
	for range n {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(total); i = next.Add(1) - 1 {
				start := time.Now()
				if err := m.life(ctx); err != nil {
					failures.Add(1)
					once.Do(func() { first = err })
				}
				took[i] = time.Since(start)
			}
		})
	}
	wg.Wait()
	if first != nil {
		return nil, 0, fmt.Errorf("%d of %d sandboxes failed; the first: %w", failures.Load(), total, first)
	}
	return took, time.Since(began), nil
}

// agentCost weighs the program that every sandbox carries.
func agentCost(ctx context.Context, o options, r *report) error {
	info, err := os.Stat(filepath.Join(filepath.Dir(o.pinfold), "pinfold-agent"))
	if err != nil {
		return err
	}
	m, err := newMaker(ctx, o)
	if err != nil {
		return err
	}
	defer m.driver.Close() //nolint:errcheck // its machines are gone
	var idle []int64
	for range 3 {
		box, g, err := m.open(ctx)
		if err != nil {
			return err
		}
		time.Sleep(300 * time.Millisecond)
		bytes, err := agentMemory()
		if err := errors.Join(err, box.Destroy(ctx), g.Close()); err != nil {
			return err
		}
		idle = append(idle, bytes)
	}
	r.section("The agent")
	r.target("at most 3 MB stripped", info.Size() <= 3_000_000, fmt.Sprintf("%d bytes", info.Size()))
	r.target("at most 1.2 MB unshared memory when idle", idle[0] <= 1_200_000,
		fmt.Sprintf("%d bytes; its text is one sealed file in memory, shared by all sandboxes", idle[0]))
	return nil
}

// agentMemory sums the private pages of the one living agent among our children
// that are not pages of its shared executable.
func agentMemory() (int64, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		exe, err := os.Readlink("/proc/" + e.Name() + "/exe")
		if err != nil || !strings.HasPrefix(exe, "/memfd:pinfold-agent") {
			continue
		}
		smaps, err := os.ReadFile("/proc/" + e.Name() + "/smaps")
		if err != nil {
			return 0, err
		}
		return private(string(smaps)), nil
	}
	return 0, errors.New("no agent is running")
}

// private sums Private_Clean and Private_Dirty, and leaves out what is mapped
// from the sealed file: those pages are "private" only while one sandbox lives.
func private(smaps string) int64 {
	var sum int64
	shared := false
	for line := range strings.Lines(smaps) {
		var n int64
		switch {
		case strings.Contains(line, "-") && strings.Contains(line, " ") && !strings.Contains(strings.Fields(line)[0], ":"):
			shared = strings.Contains(line, "memfd:pinfold-agent") && !strings.Contains(line, " rw")
		case !shared && strings.HasPrefix(line, "Private_"):
			if _, err := fmt.Sscanf(strings.Fields(line)[1], "%d", &n); err == nil {
				sum += n << 10
			}
		}
	}
	return sum
}
