package vm

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Debian describes a root file system that is made of Debian's packages.
type Debian struct {
	Suite    string // "trixie"
	Arch     string // as Go names it
	Packages []string
	// Boots adds a kernel and what a system with systemd needs to run jobs.
	Boots bool
	Hook  string // a shell command at the end, whose $1 is the tree
}

// Tree is a root file system that Debian.Make made.
type Tree struct {
	Dir    string // the files
	Disk   string // the same as an ext4 disk, if it boots
	Kernel string // a compressed kernel image, if it boots
}

// recipe changes whenever trees are made in another way.
const recipe = "4"

// systemPackages make a tree that boots.
var systemPackages = []string{"systemd", "systemd-sysv", "dbus", "udev", "libpam-systemd", "dbus-user-session", "kmod", "procps", "util-linux", "uidmap", "curl"}

// left out of trees: what only people read.
var leftOut = []string{"/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*"}

// MissingForDebian says what must be installed before trees can be made here,
// or is "".
func MissingForDebian() string {
	if os.Geteuid() != 0 {
		return "making root file systems of other Debians needs root"
	}
	return missing("to make root file systems of other Debians", []tool{
		{"mmdebstrap", "mmdebstrap"}, {"/sbin/mke2fs", "e2fsprogs"}, {"/sbin/depmod", "kmod"}, {"apt-get", "apt"},
	})
}

// Make returns the tree. The first call on a machine fetches the packages, from
// where the host's apt has its own, and keeps the tree in the user's cache
// directory, by a hash of all that it is made from.
func (d Debian) Make(ctx context.Context) (Tree, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return Tree{}, err
	}
	d = d.whole()
	taken := ""
	if d.Arch != runtime.GOARCH {
		taken = configure
	}
	text, err := json.Marshal(struct {
		Debian
		Recipe, KernelHook, Unit string
		Configure                string `json:",omitempty"`
		LeftOut                  []string
	}{d, recipe, kernelHook, jobsUnit, taken, leftOut})
	if err != nil {
		return Tree{}, err
	}
	dir := filepath.Join(cache, "pinfold", "roots", fmt.Sprintf("%s-%s-%x", d.Suite, d.Arch, sha256.Sum256(text))[:40])
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		err = d.make(ctx, dir)
		if err != nil {
			return Tree{}, err
		}
	}
	t := Tree{Dir: filepath.Join(dir, "root")}
	if d.Boots {
		t.Disk, t.Kernel = filepath.Join(dir, "disk"), filepath.Join(dir, "kernel")
	}
	return t, nil
}

// whole is d with what every tree has. The tree's twin is made of what is whole already.
func (d Debian) whole() Debian {
	needs := []string{"mount"} // for who enters it
	if d.Boots {
		needs = append(needs, systemPackages...)
	}
	d.Packages = slices.Clone(d.Packages)
	for _, p := range needs {
		if !slices.Contains(d.Packages, p) {
			d.Packages = append(d.Packages, p)
		}
	}
	return d
}

