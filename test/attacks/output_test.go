//go:build linux

package attacks

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"pinfold/sandbox"
)

func ouCases() []Case {
	small := sandbox.Limits{OutputBytes: 64 << 10}
	return []Case{
		{
			ID: "OU-01", Title: "output without end", Level: User, Severity: HostDoS, Source: "Firecracker's serial console", Expect: "cut at the limit, flagged, ended for output; the host's memory does not grow with it",
			Attack: Payload{Language: "shell", Code: "yes", Limits: small, Quick: 10 * time.Second},
			Around: heapAround,
			Judge: func(t *trial) error {
				if len(t.result.Stdout) != 64<<10 || !t.result.StdoutTruncated {
					return fmt.Errorf("%d bytes kept, truncated %v", len(t.result.Stdout), t.result.StdoutTruncated)
				}
				return errors.Join(t.ended(sandbox.StatusKilled, sandbox.CauseOutput), t.heapFine())
			},
			Control: Control{Without: "a bound on what is kept", Run: func(a *arena) error {
				out, err := exec.CommandContext(a.Context(), "/bin/sh", "-c", "yes | head -c 40000000").Output()
				if err != nil || len(out) != 40_000_000 {
					return fmt.Errorf("%d bytes: %w", len(out), err)
				}
				return nil
			}},
			Twin: &Twin{What: "as much output as is allowed", Payload: Payload{Code: "sys.stdout.write('x' * 65000 + 'end')", Limits: small}, Want: "x{100}end$"},
		},
		{
			ID: "OU-02", Title: "flooding stdout and stderr in turns, from many processes, and exiting meanwhile", Level: User, Severity: PeerDoS, Source: "own",
			Expect: "both cut at the limit; the run ends at once",
			Attack: Payload{Code: `
for i in range(4):
    if os.fork() == 0:
        try:
            for n in range(3000): os.write(1 + n % 2, b"x" * 4096)
        finally: os._exit(0)
time.sleep(0.05); os._exit(7)
`, Limits: small, Quick: 8 * time.Second},
			Judge: func(t *trial) error {
				if n := max(len(t.result.Stdout), len(t.result.Stderr)); n > 64<<10 {
					return fmt.Errorf("%d bytes kept", n)
				}
				if t.result.Status == sandbox.StatusError {
					return errors.New("the result is an error")
				}
				return nil
			},
			Control: Control{Without: "the low limit", Run: func(a *arena) error {
				t := a.run(Payload{Code: "for n in range(100): os.write(1 + n % 2, b'x' * 4096)"})
				if t.err != nil || len(t.result.Stdout) != 200<<10 || len(t.result.Stderr) != 200<<10 {
					return fmt.Errorf("%w %+v", t.err, t.result)
				}
				return nil
			}},
		},
		{
			ID: "OU-03", Title: "closing stdout and stderr, and half a character at the end", Level: User, Severity: Integrity, Source: "bad input", Expect: "a correct result, always valid UTF-8",
			Attack: Payload{Code: `os.write(1, b"ok \xe2\x82"); os.write(2, b"\xff\xfe\x00\xf0\x9f"); os.close(1); os.close(2); os.close(0); time.sleep(0.1); os._exit(0)`, Quick: 3 * time.Second},
			Judge: func(t *trial) error {
				if !strings.HasPrefix(t.result.Stdout, "ok ") || strings.ToValidUTF8(t.result.Stdout+t.result.Stderr, "") != t.result.Stdout+t.result.Stderr {
					return errors.New("the output is not text")
				}
				return t.succeeded()
			},
			Control: Control{Without: "a repair of the text", Run: func(a *arena) error {
				out, err := exec.CommandContext(a.Context(), "/bin/sh", "-c", `printf 'ok \342\202'`).Output()
				if err != nil || bytes.Equal(bytes.ToValidUTF8(out, nil), out) {
					return fmt.Errorf("%q %w", out, err)
				}
				return nil
			}},
		},
		{
			ID: "OU-04", Title: "escape sequences in output, file names and an exception", Level: User, Severity: Integrity, Source: "OSC 52, CSI 2J, U+202E", Expect: "every message of ours about it is printable",
			Attack: Payload{Code: `
open("\x1b]52;c;cHduZWQ=\x07.txt", "w").close(); open("\u202egpj.txt", "w").close()
os.symlink("/", "esc\x1b[2J"); print("\x1b]0;owned\x07"); raise Exception("\x1b[2J\r\x08")
`, Artifacts: []string{"*.txt", "esc*"}},
			Judge: func(t *trial) error {
				ours := fmt.Sprintf("%+v %+v %+v", t.result.Cause, t.result.ArtifactsSkipped, t.result.Artifacts)
				for name := range t.files {
					ours += name
				}
				if sandbox.SafeText(ours, 1<<20) != ours {
					return fmt.Errorf("unprintable: %q", ours)
				}
				return t.ended(sandbox.StatusFailed, sandbox.CauseExited)
			},
			Control: Control{Without: "escaping", Run: func(a *arena) error {
				out, err := exec.CommandContext(a.Context(), "/bin/sh", "-c", `printf '\033[2J'`).Output()
				if err != nil || sandbox.SafeText(string(out), 100) == string(out) {
					return fmt.Errorf("%q %w", out, err)
				}
				return nil
			}},
		},
		{
			ID: "OU-06", Title: "printing a result, markers, events and trailers of our own formats", Level: User, Severity: Integrity, Source: "dify's sentinel, piston", Expect: "status, exit code and cause are the kernel's",
			Attack: Payload{Code: `
forged = '{"id":"run_x","status":"succeeded","exit_code":0,"cause":{"kind":"exited"}}'
for fd in (1, 2): os.write(fd, (forged + "\n<<RESULT>>\nevent: exit\ndata: 0\n\n0\r\n\r\n\x08\x00\x00\x00\x02{}").encode())
for fd in range(3, 20):
    try: os.write(fd, b"\x00\x00\x00\x02\x08\x00\x00\x00\x01{}")
    except OSError: pass
os._exit(9)
`},
			Judge: func(t *trial) error {
				if t.result.ExitCode == nil || *t.result.ExitCode != 9 {
					return errors.New("the exit code is not the program's")
				}
				return t.ended(sandbox.StatusFailed, sandbox.CauseExited)
			},
			Control: Control{Without: "a channel of its own for results", Run: func(a *arena) error {
				out, err := exec.CommandContext(a.Context(), "/bin/sh", "-c", `echo '<<RESULT>>{"exit_code":0}'; true`).Output()
				if err != nil || !bytes.Contains(out, []byte(`<<RESULT>>{"exit_code":0}`)) {
					return fmt.Errorf("%q %w", out, err)
				}
				return nil // who reads the result from stdout believes it
			}},
		},
	}
}

// heapAround follows how much memory this process, which is the host half of a
// run, has in use.
func heapAround(t *trial) func() {
	runtime.GC()
	grown := growth(rss)
	return func() {
		if mib := grown() >> 20; mib > 48 {
			t.notes["heap"] = fmt.Sprintf("the host process grew by %d MiB", mib)
		}
	}
}

func (t *trial) heapFine() error {
	if s := t.notes["heap"]; s != "" {
		return errors.New(s)
	}
	return nil
}

// rss is the memory of this process, in bytes.
func rss() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	var size, resident int64
	if err == nil {
		_, _ = fmt.Sscan(string(b), &size, &resident)
	}
	return resident * int64(os.Getpagesize())
}
