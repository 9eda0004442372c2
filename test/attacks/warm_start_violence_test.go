//go:build linux

package attacks

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"pinfold/sandbox"
)

// violence is what a fork does to whom it can reach.
var violence = []struct{ name, code string }{
	{"kills everything", "os.kill(-1, 9)"},
	{"kills its zygote", "os.kill(os.getppid(), 9)"},
	{"kills its group", "os.killpg(0, 9)"},
	{"stops", "os.kill(os.getpid(), 19)"},
	{"stops everything", "os.kill(-1, 19)"},
	{"fork bomb", "for _ in range(3000):\n    try:\n        if os.fork() == 0: time.sleep(60)\n    except OSError: pass\n"},
	{"fills memory", "x = []\nwhile True: x.append(bytearray(1 << 20))"},
	{"fills the disk", "f = open('/tmp/x', 'wb')\nwhile True: f.write(bytes(1 << 20))"},
	{"floods", "while True: os.write(1, bytes(1 << 16)); os.write(2, bytes(1 << 16))"},
	{"crashes", "ctypes.string_at(0)"},
	{"children for its zygote (CLONE_PARENT)", `
for _ in range(20000):
    pid = libc.syscall(ctypes.c_long(` + "%d" + `), ctypes.c_ulong(0x8000 | 17), None, None, None, None)
    if pid == 0: os._exit(0)
`},
	{"threads", "import threading\nfor _ in range(3000):\n    try: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n    except RuntimeError: break\ntime.sleep(60)"},
}

func violenceCase() Case {
	return Case{
		ID: "WS-06", Title: "killing, stopping, bombing, filling and flooding from a fork", Level: User, Severity: PeerDoS, Source: "own",
		Root: true, Expect: "the zygote, a sibling and the agent that starts go on; new forks are made",
		Do: func(t *trial) error { return t.violence() },
		Control: Control{Without: "namespaces of one's own", Run: func(a *arena) error {
			out, err := a.jail(Payload{Code: `
sibling = os.fork()
if sibling == 0: time.sleep(20); os._exit(0)
for p in os.listdir("/proc"):
    if p.isdigit() and int(p) > os.getpid(): os.kill(int(p), 9)
time.sleep(.2)
say("after", os.waitpid(sibling, os.WNOHANG)[0] == sibling)
`})
			if err == nil && doorValues(out)["after"] != "True" {
				err = fmt.Errorf("the sibling lives: %q", out)
			}
			return err
		}},
	}
}

func (t *trial) violence() error {
	f, err := t.raise("", sandbox.Limits{MemoryBytes: 96 << 20, Processes: 40, DiskBytes: 16 << 20})
	if err != nil {
		return err
	}
	sibling, err := f.fork("for line in sys.stdin: say('echo', line.strip())\n")
	if err != nil {
		return err
	}
	defer func() {
		if err := sibling.end(); err != nil {
			t.Error(err)
		}
	}()
	for _, v := range violence {
		if err := f.endures(sibling, v.name, strings.ReplaceAll(v.code, "%d", fmt.Sprint(number("clone")))); err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
	}
	return f.serves()
}

// endures lets a fork do something, and says whether the others go on, its own
// agent among them, which has slept.
func (f *family) endures(sibling *relative, name, code string) error {
	r, err := f.fork(code)
	if err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond)
	if _, err = fmt.Fprintln(sibling.forked.Stdin, name); err == nil {
		var line string
		if line, err = sibling.line(); err == nil && line != "echo "+name {
			err = fmt.Errorf("the sibling says %q", line)
		}
	}
	if err == nil {
		err = f.serves()
	}
	if err == nil {
		err = r.startsAgent()
	}
	begin := time.Now()
	err = errors.Join(err, r.end())
	if took := time.Since(begin); took > time.Minute {
		err = errors.Join(err, fmt.Errorf("the end took %v", took))
	}
	return err
}
