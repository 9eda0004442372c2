package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"pinfold/internal/wire"
)

// escape tries, with the agent's own rights, what only the agent could, and
// reports on the program's stdout. An honest end follows.
func escape(channel uint32) {
	send(wire.KindEvent, channel, started)
	var b strings.Builder
	for _, try := range []struct {
		name string
		do   func() error
	}{
		{"mount", func() error { return syscall.Mount("none", "/tmp", "tmpfs", 0, "") }},
		{"remount", func() error { return syscall.Mount("", "/usr", "", syscall.MS_REMOUNT|syscall.MS_BIND, "") }},
		{"umount", func() error { return syscall.Unmount("/proc", syscall.MNT_DETACH) }},
		{"chroot", func() error { return syscall.Chroot("/tmp") }},
		{"mknod", func() error { return syscall.Mknod("/tmp/disk", syscall.S_IFBLK|0o600, 254<<8) }},
		{"write_usr", func() error { return writable("/usr/bin/id") }},
		{"write_etc", func() error { return writable("/etc/hosts") }},
		{"make_root", func() error { return os.Mkdir("/new", 0o700) }},
		{"shadow", func() error { _, err := os.ReadFile("/etc/shadow"); return err }},
		{"host_kill", func() error { return syscall.Kill(999_999, 0) }},
		{"setuid_high", func() error { return syscall.Setuid(70_000) }},
		{"sethostname", func() error { return syscall.Sethostname([]byte("owned")) }},
		{"unshare", func() error { return syscall.Unshare(syscall.CLONE_NEWUSER) }},
		{"exe", func() error { return writable("/proc/self/exe") }},
		{"netlink", func() error { _, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW, 0); return err }},
		{"raw", func() error { _, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_RAW, 1); return err }},
		{"oom", func() error { return writable("/proc/self/oom_score_adj") }},
	} {
		answer := "ok"
		if err := try.do(); err != nil {
			answer = "refused"
		}
		fmt.Fprintf(&b, "%s %s\n", try.name, answer)
	}
	send(wire.KindData, channel, "\x01"+b.String())
	send(wire.KindEOF, channel, "\x01")
	send(wire.KindEOF, channel, "\x02")
	send(wire.KindEvent, channel, exited)
	send(wire.KindClose, channel, done)
}

func writable(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}
