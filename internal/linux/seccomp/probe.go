//go:build linux

package seccomp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// SetModeFilter is the operation of seccomp(2) that installs a Program: its
// arguments are SetModeFilter, Support.InstallFlags and Fprog.Address.
const SetModeFilter = unix.SECCOMP_SET_MODE_FILTER

// Support says what the running kernel can do. nil means yes. An error that
// wraps errors.ErrUnsupported means no, conclusively; any other error means
// that it could not be told, and is not to be remembered.
type Support struct {
	Filter   error // filters, with a verdict that kills the whole process (Linux 4.14)
	Listener error // refused calls can be sent to a Listener (Linux 5.0)
	// WaitKillable means that a caller who waits for the listener's answer is
	// woken by fatal signals only (Linux 5.19). Without it, a program that gets
	// signals often (Go's runtime sends itself some) repeats the call, and the
	// counts of denied calls come out too high.
	WaitKillable error
}

// Probe asks the kernel. It changes nothing: it asks about actions, and offers
// filters without an address, which the kernel refuses only after it has looked
// at the flags.
func Probe() Support {
	s := Support{
		Filter:       errors.Join(flags(0), action(retKillProcess), action(retErrno)),
		Listener:     errors.Join(flags(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER), action(retUserNotif), sizes()),
		WaitKillable: flags(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV),
	}
	return s
}

// InstallFlags are the flags for installing a filter that was compiled with
// the same Options.Listener. With a listener seccomp(2) returns its
// descriptor, close-on-exec.
func (s Support) InstallFlags(listener bool) uintptr {
	switch {
	case !listener:
		return 0
	case s.WaitKillable == nil:
		return unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	}
	return unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
}

func action(a uint32) error {
	b := binary.NativeEndian.AppendUint32(nil, a)
	err := operate(unix.SECCOMP_GET_ACTION_AVAIL, 0, b)
	return answer(err, fmt.Sprintf("action %#x", a), unix.EOPNOTSUPP)
}

func flags(f uintptr) error {
	err := operate(unix.SECCOMP_SET_MODE_FILTER, f, nil)
	if errors.Is(err, unix.EFAULT) {
		return nil
	}
	return answer(err, fmt.Sprintf("filter flags %#x", f))
}

// sizes checks that the kernel's messages are not shorter than ours.
func sizes() error {
	n, err := notifySizes()
	if err == nil && (n.request < requestSize || n.response < responseSize) {
		err = fmt.Errorf("messages of %d and %d bytes: %w", n.request, n.response, errors.ErrUnsupported)
	}
	return answer(err, "message sizes")
}

// answer sorts a failure into no and could not tell. EINVAL and ENOSYS are a
// kernel that lacks the thing; EPERM, say, may be a sandbox around us.
func answer(err error, what string, conclusive ...error) error {
	if err == nil {
		return nil
	}
	for _, no := range append(conclusive, unix.EINVAL, unix.ENOSYS) {
		if errors.Is(err, no) {
			return fmt.Errorf("seccomp: %s: %w (%w)", what, errors.ErrUnsupported, err)
		}
	}
	return fmt.Errorf("seccomp: %s: %w", what, err)
}
