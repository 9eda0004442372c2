package sandbox

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Create asks for a living sandbox: one that stays until somebody destroys it,
// its time is over, or nobody has used it for long. The zero value of every
// field is the default.
type Create struct {
	// Profile is as in a Spec.
	Profile  string `json:"profile,omitempty" zero:"refused"`
	Template string `json:"template,omitempty" zero:"refused"` // default "host"
	Driver   string `json:"driver,omitempty" zero:"refused"`   // default "auto"
	// Isolation is the least level; default "namespace", or what the driver named has.
	Isolation string   `json:"isolation,omitempty" zero:"refused"`
	Require   []string `json:"require,omitempty"` // features that must be enforced
	Network   Network  `json:"network,omitzero"`  // default none
	// Packages are as in a Spec, for every process.
	Packages Packages `json:"packages,omitzero"`
	// Limits hold for the sandbox as a whole. wall_time_ms is what each of its
	// processes gets unless it asks for something else; cpu_time_ms is for all
	// of them over the sandbox's whole life. Where these two are not given, the
	// sandbox's time to live bounds both.
	Limits Limits `json:"limits,omitzero"`
	// OnOutOfMemory says what ends when limits.memory_bytes is reached: the
	// "sandbox" (the default), or the "process" that the kernel's out-of-memory
	// killer chooses, usually the one that uses most.
	OnOutOfMemory string            `json:"on_out_of_memory,omitempty" zero:"refused"`
	Env           map[string]string `json:"env,omitempty"`                    // for every process
	TTLMS         int64             `json:"ttl_ms,omitempty" zero:"refused"`  // milliseconds to live, default 5 minutes
	IdleMS        int64             `json:"idle_ms,omitempty" zero:"refused"` // milliseconds without use, default the time to live
	Metadata      map[string]string `json:"metadata,omitempty"`
	// Gate says how what its processes print, and files that are read from it, are checked
	// before anybody has them; nil: they are not, unless the operator or a profile says so.
	// It has no validators: these judge runs.
	Gate *Gate `json:"gate,omitempty"`
	// Snapshot is the ID of one that the sandbox begins with. What is not given here is as
	// in the sandbox of which that was made, but for the times.
	Snapshot string  `json:"snapshot,omitempty" zero:"refused"`
	Mounts   []Mount `json:"-"` // host directories; never from a request
}

// What may end for want of memory.
const (
	OutOfMemorySandbox = "sandbox"
	OutOfMemoryProcess = "process"
)

// Bounds on how long a sandbox may live.
const (
	DefaultTTLMS = 5 * 60 * 1000
	MinTTLMS     = 100
	MaxTTLMS     = maxTimeMS
)

// WithDefaults returns c with the defaults filled in. The limits of time stay
// zero where they were: the time to live bounds them.
func (c Create) WithDefaults() Create {
	wall, cpu := c.Limits.WallTimeMS, c.Limits.CPUTimeMS
	s := c.spec().WithDefaults()
	c.Template, c.Driver, c.Network, c.Limits = s.Template, s.Driver, s.Network, s.Limits
	c.Limits.WallTimeMS, c.Limits.CPUTimeMS = wall, cpu
	c.TTLMS = cmp.Or(c.TTLMS, DefaultTTLMS)
	c.IdleMS = cmp.Or(c.IdleMS, c.TTLMS)
	c.OnOutOfMemory = cmp.Or(c.OnOutOfMemory, OutOfMemorySandbox)
	return c
}

// Like returns c with what it does not say taken from another request, but for the times.
func (c Create) Like(of Create) Create {
	for _, f := range []struct{ to, from *string }{
		{&c.Profile, &of.Profile}, {&c.Template, &of.Template}, {&c.Driver, &of.Driver}, {&c.Isolation, &of.Isolation}, {&c.OnOutOfMemory, &of.OnOutOfMemory},
	} {
		*f.to = cmp.Or(*f.to, *f.from)
	}
	if c.Network.Mode == "" && len(c.Network.Endpoints) == 0 {
		c.Network = of.Network
	}
	for _, info := range limitTable {
		if c.Limits.Get(info.Field) == 0 {
			c.Limits.Set(info.Field, of.Limits.Get(info.Field))
		}
	}
	c.Limits.CPUs = cmp.Or(c.Limits.CPUs, of.Limits.CPUs)
	if c.Require == nil {
		c.Require = of.Require
	}
	if c.Env == nil {
		c.Env = of.Env
	}
	if c.Metadata == nil {
		c.Metadata = of.Metadata
	}
	if c.Packages.IsZero() {
		c.Packages = of.Packages
	}
	c.Gate = c.Gate.Merge(of.Gate) // what was checked there must not come out here
	if c.Mounts == nil {
		c.Mounts = of.Mounts
	}
	return c
}

