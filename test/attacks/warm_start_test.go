//go:build linux

package attacks

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/zygote"
	"pinfold/internal/zygote/zygotetest"
	"pinfold/sandbox"
)

// warmCases are attacks of one program on another that is forked from the same
// interpreter, and on that.
func warmCases() []Case {
	return []Case{
		{
			ID: "WS-01", Title: "random numbers that a module began before the fork: two runs with one key", Level: User, Severity: Lateral, Source: "RFC 4086; forked servers of OpenSSL 1.0",
			Root: true, Expect: "no two forks have any in common, of Python, numpy, OpenSSL, sqlite or uuid",
			Do:      func(t *trial) error { return t.randomness() },
			Control: Control{Without: "beginning anew in each fork", Run: sharedRandomness},
		},
		{
			ID: "WS-02", Title: "descriptors of the zygote or of a sibling, and the state of open files that they share", Level: User, Severity: Lateral, Source: "CVE-2024-21626",
			Root: true, Expect: "three pipes of its own and nothing else", Do: func(t *trial) error { return t.descriptors() },
			Control: Control{Without: "closing the rest", Run: func(a *arena) error {
				f, err := a.raise("", sandbox.Limits{}, edit{"pinfold_loop.py", `call("close the rest", "close_range", 3, 0xFFFFFFFF, 0)`, "pass"})
				if err != nil {
					return err
				}
				out, err := f.tell(descriptorsCode)
				if err == nil && doorValues(out)["more"] == "0" {
					err = errors.New("none are left open")
				}
				return err
			}},
		},
		{
			ID: "WS-03", Title: "seeing, signalling, tracing or talking to the zygote and to a sibling, also by futexes and keyrings", Level: User, Severity: Lateral, Source: "own",
			Root: true, Expect: "there is nobody but oneself", Do: func(t *trial) error { return t.reach() },
			Attack:  Payload{Code: withCalls(wordCode + siblingInJail + relativesCode + siblingOut)},
			Doors:   relativesDoors,
			Control: Control{Without: "namespaces and memory of one's own", Jail: true},
		},
		{
			ID: "WS-04", Title: "memory that a module has mapped as shared before the fork", Level: User, Severity: Lateral, Source: "own",
			Root: true, Expect: "such a zygote is refused; its pool starts its interpreters", Do: func(t *trial) error {
				var unfit *zygote.UnfitError
				if _, err := t.raise(sharedModule, sandbox.Limits{}); !errors.As(err, &unfit) || unfit.Load || !strings.Contains(unfit.Why, "share") {
					return fmt.Errorf("it was not refused: %w", err)
				}
				return nil
			},
			Control: Control{Without: "the refusal", Run: func(a *arena) error {
				f, err := a.raise(sharedModule, sandbox.Limits{}, edit{"pinfold_zygote.py", "if mapped:", "if False:"})
				if err != nil {
					return err
				}
				if _, err := f.tell("import treasure; treasure.m[:5] = b'taken'"); err != nil {
					return err
				}
				if out, err := f.tell("import treasure; say('found', treasure.m[:5])"); err != nil || !strings.Contains(out, "taken") {
					return fmt.Errorf("%q %w", out, err)
				}
				return nil
			}},
		},
		{
			ID: "WS-05", Title: "what one run leaves in modules, files, variables and memory, for the next one and in the zygote", Level: User, Severity: Exfil, Source: "sandboxes that use an interpreter again",
			Root: true, Expect: "nothing", Do: func(t *trial) error { return t.residue() },
			Doors: doors("clean", "json builtin module environment path files import memory"),
			Control: Control{Without: "a fork for each (two programs in one)", Run: func(a *arena) error {
				f, err := a.raise("value = 1", sandbox.Limits{})
				if err != nil {
					return err
				}
				out, err := f.tell(residueCode + searchCode)
				values := doorValues(out)
				for _, key := range []string{"json", "builtin", "module", "environment", "path", "files", "import", "memory"} {
					if err == nil && values[key] != "found" {
						err = fmt.Errorf("%s is %q", key, values[key])
					}
				}
				return err
			}},
		},
		violenceCase(),
		imageCase(),
	}
}

