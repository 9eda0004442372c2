//go:build linux

package spawn

import (
	"math"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// step is one system call of the table. Its layout is known to the assembly.
type step struct {
	trap  uintptr
	args  [6]uintptr
	flags uintptr
	save  uintptr // address of the word that receives the result, or 0
}

// Flag bits of a step. Bits 0 to 5 say that the argument of that number is the
// address of a word to load it from.
const (
	flagOptional = 1 << 8  // go on after an error
	flagPositive = 1 << 9  // a result of zero is an error too
	flagDouble   = 1 << 10 // a clone: the process that gets a result ends, the new one goes on
)

// outcome is where the child says how far it came. The parent reads it after
// the status pipe has closed. The first four fields are known to the assembly;
// the others are here because they, too, must not move while the kernel has
// their addresses.
type outcome struct {
	reached uintptr
	errno   uintptr
	all     uint64 // a set of signals: every one
	old     uint64 //nolint:unused // those that the caller's thread had blocked before; for the assembly

	args  cloneArgs
	pidfd int32
}

// Cell is a word that holds the result of a step for later steps.
type Cell struct{ word *uintptr }

// Ref is an argument taken from a Cell when the step runs.
type Ref struct{ cell Cell }

// Ref returns the cell's value as an argument of a later step.
func (c Cell) Ref() Ref { return Ref{c} }

// Program is a table of system calls. The zero value is not usable; see New.
type Program struct {
	steps []step
	names []string
	keep  []any // what the addresses in steps point to
	fds   []int // descriptors that stay open in the child

	text  []byte    // room for texts, which keep has; many are small
	words []uintptr // room for cells, likewise
}

// usualSteps is room for the steps of most programs, and for those that Start
// puts before them; the others are for what the steps point to.
const (
	usualSteps = 512
	usualText  = 8 << 10
	usualWords = 64
	usualKept  = 128
)

// withRoom returns an empty program that can take so many steps without growing.
func withRoom(n int) *Program {
	return &Program{steps: make([]step, 0, n), names: make([]string, 0, n), keep: make([]any, 0, usualKept)}
}

// New returns an empty program whose process keeps open only the standard
// descriptors 0 to 2 and the given ones until its exec.
func New(keep ...int) *Program {
	p := withRoom(usualSteps)
	p.fds = slices.Clone(keep)
	return p
}

// Call adds a step. Arguments are integers (int, uint, uint64, uintptr, …),
// strings (passed as the address of a NUL-terminated copy), byte slices (the
// address of their first byte; the kernel may write to it), []string (the address
// of a NULL-terminated vector), Refs, and nil for zero.
func (p *Program) Call(name string, trap uintptr, args ...any) *Program {
	p.add(name, trap, 0, args)
	return p
}

// Optional adds a step whose failure is ignored.
func (p *Program) Optional(name string, trap uintptr, args ...any) *Program {
	p.add(name, trap, flagOptional, args)
	return p
}

// Positive adds a step for which a result of zero is a failure too (EPIPE),
// like a read that must not meet the end of file.
func (p *Program) Positive(name string, trap uintptr, args ...any) *Program {
	p.add(name, trap, flagPositive, args)
	return p
}

// Result adds a step and returns the cell that will hold its result.
func (p *Program) Result(name string, trap uintptr, args ...any) Cell {
	c := p.Cell()
	p.add(name, trap, 0, args)
	p.SaveTo(c)
	return c
}

// Cell returns a new cell.
func (p *Program) Cell() Cell {
	if len(p.words) == 0 {
		p.words = make([]uintptr, usualWords)
		p.keep = append(p.keep, p.words)
	}
	c := Cell{&p.words[0]}
	p.words = p.words[1:]
	return c
}

// CellOf returns a new cell that holds v until a step's result is saved there.
func (p *Program) CellOf(v int) Cell {
	c := p.Cell()
	*c.word = uintptr(v) //nolint:gosec // a negative one is meant to be no descriptor
	return c
}

// CellAt returns a cell that lies in buf at the offset, so that a result can
// become part of a structure that a later step passes. Eight bytes of buf are
// overwritten.
func (p *Program) CellAt(buf []byte, offset int) Cell {
	_ = buf[offset+7]
	p.keep = append(p.keep, buf)
	return Cell{(*uintptr)(unsafe.Pointer(&buf[offset]))}
}

// SaveTo makes the last step store its result in c.
func (p *Program) SaveTo(c Cell) {
	p.steps[len(p.steps)-1].save = uintptr(unsafe.Pointer(c.word))
}

// Pointer returns the address of b's first byte as it may stand inside another
// structure (a msghdr, a sock_fprog). b stays alive as long as p.
func (p *Program) Pointer(b []byte) uintptr {
	if len(b) == 0 {
		return 0
	}
	p.keep = append(p.keep, b)
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

func (p *Program) add(name string, trap, flags uintptr, args []any) {
	if len(args) > 6 {
		panic("spawn: more than six arguments for " + name)
	}
	s := step{trap: trap, flags: flags}
	for i, a := range args {
		v, indirect := p.arg(a)
		s.args[i] = v
		if indirect {
			s.flags |= 1 << i
		}
	}
	p.steps = append(p.steps, s)
	p.names = append(p.names, name)
}

// arg turns an argument into a register value, or the address of one.
func (p *Program) arg(a any) (v uintptr, indirect bool) {
	switch a := a.(type) {
	case nil:
		return 0, false
	case Ref:
		return uintptr(unsafe.Pointer(a.cell.word)), true
	case string:
		return p.terminated(a), false
	case []byte:
		return p.Pointer(a), false
	case []string:
		return p.vector(a), false
	case int:
		return uintptr(a), false
	case int32:
		return uintptr(a), false
	case int64:
		return uintptr(a), false
	case uint32:
		return uintptr(a), false
	case uint64:
		return uintptr(a), false
	case uintptr:
		return a, false
	}
	panic("spawn: an argument of a type that cannot be passed")
}

// terminated returns the address of a copy of the text that ends in a NUL.
func (p *Program) terminated(text string) uintptr {
	n := len(text) + 1
	if len(p.text) < n {
		p.text = make([]byte, max(n, usualText))
		p.keep = append(p.keep, p.text)
	}
	b := p.text[:n]
	p.text = p.text[n:]
	copy(b, text)
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

// vector returns the address of a NULL-terminated array of strings.
func (p *Program) vector(list []string) uintptr {
	words := make([]uintptr, len(list)+1)
	for i, s := range list {
		words[i], _ = p.arg(s)
	}
	p.keep = append(p.keep, words)
	return uintptr(unsafe.Pointer(unsafe.SliceData(words)))
}

// cloneArgs is struct clone_args of clone3(2).
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls uint64
	setTID, setTIDSize, cgroup                                           uint64
}

// cloneAndWalk is in assembly, where nothing moves the caller to another thread
// while all signals are blocked on this one.
//
//go:noescape
func cloneAndWalk(trap, a0, a1, a2 uintptr, steps *step, count uintptr, out *outcome) uintptr

// double adds the step in which the process is replaced by a child of its
// parent, made with those flags. Its pidfd goes into out, into the parent's
// table of descriptors where both share it.
func (p *Program) double(c Clone, out *outcome) {
	flags := c.flags() | unix.CLONE_PARENT
	pidfdAt := uintptr(unsafe.Pointer(&out.pidfd))
	p.keep = append(p.keep, out)
	if c.Cgroup > 0 {
		out.args = cloneArgs{flags: flags | unix.CLONE_INTO_CGROUP, pidfd: uint64(pidfdAt), cgroup: uint64(c.Cgroup)}
		p.add("clone", unix.SYS_CLONE3, flagDouble, []any{uintptr(unsafe.Pointer(&out.args)), unsafe.Sizeof(out.args)})
		return
	}
	p.add("clone", unix.SYS_CLONE, flagDouble, []any{flags | uint64(unix.SIGCHLD), nil, pidfdAt, nil, nil})
}

// sharing makes a process that walks the steps, shares our memory and descriptors, and
// ends after the last one.
func (p *Program) sharing(out *outcome) (pid int, err error) {
	out.all = math.MaxUint64
	r := cloneAndWalk(unix.SYS_CLONE, unix.CLONE_VM|unix.CLONE_FILES|uintptr(unix.SIGCHLD), 0, 0, &p.steps[0], uintptr(len(p.steps)), out)
	if r > ^uintptr(4095) {
		return 0, unix.Errno(-r)
	}
	return int(r), nil
}

// value is what a step has left in the cell.
func (c Cell) value() int { return int(*c.word) } //nolint:gosec // a result of the kernel's

// flags returns the flags of the process that walks the program.
func (c Clone) flags() uint64 {
	flags := c.Flags | unix.CLONE_VM | unix.CLONE_PIDFD
	if c.CopyLow {
		flags |= unix.CLONE_FILES
	}
	return flags
}

// clone makes the process. The caller's thread has all signals blocked while
// the child is made, so that none can run one of the Go runtime's handlers in
// it; the child resets the handlers and unblocks in steps of its own.
//
// clone3 is used only where a cgroup is to be entered: system-call filters
// cannot look into its arguments, so sandboxes do not have it.
func clone(c Clone, steps []step, out *outcome) (pid, pidfd int, err error) {
	flags := c.flags()
	pidfdAt := uintptr(unsafe.Pointer(&out.pidfd))
	trap, a0, a1, a2 := uintptr(unix.SYS_CLONE), uintptr(flags)|uintptr(unix.SIGCHLD), uintptr(0), pidfdAt
	switch {
	case c.twice(): // one that makes the process, see double
		trap, a0, a1, a2 = unix.SYS_CLONE, unix.CLONE_VM|unix.CLONE_FILES|uintptr(unix.SIGCHLD), 0, 0
	case c.Cgroup > 0:
		out.args = cloneArgs{
			flags: flags | unix.CLONE_INTO_CGROUP, pidfd: uint64(pidfdAt),
			exitSignal: uint64(unix.SIGCHLD), cgroup: uint64(c.Cgroup),
		}
		trap, a0, a1, a2 = unix.SYS_CLONE3, uintptr(unsafe.Pointer(&out.args)), unsafe.Sizeof(out.args), 0
	}
	out.all = math.MaxUint64
	r := cloneAndWalk(trap, a0, a1, a2, &steps[0], uintptr(len(steps)), out)
	runtime.KeepAlive(out)
	if r > ^uintptr(4095) {
		return 0, -1, unix.Errno(-r)
	}
	return int(r), int(out.pidfd), nil
}
