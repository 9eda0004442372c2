//go:build linux

package agent

import (
	"testing"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
)

// Who waits for the host's bytes learns that no more come before abandon has got to the socket:
// a program that saw an end there took half of an answer for all of it.
func TestWhatIsBrokenOffHasNoEnd(t *testing.T) {
	for name, c := range map[string]struct {
		over func(*channel)
		err  error
	}{
		"broken off": {func(c *channel) { close(c.gone); c.stop() }, unix.EAGAIN},
		"ended":      {func(c *channel) { _ = c.in.EOF() }, nil},
	} {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		f, err := newPollFile(fds[0], "program")
		if err != nil {
			t.Fatal(err)
		}
		ch := newChannel(nil, 3, wire.OpAccept, true, 1)
		c.over(ch)
		ch.toServer(f)
		if n, err := unix.Read(fds[1], make([]byte, 1)); n > 0 || err != c.err { //nolint:errorlint // as the kernel says it
			t.Errorf("%s: %d %v, want %v", name, n, err, c.err)
		}
		_, _ = f.Close(), unix.Close(fds[1])
	}
}
