//go:build linux

package mount

import (
	"strings"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/spawn"
)

// Overlay shows directories, two or more, the first over the second and so on, at
// target, read-only, through an overlay. What is mounted below them is not shown. Unlike a view that Clone makes, whose files
// are the host's own, the overlay has inodes of its own: watches, locks, leases,
// time stamps and flushes end at it. Contents come from the directories' file systems as
// they are, and through their page cache.
//
// In a mount namespace that belongs to a user namespace nothing may be mounted below
// one of them.
func Overlay(p *spawn.Program, lowers []string, target string, flags uintptr) {
	Filesystem(p, "overlay", target, unix.MS_RDONLY|flags, overlayOptions(lowers))
}

// overlayOptions are the options of a read-only overlay. Its marks are where an ordinary
// user can make them: in attributes of the user's (package whiteout).
func overlayOptions(lowers []string) string {
	escaped := make([]string, len(lowers))
	for i, l := range lowers {
		escaped[i] = overlayPath.Replace(l)
	}
	return "lowerdir=" + strings.Join(escaped, ":") + ",userxattr"
}

// overlayPath escapes what means something in a list of directories and in mount
// options.
var overlayPath = strings.NewReplacer(`\`, `\\`, ":", `\:`, ",", `\,`)