// make makes a tree beside its place and moves it there when it is whole.
func (d Debian) make(ctx context.Context, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "make-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	root := filepath.Join(tmp, "root")
	own, err := d.twin(ctx)
	if err != nil {
		return err
	}
	args, err := d.bootstrap(ctx, root, own)
	if err != nil {
		return err
	}
	if _, err := run(ctx, "", "mmdebstrap", args...); err != nil {
		return err
	}
	if own != "" {
		if _, err := run(ctx, "", "sh", "-c", configure, "configure", own, root); err != nil {
			return err
		}
	}
	if d.Boots {
		if err := makeBootable(ctx, tmp, root); err != nil {
			return err
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil { //nolint:gosec // the ordinary users of tests enter it
		return err
	}
	return os.Rename(tmp, dir)
}

// bootstrap is mmdebstrap's command line: packages come from the mirror that the
// host's apt uses for its own release, by the same way.
func (d Debian) bootstrap(ctx context.Context, root, own string) ([]string, error) {
	mirror, err := mirror(ctx)
	if err != nil {
		return nil, err
	}
	variant := "essential"
	switch {
	case own != "":
		variant = "extract"
		list, err := run(ctx, "", "dpkg-query", "--admindir="+filepath.Join(own, "var/lib/dpkg"), "-W", "-f", "${Package}\n")
		if err != nil {
			return nil, err
		}
		d.Packages = strings.Fields(list)
		if d.Boots {
			d.Packages = append(d.Packages, "linux-image-cloud-"+d.Arch) // hooks do not run
		}
	case d.Boots:
		variant = "minbase" // with apt
	}
	args := []string{"--quiet", "--variant=" + variant, "--format=directory", "--architectures=" + d.Arch, "--include=" + strings.Join(d.Packages, ",")}
	for _, path := range leftOut {
		args = append(args, "--dpkgopt=path-exclude="+path)
	}
	options, err := run(ctx, "", "apt-config", "dump", "Acquire")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(options) {
		name, _, _ := strings.Cut(line, " ")
		if slices.Contains(aptOptions, strings.ToLower(name)) {
			args = append(args, "--aptopt="+strings.TrimSpace(line))
		}
	}
	if d.Hook != "" {
		args = append(args, "--customize-hook="+d.Hook)
	}
	if d.Boots && own == "" {
		args = append(args, "--customize-hook="+strings.ReplaceAll(kernelHook, "ARCH", d.Arch))
	}
	return append(args, d.Suite, root, mirror), nil
}

// twin makes the same tree for this machine's architecture, if it is for another:
// nothing of a foreign one can run here, so its packages are only unpacked.
func (d Debian) twin(ctx context.Context) (string, error) {
	if d.Arch == runtime.GOARCH {
		return "", nil
	}
	d.Arch = runtime.GOARCH
	t, err := d.Make(ctx)
	return t.Dir, err
}

// configure takes over what the installation of packages has made, for a tree of
// another architecture: settings, users, links, compiled Python, which are the same
// for all. Only the cache of libraries is not; the loader does without.
const configure = `set -e
own=$1 root=$2
mkdir -p "$root/mnt" "$root/media" "$root/opt" "$root/srv"
cp -an "$own/etc/." "$root/etc/"
cp -an "$own/var/." "$root/var/"
cp -an "$own/usr/share/." "$root/usr/share/"
cp -an "$own/usr/lib/python3" "$own"/usr/lib/python3.* "$root/usr/lib/"
find "$root/usr/lib" -name "*.cpython-*-x86_64-linux-gnu.so" -delete
rm -f "$root/etc/ld.so.cache"
sed -i "s/^Architecture: amd64$/Architecture: arm64/" "$root/var/lib/dpkg/status"
for kernel in "$root"/boot/vmlinuz-*; do
	[ ! -e "$kernel" ] || { depmod -b "$root" "${kernel##*/vmlinuz-}"; mv "$kernel" "$root/../kernel"; }
done
for dir in bin sbin lib; do [ -e "$root/$dir" ] || ln -s "usr/$dir" "$root/$dir"; done
[ -e "$root/usr/bin/sh" ] || ln -s dash "$root/usr/bin/sh"
(cd "$own" && find usr/bin usr/sbin -type l -lname "/etc/alternatives/*") | while read -r link; do
	[ -e "$root/$link" ] || [ -L "$root/$link" ] || cp -a "$own/$link" "$root/$link"
done
cd "$own"
find etc/alternatives usr/lib/x86_64-linux-gnu -type l -lname "*x86_64-linux-gnu*" | while read -r link; do
	name=$(printf %s "$link" | sed s/x86_64/aarch64/g) target=$(readlink "$link" | sed s/x86_64/aarch64/g)
	[ -L "$root/$name" ] || ln -s "$target" "$root/$name"
done`

// aptOptions say how packages are reached and how old lists may be.
var aptOptions = []string{"acquire::http::proxy", "acquire::https::proxy", "acquire::check-valid-until", "acquire::check-date", "acquire::retries"}

// kernelHook unpacks the kernel without what its installation would make for
// machines with other disks: an initial ramdisk. The modules stay.
const kernelHook = `set -e
mkdir -p "$1/tmp"
cd "$1/tmp"
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
apt-get -q download "$(apt-cache depends --important linux-image-cloud-ARCH | sed -n 's/.*Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1)"
dpkg-deb -x linux-image-*.deb kernel
rm linux-image-*.deb
mv kernel/boot/vmlinuz-* "$1/../kernel"
mkdir -p "$1/usr/lib/modules"
for modules in kernel/lib/modules/* kernel/usr/lib/modules/*; do
	[ ! -d "$modules" ] || { mv "$modules" "$1/usr/lib/modules/"; depmod -b "$1" "${modules##*/}"; }
done
rm -r kernel`

// mirror is where the host's apt has Debian's packages from.
func mirror(ctx context.Context) (string, error) {
	text, err := run(ctx, "", "apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages", "Origin: Debian", "Component: main")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && !strings.Contains(f[0], "-") {
			return f[1], nil
		}
	}
	return "", errors.New("apt does not know where Debian's packages come from, try apt-get update")
}
