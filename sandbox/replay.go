package sandbox

// Replay says how a run that repeats another differs from it.
type Replay struct {
	Of string `json:"of"` // the id of the run that was repeated
	// Same says that there are no Differences. What a run takes (time, memory) is not
	// compared.
	Same bool `json:"same"`
	// Environment is what both ran on and in, as far as it is no longer the same: where
	// there is any, Differences mean little.
	Environment []Difference `json:"environment,omitempty"`
	// Secrets names those that the run could use: their values are today's.
	Secrets []string `json:"secrets,omitempty"`
	// Differences are those of what came of both, at most MaxDifferences.
	Differences []Difference `json:"differences"`
}

// Difference is one thing that is not as it was.
type Difference struct {
	// What is "template", "pinfold", "gate", "packages", "driver" or "isolation" in an environment, and
	// otherwise "status", "cause", "exit_code", "signal", "error", "compile.stdout",
	// "compile.stderr", "stdout", "stderr", "results", "artifact", "artifact_skipped",
	// "gate", or "more" for those that had no room.
	What string `json:"what"`
	Path string `json:"path,omitempty"` // of an artifact
	Was  string `json:"was,omitempty"`
	Is   string `json:"is,omitempty"`
	// At is the first byte of an output that is another, from 0.
	At int64 `json:"at,omitempty"`
	// Diff is a unified diff of what is kept of an output, cut to MaxDiffBytes; whatever
	// is no printable text in it is written as escapes.
	Diff string `json:"diff,omitempty"`
}

// Bounds on what a replay says.
const (
	MaxDifferences = 100
	MaxDiffBytes   = 16 << 10
)
