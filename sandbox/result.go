package sandbox

// Status is how a run ended, in one word.
type Status string

// The four ways a run can end.
const (
	StatusSucceeded Status = "succeeded" // exit status 0
	StatusFailed    Status = "failed"    // exit status other than 0, or a signal of the program's own
	StatusKilled    Status = "killed"    // a limit or a person ended it
	StatusError     Status = "error"     // Pinfold failed; the program's fate is unknown or it never started
)

// CauseKind names why a program ended. The host decides it from what the
// kernel recorded; nothing that the guest prints can change it.
type CauseKind string

// The causes. All but the first two and the last three name a limit.
const (
	CauseExited    CauseKind = "exited"     // the program returned an exit status
	CauseSignaled  CauseKind = "signaled"   // a signal of the program's own making
	CauseWallTime  CauseKind = "wall_time"  // limits.wall_time_ms
	CauseCPUTime   CauseKind = "cpu_time"   // limits.cpu_time_ms, whole process tree
	CauseMemory    CauseKind = "memory"     // limits.memory_bytes, whole process tree
	CauseProcesses CauseKind = "processes"  // limits.processes
	CauseDisk      CauseKind = "disk"       // limits.disk_bytes
	CauseInodes    CauseKind = "inodes"     // limits.inodes
	CauseOutput    CauseKind = "output"     // limits.output_bytes of one stream
	CauseOpenFiles CauseKind = "open_files" // limits.open_files, per process
	CauseFileSize  CauseKind = "file_size"  // limits.file_size_bytes
	CauseSyscall   CauseKind = "syscall"    // a forbidden system call ended the program
	CauseCancelled CauseKind = "cancelled"  // a person or the caller's context ended it
	CauseLost      CauseKind = "lost"       // the sandbox vanished; the program's fate is unknown
)

// Phase says which step of a run a cause belongs to.
type Phase string

// The phases of a run.
const (
	PhaseCompile Phase = "compile"
	PhaseRun     Phase = "run"
)

// Cause says why the program ended.
type Cause struct {
	Kind CauseKind `json:"kind"`
	// Phase is set to "compile" when the program never ran because compiling
	// it ended this way; otherwise it is empty.
	Phase Phase `json:"phase,omitempty"`
	// Limit and Observed are in the unit of the limit's request field
	// (milliseconds, bytes, a count). Both are 0 when no limit is involved.
	Limit    int64 `json:"limit,omitempty"`
	Observed int64 `json:"observed,omitempty"`
	// Syscall is the name of the system call, for kind "syscall".
	Syscall string `json:"syscall,omitempty"`
	// Evidence is what the kernel recorded; Hint is what to change, and Advice
	// that as data, as in Error.
	Evidence string `json:"evidence,omitempty"`
	Hint     string `json:"hint,omitempty"`
	Advice   Advice `json:"advice,omitempty"`
}

// Result is the outcome of one run. Its JSON names are fixed.
type Result struct {
	ID       string `json:"id"`
	Status   Status `json:"status"`
	ExitCode *int   `json:"exit_code"` // nil when a signal ended the program or none ran
	Signal   string `json:"signal"`    // "SIGSEGV", or empty
	TimedOut bool   `json:"timed_out"` // wall or CPU time
	Cause    Cause  `json:"cause"`

	// Stdout and Stderr hold at most limits.output_bytes each. Bytes that are
	// not UTF-8 are replaced by U+FFFD. The _bytes fields count what the
	// program wrote in all, also beyond the cap.
	Stdout          string `json:"stdout"`
	Stderr          string `json:"stderr"`
	StdoutTruncated bool   `json:"stdout_truncated"`
	StderrTruncated bool   `json:"stderr_truncated"`
	StdoutBytes     int64  `json:"stdout_bytes"`
	StderrBytes     int64  `json:"stderr_bytes"`
	ExactOutput
	// PipesHeld says that a process outlived the program and still held its
	// output when the program ended; it was killed.
	PipesHeld bool `json:"pipes_held,omitempty"`

	// Results holds rich values by media type, where the language has a harness:
	// of the last expression, of open figures, of the exception that ended the
	// program. They are the guest's word.
	Results []Rich `json:"results"`
	// ResultsSkipped says what is not among them, and why.
	ResultsSkipped []SkippedResult `json:"results_skipped,omitempty"`
	Artifacts      []Artifact      `json:"artifacts"`
	// ArtifactsSkipped lists files that matched but did not come out, and why.
	ArtifactsSkipped []SkippedArtifact `json:"artifacts_skipped,omitempty"`

	// Compile is the compile step, for compiled languages.
	Compile *Compile `json:"compile,omitempty"`

	// DeniedSyscalls lists the system calls that the sandbox refused.
	DeniedSyscalls []DeniedSyscall `json:"denied_syscalls,omitempty"`

	// Gate is what the output gate has made of the output; nil where there is none.
	Gate *GateResult `json:"gate,omitempty"`
	// Findings are what a scan saw in the program before it ran, where the request has
	// scan or a rule of the operator's wants to know; nil where nobody looked.
	// FindingsUnread says why the program could not be read as its language is, and
	// FindingsMissed that there was more than a scan tells.
	Findings       []Finding `json:"findings,omitzero"`
	FindingsUnread string    `json:"findings_unread,omitempty"`
	FindingsMissed bool      `json:"findings_missed,omitempty"`
	// Policy is what the operator's rules have made of the request; nil where there are
	// none.
	Policy *PolicyResult `json:"policy,omitempty"`

	// Replay is how a run that repeats another differs from it; nil where it repeats none.
	Replay *Replay `json:"replay,omitempty"`

	// Packages are those that the program could import because the request named some:
	// everything that was installed, with the version and the digest of each.
	Packages *Packages `json:"packages,omitempty"`

	// Network is what went on with the declared endpoints; nil where none were.
	Network *NetworkUse `json:"network,omitempty"`

	Usage     Usage     `json:"usage"`
	Isolation Isolation `json:"isolation"`
	Timings   Timings   `json:"timings"`

	Language string `json:"language,omitempty"`
	Warm     bool   `json:"warm,omitempty"` // a started interpreter took the program
	// ColdBecause says why none with the modules that the run asked for did.
	ColdBecause string            `json:"cold_because,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`

	// Error is set when Status is "error".
	Error *Error `json:"error,omitempty"`
	// Cleanup is set when something of the sandbox was still on the host as the
	// result was given. That does not change what became of the program.
	Cleanup *Error `json:"cleanup,omitempty"`

	// Profile is the one that the run named, as it was; nil: it named none.
	Profile *ProfileRef `json:"profile,omitempty"`
	// Receipt proves that the run is in the server's audit log, where it keeps one.
	Receipt *Receipt `json:"receipt,omitempty"`
	// ReceiptMissing is set where the record could not be written, and the operator lets
	// programs run all the same.
	ReceiptMissing *Error `json:"receipt_missing,omitempty"`
}

