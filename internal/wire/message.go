package wire

import "time"

// Version is the protocol's version. Both sides must say the same.
const Version = 5

// Bounds and numbers that both sides keep to.
const (
	// MaxChannels is the most channels open at once.
	MaxChannels = 512
	// MaxTasks is the most tasks (threads) the agent has. It has what it needs
	// before the first guest process starts, so that a guest that uses up the
	// sandbox's processes cannot stop the agent; a driver adds them to the
	// processes limit. One is for what the runtime makes now and then beyond
	// what it needs.
	MaxTasks = 4
	// ConnFD is the descriptor on which the agent finds its connection to the host.
	ConnFD = 3
	// OutputGrace is how long the output of a program is read after its end, when another
	// process still holds it.
	OutputGrace = 250 * time.Millisecond
	// MaxText is the most bytes of a message that a person may read.
	MaxText = 4096
	// MaxFiles is the most files one glob lists, MaxWalk the most directory
	// entries it looks at.
	MaxFiles = 100_000
	MaxWalk  = 100_000
	// MaxPath is the most bytes of a path in any message.
	MaxPath = 4095
	// MaxListBytes is the most bytes of paths and link targets that one
	// listing has together, so that long names cannot make it large.
	MaxListBytes = 16 << 20
	// MaxDepth is the most directories below each other that a listing goes
	// into. A path has no more.
	MaxDepth = (MaxPath + 1) / 2
	// MaxWatches is the most watches of one agent at once, MaxWatchedDirs the
	// most directories that they watch together.
	MaxWatches     = 16
	MaxWatchedDirs = 8192
	// MaxDials is the most connections into a sandbox at once.
	MaxDials = 200
	// MaxAccepts is the most connections out of a sandbox at once, with the doors at
	// which one is waited for. MaxDoors is the most doors:
	// those of a declaration (sandbox.MaxDoors) and two proxies.
	MaxAccepts = 192
	MaxDoors   = 66
	// MaxTerminal is the most columns and rows of a terminal.
	MaxTerminal = 1000
)

// Hello is the first message of each side. The agent's says that it is ready;
// the host's answers with what the agent needs to know.
type Hello struct {
	Version int
	Agent   string // the agent's build version

	// From the host:

	// UID and GID are the default user of processes and files, as numbers
	// inside the sandbox.
	UID int
	GID int
	// SwitchUser says that the agent is the sandbox's root and must give up
	// that identity in every process it starts. When false the agent already
	// is the user and cannot become another.
	SwitchUser bool
	// Home is the working directory and the root of relative paths.
	Home string
}

// Op names an operation.
type Op string

// The operations a host may ask for.
const (
	OpStart   Op = "start"    // start a process; the channel lives until it has ended
	OpWrite   Op = "write"    // write one regular file from stream 0
	OpRead    Op = "read"     // read one regular file to stream 1
	OpStat    Op = "stat"     // describe one path
	OpMkdir   Op = "mkdir"    // make a directory and its parents
	OpPut     Op = "put"      // write some small files, whose content is in the request
	OpRemove  Op = "remove"   // remove a path, recursively
	OpGlob    Op = "glob"     // list regular files that match patterns
	OpList    Op = "list"     // list what a directory holds
	OpMove    Op = "move"     // give a path another name
	OpRestore Op = "restore"  // make the files of a tree from stream 0, before anything runs
	OpWatch   Op = "watch"    // send what changes in a directory to stream 1, until the host closes
	OpDial    Op = "dial"     // connect to a TCP server inside: stream 0 to it, stream 1 from it
	OpDoors   Op = "doors"    // listen for programs inside, until the host closes: stream 1 has their packets, stream 0 the answers
	OpAccept  Op = "accept"   // wait at one of the doors for a program to connect: stream 0 to it, stream 1 from it
	OpKillAll Op = "kill_all" // kill every process but the agent and wait until they are gone
)

// Request is the payload of open: one operation and its arguments.
type Request struct {
	Op    Op
	Start *StartRequest
	File  *FileRequest
	Put   *PutRequest
	Glob  *GlobRequest
	List  *ListRequest
	Move  *MoveRequest
	Watch *WatchRequest
	Dial  *DialRequest

	Restore *RestoreRequest
	Doors   *DoorsRequest
	Accept  *AcceptRequest
}

// StartRequest starts one process.
type StartRequest struct {
	Args    []string // Args[0] is looked up in the PATH of Env unless it has a slash
	Env     []string // the whole environment, K=V
	Dir     string   // absolute, resolved inside the sandbox
	UID     int
	GID     int
	Stdin   bool // false: /dev/null
	Rlimits []Rlimit
	// CPUs are the processors that the process may use at first, as the kernel
	// has such sets: a bit for each, the lowest of the first byte for number 0.
	// Empty: all.
	CPUs []byte
	// Terminal gives the process a controlling terminal of that size. All its
	// output is then on stream 1; the end of stream 0 is typed as ^D.
	Terminal *TerminalSize
}

