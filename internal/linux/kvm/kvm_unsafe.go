//go:build amd64

package kvm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests of the KVM API, from linux/kvm.h and the kernel's
// Documentation/virt/kvm/api.rst.
const (
	getAPIVersion       = 0xae00
	createVM            = 0xae01
	getVCPUMapSize      = 0xae04
	createVCPU          = 0xae41
	setUserMemoryRegion = 0x4020ae46
	createIRQChip       = 0xae60
	createPIT2          = 0x4040ae77
	run                 = 0xae80
	setRegs             = 0x4090ae82
	getSRegs            = 0x8138ae83
	setSRegs            = 0x4138ae84

	apiVersion = 12
	exitIO     = 2
	exitHLT    = 5
)

// The guest's memory and the offsets of kvm_run that we read.
const (
	memorySize   = 1 << 20
	codeAt       = 0x8000
	answerPort   = 0x10
	runExit      = 8  // __u32 exit_reason
	runIOPort    = 34 // __u16 io.port
	runIOData    = 40 // __u64 io.data_offset
	maxExits     = 16
	answerReal   = 0x2a
	answerLong   = 0x64
	answerTimer  = 0x77
	tablesAt     = 0x1000
	gdtAt        = 0x5000
	idtAt        = 0x6000
	realIVTTimer = 0x20 // where the PIC is told to put IRQ 0
)

type userMemoryRegion struct {
	slot, flags               uint32
	guestAddr, size, userAddr uint64
}

type regs struct {
	rax, rbx, rcx, rdx, rsi, rdi, rsp, rbp uint64
	r8, r9, r10, r11, r12, r13, r14, r15   uint64
	rip, rflags                            uint64
}

type segment struct {
	base                                                uint64
	limit                                               uint32
	selector                                            uint16
	kind, present, dpl, db, s, l, g, avl, unusable, pad uint8
}

type table struct {
	base  uint64
	limit uint16
	pad   [3]uint16
}

type sregs struct {
	cs, ds, es, fs, gs, ss, tr, ldt segment
	gdt, idt                        table
	cr0, cr2, cr3, cr4, cr8, efer   uint64
	apicBase                        uint64
	interrupts                      [4]uint64
}

type pitConfig struct {
	flags uint32
	pad   [15]uint32
}

// Try runs the trial. failed is the step that did not work, StepDone when all
// did. It may hang on a broken host: run it in a process of its own, and bound
// that.
func Try() (failed Step, err error) {
	dev, err := unix.Open("/dev/kvm", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return StepOpen, err
	}
	defer func() { _ = unix.Close(dev) }()
	if v, err := ioctl(dev, getAPIVersion); err != nil || v != apiVersion {
		return StepOpen, fmt.Errorf("API version %d: %w", v, errors.Join(err, unix.ENOTSUP))
	}
	for _, trial := range []struct {
		step Step
		run  func(*machine) error
	}{
		{StepRealMode, (*machine).realMode},
		{StepLongMode, (*machine).longMode},
		{StepTimer, (*machine).timer},
	} {
		if step, err := try(dev, trial.step, trial.run); err != nil {
			return step, err
		}
	}
	return StepDone, nil
}

func try(dev int, step Step, run func(*machine) error) (Step, error) {
	m, failed, err := newMachine(dev, step == StepTimer)
	defer m.close()
	if err != nil {
		return failed, err
	}
	return step, run(m)
}

// machine is one virtual machine with one CPU and a megabyte of memory.
type machine struct {
	vm, cpu     int
	memory, run []byte
}

