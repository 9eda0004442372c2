//go:build linux

package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/driver"
	"pinfold/internal/driver/drivertest"
	"pinfold/internal/driver/qemu"
	"pinfold/internal/engine"
	"pinfold/internal/engine/runs"
	"pinfold/internal/image/imagetest"
	"pinfold/sandbox"
	"pinfold/test/kernels/vm"
)

// held is a driver that makes copies of machines for requests only, while its fillers
// are to wait: what is measured then are machines that go on from a snapshot.
type held struct {
	driver.Driver
	fillers *atomic.Bool // wait
}

func (h held) Abilities() driver.Abilities {
	a := h.Driver.Abilities()
	a.Copier = heldCopier{a.Copier, h.fillers}
	return a
}

// request is the key of a request's context.
type request struct{}

type heldCopier struct {
	driver.Copier
	fillers *atomic.Bool
}

func (c heldCopier) CreateOriginal(ctx context.Context, plan driver.Plan) (driver.Original, error) {
	o, err := c.Copier.CreateOriginal(ctx, plan)
	return heldOriginal{o, c.fillers}, err
}

type heldOriginal struct {
	driver.Original
	fillers *atomic.Bool
}

func (o heldOriginal) Keep(ctx context.Context) (driver.Kept, error) {
	k, err := o.Original.Keep(ctx)
	return heldKept{k, o.fillers}, err
}

type heldKept struct {
	driver.Kept
	fillers *atomic.Bool
}

func (k heldKept) Copy(ctx context.Context, plan driver.Plan) (driver.Machine, error) {
	for k.fillers.Load() && ctx.Value(request{}) == nil && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	return k.Kept.Copy(ctx, plan)
}

func unsharedKB(b *testing.B) (each []int64) {
	b.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		line, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(line), "qemu-system-x86_64") {
			continue
		}
		rollup, err := os.ReadFile(filepath.Dir(file) + "/smaps_rollup")
		if err != nil {
			continue
		}
		var kb int64
		for text := range strings.Lines(string(rollup)) {
			var n int64
			if _, err := fmt.Sscanf(text, "Private_Clean: %d kB", &n); err == nil {
				kb += n
			}
			if _, err := fmt.Sscanf(text, "Private_Dirty: %d kB", &n); err == nil {
				kb += n
			}
		}
		each = append(each, kb)
	}
	slices.Sort(each)
	return each
}

func ms(all []time.Duration) float64 {
	slices.Sort(all)
	return all[len(all)/2].Seconds() * 1000
}

// BenchmarkVirtual measures virtual machines that go on from a snapshot in which an
// interpreter waits: docs/isolation.md has its numbers.
func BenchmarkVirtual(b *testing.B) {
	if missing := vm.Missing(); missing != "" || os.Geteuid() != 0 {
		drivertest.Missing(b, "virtual machines need root, and %s", missing)
	}
	kernel, err := vm.Kernel(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	agent, warden := agenttest.Bytes(b), agenttest.Program(b, agenttest.Warden)
	q := qemu.New(qemu.Options{
		Kernel: kernel, Modules: vm.Modules(kernel), StateDir: filepath.Join(b.TempDir(), "state"),
		Agent: func() ([]byte, error) { return agent, nil }, Warden: func() ([]byte, error) { return warden, nil },
	})
	var fillers atomic.Bool
	e := engine.New(engine.Options{Drivers: []driver.Driver{held{q, &fillers}}, Host: os.DirFS("/"), Template: imagetest.Templates, DestroyLater: true})
	defer func() {
		if err := e.Close(); err != nil {
			b.Error(err)
		}
	}()
	run := func() (time.Duration, *sandbox.Result) {
		begun := time.Now()
		r, err := e.Run(context.WithValue(b.Context(), request{}, true), runs.Request{Spec: sandbox.Spec{Code: "print(1)", Language: "python", Driver: qemu.Name, Limits: limits}})
		if err != nil || r.Stdout != "1\n" {
			b.Fatalf("%+v, %v", r, err)
		}
		return time.Since(begun), r
	}
	cold, _ := run()
	b.ReportMetric(cold.Seconds()*1000, "coldms")
	if _, err := e.SetPool(b.Context(), sandbox.PoolSpec{Name: "p", Driver: qemu.Name, Language: "python", Min: 1, Limits: limits}); err != nil {
		b.Fatal(err)
	}
	full := func(n int) {
		for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			i := e.Pools()[0]
			if i.Available == n {
				return
			}
			if i.Error != nil || time.Now().After(until) {
				b.Fatalf("%+v", i)
			}
		}
	}
	full(1)
	fillers.Store(true)
	run()
	const rounds = 15
	var docker, snapshot, pooled []time.Duration
	for i := range rounds {
		time.Sleep(100 * time.Millisecond)
		took, r := run()
		if i < 3 {
			b.Logf("snapshot %v %+v", took, r.Timings)
		}
		snapshot = append(snapshot, took)
		fillers.Store(false)
		full(1)
		time.Sleep(300 * time.Millisecond)
		fillers.Store(true)
		took, r = run()
		if i < 3 {
			b.Logf("pooled %v %+v", took, r.Timings)
		}
		pooled = append(pooled, took)
		if took, ok := dockerRun(b); ok {
			docker = append(docker, took)
		}
	}
	b.ReportMetric(ms(snapshot), "snapshotms")
	b.ReportMetric(ms(pooled), "pooledms")
	if len(docker) > 0 {
		b.ReportMetric(ms(docker), "dockerms")
	}
	var wg sync.WaitGroup
	var done atomic.Int64
	begun := time.Now()
	for range 4 {
		wg.Go(func() {
			for time.Since(begun) < 5*time.Second {
				run()
				done.Add(1)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(done.Load())/time.Since(begun).Seconds(), "runs/s")
	fillers.Store(false)
	if _, err := e.SetPool(b.Context(), sandbox.PoolSpec{Name: "p", Driver: qemu.Name, Language: "python", Min: 4, Limits: limits}); err != nil {
		b.Fatal(err)
	}
	full(4)
	time.Sleep(2 * time.Second)
	all := unsharedKB(b)
	b.Log(all)
	b.ReportMetric(float64(all[len(all)/2])/1024, "MB/waiting")
}

var limits = sandbox.Limits{}

func dockerRun(b *testing.B) (time.Duration, bool) {
	image := os.Getenv("PINFOLD_BENCH_DOCKER_IMAGE")
	if image == "" {
		return 0, false
	}
	begun := time.Now()
	out, err := exec.CommandContext(b.Context(), "docker", "run", "--rm", "--network", "none", image, "python3", "-c", "print(1)").Output()
	if err != nil || !bytes.Equal(out, []byte("1\n")) {
		b.Fatal(err, string(out))
	}
	return time.Since(begun), true
}