// alike lists what two forks have in common.
func (f *family) alike() (shared []string, keys int, err error) {
	first, err := f.tell(zygotetest.HoardCode)
	if err != nil {
		return nil, 0, err
	}
	second, err := f.tell(zygotetest.HoardCode)
	if err != nil {
		return nil, 0, err
	}
	a, b := doorValues(first), doorValues(second)
	for key, value := range a {
		if b[key] == value || b[key] == "" {
			shared = append(shared, key)
		}
	}
	slices.Sort(shared)
	return shared, len(a), nil
}

func (t *trial) randomness() error {
	f, err := t.raise(zygotetest.Hoard, sandbox.Limits{})
	if err != nil {
		return err
	}
	shared, keys, err := f.alike()
	if err == nil && (len(shared) > 0 || keys < 15) {
		err = fmt.Errorf("of %d, two forks share %v", keys, shared)
	}
	return err
}

// sharedRandomness is the control. What Python and OpenSSL begin anew by
// themselves is not in the list.
func sharedRandomness(a *arena) error {
	f, err := a.raise(zygotetest.Hoard, sandbox.Limits{}, edit{"pinfold_siblings.py", "    begin_anew(numbers)\n", ""})
	if err != nil {
		return err
	}
	shared, keys, err := f.alike()
	if err != nil {
		return err
	}
	want := zygotetest.Drawn
	if keys > 16 {
		want = slices.Concat(want, zygotetest.DrawnByNumpy)
	}
	for _, key := range want {
		if !slices.Contains(shared, key) {
			return fmt.Errorf("%s is not shared: %v", key, shared)
		}
	}
	return nil
}

const descriptorsCode = `
import fcntl
found = []
for fd in range(1 << 16):
    try: fcntl.fcntl(fd, fcntl.F_GETFD); found.append(fd)
    except OSError: pass
say("more", len(found) - 3)
say("flags", [fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK for fd in range(3)])
for fd in range(3): fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)
say("ready", 1)
for fd in range(3): fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
sys.stdin.read()
`

