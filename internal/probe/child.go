//go:build linux

package probe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pinfold/internal/linux/kvm"
)

// What a child can be asked.
const (
	askNamespaces = "namespaces"
	askKVM        = "kvm"
)

// childTime bounds a child: a guest that never runs is a finding, not a wait.
const childTime = 2 * time.Second

// Child runs one trial in this process and returns its exit status. It is for
// the main function only, see ChildCommand. What it found goes to stdout.
func Child(args []string, stdout io.Writer) int {
	switch {
	case len(args) == 1 && args[0] == askNamespaces:
		tryMounts(stdout)
	case len(args) == 1 && args[0] == askKVM:
		failed, err := kvm.Try()
		_, _ = fmt.Fprintf(stdout, "%s\n%v\n", failed, err)
	default:
		return 2
	}
	return 0
}

// startChild runs our own program as a probe's child.
func startChild(ctx context.Context, ask string, attr *syscall.SysProcAttr) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, childTime)
	defer cancel()
	attr.Pdeathsig = syscall.SIGKILL
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{os.Args[0], ChildCommand, ask}
	cmd.Env = []string{"GOMAXPROCS=2"}
	cmd.SysProcAttr = attr
	cmd.WaitDelay = 100 * time.Millisecond
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	text, _ := io.ReadAll(io.LimitReader(out, maxAnswer)) // cut short: the exit status says why
	err = cmd.Wait()
	if ctx.Err() != nil {
		return "", fmt.Errorf("no answer within %v", childTime)
	}
	return string(text), err
}

// The steps of the trial with namespaces. Each is a line "step errno".
const (
	stepNamespace = "namespace"
	stepPrivate   = "private"
	stepTmpfs     = "tmpfs"
	stepOverlay   = "overlay"
)

var stepWords = map[string]string{
	stepNamespace: "clone with CLONE_NEWUSER and CLONE_NEWNS",
	stepPrivate:   "making its mounts private",
	stepTmpfs:     "mounting a tmpfs in it",
	stepOverlay:   "mounting an overlay in it",
}

// childReport is what the trial with namespaces found: the error of each step
// that was tried. err says why there is no report.
type childReport struct {
	steps map[string]syscall.Errno
	err   error
}

// reply answers yes when every one of the steps worked.
func (r childReport) reply(steps ...string) reply {
	if r.err != nil {
		return reply{answer: Unknown, probed: r.err.Error()}
	}
	for _, step := range steps {
		errno, tried := r.steps[step]
		switch {
		case !tried:
			return reply{answer: Unknown, probed: stepWords[step] + " was not reached"}
		case errno != 0:
			return reply{answer: No, probed: stepWords[step] + ": " + errno.Error()}
		}
	}
	return reply{answer: Yes, probed: stepWords[steps[len(steps)-1]] + " worked"}
}

// namespacesInChild makes a user and a mount namespace with a child inside
// that mounts. Everything in them goes away with the child.
func namespacesInChild(ctx context.Context) childReport {
	text, err := startChild(ctx, askNamespaces, &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	})
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno): // the clone or the mapping was refused
		return childReport{steps: map[string]syscall.Errno{stepNamespace: errno}}
	case err != nil:
		return childReport{err: fmt.Errorf("the trial in a child failed: %w", err)}
	}
	return parseSteps(text)
}

func parseSteps(text string) childReport {
	r := childReport{steps: map[string]syscall.Errno{stepNamespace: 0}}
	for line := range strings.Lines(text) {
		step, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseUint(number, 10, 12)
		if _, known := stepWords[step]; !known || err != nil {
			return childReport{err: fmt.Errorf("the trial in a child said %q", line)}
		}
		r.steps[step] = syscall.Errno(n)
	}
	return r
}

// tryMounts is the trial itself, in the child. It stops at the first refusal.
func tryMounts(w io.Writer) {
	out := bufio.NewWriter(w)
	defer out.Flush()    //nolint:errcheck // the parent sees what is missing
	const place = "/tmp" // covered in our own mount namespace only
	steps := []struct {
		name string
		do   func() error
	}{
		{stepPrivate, func() error { return syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "") }},
		{stepTmpfs, func() error {
			return syscall.Mount("tmpfs", place, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "size=1m")
		}},
		{stepOverlay, func() error {
			for _, dir := range []string{"/lower", "/upper", "/work", "/merged"} {
				if err := os.Mkdir(place+dir, 0o700); err != nil {
					return err
				}
			}
			options := "lowerdir=" + place + "/lower,upperdir=" + place + "/upper,workdir=" + place + "/work,userxattr"
			return syscall.Mount("overlay", place+"/merged", "overlay", 0, options)
		}},
	}
	for _, s := range steps {
		var errno syscall.Errno
		if err := s.do(); err != nil && !errors.As(err, &errno) {
			errno = syscall.EIO
		}
		fmt.Fprintf(out, "%s %d\n", s.name, uint(errno))
		if errno != 0 {
			return
		}
	}
}

// kvmRuns runs a few instructions in a guest, in a child. When even that does
// not work the answer is no. When it works the answer is still open: there are
// hosts where it does and no kernel ever boots.
func kvmRuns(ctx context.Context, h *host) reply {
	text, err := startChild(ctx, askKVM, &syscall.SysProcAttr{})
	if err != nil {
		return reply{answer: No, probed: "running a few instructions in a guest: " + err.Error()}
	}
	failed, message, _ := strings.Cut(text, "\n")
	if failed == "" {
		return reply{answer: Unknown, probed: "16-bit code, 64-bit code with paging and timer interrupts ran in a guest; no kernel was booted"}
	}
	return reply{answer: No, probed: failed + ": " + strings.TrimSpace(message)}
}
