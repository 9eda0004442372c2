package engine

import (
	"context"
	"fmt"
	"io"
	"strings"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// settleEvery is how much is written into a sandbox before its counters are
// read again, in bytes.
const settleEvery = 2 << 20

// writeFile writes a file into the machine. The kernel charges what is on the
// sandbox's disk as memory, and a reading of the counters moves the memory limit
// by it (driver.Machine.Usage): whoever writes faster than a watch reads would
// make the kernel kill a sandbox in which nothing needs memory. So the writer
// reads them himself.
func (s *session) writeFile(ctx context.Context, path string, mode uint32, size int64, r io.Reader) error {
	g, err := s.agent(ctx)
	if err != nil {
		return err
	}
	return s.roomError(g.WriteFile(ctx, path, mode, size, &settled{r: r, left: settleEvery, settle: func() { s.machine.Usage() }}))
}

// roomError names the limit behind an error of files that find no room.
func (s *session) roomError(err error) error {
	e := sandbox.AsError(err)
	if e == nil || e.Code != sandbox.CodeTooLarge {
		return err
	}
	inodes := s.plan.Limits.Inodes
	name, ok := strings.CutSuffix(e.Message, wire.NoInodes)
	if !ok || inodes <= 0 {
		return err
	}
	c := *e
	c.Field, c.Message = "limits.inodes", fmt.Sprintf("%sthe limit of %d inodes (files and directories) is reached", name, inodes)
	return c.WithAdvice(sandbox.Advise("make the sandbox with %s", sandbox.Set("limits.inodes", 2*inodes)))
}

// settled reads at most settleEvery bytes between two readings of the counters.
type settled struct {
	r      io.Reader
	left   int
	settle func()
}

func (s *settled) Read(p []byte) (int, error) {
	if s.left <= 0 {
		s.settle()
		s.left = settleEvery
	}
	n, err := s.r.Read(p)
	s.left -= n
	return n, err
}
