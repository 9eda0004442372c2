//go:build linux

package memorylimit

import (
	"syscall"

	"pinfold/internal/linux/cgroup"
)

// Disk is the tmpfs that holds every writable place of a machine, and whose group's memory
// limit follows it. One lock of the owner's guards it.
type Disk struct {
	look func(*syscall.Statfs_t) error
	base syscall.Statfs_t // it was empty then

	limit int64 // of memory, as Follow gave it last, in bytes; 0: it never did
}

// Held is what lies on a Disk.
type Held struct {
	Bytes, Inodes    int64
	Full, InodesFull bool // there is no free block, no free inode
}

// Begin measures the empty disk, with look. Where it is in use already, as in a machine that
// is taken over, used is how many inodes of it are not the guest's, otherwise 0.
func (d *Disk) Begin(look func(*syscall.Statfs_t) error, used uint64) error {
	d.look = look
	err := look(&d.base)
	if err == nil && used > 0 {
		d.base.Bfree = d.base.Blocks
		d.base.Ffree = d.base.Files - min(d.base.Files, used)
	}
	return err
}

// Look measures the disk. It is not ok where it has not begun, or is gone.
func (d *Disk) Look() (held Held, ok bool) {
	var now syscall.Statfs_t
	if d.look == nil || d.look(&now) != nil || now.Type != d.base.Type {
		return Held{}, false
	}
	return Held{
		Bytes:      int64(d.base.Bfree-min(now.Bfree, d.base.Bfree)) * now.Bsize, //nolint:gosec // sizes of a tmpfs
		Inodes:     int64(d.base.Ffree - min(now.Ffree, d.base.Ffree)),           //nolint:gosec // as above
		Full:       now.Bfree == 0,
		InodesFull: now.Ffree == 0,
	}, true
}

// Follow gives the group the memory limit that it should have while its disk holds so many
// bytes.
func (d *Disk) Follow(g *cgroup.Group, limits Limits, bytes int64) error {
	next := limits.Next(g.MemoryLimit(), bytes)
	err := g.SetMemoryLimit(next) // which does nothing where it has it
	if err == nil {
		d.limit = next
	}
	return err
}

// Late says whether the group has less memory besides its files than it should have while
// its disk holds so many bytes, since its limit has not followed the disk yet: what the OOM
// killer ends then may have kept to its limits.
func (d *Disk) Late(limits Limits, bytes int64) bool {
	return max(d.limit, limits.Memory) < limits.Memory+min(limits.Disk, bytes/step*step)
}
