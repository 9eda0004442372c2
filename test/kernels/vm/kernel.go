package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// QEMU is the emulator's name on the PATH.
const QEMU = "qemu-system-x86_64"

// KernelEnv names a kernel image to use instead of Debian's.
const KernelEnv = "PINFOLD_TEST_KERNEL"

// metapackages depend on the newest kernel for virtual machines, on Debian
// and on Ubuntu.
var metapackages = []string{"linux-image-cloud-amd64", "linux-image-virtual"}

// tool is a program of the host's, and the package that has it.
type tool struct{ program, pkg string }

// tools are what machines need from the host.
var tools = []tool{
	{QEMU, "qemu-system-x86"},
	{"/bin/busybox", "busybox-static"},
	{"/usr/bin/python3", "python3-minimal"},
	{"dpkg-deb", "dpkg"},
	{"apt-get", "apt"},
}

// Missing says what must be installed before machines can boot here, or is "".
func Missing() string {
	if runtime.GOARCH != "amd64" {
		return "booting test kernels works on amd64 only"
	}
	return missing("to boot test kernels", tools)
}

// MissingFor says what must be installed to emulate an architecture, or is "".
func MissingFor(arch string) string {
	p := platforms[arch]
	return missing("to emulate "+arch, []tool{{p.qemu, p.pkg}})
}

// missing says how to install the tools that are not there.
func missing(purpose string, tools []tool) string {
	var packages []string
	for _, t := range tools {
		if _, err := exec.LookPath(t.program); err != nil {
			packages = append(packages, t.pkg)
		}
	}
	if packages == nil {
		return ""
	}
	return purpose + ": apt-get install --no-install-recommends " + strings.Join(packages, " ")
}

// Kernel returns the path of a kernel image. The first call on a machine
// fetches Debian's package (27 MB) and unpacks it into the user's cache
// directory; nothing is installed.
func Kernel(ctx context.Context) (string, error) {
	if k := os.Getenv(KernelEnv); k != "" {
		return k, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "pinfold", "kernels")
	cached, err := filepath.Glob(filepath.Join(cache, "*/boot/vmlinuz-*"))
	if err != nil {
		return "", err
	}
	if len(cached) > 0 {
		return slices.MaxFunc(cached, newer), nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	return fetch(ctx, cache)
}

// Machines returns the directory in which tests keep machines that were booted, for all
// others of the same kernel, warden and agent: it is the cache of the qemu driver.
// It is empty where there is none: each process boots its own.
func Machines() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "pinfold", "machines")
}

// newer orders cached images by when they were built.
func newer(a, b string) int {
	age := func(p string) int64 {
		st, err := os.Stat(p)
		if err != nil {
			return 0
		}
		return st.ModTime().UnixNano()
	}
	return cmp.Compare(age(a), age(b))
}

func fetch(ctx context.Context, cache string) (string, error) {
	dir, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	pkg, err := kernelPackage(ctx)
	if err != nil {
		return "", err
	}
	if _, err := run(ctx, dir, "apt-get", "download", pkg); err != nil {
		return "", err
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		return "", fmt.Errorf("apt-get download %s left %d packages: %w", pkg, len(debs), err)
	}
	if _, err := run(ctx, dir, "dpkg-deb", "-x", debs[0], "tree"); err != nil {
		return "", err
	}
	images, err := filepath.Glob(filepath.Join(dir, "tree/boot/vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return "", fmt.Errorf("%s has %d kernel images: %w", pkg, len(images), err)
	}
	release := strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	tree := filepath.Join(cache, release)
	err = os.Rename(filepath.Join(dir, "tree"), tree)
	return filepath.Join(tree, "boot", filepath.Base(images[0])), err
}

// Modules returns the directory of modules of a kernel that Kernel has fetched.
func Modules(kernel string) string {
	release := strings.TrimPrefix(filepath.Base(kernel), "vmlinuz-")
	for _, lib := range []string{"lib", "usr/lib"} {
		dir := filepath.Join(filepath.Dir(kernel), "..", lib, "modules", release)
		if _, err := os.Stat(dir); err == nil {
			return filepath.Clean(dir)
		}
	}
	return filepath.Join("/lib/modules", release)
}

// kernelPackage finds the package behind a metapackage.
func kernelPackage(ctx context.Context) (string, error) {
	var errs []error
	for _, meta := range metapackages {
		out, err := run(ctx, "", "apt-cache", "depends", "--important", meta)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, word := range strings.Fields(out) {
			if word != meta && strings.HasPrefix(word, "linux-image-") {
				return word, nil
			}
		}
	}
	return "", fmt.Errorf("apt knows no kernel package, try apt-get update: %w", errors.Join(errs...))
}

func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var errOut tail
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, errOut.text())
	}
	return string(out), nil
}
