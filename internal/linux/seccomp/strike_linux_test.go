package seccomp

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Who gets no processor has not kept SIGSYS away: it dies of that signal when it runs
// again. Who does not run for long is killed.
func TestStrikeWaitsForAProcessor(t *testing.T) {
	for want, runs := range map[syscall.Signal]time.Duration{unix.SIGSYS: 10 * grace, unix.SIGKILL: time.Hour} {
		cmd := exec.CommandContext(t.Context(), "sleep", "600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := cmd.Process.Pid
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatalf("it did not stop: %v %v", status, err)
		}
		pidfd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(runs, func() { _ = unix.Kill(pid, unix.SIGCONT) })
		denied := false
		left := victim{tid: pid, pidfd: pidfd}.strike(func() { denied = true }, patience)
		_ = cmd.Wait()
		timer.Stop()
		if got := cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(); got != want || !denied || (left == 0) != (want == unix.SIGKILL) {
			t.Errorf("it died of %v, not of %v; denied %v, %v are left", got, want, denied, left)
		}
	}
}
