//go:build linux

package main

import (
	"math"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Used is how much of something could be used, and what ended it.
type Used struct {
	N     int64
	Errno string
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// kept keeps what alloc took.
var kept []byte

// alloc touches that many bytes, one mebibyte at a time, says so, and holds
// them until stdin ends.
func alloc(args []string) any {
	kept = make([]byte, number(args[0]))
	for i := 0; i < len(kept); i += 4096 {
		kept[i] = 1
	}
	say(Used{N: int64(len(kept))})
	hold()
	return nil
}

// fork makes up to n processes that do nothing, until the kernel refuses.
func fork(args []string) any {
	u := Used{Errno: "ok"}
	for range number(args[0]) {
		pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if e != 0 {
			u.Errno = errno(e)
			break
		}
		for pid == 0 {
			_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
		u.N++
	}
	return u
}

// spin uses that many milliseconds of CPU.
func spin(args []string) any {
	limit := number(args[0]) * 1e6
	var ru unix.Rusage
	for ru.Utime.Nano()+ru.Stime.Nano() < limit {
		_ = unix.Getrusage(unix.RUSAGE_SELF, &ru)
	}
	return Used{N: ru.Utime.Nano() + ru.Stime.Nano()}
}

// most is the second argument, or no bound.
func most(args []string) int64 {
	if len(args) < 2 {
		return math.MaxInt64
	}
	return number(args[1])
}

// fill writes to a file until it is refused, or until it has written so much. It goes
// slowly, as programs do: the host needs a moment to follow.
func fill(args []string) any {
	f, err := os.Create(args[0])
	if err != nil {
		return Used{Errno: errno(err)}
	}
	defer f.Close() //nolint:errcheck // what was written is what counts
	u := Used{}
	block := make([]byte, 64<<10)
	for u.N < most(args) {
		n, err := f.Write(block)
		u.N += int64(n)
		if err != nil {
			u.Errno = errno(err)
			return u
		}
		if u.N%(4<<20) == 0 {
			time.Sleep(4 * time.Millisecond)
		}
	}
	return u
}

// inodes makes empty files in a directory until it is refused, or so many.
func inodes(args []string) any {
	u := Used{}
	for u.N < most(args) {
		fd, err := unix.Open(args[0]+"/"+strconv.FormatInt(u.N, 10), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o600)
		if err != nil {
			u.Errno = errno(err)
			return u
		}
		_ = unix.Close(fd)
		u.N++
	}
	return u
}

// shmPut makes a System V segment with a key and holds it until stdin ends.
func shmPut(args []string) any {
	id, err := unix.SysvShmGet(int(number(args[0])), 4096, unix.IPC_CREAT|0o666)
	say(errno(err))
	hold()
	if err == nil {
		_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	}
	return nil
}

// shmGet looks for a segment by its key.
func shmGet(args []string) any {
	_, err := unix.SysvShmGet(int(number(args[0])), 4096, 0)
	return errno(err)
}