// Rlimit is one resource limit (soft and hard alike), by its kernel number.
type Rlimit struct {
	Resource int
	Value    uint64
}

// FileRequest is about one path: absolute, or relative to Home. A symbolic
// link is never followed, in no component; only stat follows links in the
// components before the last.
type FileRequest struct {
	Path string
	Mode uint32 // permission bits of a new file or directory
	Size int64  // write: the expected size, -1 when unknown. read: the most to send

	// read: Part asks for a part of the file, from Offset on and at most Size
	// bytes, -1 for all. Without it a file larger than Size is a fault.
	Part   bool
	Offset int64
	// Inode, unless it is 0, is the one that the file must have, as stat told it:
	// another file under the name is a fault of code conflict, as is one that ends
	// before Offset and Size together, and nothing is sent of it.
	Inode uint64
}

// MaxPut is the most bytes of content in one put.
const MaxPut = 1 << 20

// PutRequest writes regular files like write, one after another, in one
// operation. The first that fails ends it; Outcome.Size is how many were
// written.
type PutRequest struct {
	Files []PutFile
}

// PutFile is one small file. Its path is as in a FileRequest.
type PutFile struct {
	Path    string
	Mode    uint32
	Content []byte
}

// GlobRequest lists regular files below Dir. Patterns match the whole path
// relative to Dir, component by component; "**" matches any number of
// directories.
type GlobRequest struct {
	Dir      string
	Patterns []string
	Max      int // the most entries to list
}

// EventKind names an event.
type EventKind string

// The events.
const (
	EventStarted EventKind = "started" // the program is running (its exec succeeded)
	EventExited  EventKind = "exited"  // the process has been waited for; its output may still come
	EventFiles   EventKind = "files"   // some of a glob's matches; in no order
	EventEntries EventKind = "entries" // some of a listing; in no order
	EventOpened  EventKind = "opened"  // dial: the server has accepted; doors: all are open; accept: a program has connected
)

// Event is the payload of an event frame.
type Event struct {
	Kind  EventKind
	PID   int         // started
	Exit  *Exit       // exited
	Files []FileEntry // files

	Entries []Entry // entries
}

// Exit is how a process ended. Exactly one of Code and Signal is meaningful:
// Signal is 0 for a process that returned Code. Times are in nanoseconds.
type Exit struct {
	Code   int
	Signal int
	WallNS int64
	CPUNS  int64 // of the process and the children it waited for
}

// Control is the payload of a control frame.
type Control struct {
	Signal int  // send this signal
	Group  bool // to the process group, not just the process
	// Resize changes the size of the process's terminal.
	Resize *TerminalSize
	// CPUs are the processors that the process's first thread may use from now
	// on, as in StartRequest. Empty: no change.
	CPUs []byte
}

// Outcome is the payload of close. From the host it is empty.
type Outcome struct {
	Error *Fault
	Held  bool  // start: another process still held the output when the stream was cut
	Size  int64 // read, write: bytes moved
	Stat  *Stat // stat
	More  bool  // glob, list: there were more than Max, or the walk was cut
	// Unprintable counts what a glob or a list left out because its name is
	// not printable UTF-8.
	Unprintable int
}

// Fault is an operation's failure. Code is one of the sandbox package's error
// codes; the host checks that and bounds the message.
type Fault struct {
	Code    string
	Message string
	Step    string // start: the step that failed
	Errno   int
}

// StepOpenDir is the step of a start that opens the working directory.
const StepOpenDir = "open directory"

// Types of files.
const (
	TypeFile    = "file"
	TypeDir     = "dir"
	TypeSymlink = "symlink"
	TypeOther   = "other"
)

// Stat describes a file.
type Stat struct {
	Type    string
	Size    int64
	Mode    uint32
	MtimeNS int64
	UID     int
	GID     int
	Target  string // of a symbolic link: what the guest wrote there
	Inode   uint64 // tells the file from another one that takes its name
}

// FileEntry is one match of a glob. Type other than "file" is reported only
// for a pattern without wildcards, so that the host can say why it was skipped.
type FileEntry struct {
	Path    string // relative to Dir
	Type    string
	Size    int64
	MtimeNS int64
}

// The messages of faults of code too_large where the disk has no room: no inode left,
// for which the host names the limit, or no block.
const (
	NoInodes = "the sandbox's disk has no inode left"
	DiskFull = "the sandbox's disk is full"
)

// ReadOnly is the message of faults of files that are to be made where nothing can be.
const ReadOnly = "this place in the sandbox is read-only"

// NoProcesses is the message of the fault of a start for which the kernel made no process.
// The host knows whether the sandbox's limit or its own is reached.
const NoProcesses = "the kernel makes no more processes here"
