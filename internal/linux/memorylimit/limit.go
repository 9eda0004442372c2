//go:build linux

// Package memorylimit is what machines share whose disk is a tmpfs in a control group of
// their own.
//
// The kernel charges files on a tmpfs as memory. So the group's memory limit follows what
// the disk holds (Next): a full disk is a full disk and not a lack of memory, and a sandbox
// never has more than the memory and the disk limit together. It has to follow whether
// anybody reads the machine's counters or not, so the machine reads them itself, on a clock
// of its own (Clock).
package memorylimit

// The limit follows in steps, and runs ahead of a program that writes by as much as it has
// written, at most by ahead. In bytes.
const (
	step  = 1 << 20
	ahead = 64 << 20
)

// Limits are a machine's, in bytes.
type Limits struct{ Memory, Disk int64 }

// Next is the memory limit that a group should have that has now, while its disk holds so
// much; it may be the same. In bytes.
func (l Limits) Next(now, disk int64) int64 {
	held := disk / step * step
	next := l.Memory + min(l.Disk, held+min(held, ahead))
	// Lowering the limit below what is in use by the time of the write would make the
	// kernel kill; so it is lowered late and not to the last byte.
	switch {
	case next >= now:
		return next
	case next+2*ahead > now:
		return now
	}
	return next + ahead
}
