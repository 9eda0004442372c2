package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// JobsFile is where the guest's init finds its jobs.
const JobsFile = "/jobs.json"

// Machine is what boots. Image must have /init, which is test/kernels/init.
type Machine struct {
	Kernel    string // a compressed kernel image
	Image     *Image
	MemoryMiB int
	CPUs      int
}

// Run boots the machine, runs the jobs one after another and calls report for
// each event, from one goroutine. It returns when the machine is off. The error
// ends with what the console said last.
func (m Machine) Run(ctx context.Context, jobs []Job, report func(Event)) error {
	dir, err := os.MkdirTemp("", "pinfold-vm-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	text, err := json.Marshal(jobs)
	if err != nil {
		return err
	}
	m.Image.Content(JobsFile, 0o644, string(text))
	initrd := filepath.Join(dir, "initrd")
	if err := writeTo(initrd, m.Image); err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	events, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = events.Close() }()
	var console tail
	cmd := m.command(ctx, initrd)
	cmd.Stdout, cmd.Stderr = &console, &console
	cmd.ExtraFiles = []*os.File{w} // descriptor 3
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return err
	}
	err = readEvents(events, report)
	if err != nil {
		_ = cmd.Process.Kill()
	}
	err = errors.Join(err, cmd.Wait(), ctx.Err())
	if err != nil {
		return fmt.Errorf("%w; the console's end:\n%s", err, console.text())
	}
	return nil
}

func writeTo(name string, i *Image) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(i.write(f), f.Close())
}

func (m Machine) command(ctx context.Context, initrd string) *exec.Cmd {
	// panic=-1 with -no-reboot: a dead kernel ends QEMU at once.
	const options = "console=ttyS0 quiet panic=-1 cgroup_no_v1=all mitigations=off random.trust_cpu=on rdinit=/init"
	return exec.CommandContext(ctx, QEMU,
		"-accel", "tcg,thread=multi", "-cpu", "max", "-M", "q35", "-nodefaults", "-no-user-config",
		"-m", fmt.Sprint(m.MemoryMiB), "-smp", fmt.Sprint(m.CPUs), "-display", "none", "-no-reboot",
		"-kernel", m.Kernel, "-initrd", initrd, "-append", options,
		"-serial", "stdio", "-serial", "file:/proc/self/fd/3")
}

// tail keeps the last bytes written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
