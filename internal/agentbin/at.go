package agentbin

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"pinfold/sandbox"
)

// Source is where a driver takes the agent from: its bytes, and a file of the
// same content or nil, for drivers that can use one more cheaply.
type Source struct {
	Open func() ([]byte, error)
	File func() *os.File
}

// At returns the agent of a file that the caller's program names, for programs
// that neither carry the agent nor have it beside them. The name must be
// absolute: what runs as pid 1 of every sandbox does not depend on a working
// directory. The content is read once, now. The error is a *sandbox.Error of
// code resource_unavailable.
func At(name string) (Source, error) {
	if !filepath.IsAbs(name) {
		return Source{}, missing(fmt.Errorf("%s is not an absolute path", sandbox.SafeText(name, 200)))
	}
	agent, err := readFile(name)
	if err != nil {
		return Source{}, missing(err)
	}
	return Source{
		Open: func() ([]byte, error) { return agent, nil },
		File: func() *os.File { return nil },
	}, nil
}

// readFile returns the content of a regular file of bounded size.
func readFile(path string) ([]byte, error) {
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