func (t *trial) descriptors() error {
	f, err := t.raise("", sandbox.Limits{})
	if err != nil {
		return err
	}
	var all []*relative
	defer func() {
		for _, r := range all {
			if err := r.end(); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 3 {
		r, err := f.fork(descriptorsCode)
		if err != nil {
			return err
		}
		all = append(all, r)
		for _, want := range []string{"more 0", "flags [0, 0, 0]", "ready 1"} {
			if got, err := r.line(); err != nil || got != want {
				return fmt.Errorf("%q, not %q: %w", got, want, err)
			}
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := f.sharePipes(3)
		if err == nil || time.Now().After(deadline) { // the zygote may not have closed the last one's yet
			return err
		}
	}
}

// sharePipes looks at the descriptors of so many forks, from outside.
func (f *family) sharePipes(n int) error {
	processes := f.processes()
	if len(processes) != 1+n {
		return fmt.Errorf("the family is %v", processes)
	}
	holder, ends := map[string]int{}, 0
	for _, pid := range processes {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, link := range links {
			target, err := os.Readlink(link)
			if err != nil || !strings.HasPrefix(target, "pipe:") {
				continue
			}
			ends++
			if other := holder[target]; other != 0 && other != pid {
				return fmt.Errorf("%s is open in %d and %d", target, other, pid)
			}
			holder[target] = pid
		}
	}
	if ends < 3*n {
		return fmt.Errorf("only %d ends of pipes are seen", ends)
	}
	return nil
}

// processes are the zygote that has forks now, and they, on the host.
func (f *family) processes() (all []int) {
	for _, zygote := range childrenOf(os.Getpid()) {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", zygote))
		if forks := childrenOf(zygote); strings.HasPrefix(string(name), "python") && len(forks) > 0 {
			all = append(append(all, zygote), forks...)
		}
	}
	return all
}

// childrenOf lists living children of a process, of all its threads.
func childrenOf(pid int) (found []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for text := range strings.FieldsSeq(string(b)) {
			child, err := strconv.Atoi(text)
			var stat []byte
			if err == nil {
				stat, err = os.ReadFile(fmt.Sprintf("/proc/%d/stat", child)) // it may have ended since
			}
			if err == nil && !bytes.Contains(stat, []byte(") Z ")) {
				found = append(found, child)
			}
		}
	}
	return found
}

// wordModule has a word that every fork has at the same address.
const wordModule = "import ctypes\nword = (ctypes.c_int * 1)(0)\n"

// wordCode takes that word; the control's is in memory that is shared indeed. So are
// the keys of its session, which ends with it.
const wordCode = `
if JAIL:
    import mmap
    shared = mmap.mmap(-1, 4096); word = (ctypes.c_int * 1).from_buffer(shared)
    libc.syscall(ctypes.c_long(%keyctl), ctypes.c_long(1), None)
else:
    import treasure; word = treasure.word
`

// withCalls puts system calls' numbers into a program.
func withCalls(code string) string {
	return strings.NewReplacer("%futex", fmt.Sprint(unix.SYS_FUTEX), "%add_key", fmt.Sprint(unix.SYS_ADD_KEY), "%keyctl", fmt.Sprint(unix.SYS_KEYCTL)).Replace(code)
}

// siblingCode is a sibling that can be found in every way in which it lets itself
// be found.
const siblingCode = `
import socket, mmap, threading
word[0] = 4711
threading.Thread(target=lambda: libc.syscall(ctypes.c_long(%futex), word, ctypes.c_long(0), ctypes.c_long(4711), None), daemon=True).start()
for ring in (-3,) if JAIL else (-3, -4, -5): libc.syscall(ctypes.c_long(%add_key), b"user", b"sibling", b"x", ctypes.c_long(1), ctypes.c_long(ring))
listener = socket.socket(socket.AF_UNIX); listener.bind("\0sibling"); listener.listen()
net = socket.socket(); net.bind(("127.0.0.1", 4711)); net.listen()
libc.shmget(4711, 4096, 0o1666)
open("/dev/shm/sibling", "w").write("x"); open("/tmp/sibling", "w").write("x")
libc.prctl(0x59616d61, ctypes.c_ulong(-1 & (1 << 64) - 1), 0, 0, 0)
say("ready", os.getpid())
`

// siblingInJail makes the sibling where there is none of ours.
const siblingInJail = `
if JAIL and os.fork() == 0:
    sys.stdout = open("/dev/null", "w")
    exec(r'''` + siblingCode + `''')
    time.sleep(10); os._exit(0)
if JAIL: time.sleep(.5)
`

// siblingOut takes away what the sibling has made where the control shares the
// host's directories.
const siblingOut = `
if JAIL:
    for path in ("/dev/shm/sibling", "/tmp/sibling"):
        try: os.unlink(path)
        except OSError: pass
`

const relativesCode = `
import socket
me = os.getpid()
others = [p for p in range(1, 400) if p != me]
def answers(f):
    for p in others:
        try: f(p); return "yes"
        except OSError: pass
    return "no"
say("signal", answers(lambda p: os.kill(p, 0)))
say("pidfd", answers(lambda p: signal.pidfd_send_signal(os.pidfd_open(p), 0)))
say("list", "yes" if [p for p in os.listdir("/proc") if p.isdigit() and int(p) != me] else "no")
say("maps", answers(lambda p: open("/proc/%d/maps" % p).read(1)))
say("memory", answers(lambda p: open("/proc/%d/mem" % p, "rb")))
say("environ", answers(lambda p: open("/proc/%d/environ" % p, "rb").read(1)))
say("priority", answers(lambda p: os.setpriority(os.PRIO_PROCESS, p, os.getpriority(os.PRIO_PROCESS, p))))
def connect(family, address):
    try: socket.socket(family).connect(address); return "yes"
    except OSError: return "no"
say("abstract", connect(socket.AF_UNIX, "\0sibling")); say("net", connect(socket.AF_INET, ("127.0.0.1", 4711)))
say("sysv", "yes" if libc.shmget(4711, 4096, 0) >= 0 else "no")
say("shm", "yes" if os.path.exists("/dev/shm/sibling") else "no"); say("file", "yes" if os.path.exists("/tmp/sibling") else "no")
def become(uid):
    try: os.setuid(uid); return "yes"
    except OSError: return "no"
say("word", "yes" if word[0] == 4711 else "no")
time.sleep(.3)
say("futex", "yes" if libc.syscall(ctypes.c_long(%futex), word, ctypes.c_long(1), ctypes.c_long(99)) > 0 else "no")
say("key", "yes" if [r for r in (-3, -4, -5) if libc.syscall(ctypes.c_long(%keyctl), ctypes.c_long(10), ctypes.c_long(r), b"user", b"sibling", ctypes.c_long(0)) >= 0] else "no")
try: say("keys", "yes" if "sibling" in open("/proc/keys").read() else "no")
except OSError: say("keys", "no")
say("uid", child(lambda: "yes" if "yes" in [become(u) for u in (0, 999, 1001, 65534, 1000 + 65536, 1 << 30)] else "no"))
`

var relativesDoors = append(doors("no", "signal pidfd list maps memory environ priority abstract net sysv shm file word futex key keys"), Door{"uid", "no", "yes"})

func (t *trial) reach() error {
	f, err := t.raise(wordModule, sandbox.Limits{})
	if err != nil {
		return err
	}
	sibling, err := f.fork(withCalls(wordCode + siblingCode + "sys.stdin.read()"))
	if err != nil {
		return err
	}
	defer func() {
		if err := sibling.end(); err != nil {
			t.Error(err)
		}
	}()
	if line, err := sibling.line(); err != nil || !strings.HasPrefix(line, "ready") {
		return fmt.Errorf("%q %w", line, err)
	}
	out, err := f.tell(withCalls(wordCode + relativesCode))
	t.result = &sandbox.Result{Stdout: out}
	return err
}

const sharedModule = "import mmap\nm = mmap.mmap(-1, 4096)\n"

// residueCode leaves things behind. The marker is never written as a whole.
const residueCode = `
import json, builtins, treasure
marker = ("residue-" + "4e1d99ab").encode() * 1000
kept = [marker + bytes([i]) for i in range(100)]
json.loads = lambda s: "taken"
builtins.taken = 1
treasure.value = "taken"
os.environ["TAKEN"] = "1"
sys.path.insert(0, "/taken")
sys.modules["taken"] = json
for d in ("/home/user", "/tmp", "/dev/shm", "/var/tmp"): open(d + "/taken", "wb").write(marker)
`

const searchCode = `
import re
def clean(key, found): say(key, "found" if found else "clean")
import json, builtins, treasure
clean("json", json.loads("1") != 1); clean("builtin", hasattr(builtins, "taken")); clean("module", treasure.value != 1)
clean("environment", "TAKEN" in os.environ); clean("path", "/taken" in sys.path); clean("import", "taken" in sys.modules)
clean("files", [d for d in ("/home/user", "/tmp", "/dev/shm", "/var/tmp") if os.path.exists(d + "/taken")])
pattern, rest, found = re.compile(b"residue[-](.{8})", re.S), b"ba99d1e4", 0
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps.read().splitlines():
        a, b = [int(x, 16) for x in line.split()[0].split("-")]
        if "r" not in line.split()[1] or "[v" in line: continue
        try: memory.seek(a); text = memory.read(b - a)
        except (OSError, ValueError, OverflowError): continue
        found += sum(m[::-1] == rest for m in pattern.findall(text))
        del text
clean("memory", found)
`

func (t *trial) residue() error {
	f, err := t.raise("value = 1", sandbox.Limits{})
	if err != nil {
		return err
	}
	first, err := f.fork(residueCode + "say('left', 1); sys.stdin.read()")
	if err != nil {
		return err
	}
	if line, err := first.line(); err != nil || line != "left 1" {
		return errors.Join(fmt.Errorf("%q %w", line, err), first.end())
	}
	during, err := f.tell(searchCode) // while the first lives
	if err != nil {
		return errors.Join(err, first.end())
	}
	family := f.processes()
	if len(family) != 2 || !remembers(family[1]) {
		return errors.Join(fmt.Errorf("of %v the second is not seen to remember anything", family), first.end())
	}
	if remembers(family[0]) {
		return errors.Join(errors.New("the zygote has the marker in its memory"), first.end())
	}
	if _, err := first.rest(); err != nil {
		return errors.Join(err, first.end())
	}
	if err := first.end(); err != nil {
		return err
	}
	after, err := f.tell(searchCode)
	if err == nil && after != during {
		err = fmt.Errorf("while the first lives %q, after it %q", during, after)
	}
	t.result = &sandbox.Result{Stdout: after}
	return err
}

// remembers says whether a process has the marker in its memory.
func remembers(pid int) bool {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return false
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return false
	}
	defer memory.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		if n, _ := fmt.Sscanf(line, "%x-%x", &from, &to); n != 2 || strings.Contains(line, "[v") || to-from > 1<<30 {
			continue
		}
		text := make([]byte, to-from)
		n, _ := memory.ReadAt(text, int64(from)) //nolint:gosec // an address of user space
		if bytes.Contains(text[:n], []byte("residue-4e1d99ab")) {
			return true
		}
	}
	return false
}
