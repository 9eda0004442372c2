package seccomp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

func mustCompile(t testing.TB, o Options) Program {
	t.Helper()
	p, err := Compile(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustRules(t testing.TB) map[string]rule {
	t.Helper()
	all, err := rules(false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEveryCallIsDecided fails when the kernel's headers have a call that
// nobody has put into a table, or a table a call that no machine has.
func TestEveryCallIsDecided(t *testing.T) {
	all := mustRules(t)
	known := map[string]bool{}
	for _, m := range machines {
		for nr, name := range m.calls {
			known[name] = true
			if _, ok := all[name]; name != "" && !ok {
				t.Errorf("%s: call %d, %s, is in no table", m.name, nr, name)
			}
		}
	}
	for name := range all {
		if !known[name] {
			t.Errorf("%s is in a table but on no machine", name)
		}
	}
}

// foreign are machines whose calls must kill, by their AUDIT_ARCH number.
var foreign = []struct {
	name  string
	audit uint32
}{
	{"i386", 0x40000003},
	{"arm", 0x40000028},
	{"amd64", 0xc000003e},
	{"arm64", 0xc00000b7},
	{"riscv64", 0xc00000f3},
	{"s390x", 0x80000016},
	{"none", 0},
	{"bogus", 0xffffffff},
}

// vectors are calls with arguments whose answers are written down.
var vectors = []struct {
	what string
	call string
	args [6]uint64
}{
	{"clone: a thread as glibc makes it", "clone", [6]uint64{0x3d0f00}},
	{"clone: fork", "clone", [6]uint64{0x1200011}},
	{"clone: vfork with a pidfd", "clone", [6]uint64{0x5111}},
	{"clone: NEWTIME", "clone", [6]uint64{0x80}},
	{"clone: NEWNS", "clone", [6]uint64{0x20000 | 17}},
	{"clone: NEWCGROUP", "clone", [6]uint64{0x2000000 | 17}},
	{"clone: NEWUTS", "clone", [6]uint64{0x4000000 | 17}},
	{"clone: NEWIPC", "clone", [6]uint64{0x8000000 | 17}},
	{"clone: NEWUSER", "clone", [6]uint64{0x10000000 | 17}},
	{"clone: NEWPID", "clone", [6]uint64{0x20000000 | 17}},
	{"clone: NEWNET", "clone", [6]uint64{0x40000000 | 17}},
	{"clone: NEWUSER with high bits", "clone", [6]uint64{0xffff_ffff_1000_0011}},
	{"socket: UNIX stream", "socket", [6]uint64{1, 1}},
	{"socket: INET stream, CLOEXEC and NONBLOCK", "socket", [6]uint64{2, 0x80801, 6}},
	{"socket: INET6 datagram", "socket", [6]uint64{10, 2, 17}},
	{"socket: INET family with high bits", "socket", [6]uint64{0x1_0000_0002, 1}},
	{"socket: ALG with high bits", "socket", [6]uint64{0xffff_ffff_0000_0026, 5}},
	{"socket: NETLINK", "socket", [6]uint64{16, 3}},
	{"socket: PACKET", "socket", [6]uint64{17, 3}},
	{"socket: VSOCK", "socket", [6]uint64{40, 1}},
	{"socket: ALG", "socket", [6]uint64{38, 5}},
	{"socket: INET raw ICMP", "socket", [6]uint64{2, 3, 1}},
	{"socket: INET ping", "socket", [6]uint64{2, 2, 1}},
	{"socket: INET SOCK_PACKET", "socket", [6]uint64{2, 10}},
	{"socket: INET SCTP", "socket", [6]uint64{2, 1, 132}},
	{"socket: INET MPTCP", "socket", [6]uint64{2, 1, 262}},
	{"socketpair: UNIX", "socketpair", [6]uint64{1, 1}},
	{"socketpair: INET", "socketpair", [6]uint64{2, 1}},
	{"socketpair: TIPC", "socketpair", [6]uint64{30, 5}},
	{"setsockopt: SOL_SOCKET, number 31", "setsockopt", [6]uint64{3, 1, 31}},
	{"setsockopt: TCP_NODELAY", "setsockopt", [6]uint64{3, 6, 1}},
	{"setsockopt: TCP_USER_TIMEOUT", "setsockopt", [6]uint64{3, 6, 18}},
	{"setsockopt: TCP_ULP", "setsockopt", [6]uint64{3, 6, 31}},
	{"setsockopt: TCP_MD5SIG", "setsockopt", [6]uint64{3, 6, 14}},
	{"setsockopt: TCP_AO_ADD_KEY", "setsockopt", [6]uint64{3, 6, 38}},
	{"setsockopt: SO_REUSEADDR", "setsockopt", [6]uint64{3, 1, 2}},
	{"setsockopt: SO_ATTACH_FILTER", "setsockopt", [6]uint64{3, 1, 26}},
	{"setsockopt: SO_ATTACH_REUSEPORT_CBPF", "setsockopt", [6]uint64{3, 1, 51}},
	{"setsockopt: IP_TTL", "setsockopt", [6]uint64{3, 0, 2}},
	{"setsockopt: IP_OPTIONS", "setsockopt", [6]uint64{3, 0, 4}},
	{"setsockopt: IP_MINTTL", "setsockopt", [6]uint64{3, 0, 21}},
	{"setsockopt: IPV6_V6ONLY", "setsockopt", [6]uint64{3, 41, 26}},
	{"setsockopt: IPV6_RTHDR", "setsockopt", [6]uint64{3, 41, 57}},
	{"setsockopt: IPV6_MINHOPCOUNT", "setsockopt", [6]uint64{3, 41, 73}},
	{"setsockopt: UDP_SEGMENT", "setsockopt", [6]uint64{3, 17, 103}},
	{"ioctl: TCGETS", "ioctl", [6]uint64{0, 0x5401}},
	{"ioctl: TIOCSTI", "ioctl", [6]uint64{0, 0x5412}},
	{"ioctl: TIOCSTI with a high bit", "ioctl", [6]uint64{0, 0x1_0000_5412}},
	{"ioctl: TIOCLINUX", "ioctl", [6]uint64{0, 0x541c}},
	{"ioctl: TIOCSETD", "ioctl", [6]uint64{0, 0x5423}},
	{"ioctl: TIOCCONS", "ioctl", [6]uint64{0, 0x541d}},
	{"personality: read", "personality", [6]uint64{0xffffffff}},
	{"personality: Linux", "personality", [6]uint64{0}},
	{"personality: READ_IMPLIES_EXEC", "personality", [6]uint64{0x400000}},
	{"mknod: FIFO", "mknod", [6]uint64{0, 0o010644}},
	{"mknod: character device", "mknod", [6]uint64{0, 0o020644}},
	{"mknodat: block device", "mknodat", [6]uint64{0, 0, 0o060644}},
	{"mknodat: socket", "mknodat", [6]uint64{0, 0, 0o140644}},
	{"seccomp: a filter", "seccomp", [6]uint64{1, 0}},
	{"seccomp: a filter with TSYNC and LOG", "seccomp", [6]uint64{1, 3}},
	{"seccomp: a filter with a listener", "seccomp", [6]uint64{1, 8}},
	{"prctl: PR_SET_NAME", "prctl", [6]uint64{15}},
	{"prctl: PR_SET_MM", "prctl", [6]uint64{35}},
	{"prctl: PR_SCHED_CORE", "prctl", [6]uint64{62}},
	{"prctl: PR_SET_VMA", "prctl", [6]uint64{0x53564d41}},
}

// TestGoldenTable runs the compiled filters for every number from 0 to 1023 of
// every machine, and for the vectors, and compares with a file that people
// can read. A change of the policy shows there.
func TestGoldenTable(t *testing.T) {
	for _, m := range machines {
		golden(t, "testdata/"+m.name+".golden", goldenTable(t, m))
	}
}

func goldenTable(t *testing.T, m machine) []byte {
	t.Helper()
	plain := mustCompile(t, Options{Arch: m.name})
	heard := mustCompile(t, Options{Arch: m.name, Listener: true})
	verdicts := func(d callData) string {
		a, _, err := evaluate(plain, d)
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := evaluate(heard, d)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%-15s %s", describe(a), describe(b))
	}
	var b bytes.Buffer
	line := func(key, name, v string) { fmt.Fprintf(&b, "%-21s %-25s %s\n", key, name, v) }

	fmt.Fprintf(&b, "# Answers of the %s filter, without and with a listener. All arguments are 0.\n", m.name)
	table := func(audit, from, to uint32, label string, names bool) {
		start, last := from, ""
		for nr := from; nr <= to+1; nr++ {
			v, name := "", ""
			if nr <= to {
				v = verdicts(callData{nr: nr, arch: audit})
				if names && nr < uint32(len(m.calls)) {
					name = m.calls[nr]
				}
			}
			if last != "" && (name != "" || v != last) { // close the open range of nameless numbers
				line(fmt.Sprintf("%d-%d", start, nr-1), label, last)
				last = ""
			}
			switch {
			case name != "":
				line(fmt.Sprint(nr), name, v)
			case last == "" && v != "":
				start, last = nr, v
			}
		}
	}
	table(m.audit, 0, 1023, "", true)
	fmt.Fprintln(&b, "\n# Numbers with the x32 bit, and the highest.")
	table(m.audit, x32Bit, x32Bit+1023, "", false)
	for _, nr := range []uint32{x32Bit - 1, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff} {
		line(fmt.Sprintf("%#x", nr), "", verdicts(callData{nr: nr, arch: m.audit}))
	}
	fmt.Fprintln(&b, "\n# Other machines, numbers 0 to 1023.")
	for _, f := range foreign {
		if f.audit != m.audit {
			table(f.audit, 0, 1023, f.name, false)
		}
	}
	fmt.Fprintln(&b, "\n# Calls with arguments.")
	numbers := m.numbers()
	for _, v := range vectors {
		if nr, ok := numbers[v.call]; ok {
			fmt.Fprintf(&b, "%-45s %s\n", v.what, verdicts(callData{nr: nr, arch: m.audit, args: v.args}))
		}
	}
	return b.Bytes()
}

func (m machine) numbers() map[string]uint32 {
	out := map[string]uint32{}
	for nr, name := range m.calls {
		if name != "" {
			out[name] = uint32(nr)
		}
	}
	return out
}

// TestFilterAgreesWithTables compares the compiled program with the tables for
// every number and, for calls with conditions, for the values around every one
// that a condition names.
func TestFilterAgreesWithTables(t *testing.T) {
	all := mustRules(t)
	for _, m := range machines {
		for _, listener := range []bool{false, true} {
			p := mustCompile(t, Options{Arch: m.name, Listener: listener})
			for nr := range uint32(1100) {
				agree(t, p, m, all, callData{nr: nr, arch: m.audit}, listener)
				for _, f := range foreign {
					agree(t, p, m, all, callData{nr: nr, arch: f.audit}, listener)
				}
				if int(nr) < len(m.calls) {
					for _, d := range around(all[m.calls[nr]], nr, m.audit) {
						agree(t, p, m, all, d, listener)
					}
				}
			}
		}
	}
}

// around gives calls whose arguments are the rule's own values and their
// neighbours, with and without high bits, one argument changed at a time.
func around(r rule, nr, audit uint32) []callData {
	var passing [6]uint64
	for _, c := range r.checks {
		if c.in != nil {
			passing[c.arg] = uint64(c.in[0])
		}
	}
	var out []callData
	for _, c := range r.checks {
		values := append([]uint32{0, 0xffffffff, c.mask}, c.in...)
		for _, v := range append(values, c.notIn...) {
			for _, w := range []uint64{uint64(v), uint64(v - 1), uint64(v + 1), uint64(v) | 1<<32, uint64(v) | 1<<63} {
				d := callData{nr: nr, arch: audit, args: passing}
				d.args[c.arg] = w
				out = append(out, d)
			}
		}
	}
	return out
}

func agree(t *testing.T, p Program, m machine, all map[string]rule, d callData, listener bool) {
	t.Helper()
	got, _, err := evaluate(p, d)
	if err != nil {
		t.Fatalf("%s %+v: %v", m.name, d, err)
	}
	if want := expect(m, all, d, listener); got != want {
		t.Fatalf("%s (listener %v) %+v: the filter says %s, the tables say %s", m.name, listener, d, describe(got), describe(want))
	}
}

func FuzzFilter(f *testing.F) {
	f.Add(true, uint32(0xc000003e), uint32(41), uint64(2), uint64(1), uint64(0))
	f.Add(false, uint32(0x40000003), uint32(20), uint64(0), uint64(0), uint64(0))
	f.Add(false, uint32(0xc000003e), uint32(0xffffffff), uint64(0), uint64(0), uint64(0))
	all := mustRules(f)
	programs := map[string]Program{}
	for _, m := range machines {
		for _, l := range []bool{false, true} {
			programs[fmt.Sprint(m.name, l)] = mustCompile(f, Options{Arch: m.name, Listener: l})
		}
	}
	f.Fuzz(func(t *testing.T, listener bool, arch, nr uint32, a, b, c uint64) {
		for _, m := range machines {
			p := programs[fmt.Sprint(m.name, listener)]
			agree(t, p, m, all, callData{nr: nr, arch: arch, args: [6]uint64{a, b, c}}, listener)
			agree(t, p, m, all, callData{nr: nr % 512, arch: m.audit, args: [6]uint64{a, b, c}}, listener)
		}
	})
}

// TestFilterIsShort holds the cost of a call: the kernel runs the filter only
// for calls with conditions and for what is not plainly allowed.
func TestFilterIsShort(t *testing.T) {
	for _, m := range machines {
		p := mustCompile(t, Options{Arch: m.name, Listener: true})
		total, most, calls := 0, 0, 0
		all := mustRules(t)
		for nr, name := range m.calls {
			if all[name].verdict != allow || name == "" {
				continue
			}
			_, steps, err := evaluate(p, callData{nr: uint32(nr), arch: m.audit})
			if err != nil {
				t.Fatal(err)
			}
			total, calls, most = total+steps, calls+1, max(most, steps)
		}
		average := float64(total) / float64(calls)
		t.Logf("%s: %d instructions; allowed calls run %.1f on average, %d at most", m.name, len(p), average, most)
		if len(p) > 600 || average > 16 || most > 70 { // the most is prctl with an option that is not in the list
			t.Errorf("%s: %d instructions, %.1f on average, %d at most; a filter should stay within 600, 16 and 70", m.name, len(p), average, most)
		}
	}
}

func TestCompileKnowsTwoMachines(t *testing.T) {
	if _, err := Compile(Options{Arch: "s390x"}); err == nil || !strings.Contains(err.Error(), `"s390x"`) {
		t.Fatalf("Compile for s390x: %v", err)
	}
}

// TestLayout checks that a program's bytes are the kernel's struct sock_filter.
func TestLayout(t *testing.T) {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, Instruction{1, 2, 3, 4}); err != nil {
		t.Fatal(err)
	}
	if got, want := b.Bytes(), []byte{1, 0, 2, 3, 4, 0, 0, 0}; !bytes.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		mustCompile(b, Options{Listener: true})
	}
}
