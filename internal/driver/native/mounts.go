//go:build linux

package native

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/mount"
	"pinfold/internal/linux/spawn"
	"pinfold/sandbox"
)

// viewFlags hold for every view of the host but the device files.
const viewFlags = mount.NoSuid | mount.NoDev

// openMounts makes the views of host directories that need a hand from outside: as
// root, the sandbox's user has other ids than the directory's owner, and the view must
// translate; and what begins with prepared mounts does not show the directory. An ordinary user's
// sandbox has the user's own id and needs none. The result has an entry for each mount,
// nil where the sandbox does it by itself: all of them or none.
func (m *machine) openMounts() ([]*os.File, error) {
	trees := make([]*os.File, len(m.plan.Mounts))
	if m.block == nil {
		return trees, nil
	}
	seen := mount.Owner{UID: m.block.Base + m.plan.User.UID, GID: m.block.Base + m.plan.User.GID}
	for i, want := range m.plan.Mounts {
		tree, err := openMount(want, seen)
		if err != nil {
			closeFiles(trees)
			return nil, sandbox.AsError(err).WithField(fmt.Sprintf("mounts[%d]", i))
		}
		trees[i] = tree
	}
	return trees, nil
}

// openMount makes the translated view of one directory. A read-only view of a
// file system that cannot translate is shown as it is: the guest then sees what
// everybody may see.
func openMount(want sandbox.Mount, seen mount.Owner) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Stat(want.Host, &st); err != nil {
		return nil, &sandbox.Error{Code: sandbox.CodeFileNotFound, Message: fmt.Sprintf("cannot show %s: %v", sandbox.SafeText(want.Host, 200), err), Err: err}
	}
	if want.Writable && (st.Uid == 0 || st.Gid == 0) {
		whom := "root"
		if st.Uid != 0 {
			whom = "the group root"
		}
		return nil, (&sandbox.Error{
			Code: sandbox.CodeSpecInvalid,
			Message: fmt.Sprintf("%s belongs to %s: a program that may write there could leave a set-user-id program of root's. "+
				"It must belong to another user and group, who then own on the host what the program writes", sandbox.SafeText(want.Host, 200), whom),
		}).WithAdvice(sandbox.Advise("%s makes such a one below it; mount that", sandbox.HostCommand("install -d -o 1000 -g 1000 "+shellQuote(filepath.Join(want.Host, "shared")))))
	}
	flags := uint64(viewFlags)
	if !want.Writable {
		flags |= mount.ReadOnly
	}
	tree, err := mount.IDMapped(want.Host, flags, mount.Owner{UID: int(st.Uid), GID: int(st.Gid)}, seen)
	if errors.Is(err, mount.ErrNotMappable) {
		if !want.Writable {
			return mount.Plain(want.Host, flags)
		}
		return nil, (&sandbox.Error{
			Code: sandbox.CodeSetupFailed, Err: err,
			Message: fmt.Sprintf("%s cannot be shown writable: %v", sandbox.SafeText(want.Host, 200), mount.ErrNotMappable),
		}).WithAdvice(sandbox.Advise("copy the files in with %s and take results out with %s", sandbox.Copy(want.Host), sandbox.Set("artifacts", []string{"*"})))
	}
	return tree, err
}

// viewOf returns the view of one mount, and opens it in the program where it is not
// open yet.
func (n *initSpec) viewOf(p *spawn.Program, i int) view {
	want := n.mounts[i]
	v := view{target: want.Guest, dir: isDir(want.Host)}
	if tree := n.trees[i]; tree != nil {
		v.tree = mount.Opened(int(tree.Fd()))
		return v
	}
	flags := uint64(viewFlags)
	if !want.Writable {
		flags |= mount.ReadOnly
	}
	v.tree = mount.Clone(p, want.Host, true, flags)
	return v
}

// shellQuote writes a path so that a shell reads it as it is.
func shellQuote(path string) string {
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
