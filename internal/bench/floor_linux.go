package bench

import (
	"syscall"
	"time"

	"pinfold/internal/linux/spawn"
)

// kernelFloor measures what the kernel asks for the namespaces and an exec
// alone.
func kernelFloor() (time.Duration, error) {
	began := time.Now()
	p := spawn.New()
	p.UnblockSignals()
	p.Exec(trueProgram, []string{"true"}, nil)
	child, err := p.Start(spawn.Clone{Flags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID |
		syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET})
	if err != nil {
		return 0, err
	}
	defer child.Release()
	if err := child.WaitExec(); err != nil {
		return 0, err
	}
	_, err = syscall.Wait4(child.PID, nil, syscall.WALL, nil)
	return time.Since(began), err
}