func newMachine(dev int, irqs bool) (*machine, Step, error) {
	m := &machine{vm: -1, cpu: -1}
	var err error
	if m.vm, err = ioctl(dev, createVM); err != nil {
		return m, StepVM, err
	}
	m.memory, err = unix.Mmap(-1, 0, memorySize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return m, StepVM, err
	}
	region := userMemoryRegion{size: memorySize, userAddr: uint64(uintptr(unsafe.Pointer(&m.memory[0])))}
	if err := ioctlPtr(m.vm, setUserMemoryRegion, unsafe.Pointer(&region)); err != nil {
		return m, StepVM, err
	}
	if irqs {
		if _, err := ioctl(m.vm, createIRQChip); err != nil {
			return m, StepTimer, err
		}
		var pit pitConfig
		if err := ioctlPtr(m.vm, createPIT2, unsafe.Pointer(&pit)); err != nil {
			return m, StepTimer, err
		}
	}
	if m.cpu, err = ioctl(m.vm, createVCPU); err != nil {
		return m, StepCPU, err
	}
	size, err := ioctl(dev, getVCPUMapSize)
	if err != nil {
		return m, StepCPU, err
	}
	m.run, err = unix.Mmap(m.cpu, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return m, StepCPU, err
}

func (m *machine) close() {
	for _, fd := range []int{m.cpu, m.vm} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	for _, b := range [][]byte{m.run, m.memory} {
		if b != nil {
			_ = unix.Munmap(b)
		}
	}
}

// realMode computes 40+2 in 16-bit code and sends it out.
func (m *machine) realMode() error {
	copy(m.memory[codeAt:], []byte{
		0xb0, 40, // mov al, 40
		0x04, 2, // add al, 2
		0xe6, answerPort, // out 0x10, al
		0xf4, // hlt
	})
	return m.start(realSRegs, regs{rip: codeAt, rflags: 2}, answerReal)
}

// longMode checks 64-bit registers and that paging translates: the code reads
// through a second mapping of the page that it wrote.
func (m *machine) longMode() error {
	const present, large = 3, 0x83
	put := func(at int, v uint64) { binary.LittleEndian.PutUint64(m.memory[at:], v) }
	put(tablesAt, (tablesAt+0x1000)|present)
	put(tablesAt+0x1000, (tablesAt+0x2000)|present)
	put(tablesAt+0x2000, 0|large)   // 0–2 MiB to 0
	put(tablesAt+0x2000+8, 0|large) // 2–4 MiB to 0 as well
	copy(m.memory[codeAt:], []byte{
		0x48, 0xb8, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x64, // mov rax, 0x6422334455667788
		0x48, 0xa3, 0, 0xa0, 0, 0, 0, 0, 0, 0, // mov [0xa000], rax
		0x48, 0x8b, 0x1c, 0x25, 0, 0xa0, 0x20, 0, // mov rbx, [0x20a000]
		0x48, 0xc1, 0xeb, 56, // shr rbx, 56
		0x88, 0xd8, // mov al, bl
		0xe6, answerPort, // out 0x10, al
		0xf4, // hlt
	})
	return m.start(longSRegs, regs{rip: codeAt, rflags: 2, rsp: 0x7000}, answerLong)
}

// timer programs the interrupt controller and the timer as a kernel does, and
// waits, halted, for three interrupts.
func (m *machine) timer() error {
	binary.LittleEndian.PutUint16(m.memory[realIVTTimer*4:], codeAt+0x100)
	copy(m.memory[codeAt:], []byte{
		0xb0, 0x11, 0xe6, 0x20, // ICW1: initialise, ICW4 follows
		0xb0, realIVTTimer, 0xe6, 0x21, // ICW2: vectors from 0x20
		0xb0, 0x04, 0xe6, 0x21, // ICW3: the second controller is at IRQ 2
		0xb0, 0x01, 0xe6, 0x21, // ICW4: 8086 mode
		0xb0, 0xfe, 0xe6, 0x21, // mask everything but IRQ 0
		0xb0, 0x34, 0xe6, 0x43, // timer 0: rate generator
		0xb0, 0xa9, 0xe6, 0x40, // 1193 ticks: about a millisecond
		0xb0, 0x04, 0xe6, 0x40,
		0xfb,          // sti
		0xf4,          // wait: hlt
		0x80, 0xfb, 3, // cmp bl, 3
		0x72, 0xfa, // jb wait
		0xb0, answerTimer, 0xe6, answerPort, // out 0x10, al
		0xf4,
	})
	copy(m.memory[codeAt+0x100:], []byte{
		0xfe, 0xc3, // inc bl
		0xb0, 0x20, 0xe6, 0x20, // end of interrupt
		0xcf, // iret
	})
	return m.start(realSRegs, regs{rip: codeAt, rflags: 2, rsp: 0x7000}, answerTimer)
}

func realSRegs(s *sregs) {
	for _, seg := range []*segment{&s.cs, &s.ds, &s.es, &s.ss} {
		seg.base, seg.selector = 0, 0
	}
}

func longSRegs(s *sregs) {
	code := segment{limit: 0xffffffff, selector: 8, kind: 11, present: 1, s: 1, l: 1, g: 1}
	data := segment{limit: 0xffffffff, selector: 16, kind: 3, present: 1, db: 1, s: 1, g: 1}
	s.cs, s.ds, s.es, s.fs, s.gs, s.ss = code, data, data, data, data, data
	s.gdt, s.idt = table{base: gdtAt}, table{base: idtAt}
	s.cr3 = tablesAt
	s.cr4 |= 1 << 5        // PAE
	s.cr0 |= 1<<31 | 1     // PG, PE
	s.efer |= 1<<8 | 1<<10 // LME, LMA
}

// start sets the registers and runs until the guest sends its answer.
func (m *machine) start(prepare func(*sregs), r regs, want byte) error {
	var s sregs
	if err := ioctlPtr(m.cpu, getSRegs, unsafe.Pointer(&s)); err != nil {
		return err
	}
	prepare(&s)
	if err := ioctlPtr(m.cpu, setSRegs, unsafe.Pointer(&s)); err != nil {
		return err
	}
	if err := ioctlPtr(m.cpu, setRegs, unsafe.Pointer(&r)); err != nil {
		return err
	}
	return m.await(want)
}

func (m *machine) await(want byte) error {
	for range maxExits {
		if _, err := ioctl(m.cpu, run); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		} else if err != nil {
			continue
		}
		reason := binary.LittleEndian.Uint32(m.run[runExit:])
		port := binary.LittleEndian.Uint16(m.run[runIOPort:])
		data := binary.LittleEndian.Uint64(m.run[runIOData:])
		if reason != exitIO || port != answerPort || data >= uint64(len(m.run)) {
			return fmt.Errorf("the guest stopped with exit reason %d", reason)
		}
		if got := m.run[data]; got != want {
			return fmt.Errorf("the guest answered %#x instead of %#x", got, want)
		}
		return nil
	}
	return errors.New("the guest gave no answer")
}

func ioctl(fd int, request uintptr) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

func ioctlPtr(fd int, request uintptr, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
	if errno != 0 {
		return errno
	}
	return nil
}
