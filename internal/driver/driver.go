// Package driver is the contract between the engine and the ways to make a
// sandbox. One driver is one way: the host kernel's own means (native), Docker,
// a virtual machine. A driver makes a machine with Pinfold's agent inside it
// and returns a connection to that agent; running commands, files and ports is
// written once, in package guest, against the agent.
//
// # The life of a machine
//
//  1. Probe tells what the driver could enforce on this host, feature by
//     feature. It changes nothing and may be called at any time.
//  2. MakePlan (a pure function) turns a sandbox.MachineSpec, a template and a
//     Report into a Plan, or refuses and says why and how to fix the host.
//  3. Create makes the machine that the Plan describes, or fails and leaves
//     nothing behind. It never makes a weaker machine than the plan says:
//     when a planned feature cannot be had after all, Create fails with a
//     *sandbox.Error of code setup_failed that names the step.
//     When Create returns, the agent is running, no guest code has run, and
//     everything that the plan enforces is in force.
//  4. Dial returns the connection to the agent. It is called once, unless the machine
//     can be dialled again (MachineAbilities.Redial). In a machine
//     that begins with an InitStub it has the agent start.
//  5. Usage may be called at any time, from any goroutine; while guest code runs
//     the engine does so every few milliseconds. Nothing depends on these calls:
//     what has to follow the counters while a guest works (the native driver
//     moves the memory limit by what the disk holds) the machine does by itself,
//     on a clock of its own that stands while nothing goes on in there.
//  6. Dead is closed when the machine has ended, for whatever reason. The
//     guest may be hostile: that the connection broke is not a death.
//  7. Destroy ends everything inside and removes everything that Create made
//     on the host. It is idempotent and may be called at any time after
//     Create, concurrently with everything else. nil means that nothing is
//     left; after an error it may be called again. The Death is known when it
//     returns.
//
// After the host process is killed at any instant, Leftovers of a new process
// removes what the earlier life left behind. Machines that outlive it (Keeper) are no
// leftovers: the engine adopts those that it knows, and destroys the others.
//
// # Errors
//
// An error means that the machinery failed and is a *sandbox.Error. The fate
// of a guest program is never an error; it is in Death, in Usage and in what
// the agent reports.
//
// A driver imports no other driver, no engine, no store and no edge.
package driver

import (
	"context"
	"io"
	"net"
	"time"

	"pinfold/internal/image"
	"pinfold/sandbox"
)

// Driver is one way to make sandboxes. All methods are safe for concurrent use.
type Driver interface {
	// Name is the driver's name in requests and results: "native".
	Name() string
	// Probe reports what this driver can enforce on this host, in sandboxes of
	// the template. It is cheap enough for every run, and answers from what it
	// tried, not from version numbers.
	Probe(ctx context.Context, t image.Template) (Report, error)
	// Create makes the machine. See the package comment.
	Create(ctx context.Context, plan Plan) (Machine, error)
	// Leftovers finds and removes what earlier, dead host processes left
	// behind, and reports each thing. It never touches what belongs to a
	// living process or to anybody else.
	Leftovers(ctx context.Context) ([]Leftover, error)
	// Abilities say what the driver can do beyond this. They never change.
	Abilities() Abilities
	// Close releases what the driver itself holds. Machines must have been
	// destroyed before.
	Close() error
}

// Conn is a stream to a machine's agent and back.
type Conn interface {
	io.ReadWriteCloser
	// SetDeadline ends what waits, and all that comes, at a moment; the zero time is never.
	SetDeadline(t time.Time) error
}

// Machine is one sandbox with the agent inside.
type Machine interface {
	// Dial returns the one connection to the agent. The caller closes it.
	Dial(ctx context.Context) (Conn, error)
	// Usage reads the counters. It fails with ErrEnded when the machine has ended, whose
	// last reading is in its Death, and with the cause of the context when that has ended.
	// After any other error the next reading may succeed.
	Usage(ctx context.Context) (Usage, error)
	// Dead is closed when the machine has ended by itself or by Destroy.
	Dead() <-chan struct{}
	// Death says how it ended. It is meaningful once Dead is closed.
	Death() Death
	// Destroy ends the machine and removes its traces.
	Destroy(ctx context.Context) error
	// Abilities say what the machine can do beyond this. They never change.
	Abilities() MachineAbilities
}

// Abilities are what not every driver can do. A nil field: this one cannot.
type Abilities struct {
	// Level is how strongly its machines are isolated, one of sandbox.IsolationLevels. It
	// is known without a look at the host.
	Level string

	// Shows says that its machines can show directories that the engine keeps (Plan.Kept).
	Shows bool

	// Elsewhere says that the template host is not this host's programs in its machines.
	Elsewhere bool

	// Pauses says that its machines can be paused (MachineAbilities.Pauser), where the
	// host has what that takes.
	Pauses bool

	// Snapshots says what a snapshot of its machines holds (MachineAbilities.Snapshotter),
	// of sandbox.SnapshotHolds, where they can be paused. Empty: none can be made.
	Snapshots []string

	// LateDoors says that its machines without doors can be given some (MachineAbilities.LateDoors),
	// and that one which is made for a fork can be made with doors.
	LateDoors bool

	Keeper  Keeper
	Zygoter Zygoter
	Copier  Copier

	MemoryRestorer MemoryRestorer
}

