//go:build linux

package highfd

import (
	"testing"

	"golang.org/x/sys/unix"
)

// open returns a new descriptor, with a number of at least low.
func open(t *testing.T, low int) int {
	t.Helper()
	fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, low)
	if err != nil {
		t.Fatal(err)
	}
	return copied
}

func TestMove(t *testing.T) {
	low := open(t, few)
	high := Move(low)
	defer unix.Close(high)
	if high < from {
		t.Fatalf("%d went to %d, want at least %d", low, high, from)
	}
	if _, err := unix.FcntlInt(uintptr(low), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("%d is still open: %v", low, err)
	}
	if flags, err := unix.FcntlInt(uintptr(high), unix.F_GETFD, 0); err != nil || flags != unix.FD_CLOEXEC {
		t.Errorf("%d has the flags %d, %v, want close-on-exec", high, flags, err)
	}
	if again := Move(high); again != high {
		t.Errorf("%d went on to %d", high, again)
	}
}

// Where the limit leaves no room, a descriptor stays where it is.
func TestMoveWithoutRoom(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	fd := open(t, few)
	defer unix.Close(fd)
	tight := unix.Rlimit{Cur: from, Max: old.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &tight); err != nil {
		t.Fatal(err)
	}
	got := Move(fd)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if got != fd {
		t.Errorf("%d went to %d", fd, got)
	}
}

// There is room while more than the reserve is free, and again when something
// was closed, wherever that was.
func TestRoom(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []uint64{256, 3 * from} {
		tight := unix.Rlimit{Cur: limit, Max: old.Max}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &tight); err != nil {
			t.Fatal(err)
		}
		var all []int
		for ok := true; ok; ok, _ = Room() {
			all = append(all, Move(open(t, 0)))
			if uint64(len(all)) > limit {
				t.Fatalf("of %d descriptors, %d are open and there is room", limit, len(all))
			}
		}
		if kept := 2*Reserve(limit) + few + 100; uint64(len(all))+kept < limit { // 100: those of the test itself
			t.Errorf("of %d descriptors, %d are open and there is no room", limit, len(all))
		}
		half := all[len(all)/2]
		_ = unix.Close(half)
		if ok, got := Room(); !ok || got != limit {
			t.Errorf("no room of %d after one was closed: %v, %d", limit, ok, got)
		}
		for _, fd := range all {
			if fd != half {
				_ = unix.Close(fd)
			}
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
}
