package zygote

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"pinfold/sandbox"
)

// Handover is what a warm interpreter is told about its one program: the first thing
// on its standard input, as eight hexadecimal digits and so many bytes of JSON. What
// follows is the program's own input. pinfold_warm.py and wait.cjs read it.
//
// An interpreter that was started, not forked, says beforehand that it has loaded its
// modules: it is started with a ReadyMarker and the modules as further arguments, and prints
// the marker in a line of its own to its standard output.
type Handover struct {
	File           string            `json:"file"` // the program's, relative to the working directory
	Args           []string          `json:"args"`
	Env            map[string]string `json:"env"`             // further variables
	AllowedImports []string          `json:"allowed_imports"` // nil: all
	Results        bool              `json:"results"`         // the program's values are wanted
	// Code is what File is to hold; nil when it is there already.
	Code *string `json:"code"`
	// CPUs are the host's processors on which a forked interpreter is to run. Where it was
	// started, the agent places it.
	CPUs []int `json:"cpus,omitempty"`
}

// Encode returns what is written to the interpreter's standard input.
func (h Handover) Encode() ([]byte, error) {
	b, err := json.Marshal(h)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.CodeInternal, "encoding a program's start: %w", err)
	}
	return append(fmt.Appendf(nil, "%08x", len(b)), b...), nil
}

// BeginAnew is what an interpreter that waits in a copy of a machine is told before its
// program: a handover of no length.
const BeginAnew = "00000000"

// ReadyMarker returns a word that nothing that an interpreter loads can know.
func ReadyMarker() string {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		panic("zygote: no random numbers: " + err.Error()) // crypto/rand never fails on Linux
	}
	return "pinfold-ready-" + hex.EncodeToString(b)
}
