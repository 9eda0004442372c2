package compare

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pinfold/sandbox"
)

// moreAttacks are by other ways to the host's files, processes, memory and network, and
// beyond other limits.
var moreAttacks = []attack{
	{
		what: "remove a file of the host's", code: "os.unlink(sys.argv[1])",
		set: func(c *comparison) ([]string, func(string) bool, func(), error) {
			dir := c.file("open-directory")
			if err := errors.Join(os.MkdirAll(dir, 0o777), os.Chmod(dir, 0o777)); err != nil { //nolint:gosec // whoever finds it may write there
				return nil, nil, nil, err
			}
			name := filepath.Join(dir, word())
			return []string{name}, func(string) bool {
				_, err := os.Lstat(name)
				return errors.Is(err, os.ErrNotExist)
			}, nothing, os.WriteFile(name, nil, 0o666) //nolint:gosec // as above
		},
	},
	{
		what: "read a file of the host's through one of its processes", code: "print(open('/proc/%s/root%s' % tuple(sys.argv[1:])).read())",
		set: func(c *comparison) ([]string, func(string) bool, func(), error) {
			secret, name := word(), c.file("secret-root")
			if err := os.WriteFile(name, []byte(secret), 0o644); err != nil { //nolint:gosec // whoever finds it may read it
				return nil, nil, nil, err
			}
			cmd, _, end, err := c.helper(word())
			if err != nil {
				return nil, nil, nil, err
			}
			return []string{strconv.Itoa(cmd.Process.Pid), name}, func(out string) bool { return strings.Contains(out, secret) }, end, nil
		},
	},
	{
		what: "read what a descriptor of the host's shows", code: "for fd in range(3, 1024):\n    try: print(os.pread(fd, 100, 0))\n    except OSError: pass\n",
		set: func(c *comparison) ([]string, func(string) bool, func(), error) {
			secret, name := word(), c.file("secret-open")
			if err := os.WriteFile(name, []byte(secret), 0o600); err != nil {
				return nil, nil, nil, err
			}
			fd, err := syscall.Open(name, syscall.O_RDONLY, 0) // without O_CLOEXEC: programs that are started have it
			return nil, func(out string) bool { return strings.Contains(out, secret) }, func() { _ = syscall.Close(fd) }, err
		},
	},
	{
		what: "have the host's kernel end a process of the host's first", feature: sandbox.FeaturePIDNS, code: "open('/proc/%s/oom_score_adj' % sys.argv[1], 'w').write('1000')",
		set: func(c *comparison) ([]string, func(string) bool, func(), error) {
			cmd, _, end, err := c.helper(word())
			if err != nil {
				return nil, nil, nil, err
			}
			return []string{strconv.Itoa(cmd.Process.Pid)}, func(string) bool {
				now, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid))
				return err == nil && strings.TrimSpace(string(now)) == "1000"
			}, end, nil
		},
	},
	{
		what: "read shared memory of the host's that has a name", code: "print(open(sys.argv[1]).read())",
		set: func(*comparison) ([]string, func(string) bool, func(), error) {
			secret, name := word(), "/dev/shm/pinfold-"+word()
			err := os.WriteFile(name, []byte(secret), 0o644) //nolint:gosec // whoever finds it may read it
			return []string{name}, func(out string) bool { return strings.Contains(out, secret) }, func() { _ = os.Remove(name) }, err
		},
	},
	{
		what: "read shared memory of the host's that has a number", feature: sandbox.FeatureIPCNS, code: `
import ctypes
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
at = libc.shmat(int(sys.argv[1]), None, 0o10000)
if at is not None and at != 2**64 - 1: print(ctypes.string_at(at, 24))
`,
		set: sharedMemory,
	},
	{
		what: "send to a port of the host's that takes datagrams", code: "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(sys.argv[2].encode(), ('127.0.0.1', int(sys.argv[1])))",
		set: datagrams,
	},
	{
		what: "connect to a socket of the host's in the file system",
		code: "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\ns.sendall(sys.argv[2].encode())",
		set: func(c *comparison) ([]string, func(string) bool, func(), error) {
			name := c.file("s-" + word()[:6])
			args, through, end, err := listener("unix", name)
			if err == nil {
				err = os.Chmod(name, 0o777) //nolint:gosec // whoever finds it may connect
			}
			return args, through, end, err
		},
	},
	{
		what: "connect to the host by its address in its network",
		code: "import socket\ns = socket.create_connection((sys.argv[3], int(sys.argv[1])), 2)\ns.sendall(sys.argv[2].encode())",
		set: func(*comparison) ([]string, func(string) bool, func(), error) {
			at := ownAddress()
			args, through, end, err := listener("tcp", net.JoinHostPort(at, "0"))
			return append(args, at), through, end, err
		},
	},
	{what: "open 300 files where 256 are allowed", feature: sandbox.FeatureOpenFiles, code: "all = [os.open('/dev/null', 0) for _ in range(300)]\nprint('yes')", set: says},
	{
		what: "make 20,000 files where 16,384 are allowed", feature: sandbox.FeatureInodes, set: says, code: `
import tempfile
with tempfile.TemporaryDirectory() as d:
    for i in range(20000): os.close(os.open('%s/%d' % (d, i), os.O_CREAT))
    print('yes')
`,
	},
	{
		what: "print 3 MB where 1 MiB is kept", feature: sandbox.FeatureOutput, code: "sys.stdout.write('x' * 3_000_000)",
		set: func(*comparison) ([]string, func(string) bool, func(), error) {
			return nil, func(out string) bool { return len(out) > 1<<20 }, nothing, nil
		},
	},
}

// sharing makes a segment of System V's that whoever finds it may read, and that is gone with
// the process. It prints the number and waits for the end of its input.
const sharing = `
import ctypes, sys
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
n = libc.shmget(0, 4096, 0o1666)
at = libc.shmat(n, None, 0)
libc.shmctl(n, 0, None)
ctypes.memmove(at, sys.argv[1].encode(), len(sys.argv[1]))
print(n, flush=True)
sys.stdin.read()
`

// sharedMemory is memory of a process of the host's.
func sharedMemory(c *comparison) ([]string, func(string) bool, func(), error) {
	secret := word()
	cmd := exec.CommandContext(c.ctx, c.python, "-c", sharing, secret) //nolint:gosec // our own words
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, nil, nil, err
	}
	end := func() { _, _ = in.Close(), cmd.Wait() }
	number, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		end()
		return nil, nil, nil, err
	}
	return []string{strings.TrimSpace(number)}, func(out string) bool { return strings.Contains(out, secret) }, end, nil
}

// datagrams hears what is sent to an address of this host alone.
func datagrams(*comparison) ([]string, func(string) bool, func(), error) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0") //nolint:noctx // it listens at once
	if err != nil {
		return nil, nil, nil, err
	}
	text := word()
	through := func(string) bool {
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		for b := make([]byte, 64); ; {
			n, _, err := conn.ReadFrom(b)
			if err != nil || bytes.Equal(b[:n], []byte(text)) {
				return err == nil
			}
		}
	}
	_, port, _ := net.SplitHostPort(conn.LocalAddr().String())
	return []string{port, text}, through, func() { _ = conn.Close() }, nil
}

// ownAddress is one of this host's in its network; of one without, its second for itself.
func ownAddress() string {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return "127.0.0.2"
}
