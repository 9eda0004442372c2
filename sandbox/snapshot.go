package sandbox

import "time"

// What a snapshot holds.
const (
	// SnapshotFiles are the files in the places where programs can write. Alone, what ran
	// does not go on.
	SnapshotFiles = "files"
	// SnapshotMemory is the memory: what ran goes on. The qemu driver keeps it, and only
	// sandboxes of that driver, with the same limits, can be made of it.
	SnapshotMemory = "memory"
)

// SnapshotHolds lists what snapshots can hold.
func SnapshotHolds() []string { return []string{SnapshotFiles, SnapshotMemory} }

// TakeSnapshot asks for a snapshot of a living sandbox.
type TakeSnapshot struct {
	Name     string            `json:"name,omitempty"`                  // for people
	TTLMS    int64             `json:"ttl_ms,omitempty" zero:"refused"` // milliseconds until it is removed, default and at most what the server says
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Validate checks what can be known without a sandbox.
func (t TakeSnapshot) Validate() error {
	if t.TTLMS < 0 || t.TTLMS > 0 && t.TTLMS < MinTTLMS {
		return checkLife("ttl_ms", t.TTLMS)
	}
	if len(t.Name) > maxSnapshotName || SafeText(t.Name, maxSnapshotName+1) != t.Name {
		return specError("name", "a name has at most 100 printable characters")
	}
	return Spec{Metadata: t.Metadata}.validateChoices()
}

const maxSnapshotName = 100

// Snapshot is what a sandbox held at one moment, kept on the server. Sandboxes are made from
// it, each with a copy of its own, also when the one that it was made of has ended.
type Snapshot struct {
	ID      string `json:"id"` // "snp_…"
	Name    string `json:"name,omitempty"`
	Sandbox string `json:"sandbox"` // of which it was made; it may have ended
	// Holds says what is in it: "files" alone means that processes do not go on.
	Holds     []string          `json:"holds"`
	Driver    string            `json:"driver"`
	Template  string            `json:"template"`
	Limits    Limits            `json:"limits"` // of that sandbox; one that is made of it has at least that disk
	Metadata  map[string]string `json:"metadata,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
	ExpiresAt time.Time         `json:"expires_at"` // then it is removed
	Bytes     int64             `json:"bytes"`      // on the server's disk
	Files     int64             `json:"files"`      // files, directories and links; 0 where they are in a memory
	// LeftOut counts what is not in it: devices, pipes, sockets, and files that could not
	// be read.
	LeftOut  int64   `json:"left_out"`
	PausedMS float64 `json:"paused_ms"` // how long the sandbox stood still for it
}

// ForkSandbox asks for sandboxes that begin with what another one holds at this moment.
type ForkSandbox struct {
	Count    int               `json:"count,omitempty" zero:"refused"`  // default 1
	TTLMS    int64             `json:"ttl_ms,omitempty" zero:"refused"` // as in Create
	Metadata map[string]string `json:"metadata,omitempty"`              // default: that of the sandbox
}

// MaxForks is the most sandboxes that one request may fork.
const MaxForks = 100

// Validate checks what can be known without a sandbox.
func (f ForkSandbox) Validate() error {
	if f.Count < 0 || f.Count > MaxForks {
		return &Error{Code: CodeLimitInvalid, Field: "count", Message: "a fork makes 1 to 100 sandboxes"}
	}
	return Create{TTLMS: f.TTLMS, Metadata: f.Metadata}.Validate()
}
