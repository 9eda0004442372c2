//go:build !embedagent

package agentbin

import (
	"os"
	"path/filepath"
)

func open() ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, missing(err)
	}
	agent, err := readFile(filepath.Join(filepath.Dir(self), name))
	if err != nil {
		return nil, missing(err)
	}
	return agent, nil
}