// Validate checks everything that can be known without a host. Each error
// names its field.
func (c Create) Validate() error {
	for _, f := range []struct {
		field string
		value int64
	}{{"ttl_ms", c.TTLMS}, {"idle_ms", c.IdleMS}} {
		if f.value != 0 {
			if err := checkLife(f.field, f.value); err != nil {
				return err
			}
		}
	}
	if o := c.OnOutOfMemory; o != "" && o != OutOfMemorySandbox && o != OutOfMemoryProcess {
		return (&Error{
			Code: CodeSpecInvalid, Field: "on_out_of_memory", Message: fmt.Sprintf("\"%s\" cannot end for want of memory", SafeText(o, 40)),
		}).WithAdvice(Advise("write %s or %s", Set("on_out_of_memory", OutOfMemorySandbox), Set("on_out_of_memory", OutOfMemoryProcess)))
	}
	s := c.spec()
	for _, check := range []func() error{s.Limits.Validate, s.validateEnv, s.validateChoices, s.validateMounts, s.validatePackages} {
		if err := check(); err != nil {
			return err
		}
	}
	return c.Gate.validateLiving()
}

func checkLife(field string, ms int64) error {
	if ms >= MinTTLMS && ms <= MaxTTLMS {
		return nil
	}
	advice := "write %s, which is ten minutes"
	if ms <= 0 {
		advice += "; zero does not mean unlimited"
	}
	return (&Error{
		Code: CodeLimitInvalid, Field: field,
		Message: fmt.Sprintf("%s is outside %s to %s", FormatQuantity(ms, UnitMilliseconds), FormatQuantity(MinTTLMS, UnitMilliseconds), FormatQuantity(MaxTTLMS, UnitMilliseconds)),
	}).WithAdvice(Advise(advice, Set(field, 600_000)))
}

// CheckTTL says whether a sandbox may be asked to live that many milliseconds.
func CheckTTL(ms int64) error { return checkLife("ttl_ms", ms) }

// spec is the part that a living sandbox has in common with a run.
func (c Create) spec() Spec {
	return Spec{
		Template: c.Template, Driver: c.Driver, Isolation: c.Isolation, Require: c.Require, Network: c.Network,
		Limits: c.Limits, Env: c.Env, Metadata: c.Metadata, Mounts: c.Mounts, Packages: c.Packages,
	}
}

// State is where a living sandbox stands.
type State string

// The states. A sandbox goes through them in this order and never back, but for paused,
// from which it goes back to running; it may pass that over, and go from creating to ended.
const (
	StateCreating State = "creating"
	StateRunning  State = "running"
	StatePaused   State = "paused" // nothing in it runs until it is resumed
	StateEnding   State = "ending" // being destroyed
	StateEnded    State = "ended"  // nothing of it is left on the host
)

// States returns all states in their order.
func States() []State {
	return []State{StateCreating, StateRunning, StatePaused, StateEnding, StateEnded}
}

// Causes of a living sandbox's end that a run does not have.
const (
	CauseTTL       CauseKind = "ttl"       // its time to live was over
	CauseIdle      CauseKind = "idle"      // nobody had used it for idle_ms
	CauseDestroyed CauseKind = "destroyed" // a person or a program asked for it
)

