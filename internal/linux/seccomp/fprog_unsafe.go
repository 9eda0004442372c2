package seccomp

import "unsafe"

// Fprog is the kernel's struct sock_fprog: a program as seccomp(2) takes it.
type Fprog struct {
	length uint16
	filter *Instruction
}

// Fprog returns the argument of seccomp(SECCOMP_SET_MODE_FILTER). The program
// must not be changed afterwards.
func (p Program) Fprog() *Fprog {
	return &Fprog{length: uint16(len(p)), filter: unsafe.SliceData(p)}
}

// Address is the argument's address, for a table of system calls. The caller
// keeps f reachable until the call has been made (runtime.KeepAlive).
func (f *Fprog) Address() uintptr { return uintptr(unsafe.Pointer(f)) }
