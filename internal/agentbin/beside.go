//go:build !embedagent

package agentbin

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func open() ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, missing(err)
	}
	agent, err := read(filepath.Join(filepath.Dir(self), name))
	if err != nil {
		return nil, missing(err)
	}
	return agent, nil
}

// read returns the content of a regular file of bounded size.
func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if info.Size() == 0 || info.Size() > maxBytes {
		return nil, fmt.Errorf("%s has %d bytes", path, info.Size())
	}
	return io.ReadAll(io.LimitReader(file, maxBytes))
}
