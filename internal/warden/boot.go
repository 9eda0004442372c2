//go:build linux

package warden

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/initramfs"
)

// step is a part of the boot.
type step struct {
	name string
	do   func() error
}

func walk(steps []step) error {
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// mounting is a file system that the machine has.
type mounting struct {
	dir, kind string
	flags     uintptr
	options   string
}

func (m mounting) step() step {
	return step{"mount " + m.dir, func() error {
		if err := os.MkdirAll(m.dir, 0o755); err != nil && !errors.Is(err, unix.EROFS) { //nolint:gosec // everybody looks
			return err
		}
		return unix.Mount(m.kind, m.dir, m.kind, m.flags, m.options)
	}}
}

const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// early are there before the disk is.
var early = []mounting{
	{"/dev", "devtmpfs", unix.MS_NOSUID, "mode=755"},
	{"/proc", "proc", quiet, ""},
	{"/sys", "sysfs", quiet, ""},
}

// late lie over the disk, which nobody can write to.
var late = []mounting{
	{"/sys/fs/cgroup", "cgroup2", quiet, "nsdelegate"},
	{"/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "ptmxmode=666,mode=620"},
	{"/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	{"/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	{"/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
}

// begin makes what the kernel has started with a machine that can speak.
func begin() error {
	var steps []step
	for _, m := range early {
		steps = append(steps, m.step())
	}
	return walk(append(steps, step{"load modules", loadModules}, step{"promise memory", promise}))
}

// promise has the kernel give programs more room than there is memory, as on a host that
// has much more than they may use: what they do use is limited all the same.
func promise() error {
	return os.WriteFile("/proc/sys/vm/overcommit_memory", []byte("1"), 0)
}

// compressed says that the kernel is to unpack the module by itself.
const compressed = 4 // MODULE_INIT_COMPRESSED_FILE

// loadModules loads what the initramfs has, in the order of the names, and gives its
// memory back.
func loadModules() error {
	files, err := filepath.Glob(initramfs.ModulesDir + "/*") // in their order
	if err != nil {
		return err
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		flags := 0
		if !strings.HasSuffix(name, ".ko") {
			flags = compressed
		}
		err = unix.FinitModule(int(f.Fd()), "", flags)
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
		_ = os.Remove(name)
	}
	return nil
}

// disk is where the machine's is.
const disk, newRoot = "/dev/vda", "/root"

// enterDisk makes the disk the root.
func enterDisk() error {
	steps := []step{
		{"wait for the disk", func() error { return await(disk) }},
		{"mount the disk", func() error {
			return unix.Mount(disk, newRoot, "erofs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
		}},
	}
	for _, m := range early {
		steps = append(steps, step{"move " + m.dir, func() error { return unix.Mount(m.dir, newRoot+m.dir, "", unix.MS_MOVE, "") }})
	}
	steps = append(
		steps,
		step{"enter the disk", func() error { return unix.Chdir(newRoot) }},
		step{"move the root", func() error { return unix.Mount(".", "/", "", unix.MS_MOVE, "") }},
		step{"change root", func() error { return unix.Chroot(".") }},
		step{"enter the root", func() error { return unix.Chdir("/") }},
	)
	for _, m := range late {
		steps = append(steps, m.step())
	}
	return walk(steps)
}

// bootTimeout bounds how long a device may take to appear.
const bootTimeout = 20 * time.Second

// await waits for a file.
func await(name string) error {
	for until := time.Now().Add(bootTimeout); ; time.Sleep(time.Millisecond) {
		_, err := os.Stat(name)
		if err == nil || time.Now().After(until) {
			return err
		}
	}
}

// openPort opens a port of the machine's by its name.
func openPort(name string) (*os.File, error) {
	for until := time.Now().Add(bootTimeout); time.Now().Before(until); time.Sleep(time.Millisecond) {
		files, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil || strings.TrimSpace(string(text)) != name {
				continue
			}
			device := "/dev/" + filepath.Base(filepath.Dir(file))
			fd, err := unix.Open(device, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", device, err)
			}
			return os.NewFile(uintptr(fd), device), nil
		}
	}
	return nil, fmt.Errorf("there is no port %s", name)
}

// off switches the machine off.
func off() {
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}