// MachineAbilities are what not every machine can do. A nil field: this one cannot.
// Whoever wraps a machine and changes one of these puts itself in its place here.
type MachineAbilities struct {
	// Redial says that Dial may be called again, which ends the stream before, and that
	// a stream outlives the connections that carry it: it breaks only with the machine.
	Redial bool

	Looker    Looker
	InitStub  InitStub
	Discarder Discarder
	RunMeter  RunMeter
	TaskMeter TaskMeter
	Pauser    Pauser
	Doors     Doors

	// AgentDoors says that the agent can open Plan.Doors and the resolver, inside: the
	// machine is made so that programs find the names there, and the agent may listen.
	AgentDoors bool

	LateDoors LateDoors

	Snapshotter       Snapshotter
	MemorySnapshotter MemorySnapshotter
}

// Doors is a machine that has listeners inside for what was declared. Programs find the
// names at the doors' addresses, and a resolver at Resolver that answers what it is asked.
type Doors interface {
	// TakeDoors returns the listeners of Plan.Doors, in their order, and the resolver's
	// socket. It is called once; the caller closes them, before Destroy.
	TakeDoors() (doors []net.Listener, resolver Packets, err error)
}

// LateDoors is a machine without doors that can have some after it was made, so that one that
// waits serves every declaration.
type LateDoors interface {
	// AddDoors has programs find the doors' names and a resolver as if the machine had been
	// made with them (Plan.Inside), and returns the listeners, in the order of the doors,
	// and the resolver's socket; the caller closes them, before Destroy. It is called once,
	// before anybody's program runs. After an error the machine is good for nothing but
	// Destroy.
	AddDoors(doors []Door) (listeners []net.Listener, resolver Packets, err error)
}

// Keeper is a driver whose machines outlive the process that made them.
type Keeper interface {
	// List returns the IDs of the machines that live and whose maker does not, or is we.
	List(ctx context.Context) (ids []string, err error)
	// Adopt returns a machine of that ID, and what it was made from. Its agent is to be
	// dialled anew; what an earlier host had going in there ends by that.
	Adopt(ctx context.Context, id string) (Machine, Plan, error)
}

// Looker is a machine into whose directories and files the host can look by
// itself, which saves asking the agent where there is nothing, or little.
type Looker interface {
	// Look returns the names in a directory of the sandbox, by its absolute
	// path. ok is false when it cannot be told, or when there are more than a
	// few. The names are the guest's, and may be anything a file name can be.
	Look(dir string) (names []string, ok bool)
	// Read returns the content of a regular file, by its absolute path. ok is
	// false when it cannot be told, when the path leads through a link, and when
	// there are more than so many bytes. The guest may be changing the file.
	Read(path string, most int) (content []byte, ok bool)
}

// InitStub is a machine whose first process becomes the agent only when Dial asks for it,
// since its program is forked from a zygote. Dial is called before the program is handed
// over, or after KillGuest: a guest that runs could take away what the agent needs to start.
type InitStub interface {
	// KillGuest kills every process of the guest and returns when they are gone, without
	// the agent. It fails when the agent runs, which does this itself, and when the
	// machine has ended. After an error Dial fails, too.
	KillGuest(ctx context.Context) error
}

// Discarder is a machine that can save itself the last reading of its counters.
type Discarder interface {
	// Discard says that nobody will read the counters any more: Usage fails from then on,
	// and Death goes by what was read last.
	Discard()
}

// RunMeter is a machine that knows more at the end of a run than it tells meanwhile: its
// kernel keeps a high-water mark of its memory, or something takes too long to be counted
// each time. Its readings fail as Usage does.
type RunMeter interface {
	// BeginRun returns the reading from which on a program's consumption counts.
	// Usage.MemoryPeak begins anew: what making the machine took is no part of it.
	BeginRun(ctx context.Context) (Usage, error)
	// EndRun returns the reading after the program's end, complete, and with the kernel's
	// mark in Usage.MemoryPeak if it keeps one. Until then that is the highest reading.
	EndRun(ctx context.Context) (Usage, error)
}

// TaskMeter is a machine whose tasks the host sees one by one.
type TaskMeter interface {
	// EachTask visits the guest's tasks, threads too, as far as they can be seen now: the
	// host's number of each, and its CPU time in nanoseconds, all of it and what the kernel
	// worked for it. That costs a millisecond for each hundred of them.
	EachTask(visit func(task int, cpu, system int64))
}

// Pauser is a machine that can stand still: between Pause and Resume no process of the
// guest runs, and perhaps the agent does not either, so that nothing may be asked of it. A
// paused machine keeps its memory, its files and its connection; its counters can be read,
// its end is seen, and Destroy ends it without letting the guest go on. Both are
// idempotent, safe for concurrent use, and bounded in time by the driver. They fail with
// ErrEnded when the machine has ended.
type Pauser interface {
	// Pause returns when everything stands still. After an error everything goes on.
	Pause(ctx context.Context) error
	// Resume lets everything go on. After an error it may be called again.
	Resume(ctx context.Context) error
	// Paused says whether the machine stands still, also one that an earlier process paused.
	Paused(ctx context.Context) (bool, error)
}

