//go:build linux

package native

import (
	"os"
	"strings"
	"testing"

	"pinfold/internal/linux/mount"
	"pinfold/sandbox"
)

// A directory in which a program could leave a set-user-id program is refused under
// the name of the one whose it is: the user root, or the group root alone.
func TestMountsOfRootAreRefusedByTheirOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give directories away")
	}
	for _, c := range []struct {
		uid, gid int
		says     string // "" when it is shown
	}{
		{0, 0, " belongs to root: "},
		{0, 1000, " belongs to root: "},
		{1000, 0, " belongs to the group root: "},
		{1000, 1000, ""},
	} {
		dir := t.TempDir()
		if err := os.Chown(dir, c.uid, c.gid); err != nil {
			t.Fatal(err)
		}
		tree, err := openMount(sandbox.Mount{Host: dir, Guest: "/data", Writable: true}, mount.Owner{UID: 100_000, GID: 100_000})
		if tree != nil {
			_ = tree.Close()
		}
		if c.says == "" {
			if err != nil {
				t.Errorf("%d:%d: %v", c.uid, c.gid, err)
			}
			continue
		}
		if e := sandbox.AsError(err); err == nil || e.Code != sandbox.CodeSpecInvalid || !strings.HasPrefix(e.Message, dir+c.says) || !strings.HasPrefix(e.Hint, "install -d -o 1000 -g 1000 ") {
			t.Errorf("%d:%d: %v", c.uid, c.gid, err)
		}
	}
}
