//go:build linux

package native

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/guest"
	"pinfold/internal/image"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
	"pinfold/test/asuser"
	"pinfold/test/ledger"
)

// soakEnv asks for the long soak: how many sandboxes, 32 at a time.
const soakEnv = "PINFOLD_SOAK"

// Sandboxes are made, used and destroyed side by side, and nothing of them is
// left. How long each took is printed, not judged: machines differ.
func TestSoak(t *testing.T) {
	n, width := 200, 8
	if text := os.Getenv(soakEnv); text != "" {
		many, err := strconv.Atoi(text)
		if err != nil || many < 100 {
			t.Fatalf("%s=%q is not a number of sandboxes from 100 on", soakEnv, text)
		}
		n, width = many, 32
	}
	agenttest.Bytes(t)
	state := filepath.Join(t.TempDir(), "state")
	ledger.Check(t, state)
	d := newDriver(t, state)
	soak(t, d, 2*width, width) // what is made once is made now
	before := ledger.Take(state)
	start := time.Now()
	took := soak(t, d, n, width)
	elapsed := time.Since(start)
	if left := ledger.Wait(before, state); len(left) > 0 {
		t.Errorf("while the driver is open, left behind by %d sandboxes:\n%v", n, left)
	}
	tenth := took[:min(len(took), max(100, n/10))]
	last := took[len(took)-len(tenth):]
	t.Logf("%d sandboxes, %d at a time: %.1f s, %.0f each second; median of the first %d %v, of the last %v",
		n, width, elapsed.Seconds(), float64(n)/elapsed.Seconds(), len(tenth), median(tenth), median(last))
}

func TestSoakAsUser(t *testing.T) {
	asuser.Rerun(t, "TestSoak", []string{agenttest.Agent}, nil)
}

// soak returns how long each sandbox took, in the order in which they began.
func soak(t *testing.T, d *Driver, n, width int) []time.Duration {
	t.Helper()
	report, err := d.Probe(t.Context(), imagetest.Host(t))
	if err != nil {
		t.Fatal(err)
	}
	if report.Blocked != nil {
		drivertest.Missing(t, "the driver is blocked here: %v (%s)", report.Blocked, report.Blocked.Hint)
	}
	return lives(t, n, width, func(i int) error {
		return once(t.Context(), d, imagetest.Host(t), report, fmt.Sprintf("soak-%d-%d", n, i))
	})
}

// lives calls life n times, width at a time, until one fails, and returns how
// long each took, in the order in which they began.
func lives(t *testing.T, n, width int, life func(i int) error) []time.Duration {
	t.Helper()
	took := make([]time.Duration, n)
	work := make(chan int)
	var wg sync.WaitGroup
	for range width {
		wg.Go(func() {
			for i := range work {
				begin := time.Now()
				if err := life(i); err != nil {
					t.Errorf("%d: %v", i, err)
				}
				took[i] = time.Since(begin)
			}
		})
	}
	for i := range n {
		if t.Failed() {
			break
		}
		work <- i
	}
	close(work)
	wg.Wait()
	return took
}

// once makes a sandbox, runs a program in it, and destroys it.
func once(ctx context.Context, d *Driver, shown image.Template, report driver.Report, id string) (err error) {
	plan, err := driver.MakePlan(sandbox.Spec{Code: "x"}.WithDefaults().Machine(), shown, report, id)
	if err != nil {
		return err
	}
	m, err := d.Create(ctx, plan)
	if err != nil {
		return err
	}
	defer func() {
		if destroyErr := m.Destroy(ctx); err == nil {
			err = destroyErr
		}
	}()
	p, g, err := startIn(ctx, m, plan, guest.Command{Args: []string{"/bin/true"}}, guest.Streams{})
	if err != nil {
		return err
	}
	defer g.Close() // the machine is destroyed
	exit, err := p.Wait(ctx)
	if err == nil && (exit.Code != 0 || exit.Signal != 0) {
		err = fmt.Errorf("/bin/true ended with %+v", exit)
	}
	return err
}

// startIn greets a machine's agent and starts a program.
func startIn(ctx context.Context, m driver.Machine, plan driver.Plan, cmd guest.Command, s guest.Streams) (*guest.Process, *guest.Guest, error) {
	conn, err := m.Dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	g, err := guest.New(ctx, conn, wire.Hello{UID: sandbox.UID, GID: sandbox.GID, SwitchUser: plan.SwitchUser, Home: sandbox.Home})
	if err != nil {
		return nil, nil, err
	}
	p, err := g.Start(ctx, cmd, s)
	if err != nil {
		_ = g.Close()
		return nil, nil, err
	}
	return p, g, nil
}

func median(d []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[len(sorted)/2].Round(10 * time.Microsecond)
}