// ExactOutput is what the text of an output does not tell.
type ExactOutput struct {
	// StdoutRaw and StderrRaw are the bytes of Stdout and Stderr as they were
	// written (base64 in JSON), where the request has output_base64.
	StdoutRaw []byte `json:"stdout_base64,omitempty"`
	StderrRaw []byte `json:"stderr_base64,omitempty"`
	// OutputOrder says how the bytes of both followed each other, where both were
	// written to: each piece is the next so many of its stream. It is the order in
	// which they were read; two pipes have no other. At most MaxOutputPieces: what
	// comes after them is in no piece.
	OutputOrder []OutputPiece `json:"output_order,omitempty"`
}

// OutputPiece is a number of bytes of "stdout" or "stderr".
type OutputPiece struct {
	Stream string `json:"stream"`
	Bytes  int64  `json:"bytes"`
}

// MaxOutputPieces bounds OutputOrder.
const MaxOutputPieces = 1000

// Artifact is one file that came out of a sandbox.
type Artifact struct {
	Path      string `json:"path"` // relative to the working directory
	Size      int64  `json:"size"`
	SHA256    string `json:"sha256"` // hexadecimal
	MediaType string `json:"media_type"`
	// Content is the file's bytes (base64 in JSON) where the caller asked for
	// artifacts in line; otherwise empty.
	Content []byte `json:"content_base64,omitempty"`
}

// SkippedArtifact is a file that matched an artifact pattern but stayed inside.
type SkippedArtifact struct {
	Path   string `json:"path"`
	Code   string `json:"code"` // an Error code: not_regular_file, too_large, …
	Reason string `json:"reason"`
}

// Compile is the outcome of a compile step. It has its own limits and timings.
//
// Cached says that nothing was compiled: the same program was compiled before,
// with the same outcome, for the same tenant. Then WallMS and CPUMS are 0, and
// the rest is what the compiler said at that time.
type Compile struct {
	Cached          bool   `json:"cached,omitempty"`
	ExitCode        *int   `json:"exit_code"`
	Signal          string `json:"signal"`
	Stdout          string `json:"stdout"`
	Stderr          string `json:"stderr"`
	StdoutTruncated bool   `json:"stdout_truncated"`
	StderrTruncated bool   `json:"stderr_truncated"`
	WallMS          int64  `json:"wall_ms"`
	CPUMS           int64  `json:"cpu_ms"`
	Limits          Limits `json:"limits"`
}

// DeniedSyscall counts refusals of one system call.
type DeniedSyscall struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
}

// Usage is what a run consumed, as the kernel counted it. The whole process
// tree is included. A value that could not be measured is 0 and is named in
// Isolation.NotEnforced.
type Usage struct {
	WallMS          int64 `json:"wall_ms"`
	CPUMS           int64 `json:"cpu_ms"`
	MemoryPeakBytes int64 `json:"memory_peak_bytes"`
	ProcessesPeak   int64 `json:"processes_peak"`
	DiskPeakBytes   int64 `json:"disk_peak_bytes"`
	InodesPeak      int64 `json:"inodes_peak"`
	ReadBytes       int64 `json:"read_bytes"`
	WrittenBytes    int64 `json:"written_bytes"`
}

// Isolation is what held the program, and what did not.
type Isolation struct {
	Driver string `json:"driver"`
	// Enforced lists features by name, see Features.
	Enforced []string `json:"enforced"`
	// NotEnforced lists what a caller might have expected and did not get.
	NotEnforced []Gap `json:"not_enforced"`
}

// Gap is one thing that is not enforced: what, why, and the command or setting
// that would change it, in words of JSON and, as in Error, as data.
type Gap struct {
	What   string `json:"what"`
	Why    string `json:"why"`
	Fix    string `json:"fix"`
	Advice Advice `json:"advice,omitempty"`
}

// Timings are wall-clock durations of the run's steps, in milliseconds.
type Timings struct {
	QueueMS   float64 `json:"queue_ms"`
	CreateMS  float64 `json:"create_ms"`
	CompileMS float64 `json:"compile_ms,omitempty"`
	ExecMS    float64 `json:"exec_ms"`
	CollectMS float64 `json:"collect_ms"`
	DestroyMS float64 `json:"destroy_ms"`
}
