//go:build linux

package native

import (
	"sync"

	"pinfold/internal/linux/seccomp"
	"pinfold/internal/linux/spawn"
	"pinfold/sandbox"

	"golang.org/x/sys/unix"
)

// filterProgram is the compiled system-call filter, shared by all sandboxes.
type filterProgram struct {
	program seccomp.Program
	fprog   *seccomp.Fprog
	flags   uintptr
	listens bool // refused calls are reported to a listener

	withMounts func() (*filterProgram, error) // the same for sandboxes that may write to the host's directories
}

// newFilterProgram compiles the filter for what the kernel supports.
func newFilterProgram(s seccomp.Support) (*filterProgram, error) {
	if s.Filter != nil {
		return nil, s.Filter
	}
	compile := func(mounts bool) (*filterProgram, error) {
		listens := s.Listener == nil
		program, err := seccomp.Compile(seccomp.Options{Listener: listens, Mounts: mounts})
		if err != nil {
			return nil, err
		}
		return &filterProgram{program: program, fprog: program.Fprog(), flags: s.InstallFlags(listens), listens: listens}, nil
	}
	f, err := compile(false)
	if err != nil {
		return nil, err
	}
	f.withMounts = sync.OnceValues(func() (*filterProgram, error) { return compile(true) })
	return f, nil
}

// apply installs the filter. The result holds the listener's descriptor, if
// there is one.
func (f *filterProgram) apply(p *spawn.Program) []spawn.Cell {
	fd := p.Result("install system-call filter", unix.SYS_SECCOMP, seccomp.SetModeFilter, f.flags, f.fprog.Address())
	if !f.listens {
		return nil
	}
	return []spawn.Cell{fd}
}

// listener serves one sandbox's refused calls.
type listener struct {
	calls *seccomp.Listener
	done  chan struct{}
}

func startListener(fd int) (*listener, error) {
	calls, err := seccomp.NewListener(fd)
	if err != nil {
		return nil, err
	}
	l := &listener{calls: calls, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		_ = calls.Serve() // it ends with the sandbox, or closes: refused calls then fail with ENOSYS
	}()
	return l, nil
}

func (l *listener) report() (denied []sandbox.DeniedSyscall, killed string) {
	return l.calls.Denied(), l.calls.Killed()
}

func (l *listener) close() {
	_ = l.calls.Close()
	<-l.done
}
