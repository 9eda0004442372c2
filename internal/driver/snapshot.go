package driver

import (
	"context"
	"io"

	"pinfold/internal/filetree"
	"pinfold/sandbox"
)

// Snapshotter is a machine of whose state a copy can be made while it stands still (Pauser).
//
// What every such machine can give is its files: what its writable places hold, read from
// outside, each under its name (Plan.Writable), by who trusts nothing in there. A new machine
// gets them through its agent, before anything runs in it, so whose machines have files can
// have those of any other driver's.
type Snapshotter interface {
	// Snapshot writes what the machine holds. The machine is paused, stays so, and is not
	// changed. It ends when ctx does, and with ErrEnded when the machine ends meanwhile.
	// What has more files, or more bytes in them, than the machine may have is an error of
	// code too_large.
	Snapshot(ctx context.Context, files *filetree.Writer) error
}

// MemorySnapshotter is a machine of whose memory a copy can be made while it stands still
// (Pauser), with which other machines go on where it was: what runs in it, and all it holds.
type MemorySnapshotter interface {
	// SnapshotMemory writes what a MemoryRestorer needs. The machine is paused, stays so, and
	// is not changed. It ends when ctx does, and with ErrEnded when the machine ends meanwhile.
	// Nothing may be on its way over the connection to its agent.
	SnapshotMemory(ctx context.Context, w io.Writer) error
}

// MemoryRestorer is a driver that makes machines of what its MemorySnapshotters have written.
type MemoryRestorer interface {
	// RestoreMemory makes the machine that the plan describes, which differs from that of
	// which the snapshot was made in nothing but its ID, and goes on from there. All of from is
	// read. When it returns, what the machine must not share with others is its own: the
	// kernel's random numbers, the clock, its ids. What a process in there has drawn before, it
	// keeps. Dial returns the connection to the agent as it was at that moment. It fails with
	// code conflict where the snapshot is of no use here: another emulator, kernel, processor,
	// template, or size.
	RestoreMemory(ctx context.Context, plan Plan, from io.Reader) (Machine, error)
}

// WritablePlace is a directory in which programs of a machine can write.
type WritablePlace struct {
	Name string // in snapshots: "home", or its usual path
	Path string // inside
}

// PlaceHome and PlaceTmp are names of places that are not always where they usually are.
const (
	PlaceHome = "home"
	PlaceTmp  = "/tmp"
)

// Writable lists the places in which programs of the machine can write, but for mounts.
func (p Plan) Writable() []WritablePlace {
	home := p.User.Home
	if home == "" {
		home = sandbox.Home
	}
	if p.Places != "" {
		return []WritablePlace{{PlaceHome, home}, {PlaceTmp, p.User.Tmp}}
	}
	places := []WritablePlace{{PlaceHome, home}}
	for _, w := range p.Template.Writable {
		if w.Path != home {
			places = append(places, WritablePlace{w.Path, w.Path})
		}
	}
	return places
}
