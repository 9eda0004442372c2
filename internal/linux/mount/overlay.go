//go:build linux

package mount

import (
	"strings"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/spawn"
)

// Overlay shows the directory source at target, read-only, through an overlay. What
// is mounted below source is not shown. Unlike a view that Clone makes, whose files
// are the host's own, the overlay has inodes of its own: watches, locks, leases,
// time stamps and flushes end at it. Contents come from source's file system as they
// are, and through its page cache.
//
// The kernel makes no overlay of one directory, so empty, one that has nothing in it
// and never will, is the second. In a mount namespace that belongs to a user
// namespace nothing may be mounted below source.
func Overlay(p *spawn.Program, source, empty, target string, flags uintptr) {
	Filesystem(p, "overlay", target, unix.MS_RDONLY|flags, overlayOptions(source, empty))
}

// overlayOptions are the options of a read-only overlay. It keeps its marks, of which
// there are none, where an ordinary user can: in attributes of the user's.
func overlayOptions(source, empty string) string {
	return "lowerdir=" + overlayPath.Replace(source) + ":" + overlayPath.Replace(empty) + ",userxattr"
}

// overlayPath escapes what means something in a list of directories and in mount
// options.
var overlayPath = strings.NewReplacer(`\`, `\\`, ":", `\:`, ",", `\,`)
