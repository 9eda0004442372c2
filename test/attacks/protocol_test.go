//go:build linux

package attacks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/agentbin/agenttest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// hostilePackage is the program that takes the agent's place.
const hostilePackage = "pinfold/test/attacks/hostile"

// placeholder is what the hostile agent has where its mode goes.
const placeholder = "@@PINFOLD-HOSTILE-MODE@@................"

// hostileAgent is that program with a mode.
func (a *arena) hostileAgent(mode string) ([]byte, error) {
	program := agenttest.Program(a.T, hostilePackage)
	if bytes.Count(program, []byte(placeholder)) != 1 {
		return nil, errors.New("the hostile agent has no place for a mode")
	}
	mode = "@@" + mode
	mode += strings.Repeat(".", len(placeholder)-len(mode))
	return bytes.Replace(program, []byte(placeholder), []byte(mode), 1), nil
}

// what may come of a run whose agent is hostile.
const (
	refused = iota // the run is an error
	ended          // it is ended by a limit, or lost
	either
)

var hostileModes = []struct {
	mode string
	want int
}{
	{"length-max", refused},
	{"length-2g", refused},
	{"empty-data", refused},
	{"truncated", either},
	{"unknown-kind", refused},
	{"host-kind", refused},
	{"no-channel", refused},
	{"second-hello", refused},
	{"endless-list", refused},
	{"no-message", refused},
	{"unknown-field", refused},
	{"exit-first", refused},
	{"exit-twice", refused},
	{"exit-999", refused},
	{"overrun", either}, // a host that reads fast enough grants as much
	{"grant", refused},
	{"stream9", refused},
	{"events", refused},
	{"files", refused},
	{"rights", refused},
	{"talk-first", refused},
	{"silence", either},
	{"gone", either},
	{"mute", either},
	{"claim", ended},
	{"bomb", ended},
}

func ptCases() []Case {
	forged := Case{
		ID: "PT-01", Title: "a program looking for the agent's connection, to say things in its name", Level: User, Severity: Integrity, Source: "brief",
		Expect: "no descriptor, no path and no process leads to it; the real end is reported",
		Attack: Payload{Code: fmt.Sprintf(`
import socket, glob
frame = b"\x00\x00\x00\x02\x08\x00\x00\x00\x01{}"
found = 0
for fd in range(3, 4096):
    try: os.write(fd, frame); found += 1
    except OSError: pass
for p in glob.glob("/proc/*/fd/*") + glob.glob("/proc/*/task/*/fd/*"):
    try:
        if "socket" in os.readlink(p): found += 1
    except OSError: pass
say("stolen", call(%d, libc.syscall(%d, 1, 0), 3, 0))
try: s = socket.socket(40, 1); s.connect((2, 1024)); found += 1
except OSError: pass
say("found", found)
sys.exit(5)
`, number("pidfd_getfd"), number("pidfd_open"))},
		Doors: []Door{{"found", "0", ""}, {"stolen", "EPERM|ENOSYS", "ok|EBADF"}},
		Judge: func(t *trial) error {
			if t.result.ExitCode == nil || *t.result.ExitCode != 5 {
				return errors.New("the exit code is not the program's")
			}
			return nil
		},
		Control: Control{Without: "closed descriptors, hidepid, the filter", Jail: true},
	}
	cases := []Case{forged}
	for _, m := range hostileModes {
		cases = append(cases, Case{
			ID: "PT-02-" + m.mode, Title: "an agent that was taken over breaks the protocol: " + m.mode, Level: Agent, Severity: HostDoS, Source: "sandboxed-api comms_test",
			Expect: "no panic, no success; its time limit ends it, or ten seconds of silence; no more than some megabytes; nothing is left",
			Do:     func(t *trial) error { return t.hostile(m.mode, m.want) },
			Control: Control{Without: "checks on what the agent says", Run: func(a *arena) error {
				return a.arrives(m.mode)
			}},
		})
	}
	return append(cases, escapeCase(), stuckCase())
}

// soon is far more than a limit of 1.5 s, or ten seconds of allowance, come to on a busy
// machine, and far less than what else would end a run: the minute that an agent may say
// nothing in the middle, and this test's own.
const soon = 30 * time.Second

