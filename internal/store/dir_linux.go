package store

import "syscall"

// diskFull says whether nothing more fits: SQLite reports some full disks as
// failures of input and output.
func diskFull(dir string) bool {
	var s syscall.Statfs_t
	return syscall.Statfs(dir, &s) == nil && (s.Bavail == 0 || s.Files > 0 && s.Ffree == 0)
}
