package compare

import (
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pinfold/sandbox"
)

// secretVariable is set in our own environment while it is attacked.
const secretVariable = "PINFOLD_COMPARE_SECRET"

var attacks = []attack{
	{
		what: "read a file of the host's", code: "print(open(sys.argv[1]).read())",
		set: func(c *comparison) ([]string, func(string) bool, func(), error) {
			secret, name := word(), c.file("secret")
			err := os.WriteFile(name, []byte(secret), 0o644) //nolint:gosec // whoever finds it may read it
			return []string{name}, func(out string) bool { return strings.Contains(out, secret) }, nothing, err
		},
	},
	{
		what: "change a file of the host's", code: "open(sys.argv[1], 'w').write(sys.argv[2])",
		set: func(c *comparison) ([]string, func(string) bool, func(), error) {
			text, name := word(), c.file("open")
			if err := os.WriteFile(name, nil, 0o666); err != nil { //nolint:gosec // whoever finds it may write it
				return nil, nil, nil, err
			}
			return []string{name, text}, func(string) bool {
				now, err := os.ReadFile(name) //nolint:gosec // ours
				return err == nil && string(now) == text
			}, nothing, os.Chmod(name, 0o666) //nolint:gosec // as above
		},
	},
	{
		what: "read the environment of who runs it", code: `
print(dict(os.environ))
for p in os.listdir('/proc'):
    try: print(open('/proc/%s/environ' % p).read())
    except OSError: pass
`,
		set: func(*comparison) ([]string, func(string) bool, func(), error) {
			secret := word()
			err := os.Setenv(secretVariable, secret)
			return nil, func(out string) bool { return strings.Contains(out, secret) }, func() { _ = os.Unsetenv(secretVariable) }, err
		},
	},
	{
		what: "see the host's processes", feature: sandbox.FeaturePIDNS, code: `
for p in os.listdir('/proc'):
    try: print(open('/proc/%s/cmdline' % p).read())
    except OSError: pass
`,
		set: func(c *comparison) ([]string, func(string) bool, func(), error) {
			name := word()
			_, _, end, err := c.helper(name)
			return nil, func(out string) bool { return strings.Contains(out, name) }, end, err
		},
	},
	{
		what: "end a process of the host's", code: "os.kill(int(sys.argv[1]), 9)",
		set: func(c *comparison) ([]string, func(string) bool, func(), error) {
			cmd, ended, end, err := c.helper(word())
			if err != nil {
				return nil, nil, nil, err
			}
			return []string{strconv.Itoa(cmd.Process.Pid)}, func(string) bool { return ended() }, end, nil
		},
	},
	{
		what: "connect to a port of the host's",
		code: "import socket\ns = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 2)\ns.sendall(sys.argv[2].encode())",
		set:  func(*comparison) ([]string, func(string) bool, func(), error) { return listener("tcp", "127.0.0.1:0") },
	},
	{
		what: "connect to a socket of the host's that no file is",
		code: "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('\\0' + sys.argv[1])\ns.sendall(sys.argv[2].encode())",
		set: func(*comparison) ([]string, func(string) bool, func(), error) {
			return listener("unix", "@pinfold-"+word())
		},
	},
	{
		what: "leave a process behind", code: `
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3): os.close(fd)
        os.execv(sys.executable, ['python3', '-c', 'import time; time.sleep(600)', sys.argv[1]])
    os._exit(0)
os.wait()
import time; time.sleep(1)
`,
		set: func(*comparison) ([]string, func(string) bool, func(), error) {
			name := word()
			return []string{name}, func(string) bool { return len(running(name)) > 0 }, func() {
				for _, pid := range running(name) { // which carry a word that only we know
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}, nil
		},
	},
	{what: "take 300 MB of memory where 256 MiB are allowed", feature: sandbox.FeatureMemory, code: "x = b'x' * 300_000_000\nprint('yes')", set: says},
	{what: "write 80 MB of files where 64 MiB are allowed", feature: sandbox.FeatureDisk, set: says, code: `
import tempfile
with tempfile.TemporaryFile() as f:
    for _ in range(80): f.write(b'x' * 1_000_000)
    f.flush()
print('yes')
`},
	{what: "start 100 processes where 32 are allowed", feature: sandbox.FeatureProcesses, set: says, code: `
n, started = 0, []
try:
    for n in range(100):
        pid = os.fork()
        if pid == 0:
            import time; time.sleep(20); os._exit(0)
        started.append(pid)
    print('yes')
finally:
    for pid in started: os.kill(pid, 9)
`},
	{
		what: "have the host's kernel make a namespace of users, where most holes of kernels begin", feature: sandbox.FeatureSeccomp, code: `
import ctypes
if ctypes.CDLL(None).unshare(0x10000000) == 0 and os.uname().release == sys.argv[1]: print('yes')
`,
		set: func(*comparison) ([]string, func(string) bool, func(), error) { // a sandbox's own kernel may
			release, err := os.ReadFile("/proc/sys/kernel/osrelease")
			return []string{strings.TrimSpace(string(release))}, func(stdout string) bool { return strings.Contains(stdout, "yes") }, nothing, err
		},
	},
}

// listener hears what comes to an address.
func listener(network, address string) ([]string, func(string) bool, func(), error) {
	l, err := net.Listen(network, address) //nolint:noctx // it listens at once
	if err != nil {
		return nil, nil, nil, err
	}
	text, heard := word(), make(chan string, 8)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
			b := make([]byte, 64)
			n, _ := conn.Read(b)
			_ = conn.Close()
			select {
			case heard <- string(b[:n]):
			default: // more than anybody asked for
			}
		}
	}()
	where := strings.TrimPrefix(address, "@")
	if _, port, err := net.SplitHostPort(l.Addr().String()); err == nil {
		where = port
	}
	through := func(string) bool {
		for {
			select {
			case got := <-heard:
				if got == text {
					return true
				}
			case <-time.After(100 * time.Millisecond):
				return false
			}
		}
	}
	return []string{where, text}, through, func() { _ = l.Close() }, nil
}
