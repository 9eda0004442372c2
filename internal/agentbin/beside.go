//go:build !embedagent

package agentbin

import (
	"os"
	"path/filepath"
)

func open() ([]byte, error) {
	agent, err := beside(name)
	if err != nil {
		return nil, missing(err)
	}
	return agent, nil
}

// beside reads a file of the directory in which the program is.
func beside(name string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return readFile(filepath.Join(filepath.Dir(self), name))
}
