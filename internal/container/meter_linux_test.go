package container

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"pinfold/internal/driver"
	"pinfold/internal/linux/cgroup"
	"pinfold/sandbox"
)

type noTasks struct{}

func (noTasks) Now(*driver.Usage, cgroup.Counters) {}
func (noTasks) Peak(*driver.Usage, cgroup.Peaks)   {}

// Whoever runs a container removes its group as soon as it has ended, which may be before we
// hear of that.
func TestGroupThatIsGone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes groups everywhere")
	}
	h, err := cgroup.Detect(cgroup.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	for _, opened := range []bool{false, true} {
		g, err := h.New("test-of-a-meter", cgroup.Limits{Memory: 64 << 20, Pids: 10})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = g.Remove(t.Context()) })
		m := Meter{Group: g, Limits: sandbox.Limits{MemoryBytes: 64 << 20, DiskBytes: 1 << 20}, Tasks: noTasks{}, Disk: t.TempDir()}
		if err := m.Begin(0); err != nil {
			t.Fatal(err)
		}
		if opened {
			if _, err := m.Read(t.Context()); err != nil {
				t.Errorf("control: %v", err)
			}
		}
		for _, dir := range h.Dirs() {
			if err := os.Remove(filepath.Join(dir, "test-of-a-meter")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := m.Read(t.Context()); !errors.Is(err, driver.ErrEnded) {
			t.Errorf("files opened before %v: %v", opened, err)
		}
		m.End()
	}
}
