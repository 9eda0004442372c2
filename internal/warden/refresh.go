//go:build linux

package warden

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"pinfold/internal/warden/wardenwire"
)

// refresh makes the machine another than those that go on from the same snapshot: the
// kernel's random numbers begin anew with what it is given, and the clock is set. It comes
// before anything else happens in it.
func refresh(f *wardenwire.Fresh) error {
	if f == nil {
		return nil
	}
	random, err := os.OpenFile("/dev/random", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer random.Close() //nolint:errcheck // written in one call
	if _, err := random.Write(f.Seed); err != nil {
		return fmt.Errorf("seed the kernel's random numbers: %w", err)
	}
	if err := unix.IoctlSetInt(int(random.Fd()), unix.RNDRESEEDCRNG, 0); err != nil {
		return fmt.Errorf("begin the kernel's random numbers anew: %w", err)
	}
	now := unix.NsecToTimespec(f.Time)
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	return nil
}
