//go:build linux

package seccomp

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// The kernel's messages, include/uapi/linux/seccomp.h: struct seccomp_notif
// (id, pid, flags, then struct seccomp_data) and struct seccomp_notif_resp
// (id, val, error, flags). A newer kernel's may be longer.
const (
	requestSize  = 80
	responseSize = 24
)

// messageSizes are the lengths of the running kernel's messages, in bytes.
type messageSizes struct{ request, response int }

func notifySizes() (messageSizes, error) {
	b := make([]byte, 6) // struct seccomp_notif_sizes
	err := operate(unix.SECCOMP_GET_NOTIF_SIZES, 0, b)
	u16 := binary.NativeEndian.Uint16
	return messageSizes{int(u16(b)), int(u16(b[2:]))}, err
}

// request is one call that waits for an answer.
type request struct {
	id uint64
	// tid is the thread that called, as seen from the pid namespace of the
	// process that received the request; 0 if it is not visible there.
	tid  int
	nr   int32
	arch uint32
}

// receive takes the next request. Call it only when the descriptor is
// readable: it blocks otherwise. ok is false when the caller was gone.
func receive(fd uintptr, size int) (r request, ok bool, err error) {
	b := make([]byte, size) // the kernel insists on zeros
	err = ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, b)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR) {
		return request{}, false, nil
	}
	if err != nil {
		return request{}, false, err
	}
	e := binary.NativeEndian
	return request{
		id: e.Uint64(b), tid: int(int32(e.Uint32(b[8:]))),
		nr: int32(e.Uint32(b[16:])), arch: e.Uint32(b[20:]),
	}, true, nil
}

// waiting says whether the caller is still waiting for the answer, and hence
// whether its thread number still means the caller.
func waiting(fd uintptr, id uint64) bool {
	b := binary.NativeEndian.AppendUint64(nil, id)
	return ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, b) == nil
}

// deny answers with EPERM. That the caller died meanwhile is no error.
func deny(fd uintptr, id uint64, size int) error {
	b := make([]byte, size)
	eperm := int32(-ePERM)
	binary.NativeEndian.PutUint64(b, id)
	binary.NativeEndian.PutUint32(b[16:], uint32(eperm))
	err := ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, b)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
