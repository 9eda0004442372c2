package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"pinfold/sandbox"
)

// Zygoter is a driver that can fork machines' first programs from a process that
// has loaded everything already.
type Zygoter interface {
	// NewZygote starts a zygote in a machine of its own: the plan's limits, no
	// network, no privilege on the host, an id that nobody else has. It returns
	// when the zygote has loaded what it was told. It fails with errors.ErrUnsupported
	// where this host cannot do it, and with an *UnfitError when the zygote
	// says that it cannot be forked.
	NewZygote(ctx context.Context, plan Plan, spec ZygoteSpec) (Zygote, error)
}

// ZygoteSpec describes a zygote. The program speaks the protocol that package
// native describes on descriptor 3.
type ZygoteSpec struct {
	Args   []string // Args[0] is the program's absolute path inside
	Env    []string // K=V, the whole environment, also of the forks
	Files  []ZygoteFile
	Setup  json.RawMessage // for the program, as it is
	Limits []Rlimit        // of each fork
	Home   string          // the forks' working directory
	UID    int             // the forks' user and group
	GID    int
}

// ZygoteFile is a file of root's in the zygote's machine.
type ZygoteFile struct {
	Path    string
	Content []byte
}

// Rlimit is a limit of one process, soft and hard. Resource is Linux's number.
type Rlimit struct {
	Resource int
	Value    uint64
}

// UnfitError says why a zygote cannot be forked, or could not load what it was
// told (Load). It is the word of the zygote, or of who would have made it.
type UnfitError struct {
	Why  string
	Load bool
}

func (e *UnfitError) Error() string { return e.Why }

// TooLittleMemory says that the memory limit ended an interpreter before it could
// have a program.
func TooLittleMemory(limit int64) error {
	return &sandbox.Error{
		Code: sandbox.CodeLimitInvalid, Field: "limits.memory_bytes",
		Message: sandbox.FormatSize(limit) + " are too little for the interpreter and its modules: the kernel's out-of-memory killer ended it",
		Hint:    fmt.Sprintf(`give it more, such as "limits": {"memory_bytes": %d}`, max(2*limit, sandbox.DefaultLimits().MemoryBytes)),
	}
}

// Zygote is a process from which others are forked. It runs no run's code. All methods
// are safe for concurrent use.
type Zygote interface {
	// Fork makes the machine that the plan describes, with everything that it
	// enforces in force, and a fork of the zygote in it, which waits for its
	// program on its standard input. The machine may be a Sleeper.
	Fork(ctx context.Context, plan Plan) (Machine, *Child, error)
	// Dead is closed when the zygote has ended. Its machines have ended with it.
	Dead() <-chan struct{}
	// Usage reads the counters of the zygote alone.
	Usage() Usage
	// Destroy ends the zygote and all machines that still live with a fork of
	// it, and removes its traces. The machines must be destroyed too.
	Destroy(ctx context.Context) error
}

// Child is a process that was forked into a machine. Its owner closes the
// descriptors.
type Child struct {
	Stdin, Stdout, Stderr *os.File // our ends of its pipes
	PID                   int      // in the machine
	// Exited receives how it ended, once, and is closed without that when
	// nobody knows because the zygote ended first.
	Exited <-chan ChildExit
}

// ChildExit is how a forked process ended. Signal is 0 when it exited.
type ChildExit struct {
	Code, Signal int
	CPU          time.Duration // since the fork
}