// hostile runs a program with a hostile agent.
func (t *trial) hostile(mode string, want int) error {
	program, err := t.hostileAgent(mode)
	if err != nil {
		return err
	}
	e, _ := t.newEngine(program)
	t.payload = Payload{Language: "shell", Code: "echo never", Limits: sandbox.Limits{WallTimeMS: 1500, Processes: 30}, Artifacts: []string{"*"}}
	after := heapAround(t)
	t.attack(e)
	after()
	if err := t.heapFine(); err != nil {
		return err
	}
	if t.took > soon {
		return fmt.Errorf("it took %v", t.took)
	}
	failed := t.err != nil || t.result.Status == sandbox.StatusError
	switch {
	case t.result != nil && t.result.Status == sandbox.StatusSucceeded:
		return errors.New("it counts as a success")
	case want == refused && !failed:
		return fmt.Errorf("not refused: %+v", t.result)
	case want == ended && (t.result == nil || t.result.Status != sandbox.StatusKilled):
		return fmt.Errorf("not ended: %w %+v", t.err, t.result)
	}
	return nil
}

// quietModes have nothing to say, or nothing that may be done outside a sandbox.
var quietModes = []string{"mute", "silence", "gone", "claim", "bomb", "talk-first"}

// arrives runs the hostile agent on the host, where it talks to somebody who
// checks nothing, and sees that its message really comes.
func (a *arena) arrives(mode string) error {
	if slices.Contains(quietModes, mode) {
		return nil
	}
	program, err := a.hostileAgent(mode)
	if err != nil {
		return err
	}
	file := filepath.Join(a.dir, "hostile")
	if err := os.WriteFile(file, program, 0o700); err != nil { //nolint:gosec // a program
		return err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	defer ours.Close()
	cmd := exec.CommandContext(a.Context(), file)
	cmd.ExtraFiles = []*os.File{theirs}
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return err
	}
	request := wire.AppendMessage(nil, wire.KindOpen, 1, &wire.Request{Op: wire.OpStart})
	if _, err := ours.Write(request); err != nil {
		return err
	}
	_ = unix.Shutdown(int(ours.Fd()), unix.SHUT_WR)
	n, _ := io.Copy(io.Discard, ours)
	_ = cmd.Wait()
	greeting := wire.AppendMessage(nil, wire.KindHello, 0, &wire.Hello{Version: wire.Version, Agent: "\x1b[2Jhostile"})
	if n <= int64(len(greeting)) {
		return fmt.Errorf("only %d bytes arrived", n)
	}
	return nil
}

// escapeCase is what a taken-over agent can reach. Its rights in its own user
// namespace are more than a program's, and still must not lead out.
func escapeCase() Case {
	return Case{
		ID: "PT-04", Title: "an agent that was taken over uses its rights: mounts, devices, files, ids", Level: Agent, Severity: Escape, Source: "own",
		Expect: "everything is refused to it as well",
		Do: func(t *trial) error {
			program, err := t.hostileAgent("escape")
			if err != nil {
				return err
			}
			e, _ := t.newEngine(program)
			t.payload = Payload{Language: "shell", Code: "true"}
			t.attack(e)
			if t.err != nil {
				return t.err
			}
			values := doorValues(t.result.Stdout)
			if len(values) < 15 {
				return fmt.Errorf("it reported only %q", t.result.Stdout)
			}
			for door, answer := range values {
				if answer != "refused" {
					return fmt.Errorf("%s: %s", door, answer)
				}
			}
			return nil
		},
		Control: Control{Without: "the filter, read-only mounts, Landlock", Run: func(a *arena) error {
			out, err := a.jail(Payload{Code: readOnlyCode})
			if err != nil || !strings.Contains(out, "write ok") {
				return fmt.Errorf("%q %w", out, err)
			}
			return nil
		}},
	}
}

// stuckCase: an agent that reports an end too early cannot keep the run, or its
// processes, alive.
func stuckCase() Case {
	return Case{
		ID: "PT-05", Title: "an agent that reports an end and answers nothing after it", Level: Agent, Severity: PeerDoS, Source: "own",
		Expect: "the run ends after three seconds of allowance, not by a limit; a success may be claimed, which is why causes come from the kernel",
		Do: func(t *trial) error {
			program, err := t.hostileAgent("stuck")
			if err != nil {
				return err
			}
			e, _ := t.newEngine(program)
			t.payload = Payload{Language: "shell", Code: "true", Artifacts: []string{"*"}, Limits: sandbox.Limits{WallTimeMS: 600_000}}
			t.attack(e)
			if t.err == nil && (t.took > soon || t.result.Cause.Kind != sandbox.CauseExited) {
				return fmt.Errorf("it took %v, %+v", t.took, t.result.Cause)
			}
			return t.err
		},
		Control: Control{Without: "allowance with a bound", Run: func(a *arena) error {
			r, w := io.Pipe()
			defer w.Close()
			read := make(chan error, 1)
			go func() { _, err := wire.NewReader(r, wire.Agent).Next(); read <- err }()
			select {
			case <-read:
				return errors.New("the reader did not wait")
			case <-time.After(100 * time.Millisecond):
				return nil
			}
		}},
	}
}
