//go:build linux

package qemu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"pinfold/internal/initramfs"
	"pinfold/internal/linux/failure"
	"pinfold/internal/linux/memfd"
	"pinfold/internal/warden/wardenwire"
	"pinfold/sandbox"
)

// defaultProgram is QEMU's.
const defaultProgram = "/usr/bin/qemu-system-x86_64"

func unavailable(message, hint string) *sandbox.Error {
	return &sandbox.Error{Code: sandbox.CodeDriverUnavailable, Message: message, Hint: hint}
}

const installQEMU = "sudo apt-get install --no-install-recommends qemu-system-x86"

// findProgram returns QEMU's executable.
func findProgram(name string) (string, error) {
	asked := name != ""
	if !asked {
		name = defaultProgram
	}
	info, err := os.Stat(name)
	switch {
	case err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && strings.HasPrefix(name, "/usr/"):
		return name, nil
	case asked && err == nil:
		return "", unavailable(name+" is no executable below /usr, which is all that QEMU is shown of this host", "set drivers.qemu.program to QEMU's path, or leave it out")
	case asked:
		return "", unavailable("there is no QEMU: "+err.Error(), "set drivers.qemu.program to QEMU's path, or leave it out")
	}
	return "", unavailable("there is no QEMU at "+name, installQEMU)
}

// kernel is what machines boot.
type kernel struct {
	file, modules string
	release       string
}

const installKernel = "sudo apt-get install --no-install-recommends linux-image-cloud-amd64"

// findKernel returns the kernel that is named, or the newest of this host that has modules.
func findKernel(file, modules string) (kernel, error) {
	if file != "" {
		release := strings.TrimPrefix(filepath.Base(file), "vmlinuz-")
		if modules == "" {
			modules = modulesOf(file, release)
		}
		k := kernel{file, modules, filepath.Base(modules)}
		return k, k.check()
	}
	found, err := filepath.Glob("/boot/vmlinuz-*")
	if err != nil || len(found) == 0 {
		return kernel{}, unavailable("there is no kernel to boot: no /boot/vmlinuz-*, and neither drivers.qemu.kernel nor $PINFOLD_KERNEL names one", installKernel)
	}
	slices.SortFunc(found, func(a, b string) int { return compareReleases(b, a) })
	var errs []error
	for _, file := range found {
		k, err := findKernel(file, "")
		if err == nil {
			return k, nil
		}
		errs = append(errs, err)
	}
	return kernel{}, errs[0]
}

// modulesOf is where a kernel's modules lie: in the tree in which the kernel is, as in that
// of a package which was unpacked and not installed, or in the host's.
func modulesOf(file, release string) string {
	for _, lib := range []string{"lib", "usr/lib"} {
		dir := filepath.Join(filepath.Dir(file), "..", lib, "modules", release)
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
	}
	return filepath.Join("/lib/modules", release)
}

// check says whether the kernel and its modules can be read.
func (k kernel) check() error {
	info, err := os.Stat(k.file)
	if err == nil && !filepath.IsAbs(k.file) {
		err = errors.New("it is no absolute path")
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxKernel) {
		err = errors.New("it is no kernel image")
	}
	if err != nil {
		return unavailable("the kernel "+k.file+" cannot be read: "+err.Error(), "set drivers.qemu.kernel to a compressed kernel image, or install one: "+installKernel)
	}
	if _, err := initramfs.Modules(k.modules, modules...); err != nil {
		return unavailable("the kernel "+k.file+" cannot be booted: "+err.Error(), "set drivers.qemu.modules to its directory of modules, or install one that has its own: "+installKernel)
	}
	return nil
}

// compareReleases compares names with numbers in them by the numbers.
func compareReleases(a, b string) int {
	split := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	}
	return slices.CompareFunc(split(a), split(b), func(x, y string) int {
		m, _ := strconv.Atoi(x)
		n, _ := strconv.Atoi(y)
		return m - n
	})
}

// maxKernel bounds a kernel image; Debian's has 8 MB, one without a distribution's choice 20.
const maxKernel = 256 << 20

// open copies the image to where nobody can change it, for all machines.
func (k kernel) open() (*os.File, error) {
	content, err := os.ReadFile(k.file)
	if err != nil {
		return nil, failure.Of("read the kernel", err)
	}
	return memfd.Sealed("kernel", content)
}

// modules are what a machine's first process needs, whichever way the kernel has them.
var modules = []string{"virtio_pci", "virtio_blk", "virtio_console", "erofs", "overlay"}

// initramfs makes what machines start with.
func (d *Driver) initramfs(k kernel) (*os.File, error) {
	first, err := d.o.Warden()
	if err != nil {
		return nil, err
	}
	agent, err := d.o.Agent()
	if err != nil {
		return nil, err
	}
	found, err := initramfs.Modules(k.modules, modules...)
	if err != nil {
		return nil, failure.Of("find the kernel's modules", err)
	}
	var archive bytes.Buffer
	tree := initramfs.Tree{Modules: found, Programs: map[string][]byte{initramfs.InitFile: first, wardenwire.AgentFile: agent}}
	if err := tree.Write(&archive); err != nil {
		return nil, failure.Of(fmt.Sprintf("make the initial file system of %s", k.release), err)
	}
	return memfd.Sealed("initramfs", archive.Bytes())
}
