//go:build embedagent

package agentbin

import (
	_ "embed" // the agent's executable
	"errors"
)

//go:embed pinfold-agent
var embedded []byte

func open() ([]byte, error) {
	if len(embedded) == 0 {
		return nil, missing(errors.New("this program was built with an empty agent"))
	}
	return embedded, nil
}
