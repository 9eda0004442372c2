package agentbin

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
)

// headerBytes is how much of the agent is compared to tell whether a file is
// the same build: it holds the linker's build ID, a hash of the whole content.
const headerBytes = 4096

// File opens the agent's file beside the program, for callers that can use a
// file more cheaply than its bytes. It returns nil when there is none, or when
// it is not the build that Open returns. Whether others could write to the file
// is for the caller to judge. The caller closes it.
func File() *os.File {
	want, err := Open()
	if err != nil {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	f, err := os.Open(filepath.Join(filepath.Dir(self), name))
	if err != nil {
		return nil
	}
	header := make([]byte, min(headerBytes, len(want)))
	info, err := f.Stat()
	if err == nil {
		_, err = io.ReadFull(f, header)
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(want)) || !bytes.Equal(header, want[:len(header)]) {
		_ = f.Close()
		return nil
	}
	return f
}
