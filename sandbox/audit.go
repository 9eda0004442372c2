package sandbox

import "time"

// AuditKind is what an entry of the audit log is about.
type AuditKind string

// The kinds of entries.
const (
	AuditRun            AuditKind = "run"             // a run has ended
	AuditProcess        AuditKind = "process"         // a process in a living sandbox has ended
	AuditSandboxCreated AuditKind = "sandbox_created" // a living sandbox was made
	AuditSandboxEnded   AuditKind = "sandbox_ended"   // it has ended
	AuditSandboxNetwork AuditKind = "sandbox_network" // what it can reach was changed; the evidence says whether to less
	AuditFilesIn        AuditKind = "files_in"        // a request has written files into a living sandbox
	AuditFilesOut       AuditKind = "files_out"       // a request has read files out of one
	AuditPolicySet      AuditKind = "policy_set"      // another policy holds from now on
	AuditPolicyRemoved  AuditKind = "policy_removed"  // none does
	AuditKeyCreated     AuditKind = "key_created"     // an API key was made
	AuditKeyRevoked     AuditKind = "key_revoked"     // it was revoked
	AuditSecretSet      AuditKind = "secret_set"      // a secret was made, or took the place of another
	AuditSecretRemoved  AuditKind = "secret_removed"  // it was removed
	AuditRunApproved    AuditKind = "run_approved"    // a person approved a run that waited for that
	AuditRunDenied      AuditKind = "run_denied"      // a person denied it
	AuditGap            AuditKind = "gap"             // so many records could not be written before this one
	AuditTorn           AuditKind = "torn"            // a write that a crash had cut off was removed; nobody had been told of it
)

// AuditKinds returns all kinds.
func AuditKinds() []AuditKind {
	return []AuditKind{AuditRun, AuditProcess, AuditSandboxCreated, AuditSandboxEnded, AuditSandboxNetwork, AuditFilesIn, AuditFilesOut, AuditPolicySet, AuditPolicyRemoved, AuditKeyCreated, AuditKeyRevoked, AuditSecretSet, AuditSecretRemoved, AuditRunApproved, AuditRunDenied, AuditGap, AuditTorn}
}

// AuditEntry is one entry of the audit log. Its JSON, byte for byte, is the leaf that the
// log's tree is made of: what the log promises is that nobody changes it, not that its
// clock was right. The order is that of Index.
type AuditEntry struct {
	V     int   `json:"v"`     // 1
	Index int64 `json:"index"` // from 0
	// SaltSHA256 is the SHA-256 of the salt of Digests, base64url without padding.
	SaltSHA256 string    `json:"salt_sha256"`
	Time       time.Time `json:"time"` // when it was recorded, by the host's clock
	Kind       AuditKind `json:"kind"`

	Tenant  string `json:"tenant,omitempty"`
	Key     string `json:"key,omitempty"`     // the id of the key that asked, or that decided
	ID      string `json:"id,omitempty"`      // of the run, process, sandbox or key; a secret's name; of files the path that was asked for
	Sandbox string `json:"sandbox,omitempty"` // of a process or of files: where they were
	Origin  string `json:"origin,omitempty"`  // of a sandbox: the id of the snapshot that it began with, or of the sandbox that it was forked of; of a run: of the one that it repeats

	Language  string          `json:"language,omitempty"`
	Template  string          `json:"template,omitempty"`
	Profile   *ProfileRef     `json:"profile,omitempty"` // that the request named
	Isolation *AuditIsolation `json:"isolation,omitempty"`
	// Network is what went on with declared endpoints until a run or a sandbox had ended;
	// nil where none were. The digest network_use is of all of it.
	Network *AuditNetwork `json:"network,omitempty"`

	Status   Status     `json:"status,omitempty"`
	Cause    CauseKind  `json:"cause,omitempty"`
	Evidence string     `json:"evidence,omitempty"` // the first bytes of it
	ExitCode *int       `json:"exit_code,omitempty"`
	Signal   string     `json:"signal,omitempty"`
	Error    string     `json:"error,omitempty"` // a code
	Gate     GateAction `json:"gate,omitempty"`  // the outcome of the output gate, of a run or a process
	// Findings are the ids of the scan's rules that found something in a run, the worst
	// first, and Severity is the highest of them: "danger" where it could not be scanned.
	Findings []string `json:"findings,omitempty"`
	Severity Severity `json:"severity,omitempty"`
	// Policy is what the operator's rules have made of it; nil where there were none. The
	// digest policy is of all of it.
	Policy    *AuditPolicy `json:"policy,omitempty"`
	StartedAt time.Time    `json:"started_at,omitzero"`    // of the request, of the process, or when a key was changed
	WallMS    int64        `json:"wall_ms,omitempty"`      // as in Usage
	CPUMS     int64        `json:"cpu_ms,omitempty"`       // as in Usage
	Memory    int64        `json:"memory_bytes,omitempty"` // its peak

	// Files are how many moved, and Bytes how much of them, all together. The digest files is
	// of lines as sha256sum prints them, for what of each file was moved.
	Files int64 `json:"files,omitempty"`
	Bytes int64 `json:"bytes,omitempty"`

	// Missing is how many records a gap stands for, or how many bytes were torn.
	Missing int64 `json:"missing,omitempty"`
	// Texts says what became of the texts: "" only digests are kept, "kept", "too_large",
	// "failed".
	Texts string `json:"texts,omitempty"`
	// Digests are of contents, by name: HMAC-SHA256, keyed with the entry's salt, of the
	// name, a zero byte and the content; base64url without padding.
	Digests map[string]string `json:"digests,omitempty"`
}