// Info describes a living sandbox, or one that has lived.
type Info struct {
	ID        string            `json:"id"` // "sbx_…"
	State     State             `json:"state"`
	Template  string            `json:"template"`
	Limits    Limits            `json:"limits"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	Isolation Isolation         `json:"isolation"`
	Warm      bool              `json:"warm"` // it came from a pool
	// Profile is as in a Result.
	Profile *ProfileRef `json:"profile,omitempty"`
	// Snapshot is what it began with, ForkOf the sandbox of which it was forked.
	Snapshot  string     `json:"snapshot,omitempty"`
	ForkOf    string     `json:"fork_of,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt time.Time  `json:"expires_at"`
	IdleMS    int64      `json:"idle_ms"`
	UsedAt    time.Time  `json:"used_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	// Cause says why it ended, Error what went wrong while it was made or
	// destroyed.
	Cause *Cause `json:"cause,omitempty"`
	Error *Error `json:"error,omitempty"`
	// Packages are as in a Result.
	Packages *Packages `json:"packages,omitempty"`
	// Declared is what can be reached now; nil where nothing was declared when it was made.
	Declared *Network `json:"declared,omitempty"`
	// Network is what has gone on with the declared endpoints so far; nil where none were.
	Network *NetworkUse `json:"network,omitempty"`
	// Policy is what the operator's rules have made of the request; nil where there are
	// none.
	Policy *PolicyResult `json:"policy,omitempty"`
	// Usage is the latest reading; its wall_ms is the age.
	Usage     Usage   `json:"usage"`
	Timings   Timings `json:"timings"`
	Processes int     `json:"processes"` // started through the server, that run now; not what they left behind
}

// Command asks for a process in a living sandbox.
type Command struct {
	// Args is the command line; Args[0] is looked up in the PATH. Shell is a
	// line for /bin/sh instead. Exactly one of them must be given.
	Args  []string `json:"args,omitempty"`
	Shell string   `json:"shell,omitempty"`
	// Env is added to the sandbox's.
	Env map[string]string `json:"env,omitempty"`
	// Dir is the working directory, default the one that the template's image
	// says, or else the home directory. A relative one is relative to the home.
	Dir string `json:"dir,omitempty"`
	// Stdin keeps the standard input open for later writes; otherwise it is
	// empty. A terminal's is always open.
	Stdin bool `json:"stdin,omitempty"`
	// Terminal gives the process a terminal of that size instead of pipes.
	// Everything that it prints is then in stdout.
	Terminal *Terminal `json:"terminal,omitempty"`
	// WallTimeMS ends the process; default the sandbox's limits.wall_time_ms,
	// or else the sandbox's own end.
	WallTimeMS int64 `json:"wall_time_ms,omitempty" zero:"refused"`
	// OutputBytes is how many bytes of each stream are kept, the last ones;
	// default limits.output_bytes. Who reads while it is written misses nothing.
	OutputBytes int64 `json:"output_bytes,omitempty" zero:"refused"`
	// OutputBase64 asks for the exact bytes of the output as well, where the
	// Process has it.
	OutputBase64 bool              `json:"output_base64,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
}

