// Command init is the first process of a test machine: it prepares the system,
// runs the jobs of /jobs.json one after another and switches the machine off.
// It reports over the second serial port; see package vm. Where systemd is the
// first process, this is one of its services, and starts the jobs by systemd.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"pinfold/test/kernels/vm"
)

func main() {
	port := flag.String("port", "/dev/ttyS1", "where the events go")
	jobs := flag.String("jobs", vm.JobsFile, "what is to be run")
	systemd := flag.Bool("systemd", false, "let systemd start the jobs")
	flag.Parse()
	if os.Getpid() != 1 {
		worker(*port, *jobs, *systemd)
		return
	}
	if err := boot(); err != nil {
		fmt.Println("init:", err) // on the console; the end of the events tells the host
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

// boot prepares the system and leaves the jobs to a second process, so that
// this one can reap orphans without stealing anybody's children.
func boot() error {
	if err := leaveRootfs(); err != nil {
		return err
	}
	if err := mountAll(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("guest")); err != nil {
		return err
	}
	if err := startLoopback(); err != nil {
		return err
	}
	cmd := exec.CommandContext(context.Background(), "/init")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = []string{"PATH=/usr/bin:/usr/sbin", "HOME=/root"}
	if err := cmd.Start(); err != nil {
		return err
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid == cmd.Process.Pid {
			return err
		}
	}
}

// startLoopback brings up the only network there is, for canaries.
func startLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // only asked once
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

// leaveRootfs puts a mount over the root of the initramfs, which the kernel
// does not let pivot_root away from.
func leaveRootfs() error {
	for _, step := range []func() error{
		func() error { return unix.Mount("/", "/mnt", "", unix.MS_BIND, "") },
		func() error { return unix.Chdir("/mnt") },
		func() error { return unix.Mount("/mnt", "/", "", unix.MS_MOVE, "") },
		func() error { return unix.Chroot(".") },
		func() error { return unix.Chdir("/") },
		// As on a host with systemd.
		func() error { return unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, "") },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("leaving the initramfs: %w", err)
		}
	}
	return nil
}

func mountAll() error {
	for _, m := range []struct {
		dir, kind string
		flags     uintptr
		options   string
	}{
		{"/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"/sys/fs/cgroup", "cgroup2", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "nsdelegate"},
		{"/dev", "devtmpfs", unix.MS_NOSUID, "mode=755"},
		{"/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "ptmxmode=666,gid=5,mode=620"},
		{"/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"/var/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, m.flags, m.options); err != nil {
			return fmt.Errorf("mounting %s: %w", m.dir, err)
		}
	}
	return os.MkdirAll(fmt.Sprintf("/run/user/%d", vm.User), 0o755)
}

// worker runs the jobs.
func worker(events, list string, systemd bool) {
	port, err := openPort(events)
	if err != nil {
		fmt.Println("init:", err)
		return
	}
	text, err := os.ReadFile(list)
	var jobs []vm.Job
	if err == nil {
		err = json.Unmarshal(text, &jobs)
	}
	if err != nil {
		fmt.Println("init:", err)
		return
	}
	r := &reporter{port: port, systemd: systemd}
	for _, j := range jobs {
		runJob(r, j)
	}
	r.send(vm.Event{Kind: vm.EventDone})
	// Closing waits until the port has sent everything.
	if err := port.Close(); err != nil {
		fmt.Println("init:", err)
	}
}

// openPort makes the serial port carry bytes as they are.
func openPort(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(name, "/dev/tty") {
		return f, nil // not a terminal
	}
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	t.Oflag &^= unix.OPOST
	t.Lflag = 0
	t.Iflag = 0
	return f, unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t)
}