// PauseTimeout bounds how long Pause may try before it is undone.
const PauseTimeout = 5 * time.Second

// Plan is everything a driver needs to make one machine. MakePlan fills it;
// drivers do not take decisions of their own.
type Plan struct {
	ID       string         // [a-z0-9-], at most 40 bytes, unique on this host
	Template image.Template // what is inside
	Limits   sandbox.Limits // complete: no field is zero
	Mounts   []sandbox.Mount
	// Kept is how many of the Mounts, at the end, show directories that the engine keeps:
	// read-only, of regular files that everybody may read, and the same as long as the
	// machine is there.
	Kept     int
	Hostname string

	// KillOne says that the kernel is to end one process when there is no memory
	// left, and not all of the machine. It is set only where memory is enforced.
	KillOne bool

	// User is who programs are inside, and where they are at home.
	User image.User

	// Places is where machines that have no root of their own have a directory each, of
	// their ID's name; "": they have a root. See Named.
	Places string

	// SwitchUser says that the agent is root inside and becomes the user for
	// every process; otherwise it is the user itself.
	SwitchUser bool

	// Processors are those of the host that the machine may use, the first to be used
	// first. Its programs are placed on as many of them as Limits.CPUs says.
	Processors []int

	// Network is what can be reached, canonical, and Doors are its endpoints, of which the
	// machine must have listeners; none where nothing can be reached.
	Network sandbox.Network
	Doors   []Door

	// Authority is the certificate, in PEM, of who signs for the hosts of endpoints at
	// which the host ends TLS: programs must trust it. Nil where there are none.
	Authority []byte

	// Posture is what the machine must enforce; the result repeats it.
	Posture sandbox.Isolation
}

// Named is the plan of another machine of the same shape.
func (p Plan) Named(id string) Plan {
	p.ID = id
	if p.Places != "" {
		p.User.Home, p.User.Tmp = p.Places+"/"+id+"/home", p.Places+"/"+id+"/tmp"
	}
	return p
}

// Enforces says whether the plan's posture contains the feature.
func (p Plan) Enforces(feature string) bool {
	for _, f := range p.Posture.Enforced {
		if sandbox.Satisfies(f, feature) {
			return true
		}
	}
	return false
}

// Usage is one reading of a machine's counters: the evidence from which the
// engine decides causes. A value that cannot be measured is zero.
type Usage struct {
	CPUNanos    int64 // CPU time of the whole tree, the agent included
	MemoryBytes int64 // memory charged now, files on the sandbox's disk excluded
	MemoryPeak  int64 // the kernel's high-water mark, or the highest reading
	OOMKills    int64 // times the kernel's OOM killer acted in this sandbox
	MemoryLate  bool  // it did before the memory limit had followed the disk: the host's doing

	Processes       int64 // tasks now, the agent's excluded
	ProcessesPeak   int64 // the highest seen, the agent's excluded
	ProcessesDenied int64 // forks that the kernel refused because of the limit
	ProcessesFull   bool  // a reading found the limit all but reached, where refusals are not counted

	DiskBytes  int64 // bytes in use in the writable places
	DiskPeak   int64
	DiskFull   bool // a reading found no free block
	Inodes     int64
	InodesPeak int64
	InodesFull bool // a reading found no free inode

	ReadBytes    int64
	WrittenBytes int64

	// Denied lists system calls that the sandbox refused, by name, the first
	// 64 names at most. Killed names the one that ended a process, if any.
	Denied []sandbox.DeniedSyscall
	Killed string
}

// SetDisk notes what the writable places hold, and whether that is all that they may.
func (u *Usage) SetDisk(bytes, inodes int64, full, inodesFull bool) {
	u.DiskBytes, u.Inodes = bytes, inodes
	u.DiskPeak, u.InodesPeak = max(u.DiskPeak, bytes), max(u.InodesPeak, inodes)
	u.DiskFull, u.InodesFull = u.DiskFull || full, u.InodesFull || inodesFull
}

// DeathKind says how a machine ended.
type DeathKind string

// How machines end.
const (
	DeathDestroyed DeathKind = "destroyed" // Destroy ended it
	DeathMemory    DeathKind = "memory"    // the kernel's OOM killer ended it
	DeathAgent     DeathKind = "agent"     // the agent exited or was killed from inside
	DeathUnknown   DeathKind = "unknown"
)

// Death is how a machine ended and what the kernel recorded about it.
type Death struct {
	Kind     DeathKind
	Evidence string
	Usage    Usage // the last reading of the counters, complete once Destroy has returned nil
}

// ErrEnded is the answer to who reads the counters of a machine that has ended.
var ErrEnded error = &sandbox.Error{Code: sandbox.CodeGone, Message: "the machine has ended"}

// Leftover is one thing that a dead host process had left behind.
type Leftover struct {
	Kind string // "cgroup", "lease", "lock", "directory", "file", "container", "image"
	Name string
	Err  error // nil when it was removed
}
