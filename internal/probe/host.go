//go:build linux

package probe

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"pinfold/internal/linux/cgroup"
)

// maxFile bounds what is read of a file in /proc, /sys or /etc.
const maxFile = 1 << 20

// host is what the questions are asked of. Tests put other things in.
type host struct {
	root   string // prefix of every file that is read
	uid    int
	user   string
	child  func() childReport // runs once
	groups func() (*cgroup.Hierarchy, error)
	lookup func(program string) (string, error)
	run    func(ctx context.Context, program string, args ...string) (string, error)
	self   string                 // our own program, for fixes
	limits func(which int) uint64 // hard limits of this process; nil: the real ones
}

func realHost(ctx context.Context, self string) *host {
	return &host{
		root: "/", uid: os.Geteuid(), user: os.Getenv("USER"), self: self,
		child:  sync.OnceValue(func() childReport { return namespacesInChild(ctx) }),
		groups: sync.OnceValues(func() (*cgroup.Hierarchy, error) { return cgroup.Detect(cgroup.Options{}) }),
		lookup: lookPath, run: runBounded,
	}
}

// read returns a small file without the white space around it.
func (h *host) read(name string) (string, error) {
	f, err := os.Open(filepath.Join(h.root, name))
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	return strings.TrimSpace(string(data)), err
}

// setting asks for a file that holds one of a few values. absent is the answer
// when there is no such file.
func (h *host) setting(name string, absent Answer, answer func(value string) Answer) reply {
	value, err := h.read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return reply{answer: absent, probed: name + " is not there"}
	case err != nil:
		return reply{answer: Unknown, probed: name + ": " + why(err)}
	}
	if len(value) > 80 {
		value = value[:80]
	}
	return reply{answer: answer(value), probed: name + " is " + value}
}

// why is an error without the path, which the report names already.
func why(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

func yesIf(ok bool) Answer {
	if ok {
		return Yes
	}
	return No
}
