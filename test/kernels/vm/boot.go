package vm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
)

// JobsFile is where the guest's init finds its jobs.
const JobsFile = "/jobs.json"

// Machine is what boots.
type Machine struct {
	Arch   string // as Go names it; "amd64" if it is empty
	Kernel string // a compressed kernel image
	// Image is the whole system, in memory; its /init is test/kernels/init. With
	// a Disk it is what the tests have, at TestsDir.
	Image     *Image
	Disk      string // of Debian.Make; what is written to it is forgotten
	MemoryMiB int
	CPUs      int
}

// Run boots the machine, runs the jobs one after another and calls report for
// each event, from one goroutine. It returns when the machine is off. The error
// ends with what the console said last.
func (m Machine) Run(ctx context.Context, jobs []Job, report func(Event)) error {
	dir, err := os.MkdirTemp("", "kernels-vm-") // not our name: other tests run beside this, and look for what it is on
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	text, err := json.Marshal(jobs)
	if err != nil {
		return err
	}
	name := JobsFile
	if m.Disk != "" {
		name = TestsDir + JobsFile
	}
	m.Image.Content(name, 0o644, string(text))
	drive, err := m.drives(ctx, dir)
	if err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	events, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = events.Close() }()
	var console tail
	cmd := m.command(ctx, drive)
	cmd.Stdout, cmd.Stderr = &console, &console
	cmd.ExtraFiles = []*os.File{w} // descriptor 3
	// With this process, however it ends, so does the machine.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // whose end the kernel would take for this process's
	defer runtime.UnlockOSThread()
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return err
	}
	err = readEvents(events, report)
	if err != nil || m.Disk != "" { // a whole system takes long to shut down
		_ = cmd.Process.Kill()
	}
	wait := cmd.Wait()
	if m.Disk != "" && err == nil {
		wait = nil
	}
	err = errors.Join(err, wait, ctx.Err())
	if err != nil {
		return fmt.Errorf("%w; the console's end:\n%s", err, console.text())
	}
	return nil
}

// drives makes what the machine boots from and returns QEMU's options for it.
func (m Machine) drives(ctx context.Context, dir string) ([]string, error) {
	if m.Disk == "" {
		initrd := filepath.Join(dir, "initrd")
		return []string{"-initrd", initrd}, writeTo(initrd, m.Image)
	}
	tree, tests := filepath.Join(dir, "tests"), filepath.Join(dir, "disk")
	if err := m.Image.Unpack(tree); err != nil {
		return nil, err
	}
	if err := makeDisk(ctx, tests, filepath.Join(tree, TestsDir), "1G"); err != nil {
		return nil, err
	}
	return []string{
		// Two of one kind would get their names by chance. The kernel finds its root
		// without a module; the other waits for one.
		"-drive", "if=none,id=root,format=raw,snapshot=on,cache=unsafe,file=" + m.Disk, "-device", "nvme,drive=root,serial=root",
		"-drive", "if=none,id=tests,format=raw,snapshot=on,cache=unsafe,file=" + tests, "-device", "virtio-blk-pci,drive=tests",
		"-device", "virtio-serial-pci", "-chardev", "file,id=events,path=/proc/self/fd/3", "-device", "virtserialport,chardev=events,name=" + filepath.Base(eventsPort),
	}, os.RemoveAll(tree)
}

func writeTo(name string, i *Image) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(i.write(f), f.Close())
}

// platform is how QEMU emulates an architecture.
type platform struct {
	qemu, pkg string
	args      []string
	console   string
}

var platforms = map[string]platform{
	"amd64": {QEMU, "qemu-system-x86", []string{"-M", "q35", "-cpu", "max,cx16=off"}, "ttyS0"},
	// The other way to authenticate pointers takes most of an emulated CPU's time.
	"arm64": {"qemu-system-aarch64", "qemu-system-arm", []string{"-M", "virt,gic-version=3", "-cpu", "max,pauth-impdef=on"}, "ttyAMA0"},
}

func (m Machine) platform() platform { return platforms[cmp.Or(m.Arch, "amd64")] }

func (m Machine) command(ctx context.Context, drives []string) *exec.Cmd {
	p := m.platform()
	// panic=-1 with -no-reboot: a dead kernel ends QEMU at once.
	options := "console=" + p.console + " quiet panic=-1 mitigations=off random.trust_cpu=on "
	threads := "multi"
	if m.Disk != "" && p.qemu == QEMU {
		// Newer kernels change their own code and swap 16 bytes at once while they
		// run; QEMU 7 does either wrong where each CPU has a thread.
		threads = "single"
	}
	args := append([]string{"-accel", "tcg,thread=" + threads}, p.args...)
	args = append(args, "-nodefaults", "-no-user-config", "-m", fmt.Sprint(m.MemoryMiB), "-smp", fmt.Sprint(m.CPUs),
		"-display", "none", "-no-reboot", "-kernel", m.Kernel, "-serial", "stdio")
	if m.Disk == "" {
		options += "cgroup_no_v1=cpu,cpuacct,cpuset,memory,pids,blkio rdinit=/init" // not the freezer, which version 2 has no like of
		args = append(args, "-serial", "file:/proc/self/fd/3")
	} else {
		options += "root=/dev/nvme0n1 rw"
	}
	return exec.CommandContext(ctx, p.qemu, append(append(args, "-append", options), drives...)...)
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
