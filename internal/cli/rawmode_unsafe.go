package cli

import (
	"os"
	"syscall"
	"unsafe"
)

// makeRaw lets every key through to whoever reads the terminal, Ctrl-C
// included, and every byte out as it is. restore puts back what was; it may be
// called more than once.
func makeRaw(f *os.File) (restore func(), err error) {
	var before syscall.Termios
	if err := ioctl(f, getTerminal, unsafe.Pointer(&before)); err != nil {
		return nil, err
	}
	raw := before // as cfmakeraw(3) does
	raw.Iflag &^= syscall.IGNBRK | syscall.BRKINT | syscall.PARMRK | syscall.ISTRIP | syscall.INLCR | syscall.IGNCR | syscall.ICRNL | syscall.IXON
	raw.Oflag &^= syscall.OPOST
	raw.Lflag &^= syscall.ECHO | syscall.ECHONL | syscall.ICANON | syscall.ISIG | syscall.IEXTEN
	raw.Cflag &^= syscall.CSIZE | syscall.PARENB
	raw.Cflag |= syscall.CS8
	raw.Cc[syscall.VMIN], raw.Cc[syscall.VTIME] = 1, 0
	if err := ioctl(f, setTerminal, unsafe.Pointer(&raw)); err != nil {
		return nil, err
	}
	return func() { _ = ioctl(f, setTerminal, unsafe.Pointer(&before)) }, nil // nobody is left to tell
}

// windowSize is a terminal's size in characters; zero when it has none.
func windowSize(f *os.File) (cols, rows int) {
	var size struct{ rows, cols, x, y uint16 }
	if ioctl(f, syscall.TIOCGWINSZ, unsafe.Pointer(&size)) != nil {
		return 0, 0
	}
	return int(size.cols), int(size.rows)
}

func ioctl(f *os.File, request uintptr, p unsafe.Pointer) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errno syscall.Errno
	if err := conn.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(p))
	}); err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}
