package zygote

import (
	"encoding/json"
	"os"

	"pinfold/sandbox"
)

// Spec describes a zygote to the driver that makes it. The program speaks the protocol
// of this package.
type Spec struct {
	Args   []string // Args[0] is the program's absolute path inside
	Env    []string // K=V, the whole environment, also of the children
	Files  []GuestFile
	Setup  json.RawMessage // for the program, as it is
	Limits []Rlimit        // of each child
	Home   string          // the children's working directory
	UID    int             // the children's user and group
	GID    int
}

// GuestFile is a file of root's in the zygote's machine.
type GuestFile struct {
	Path    string
	Content []byte
}

// Rlimit is a limit of one process, soft and hard. Resource is Linux's number.
type Rlimit struct {
	Resource int
	Value    uint64
}

// Child is a process that was forked into a machine. Its owner closes the
// descriptors.
type Child struct {
	Stdin, Stdout, Stderr *os.File // our ends of its pipes
	PID                   int      // in the machine
	// Exited receives how it ended, once, and is closed without that when
	// nobody knows because the zygote ended first.
	Exited <-chan Exit
}

// UnfitError says why a zygote cannot be forked, or could not load what it was
// told (Load). It is the word of the zygote, or of who would have made it.
type UnfitError struct {
	Why  string
	Load bool
}

func (e *UnfitError) Error() string { return e.Why }

// NotLoaded says why an interpreter could not load its modules: the interpreter's own
// word, which may be anything.
func NotLoaded(why string) error {
	return &sandbox.Error{
		Code: sandbox.CodeSpecInvalid, Field: "warm",
		Message: "the interpreter could not load its modules: " + sandbox.SafeText(why, 320),
		Hint:    "import the modules in a run to see what they say",
	}
}

// TooLittleMemory says that the memory limit ended an interpreter before it could
// have a program.
func TooLittleMemory(limit int64) error {
	return (&sandbox.Error{
		Code: sandbox.CodeLimitInvalid, Field: "limits.memory_bytes",
		Message: sandbox.FormatSize(limit) + " are too little for the interpreter and its modules: the kernel's out-of-memory killer ended it",
	}).WithAdvice(sandbox.Advise("give it more, such as %s", sandbox.Set("limits.memory_bytes", max(2*limit, sandbox.DefaultLimits().MemoryBytes))))
}
