//go:build linux

package attacks

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// limitCases are attacks on limits that other processes have, or should have.
func limitCases() []Case {
	return []Case{
		{
			ID: "PR-13", Title: "children for somebody else (CLONE_PARENT), and limits raised in them", Level: User, Severity: Integrity, Source: "clone(2)",
			Expect: "no child of the agent's; a child has its maker's limits and cannot raise them",
			Attack: Payload{Code: `
import resource
nr = 56 if os.uname().machine == 'x86_64' else 220
r = libc.syscall(nr, 0x8000 | 17, 0, 0, 0, 0)
if r == 0: os._exit(0)
say('parent', 'ok' if r > 0 else name(ctypes.get_errno()))
def more():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1)); return 'ok'
say('raise', child(more))
`},
			Doors:   []Door{{"parent", "EPERM", "ok"}, {"raise", "ValueError|EPERM", "ok"}},
			Control: Control{Without: "the filter and privileges that are gone", Jail: true},
			Twin:    &Twin{What: "children of one's own", Payload: Payload{Code: "import subprocess; print(subprocess.run(['sh', '-c', 'ulimit -n 64; ulimit -n'], capture_output=True).stdout)"}, Want: "64"},
		},
		{
			ID: "PR-14", Title: "limits of the agent and of other processes (prlimit)", Level: User, Severity: PeerDoS, Source: "prlimit(2)",
			Expect: "refused, also where the agent is the same user",
			Attack: Payload{Code: `
nr = 302 if os.uname().machine == 'x86_64' else 261
limit = (ctypes.c_uint64 * 2)(512, 512)
say('first', call(nr, 1, 7, limit, None))
pid = os.fork()
if pid == 0: time.sleep(30); os._exit(0)
say('other', call(nr, pid, 7, limit, None)); os.kill(pid, 9); os.wait()
`},
			Doors:   doors("EPERM", "first", "other"),
			Control: Control{Without: "the filter", Jail: true},
			Twin:    &Twin{What: "one's own limits", Payload: Payload{Code: "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); say('own', resource.prlimit(0, resource.RLIMIT_NOFILE)[0])"}, Want: "own 64"},
		},
		{
			ID: "RE-14", Title: "huge pages that the host has reserved: mmap, memfd_create, shmget", Level: User, Severity: HostDoS, Source: "own",
			Expect: "none, as on a host without; no limit counts them", Attack: Payload{Code: hugeCode}, Root: true,
			Around: func(t *trial) func() {
				restore, err := reserveHuge()
				if err != nil {
					t.Fatal(err)
				}
				return restore
			},
			Doors: doors("ENOMEM", "mmap", "memfd", "shm"),
			Control: Control{Without: "the filter", Run: func(a *arena) error {
				restore, err := reserveHuge()
				if err != nil {
					return err
				}
				defer restore()
				out, err := a.jail(Payload{Code: hugeCode})
				if values := doorValues(out); err != nil || values["mmap"] != "ok" || values["memfd"] != "ok" || values["shm"] != "ok" {
					return fmt.Errorf("%q %w", out, err)
				}
				return nil
			}},
			Twin: &Twin{What: "large memory without", Payload: Payload{Code: "import mmap\nm = mmap.mmap(-1, 8 << 20); m.madvise(14); m[:5] = b'large'; print(m[:5])"}, Want: "large"},
		},
	}
}

// hugeCode takes one huge page in each way.
const hugeCode = `
m = libc.mmap; m.restype = ctypes.c_void_p
def mapped(flags, fd):
    ctypes.set_errno(0)
    at = m(None, 2 << 20, 3, flags, fd, 0)
    if at == ctypes.c_void_p(-1).value: return name(ctypes.get_errno())
    ctypes.memset(at, 1, 4096); libc.munmap(ctypes.c_void_p(at), 2 << 20); return 'ok'
say('mmap', mapped(0x40022, -1))
fd = libc.memfd_create(b'x', 4)
say('memfd', name(ctypes.get_errno()) if fd < 0 else 'ok')
if fd >= 0: os.close(fd)
id = libc.shmget(0, 2 << 20, 0o4000 | 0o1600)
say('shm', name(ctypes.get_errno()) if id < 0 else 'ok')
if id >= 0: libc.shmctl(id, 0, None)
`

// reserveHuge has the host reserve some huge pages. restore gives them back.
func reserveHuge() (restore func(), err error) {
	const file = "/proc/sys/vm/nr_hugepages"
	read := func() int {
		text, _ := os.ReadFile(file)
		n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		return n
	}
	before := read()
	restore = func() { _ = os.WriteFile(file, fmt.Append(nil, before), 0) }
	if err := os.WriteFile(file, fmt.Append(nil, before+4), 0); err != nil {
		return restore, err
	}
	if read() <= before {
		return restore, fmt.Errorf("the kernel reserved no huge pages")
	}
	return restore, nil
}
