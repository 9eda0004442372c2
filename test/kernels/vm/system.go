package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"pinfold/internal/initramfs"
)

// Where a system that boots has what its tests need: a second disk.
const (
	TestsDir   = "/test"
	initFile   = TestsDir + "/init"
	eventsPort = "/dev/virtio-ports/events"
)

// jobsUnit starts the jobs once the system is up, as any service is started.
const jobsUnit = `[Unit]
Description=Jobs of a test machine
After=systemd-user-sessions.service systemd-logind.service dbus.service
RequiresMountsFor=` + TestsDir + `

[Service]
Type=exec
ExecStart=` + initFile + ` -port ` + eventsPort + ` -jobs ` + TestsDir + JobsFile + ` -systemd
StandardOutput=journal+console
StandardError=journal+console
TasksMax=infinity
`

// patience is for a machine that is emulated beside others: a device that had not come after 90
// seconds, systemd's default, ended the boot.
const patience = "[Manager]\nDefaultDeviceTimeoutSec=20min\nDefaultTimeoutStartSec=20min\n"

// masked are units that only cost time in a machine that lives for minutes.
var masked = []string{
	"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer", "logrotate.timer",
	"systemd-timesyncd.service", "systemd-networkd.service", "getty@tty1.service", "serial-getty@ttyS0.service", "serial-getty@ttyAMA0.service",
	"systemd-hwdb-update.service", "systemd-journal-catalog-update.service", "ldconfig.service",
}

// makeBootable puts the user, the jobs and the disks into a tree, and makes a
// disk of it.
func makeBootable(ctx context.Context, dir, root string) error {
	units := filepath.Join(root, "etc/systemd/system")
	files := map[string]string{
		"etc/hostname":                            "guest\n",
		"etc/fstab":                               "/dev/nvme0n1 / ext4 rw,relatime 0 0\n/dev/vda " + TestsDir + " ext4 ro,nosuid 0 0\n",
		"etc/resolv.conf":                         "",
		"etc/machine-id":                          "0123456789abcdef0123456789abcdef\n",
		"etc/systemd/system/jobs.service":         jobsUnit,
		"etc/systemd/system.conf.d/emulated.conf": patience,
		"var/lib/systemd/linger/user":             "",
	}
	for name, content := range files {
		if err := writeFile(filepath.Join(root, name), content); err != nil {
			return err
		}
	}
	for file, line := range map[string]string{
		"etc/passwd": "user:x:1000:1000::/home/user:/bin/sh\n", "etc/group": "user:x:1000:\n", "etc/shadow": "user:*:20000::::::\n",
		"etc/subuid": "user:100000:65536\n", "etc/subgid": "user:100000:65536\n",
	} {
		if err := appendLine(filepath.Join(root, file), line); err != nil {
			return err
		}
	}
	home := filepath.Join(root, "home/user")
	wanted := filepath.Join(units, "multi-user.target.wants/jobs.service")
	_ = os.Remove(wanted) // where it came from another tree
	errs := []error{
		os.MkdirAll(filepath.Join(root, TestsDir), 0o755),
		os.MkdirAll(home, 0o700), os.Chown(home, User, User),
		os.MkdirAll(filepath.Join(units, "multi-user.target.wants"), 0o755),
		os.Symlink("../jobs.service", wanted),
	}
	for _, unit := range masked {
		name := filepath.Join(units, unit)
		_ = os.Remove(name)
		errs = append(errs, os.Symlink("/dev/null", name))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return makeDisk(ctx, filepath.Join(dir, "disk"), root, "2G")
}

// makeDisk makes an ext4 file system with the files of a directory.
func makeDisk(ctx context.Context, disk, dir, size string) error {
	_, err := run(ctx, "", "/sbin/mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=1,root_owner=0:0", "-d", dir, disk, size)
	return err
}

func writeFile(name, content string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	_ = os.Remove(name) // where it is a link
	return os.WriteFile(name, []byte(content), 0o644)
}

func appendLine(name, line string) error {
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if strings.Contains(string(text), line) {
		return nil
	}
	mode := os.FileMode(0o644)
	if st, err := os.Stat(name); err == nil {
		mode = st.Mode()
	}
	return os.WriteFile(name, append(text, line...), mode)
}

// Unpack writes the tree to a directory.
func (i *Image) Unpack(dir string) error {
	for name, f := range i.files {
		if err := i.unpackFile(filepath.Join(dir, name), f); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (i *Image) unpackFile(name string, f file) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	perm := os.FileMode(f.mode & 0o777)
	switch {
	case f.mode&0o170000 == initramfs.TypeDir:
		return errors.Join(os.MkdirAll(name, perm), os.Chmod(name, perm), os.Lchown(name, f.uid, f.uid))
	case f.mode&0o170000 == initramfs.TypeLink:
		return os.Symlink(string(f.content), name)
	case f.host != "":
		content, err := os.ReadFile(f.host)
		if err != nil {
			return err
		}
		f.content = content
	}
	return errors.Join(os.WriteFile(name, f.content, perm), os.Chmod(name, perm), os.Lchown(name, f.uid, f.uid))
}
