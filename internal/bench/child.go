package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"pinfold/sandbox"
)

// child is a long-living process of ours: a server, a daemon. It ends with us,
// however we end.
type child struct {
	cmd  *exec.Cmd
	pid  int
	done chan struct{}
	err  error // valid once done is closed

	mu  sync.Mutex
	log bounded
}

// childTimeout bounds how long one may take to end.
const childTimeout = 60 * time.Second

// startChild starts a program in a process group of its own: a Ctrl-C is ours to
// pass on. The kernel tells it when the thread that started it ends, so the
// goroutine keeps its thread as long as the child lives.
// Env is added to our own environment.
func startChild(args []string, env ...string) (*child, error) {
	c := &child{done: make(chan struct{})}
	c.cmd = exec.Command(args[0], args[1:]...) //nolint:gosec,noctx // stop ends it, more gently than a context would
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stdout, c.cmd.Stderr = (*childLog)(c), (*childLog)(c)
	c.cmd.SysProcAttr = endsWithUs()
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.err = c.cmd.Wait()
		}
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	c.pid = c.cmd.Process.Pid
	return c, nil
}

// childLog keeps the beginning of what the child says.
type childLog child

func (l *childLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Write(p)
}

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *child) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.String()
}

// lastLine is the last thing that the child said.
func (c *child) lastLine() string {
	lines := strings.Split(strings.TrimSpace(c.said()), "\n")
	return sandbox.SafeText(lines[len(lines)-1], 300)
}

// stop ends the child with SIGTERM and waits. One that fails, or takes too long
// and must be killed, is an error.
func (c *child) stop() error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-c.done:
		if c.err != nil {
			return fmt.Errorf("%s ended with %w: %s", c.cmd.Path, c.err, c.lastLine())
		}
		return nil
	case <-time.After(childTimeout):
		_ = c.cmd.Process.Kill() // it may have ended
		<-c.done
		return errors.New(c.cmd.Path + " did not end and was killed")
	}
}