// Terminal is the size of a terminal in characters.
type Terminal struct {
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// MaxTerminal bounds the columns and rows of a terminal.
const MaxTerminal = 1000

// Validate checks a size.
func (t Terminal) Validate() error {
	field, v := "cols", t.Cols
	if v >= 1 && v <= MaxTerminal {
		field, v = "rows", t.Rows
	}
	if v >= 1 && v <= MaxTerminal {
		return nil
	}
	return &Error{Code: CodeLimitInvalid, Field: field, Message: fmt.Sprintf("%d is outside 1 to %d", v, MaxTerminal), Hint: `such as "cols": 80, "rows": 24`}
}

// Validate checks what can be known without a sandbox.
func (c Command) Validate() error {
	switch {
	case len(c.Args) == 0 && c.Shell == "":
		return specError("args", "a process needs args, or a shell line")
	case len(c.Args) > 0 && c.Shell != "":
		return specError("shell", "give args or shell, not both")
	case len(c.Args) > 0 && c.Args[0] == "":
		return specError("args[0]", "the command is empty")
	case len(c.Shell) > MaxArgBytes:
		return tooLarge("shell", int64(len(c.Shell)), MaxArgBytes)
	case strings.IndexByte(c.Shell, 0) >= 0 || strings.IndexByte(c.Dir, 0) >= 0:
		return specError("shell", "contains a NUL byte")
	case len(c.Dir) > MaxPathBytes:
		return tooLarge("dir", int64(len(c.Dir)), MaxPathBytes)
	}
	if c.Terminal != nil {
		if err := c.Terminal.Validate(); err != nil {
			e := AsError(err)
			return e.WithField("terminal." + e.Field)
		}
	}
	for _, i := range limitTable {
		if v := map[string]int64{"wall_time_ms": c.WallTimeMS, "output_bytes": c.OutputBytes}[i.Field]; v != 0 {
			if err := i.Check(v); err != nil {
				return AsError(err).WithField(i.Field)
			}
		}
	}
	s := Spec{Args: c.Args, Env: c.Env, Metadata: c.Metadata}
	for _, check := range []func() error{s.validateArgs, s.validateEnv, s.validateChoices} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// Argv returns the command line.
func (c Command) Argv() []string {
	if c.Shell != "" {
		return []string{"/bin/sh", "-c", c.Shell}
	}
	return slices.Clone(c.Args)
}

// Process describes a process in a living sandbox.
type Process struct {
	ID        string     `json:"id"` // "prc_…"
	Args      []string   `json:"args"`
	PID       int        `json:"pid"`     // inside the sandbox
	Running   bool       `json:"running"` // otherwise the fields below say how it ended
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	// Status, ExitCode, Signal, TimedOut and Cause are as in a Result.
	Status   Status `json:"status,omitempty"`
	ExitCode *int   `json:"exit_code"`
	Signal   string `json:"signal"`
	TimedOut bool   `json:"timed_out"`
	Cause    *Cause `json:"cause,omitempty"`
	// Totals, also of what is not kept any more. Where a gate holds the output back they
	// are 0 until the process has ended.
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	PipesHeld   bool  `json:"pipes_held,omitempty"`
	Terminal    bool  `json:"terminal"`
	WallMS      int64 `json:"wall_ms"`
	// HasOutput says that the fields below are filled: when the process had
	// ended, where one process was asked for. Others have none of them in JSON.
	HasOutput bool `json:"-"`
	// Stdout and Stderr are what is kept: the last Command.OutputBytes of each.
	// Bytes that are not UTF-8 are replaced by U+FFFD.
	Stdout          string `json:"stdout,omitempty"`
	Stderr          string `json:"stderr,omitempty"`
	StdoutTruncated bool   `json:"stdout_truncated,omitempty"` // the beginning is missing
	StderrTruncated bool   `json:"stderr_truncated,omitempty"`
	ExactOutput
	// Gate is what the sandbox's output gate has made of the output, when the process has
	// ended; nil where there is none.
	Gate     *GateResult       `json:"gate,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Receipt and ReceiptMissing are as in a Result.
	Receipt        *Receipt `json:"receipt,omitempty"`
	ReceiptMissing *Error   `json:"receipt_missing,omitempty"`
}

// FileInfo describes a file in a sandbox.
type FileInfo struct {
	Path   string    `json:"path"` // absolute
	Type   string    `json:"type"` // file, dir, symlink, other
	Size   int64     `json:"size"`
	Mode   uint32    `json:"mode"` // permission bits
	MTime  time.Time `json:"mtime"`
	UID    int       `json:"uid"`
	GID    int       `json:"gid"`
	Target string    `json:"target,omitempty"` // of a symbolic link; the guest's word
}

// Types of files in a FileInfo.
const (
	FileRegular = "file"
	FileDir     = "dir"
	FileSymlink = "symlink"
	FileOther   = "other"
)

// FileEvent is one change seen while watching a directory.
type FileEvent struct {
	Kind string `json:"kind"` // ready (watching has begun), created, modified, removed, moved_from, moved_to, overflow (some were lost)
	Path string `json:"path"` // absolute; empty for ready and overflow
	Dir  bool   `json:"dir,omitempty"`
}

// Listing is a part of what a sandbox holds.
type Listing[T any] struct {
	// Items are in the order of their paths.
	Items []T `json:"items"`
	// More says that there are others beyond what was asked for.
	More bool `json:"more"`
	// Unprintable counts what was left out because its name cannot be printed,
	// or shown for what it is.
	Unprintable int `json:"unprintable"`
}

// Change is one difference from a sandbox's beginning.
type Change struct {
	Kind string   `json:"kind"` // added, modified, removed
	File FileInfo `json:"file"`
}

// PoolSpec asks for warm sandboxes. A pool serves every request that its shape
// fits: the same template, driver and limits of the machine.
type PoolSpec struct {
	Name     string `json:"name"`
	Template string `json:"template,omitempty"`
	Driver   string `json:"driver,omitempty"`
	Limits   Limits `json:"limits,omitzero"`
	// Language keeps an interpreter of that language started in each of them,
	// for runs; Warm names the modules that it has loaded.
	Language string   `json:"language,omitempty"`
	Warm     []string `json:"warm,omitempty"`
	Min      int      `json:"min"` // kept waiting; 0: DefaultPoolMin
	Max      int      `json:"max"` // waiting and in use together; 0: no bound of its own
}

// DefaultPoolMin is how many a pool keeps waiting that does not say.
const DefaultPoolMin = 1

// PoolInfo is a pool and how it does.
type PoolInfo struct {
	PoolSpec

	Available int `json:"available"`
	Filling   int `json:"filling"`
	InUse     int `json:"in_use"`
	Total     int `json:"total"`
	// Hits were served by what waited; Forked by an interpreter that was forked at
	// once, because none did; Misses, of its shape, not at all.
	Hits     int64 `json:"hits"`
	Forked   int64 `json:"forked"`
	Misses   int64 `json:"misses"`
	Replaced int64 `json:"replaced"`
	// Error says why it could not be filled, last time; RetryAt when that is tried
	// again.
	Error   *Error     `json:"error,omitempty"`
	RetryAt *time.Time `json:"retry_at,omitempty"`
	// Interpreters says how those that wait come to be: "forked" from one that has
	// loaded the modules, or "started". Empty where there are none (yet). Why says why they
	// are not forked.
	Interpreters string `json:"interpreters,omitempty"`
	Why          string `json:"why,omitempty"`
}

// Codes of errors that a server can give.
const (
	CodeUnauthorized   = "unauthorized"    // no key, or one that is not known, has expired or was revoked
	CodeForbidden      = "forbidden"       // the key lacks the scope, or the request came from a foreign origin
	CodeNotFound       = "not_found"       // no such object, or it is another tenant's
	CodeConflict       = "conflict"        // the object is not in a state in which that is possible
	CodeBusy           = "busy"            // full; Retry-After says when to come back
	CodeQuotaExceeded  = "quota_exceeded"  // the tenant's share is used up
	CodeIdempotency    = "idempotency"     // the key was used for another request
	CodeGone           = "gone"            // it has ended, or is no longer kept
	CodeRequestInvalid = "request_invalid" // the HTTP request is malformed
	CodeUnsafeArchive  = "unsafe_archive"  // an archive with names, types or sizes that are not accepted
	CodeStateCorrupt   = "state_corrupt"   // what is on disk cannot be read
	CodeInsufficient   = "insufficient"    // the host's disk is full
	// CodeAuditUnavailable is of what cannot be recorded in the audit log, where the
	// operator wants nothing to happen that is not.
	CodeAuditUnavailable = "audit_unavailable"
	CodeReceiptInvalid   = "receipt_invalid"  // it does not prove what it says
	CodeConfigInvalid    = "config_invalid"   // the configuration has an error
	CodeShuttingDown     = "shutting_down"    // the server takes no new work
	CodeDisconnected     = "disconnected"     // no answer came from the server
	CodeOffsetGone       = "offset_gone"      // that part of the output is no longer kept
	CodeMethodForbidden  = "method_forbidden" // that method is not for this route
	CodePolicyRefused    = "policy_refused"   // a rule of the operator's refuses it
	CodeApprovalDenied   = "approval_denied"  // a person who was asked said no
	CodeApprovalTimeout  = "approval_timeout" // nobody who was asked decided in time
)
