package sandbox

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Profile is a tool of an operator's: what a request that names it is made of, and the most
// that it may ask for. A request may narrow it and never widen it.
type Profile struct {
	Name string `json:"name"`
	// Description says what the tool is for, to people and to models.
	Description string `json:"description,omitempty"`
	Language    string `json:"language"`
	Template    string `json:"template"`
	Driver      string `json:"driver,omitempty"`    // "": any that isolates well enough
	Isolation   string `json:"isolation,omitempty"` // the least level; "": what the driver has
	// Require are features that must be enforced, and Warm modules that the interpreter may
	// have loaded already.
	Require []string `json:"require,omitempty"`
	Warm    []string `json:"warm,omitempty"`
	// Packages are what programs can import beside the template's.
	Packages Packages `json:"packages,omitzero"`
	Limits   Limits   `json:"limits"`  // complete
	Network  Network  `json:"network"` // complete, and without sets
	// Gate is what the output of every run is checked for, at least.
	Gate *Gate `json:"gate,omitempty"`
	// Approval is why a person is asked about every run of the profile; "": none is. Until
	// somebody approves it a run waits in the state RunPending.
	Approval string `json:"approval,omitempty"`
	// TTLMS is how long a living sandbox of the profile may live in all; 0: there are none.
	TTLMS int64 `json:"ttl_ms,omitempty"`
}

// ProfileRef names a profile as it was. Another digest is another profile: something that it
// fixes has changed.
type ProfileRef struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // "sha256:" and the SHA-256, in hexadecimal, of the profile's JSON
}

// maxProfileName is what the tool calls of models take.
const maxProfileName = 64

// CheckProfileName refuses names of profiles that are not 1 to 64 of a to z, A to Z, 0 to 9,
// "_" and "-".
func CheckProfileName(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	if name != "" && len(name) <= maxProfileName && strings.Trim(name, letters) == "" {
		return nil
	}
	return (&Error{Code: CodeSpecInvalid, Field: "profile", Message: fmt.Sprintf("\"%s\" is no name for a profile", SafeText(name, 80))}).
		WithHint("1 to 64 of a to z, A to Z, 0 to 9, _ and -, which is what tools of models are called")
}

// Forms of a manifest: Pinfold's own, and those in which models are given tools.
const (
	FormPinfold   = "pinfold"
	FormOpenAI    = "openai"
	FormAnthropic = "anthropic"
	FormMCP       = "mcp"
)

// ManifestForms lists the forms.
func ManifestForms() []string { return []string{FormPinfold, FormOpenAI, FormAnthropic, FormMCP} }

// Manifest says which profiles there are, as tools in one form.
type Manifest struct {
	V        int               `json:"v"` // 1
	Form     string            `json:"form"`
	Profiles []ProfileRef      `json:"profiles"` // of the tools, in their order
	Tools    []json.RawMessage `json:"tools"`    // Tool in Pinfold's form
}

// SignedManifest is a manifest with what proves whose it is.
type SignedManifest struct {
	// Manifest is the JSON of a Manifest. What is signed are these bytes without white
	// space between their tokens.
	Manifest json.RawMessage `json:"manifest"`
	// Signature is a signed note (C2SP signed-note) with the SHA-256 of Manifest. PublicKey
	// is the one to check it with, which is better had by another way.
	Signature string `json:"signature,omitempty"`
	PublicKey string `json:"public_key,omitempty"`
}

// Tool is a profile with what it takes, gives and can touch.
type Tool struct {
	Profile     Profile         `json:"profile"`
	Digest      string          `json:"digest"`
	Input       json.RawMessage `json:"input_schema"`  // of what stands beside "profile" in a request
	Output      json.RawMessage `json:"output_schema"` // of a Result, as far as a profile decides it
	BlastRadius BlastRadius     `json:"blast_radius"`
}

// BlastRadius is the most that one use of a profile can touch and cost, whatever the program
// is.
type BlastRadius struct {
	// Endpoints are all that it can reach, Secrets what the host puts into its requests
	// there. BytesUp and BytesDown bound what passes in all, Requests those that the host
	// reads.
	Endpoints []string `json:"endpoints"`
	Secrets   []string `json:"secrets"`
	BytesUp   int64    `json:"bytes_up"`
	BytesDown int64    `json:"bytes_down"`
	Requests  int64    `json:"requests,omitempty"`
	// WritableMounts are the host's directories that it can write to: a profile has none.
	WritableMounts []string `json:"writable_mounts"`
	// The most of one run. Compile is what its compile step can cost besides.
	WallTimeMS  int64   `json:"wall_time_ms"`
	CPUTimeMS   int64   `json:"cpu_time_ms"`
	CPUs        float64 `json:"cpus"`
	MemoryBytes int64   `json:"memory_bytes"`
	DiskBytes   int64   `json:"disk_bytes"`
	OutputBytes int64   `json:"output_bytes"` // of stdout, and of stderr
	Compile     *Limits `json:"compile,omitempty"`
	// LivingMS is how long a living sandbox can live; 0: there are none.
	LivingMS int64 `json:"living_ms,omitempty"`
	// Weakest and Strongest are the levels of isolation that it can get on the host that
	// the manifest is of. Strongest is "" where that is not known.
	Weakest   string `json:"weakest_isolation"`
	Strongest string `json:"strongest_isolation,omitempty"`
}
