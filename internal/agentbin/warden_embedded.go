//go:build embedagent && !lean

package agentbin

import (
	_ "embed" // the warden's executable
	"errors"
)

//go:embed pinfold-warden
var embeddedWarden []byte

// Warden returns the executable of a virtual machine's first process, in the way of Open.
func Warden() ([]byte, error) {
	if len(embeddedWarden) == 0 {
		return nil, missingFile("warden", errors.New("this program was built with an empty one"))
	}
	return embeddedWarden, nil
}
