//go:build linux

package memfd_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/memfd"
)

// Nobody can write to a sealed program, whichever way it is opened or mapped.
func TestSealed(t *testing.T) {
	program := bytes.Repeat([]byte("program "), 2048)
	f, err := memfd.Sealed("pinfold-test", program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err != nil || seals != memfd.Seals {
		t.Errorf("the seals are %#x: %v", seals, err)
	}
	name := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	w, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteAt([]byte{0}, 0); err == nil {
		t.Error("it was written to")
	}
	if err := w.Truncate(1); err == nil {
		t.Error("it was made shorter")
	}
	if err := unix.Fallocate(int(w.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); err == nil {
		t.Error("a hole was made in it")
	}
	if _, err := unix.Mmap(int(w.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("it was mapped to be written to")
	}
	m, err := unix.Mmap(int(w.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	if err := unix.Mprotect(m, unix.PROT_READ|unix.PROT_WRITE); err == nil {
		t.Error("a mapping of it was made writable")
	}
	if b, err := os.ReadFile(name); err != nil || !bytes.Equal(b, program) {
		t.Errorf("%d bytes: %v", len(b), err)
	}
}

// A page that the kernel still holds, as it does for a moment when it moves pages about,
// keeps no program from being sealed.
func TestSealedWithAPageInUse(t *testing.T) {
	fd, err := unix.MemfdCreate("pinfold-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "pinfold-test")
	defer f.Close()
	if _, err := f.Write(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var from int64
	if n, err := unix.Splice(fd, &from, int(w.Fd()), nil, 4096, 0); n != 4096 || err != nil { // the pipe holds the page
		t.Fatalf("%d bytes spliced: %v", n, err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != unix.EBUSY {
		t.Errorf("control: F_SEAL_WRITE: %v", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, memfd.Seals); err != nil {
		t.Errorf("sealing: %v", err)
	}
}