// AuditIsolation is which wall stood around a program.
type AuditIsolation struct {
	Driver      string   `json:"driver"`
	Level       string   `json:"level,omitempty"`
	Required    []string `json:"required,omitempty"`
	Enforced    []string `json:"enforced,omitempty"`
	NotEnforced []string `json:"not_enforced,omitempty"`
}

// AuditNetwork is what a sandbox did with its endpoints, as the host saw it.
type AuditNetwork struct {
	Connections int64 `json:"connections"`
	Requests    int64 `json:"requests,omitempty"` // that passed, where the host reads them
	Denied      int64 `json:"denied,omitempty"`   // what was tried and refused
	// Secrets are those that were put into at least one request, by name. A list that is
	// too long for an entry ends with AuditMore.
	Secrets []string `json:"secrets,omitempty"`
}

// AuditPolicy is what an operator's rules have made of a request.
type AuditPolicy struct {
	Digest string `json:"digest"` // of the policy, as in PolicyResult
	// Rules are those that matched. A list that is too long for an entry ends with
	// AuditMore.
	Rules   []string `json:"rules,omitempty"`
	Verdict Verdict  `json:"verdict,omitempty"` // where a person was asked
	By      string   `json:"by,omitempty"`      // the key that decided
}

// AuditMore stands in an entry for what had no room.
const AuditMore = "…"

// Receipt proves that an entry stands in a server's audit log. Whoever keeps it is a
// witness: a log that later lacks the entry, or has another in its place, does not agree
// with it. As JSON it has at most MaxReceiptBytes.
type Receipt struct {
	Index int64  `json:"index"`
	Leaf  string `json:"leaf"` // the JSON of an AuditEntry
	// Salt, in hexadecimal, lets its holder check what the digests are of.
	Salt string `json:"salt,omitempty"`
	// Proof leads from the leaf to the root in Checkpoint: hashes, base64.
	Proof []string `json:"proof"`
	// Checkpoint is a signed note: the log's name, its size and its root (C2SP
	// tlog-checkpoint).
	Checkpoint string `json:"checkpoint"`
}

// MaxReceiptBytes bounds a receipt.
const MaxReceiptBytes = 4096

// AuditRecord is an entry with what proves it.
type AuditRecord struct {
	Entry   AuditEntry `json:"entry"`
	Receipt *Receipt   `json:"receipt"`
}

// AuditCheckpoint is a head of an audit log, with the key that it is signed by.
type AuditCheckpoint struct {
	Entries    int64  `json:"entries"`
	Checkpoint string `json:"checkpoint"`
	PublicKey  string `json:"public_key"`
}
