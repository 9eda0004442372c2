//go:build linux

package dockerengine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// script lists, for tar, what packages of this host and all that they need have installed:
// without what only people read, and with what is made at installation. $@ are the
// packages.
const script = `set -e
all=$(apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$@" | grep '^[a-z]' | sort -u)
dpkg-query -L $all 2>/dev/null | sed -E 's,^/(bin|sbin|lib|lib32|lib64|libx32)(/|$),/usr/\1\2,' |
	grep -E '^/(etc|usr)/' | grep -vE '^/usr/share/(doc|man|locale|info|lintian|bug|icons|fonts|X11|mime|zoneinfo)(/|$)|^/etc/(systemd|init|pam|apt|dpkg|cron|default)'
find /usr/bin /usr/lib -xdev -lname '/etc/alternatives/*' ! -path '/usr/lib/google*'
find /etc/alternatives -lname '*.so.*' -printf '%l\n' -exec readlink -f {} \;
find /etc/alternatives /usr/lib/locale/C.utf8
[ ! -d /etc/R ] || find /etc/R`

// PackageOf is the package of this host that a program is of, wherever links lead to it.
func PackageOf(ctx context.Context, program string) (string, error) {
	file, err := filepath.EvalSymlinks(program)
	if err != nil {
		return "", err
	}
	said, err := exec.CommandContext(ctx, "dpkg-query", "-S", file).Output() //nolint:gosec // a test's own
	if err != nil {
		return "", fmt.Errorf("the package of %s: %w", file, err)
	}
	name, _, _ := strings.Cut(string(said), ":") // before the architecture, or the file
	return name, nil
}

// HostImage makes an image of packages of this host, with its programs at their places. A
// program that is there without its package is named by its path, and so is a directory, of
// which all is taken.
func (e *Engine) HostImage(ctx context.Context, name string, packages, programs []string) error {
	files, err := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", script, "sh"}, packages...)...).Output() //nolint:gosec // a test's own
	if err != nil {
		return fmt.Errorf("list the files of %v: %w", packages, err)
	}
	list := strings.Fields(string(files))
	for _, p := range programs {
		if st, err := os.Stat(p); err == nil && st.IsDir() {
			err = filepath.WalkDir(p, func(file string, _ fs.DirEntry, err error) error {
				list = append(list, file)
				return err
			})
			if err != nil {
				return err
			}
			continue
		}
		said, err := exec.CommandContext(ctx, "ldd", p).Output() //nolint:gosec // a test's own
		if err != nil {
			return fmt.Errorf("ldd %s: %w", p, err)
		}
		for word := range strings.FieldsSeq(p + " " + string(said)) {
			if strings.HasPrefix(word, "/usr/") {
				list = append(list, word)
			} else if filepath.IsAbs(word) {
				list = append(list, "/usr"+word)
			}
		}
	}
	slices.Sort(list)
	var names bytes.Buffer
	for _, file := range slices.Compact(list) {
		if _, err := os.Lstat(file); err == nil && !slices.Contains(bareTree, strings.TrimPrefix(file, "/")) {
			fmt.Fprintln(&names, "."+file)
		}
	}
	return e.importTree(ctx, name, &names)
}

// bareTree are the directories of an image in which nothing is.
var bareTree = strings.Fields("dev etc home home/user proc root run sys tmp usr usr/bin usr/lib usr/lib64 usr/sbin var var/tmp")

// importTree packs files of the host's that are listed, over a bare tree.
func (e *Engine) importTree(ctx context.Context, name string, list io.Reader) error {
	bare, err := os.MkdirTemp(e.Dir, "bare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bare) //nolint:errcheck // a temporary directory
	const tree = `set -e
mkdir -p "$@"
ln -s usr/bin bin; ln -s usr/sbin sbin; ln -s usr/lib lib; ln -s usr/lib64 lib64
printf 'root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n' >etc/passwd
exec tar -c . -C / --no-recursion -T -`
	pack := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", tree, "sh"}, bareTree...)...) //nolint:gosec // a test's own
	pack.Dir, pack.Stdin = bare, list
	var said bytes.Buffer
	pack.Stderr = &said
	archive, err := pack.StdoutPipe()
	if err == nil {
		err = pack.Start()
	}
	if err != nil {
		return err
	}
	err = e.Import(ctx, name, archive)
	_ = archive.Close()
	if packed := pack.Wait(); err == nil && packed != nil {
		err = fmt.Errorf("tar: %w: %s", packed, said.Bytes())
	}
	return err
}
