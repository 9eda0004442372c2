package seccomp

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestProbe(t *testing.T) {
	s := Probe()
	for what, err := range map[string]error{"filter": s.Filter, "listener": s.Listener, "wait killable": s.WaitKillable} {
		if err != nil {
			t.Errorf("%s: %v", what, err) // every kernel that we support has all of them
		}
	}
	if got := s.InstallFlags(true); got != unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV {
		t.Errorf("flags %#x", got)
	}
	if err := action(0x12340000); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("an action that no kernel has: %v; want a conclusive no", err)
	}
	if err := flags(1 << 30); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a flag that no kernel has: %v; want a conclusive no", err)
	}
	if err := answer(unix.EPERM, "", nil); errors.Is(err, errors.ErrUnsupported) || err == nil {
		t.Errorf("EPERM: %v; want could not tell", err)
	}
}

// TestRefused makes each attempt without the filter, where it must get
// somewhere, then with it.
func TestRefused(t *testing.T) {
	cases := []struct {
		attempt         string
		control, answer string
		denied          string // the name that the listener hears, if any
	}{
		{"mode", "0", "2", ""},
		{"ring", "ok", "ENOSYS", ""},
		{"tiocsti", "ok, queued true", "EPERM, queued false", "ioctl"},
		{"tiocsti64", "ok, queued true", "EPERM, queued false", "ioctl"},
		{"threads", "true", "true", ""},
		{"minus-one", "ENOSYS", "ENOSYS", ""},
		{"socket:40:1", "ok", "EAFNOSUPPORT", ""},                             // VSOCK
		{"socket:0xffffffff00000028:1", "ok", "EAFNOSUPPORT", ""},             // VSOCK behind high bits
		{"socket:16:3", "ok", "EAFNOSUPPORT", ""},                             // NETLINK
		{"socket:17:3", "ok", "EAFNOSUPPORT", ""},                             // PACKET
		{"socket:2:3:1", "ok", "EPERM", "socket"},                             // raw ICMP
		{"socket:2:1", "ok", "ok", ""},                                        // TCP
		{"socket:10:2", "ok", "ok", ""},                                       // UDP over IPv6
		{"socket:1:5", "ok", "ok", ""},                                        // UNIX
		{"unshare:0x10000000", "EINVAL", "EPERM", "unshare"},                  // NEWUSER needs a single thread: EINVAL is the kernel's own
		{"unshare:0x04000000", "ok", "EPERM", "unshare"},                      // NEWUTS
		{"personality:0x0400000", "ok", "EPERM", "personality"},               // READ_IMPLIES_EXEC
		{"personality:0xffffffff", "ok", "ok", ""},                            // read
		{"clone3:0:0", "EINVAL", "ENOSYS", ""},                                //
		{"keyctl:0:0xfffffffffffffffc:0", "ok", "EPERM", "keyctl"},            // the user's keyring
		{"memfd_secret:0", "ok", "EPERM", "memfd_secret"},                     //
		{"seccomp:1:8:0", "EFAULT", "EPERM", "seccomp"},                       // a listener of its own
		{"seccomp:1:0:0", "EFAULT", "EFAULT", ""},                             // a filter of its own
		{"prctl:62:0:0:1:0", "", "EINVAL", ""},                                // core scheduling; no control without SMT
		{"mbind:0:0:0:0:0:0", "ok", "ENOSYS", ""},                             // a machine without NUMA
		{"ptrace:0xffffffff:0xffffffff", "ESRCH", "EPERM", "ptrace"},          //
		{"open_tree:0xffffffff:0:0xffffffff", "EINVAL", "EPERM", "open_tree"}, //
	}
	var list []string
	for _, c := range cases {
		list = append(list, c.attempt)
	}
	control, o := attempts(t, bare, list...)
	if o.status.ExitStatus() != 0 {
		t.Fatalf("control: %v %s", o.status, o.stderr)
	}
	for _, m := range []mode{plain, heard} {
		got, o := attempts(t, m, list...)
		if o.status.ExitStatus() != 0 {
			t.Fatalf("%s: %#x %s", m, o.status, o.stderr)
		}
		want := map[string]bool{}
		for _, c := range cases {
			if c.control != "" && control[c.attempt] != c.control && !ordinary(control[c.attempt]) {
				t.Errorf("%s without the filter: %q, want %q: no proof", c.attempt, control[c.attempt], c.control)
			}
			if got[c.attempt] != c.answer {
				t.Errorf("%s under %s: %q, want %q", c.attempt, m, got[c.attempt], c.answer)
			}
			if c.denied != "" {
				want[c.denied] = true
			}
		}
		for _, name := range o.deniedNames() {
			if !want[name] {
				t.Errorf("%s: %s was denied unexpectedly", m, name)
			}
			delete(want, name)
		}
		if m == heard && len(want) != 0 {
			t.Errorf("the listener did not hear of %v", want)
		}
	}
}

// ordinary says that an attempt failed without the filter because it takes root,
// and we are an ordinary user: the run as root has the proof.
func ordinary(control string) bool {
	return os.Geteuid() != 0 && strings.HasPrefix(control, "EPERM")
}

// TestNoNamespaceByClone: a control run shows that each flag works without
// the filter.
func TestNoNamespaceByClone(t *testing.T) {
	var list []string
	for _, flag := range []uint64{0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000} {
		list = append(list, fmt.Sprintf("clone:%#x", flag|uint64(unix.SIGCHLD)), fmt.Sprintf("unshare:%#x", flag), fmt.Sprintf("setns:0:%#x", flag))
	}
	list = append(list, "unshare:0x80")
	control, _ := attempts(t, bare, list...)
	got, o := attempts(t, heard, append(list, "clone:17")...)
	for _, a := range list {
		known := control[a] == "ok" || control[a] == "EINVAL" && !strings.HasPrefix(a, "clone") // no single thread, no namespace file
		if !known && !ordinary(control[a]) {
			t.Errorf("%s without the filter: %q: no proof", a, control[a])
		}
		if got[a] != "EPERM" {
			t.Errorf("%s: %q, want EPERM", a, got[a])
		}
	}
	if got["clone:17"] != "ok" {
		t.Errorf("a plain fork: %q", got["clone:17"])
	}
	if names := o.deniedNames(); !slices.Equal(names, []string{"clone", "setns", "unshare"}) {
		t.Errorf("denied %v", names)
	}
}

// TestSocketFamilies asks for every family and type. The answer comes from the
// filter also where the kernel has no such family.
func TestSocketFamilies(t *testing.T) {
	var list []string
	for family := range 47 {
		for kind := 1; kind <= 5; kind++ {
			list = append(list, fmt.Sprintf("socket:%d:%d", family, kind))
		}
	}
	got, _ := attempts(t, plain, list...)
	if len(got) != len(list) {
		t.Fatalf("%d answers, want %d", len(got), len(list))
	}
	for _, a := range list {
		var family, kind int
		fmt.Sscanf(a, "socket:%d:%d", &family, &kind)
		want := "EAFNOSUPPORT"
		if family == afUNIX || family == afINET || family == afINET6 {
			switch kind {
			case sockSTREAM, sockDGRAM:
				want = "ok"
			case sockSEQPACKET:
				if want = "ok"; family != afUNIX {
					want = "ESOCKTNOSUPPORT" // the kernel's own answer: no SCTP here
				}
			default:
				want = "EPERM"
			}
		}
		if got[a] != want {
			t.Errorf("%s: %s, want %s", a, got[a], want)
		}
	}
}

// TestEveryRefusedCall makes each with arguments that do nothing in a kernel
// that let it through, and hears the name of each.
func TestEveryRefusedCall(t *testing.T) {
	m, err := machineFor("")
	if err != nil {
		t.Fatal(err)
	}
	var list, names []string
	for name, r := range mustRules(t) {
		if _, here := m.numbers()[name]; here && r.verdict == refuse {
			names = append(names, name)
			list = append(list, name+":-1:-1:-1:-1:-1:-1")
		}
	}
	slices.Sort(names)
	for i := range list {
		list[i] = strings.ReplaceAll(list[i], "-1", "0xffffffffffffffff")
	}
	got, o := attempts(t, heard, append([]string{"mode"}, list...)...)
	if got["mode"] != "2" {
		t.Fatalf("no filter: %q", got["mode"])
	}
	for _, a := range list {
		if got[a] != "EPERM" {
			t.Errorf("%s: %q", a, got[a])
		}
	}
	heardOf := o.deniedNames()
	if len(names) <= maxNames && !slices.Equal(heardOf, names) {
		t.Errorf("heard of %v, want %v", heardOf, names)
	}
	if len(heardOf) > maxNames {
		t.Errorf("%d names are remembered", len(heardOf))
	}
}

// TestKilled makes each killed call in a process of its own, with arguments
// that do nothing in a kernel that let it through.
func TestKilled(t *testing.T) {
	const nonsense = "0xffffffffffffffff"
	m, err := machineFor("")
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range mustRules(t) {
		if _, here := m.numbers()[name]; !here || r.verdict != kill {
			continue
		}
		attempt := name + strings.Repeat(":"+nonsense, 6)
		// Go's runtime catches SIGSYS, so the listener has to use SIGKILL.
		for how, signal := range map[mode]unix.Signal{plain: unix.SIGSYS, heard: unix.SIGKILL} {
			_, o := attempts(t, how, attempt)
			if !o.status.Signaled() || o.status.Signal() != signal {
				t.Errorf("%s under %s: ended with %#x %s, want %v", name, how, o.status, o.stdout, signal)
			}
			if how == heard && o.killed != name {
				t.Errorf("%s: the listener says %q ended the process", name, o.killed)
			}
		}
	}
}

// TestKilledBySIGSYS: a program that does nothing about SIGSYS dies of it.
func TestKilledBySIGSYS(t *testing.T) {
	m, err := machineFor("")
	if err != nil {
		t.Fatal(err)
	}
	reboot := fmt.Sprintf("syscall(%d, -1, -1, -1, -1); print 'survived'", m.numbers()["reboot"])
	for _, how := range []mode{plain, heard} {
		o := run(t, how, t.TempDir(), "perl", "-e", reboot)
		if !o.status.Signaled() || o.status.Signal() != unix.SIGSYS {
			t.Errorf("%s: %#x %s, want SIGSYS", how, o.status, o.stdout)
		}
		if how == heard && o.killed != "reboot" {
			t.Errorf("the listener says %q ended the process", o.killed)
		}
	}
}

func TestForeignCallsKill(t *testing.T) {
	for attempt, control := range map[string]string{"int80": "true", "x32": "ENOSYS"} {
		// x32 is compiled into few kernels; ENOSYS shows that ours has none.
		if got, _ := attempts(t, bare, attempt); got[attempt] != control {
			t.Errorf("%s without the filter: %q, want %q", attempt, got[attempt], control)
		}
		for _, m := range []mode{plain, heard} {
			if _, o := attempts(t, m, attempt); !o.status.Signaled() || o.status.Signal() != unix.SIGSYS {
				t.Errorf("%s under %s: %#x %s, want SIGSYS", attempt, m, o.status, o.stdout)
			}
		}
	}
}

// TestKilledAnyway: a process that keeps SIGSYS away dies too, and so does one
// whose call came from a thread that does not lead it.
func TestKilledAnyway(t *testing.T) {
	start := time.Now()
	_, o := attempts(t, heard, "thread")
	if !o.status.Signaled() || o.killed != "reboot" {
		t.Errorf("from a thread: %#x, killed %q, %s", o.status, o.killed, o.stdout)
	}
	_, o = attempts(t, heard, "blocked")
	if !o.status.Signaled() || o.killed != "reboot" {
		t.Errorf("with SIGSYS blocked: %#x, killed %q, %s", o.status, o.killed, o.stdout)
	}
	if d := time.Since(start); d > time.Minute {
		t.Errorf("took %v", d)
	}
}

// TestHammering: after a thousand refusals each answer waits, and the count is
// exact.
func TestHammering(t *testing.T) {
	start := time.Now()
	got, o := attempts(t, heard, "hammer")
	if got["hammer"] != "EPERM" {
		t.Fatalf("%q", got["hammer"])
	}
	if len(o.denied) != 1 || o.denied[0].Count != 1400 {
		t.Errorf("counted %v, want 1400 of unshare", o.denied)
	}
	if d := time.Since(start); d < 400*time.Millisecond {
		t.Errorf("took %v: the last 400 answers must wait a millisecond each", d)
	}
}

func TestDelayRises(t *testing.T) {
	l := &Listener{counts: map[string]int64{}, closed: make(chan struct{})}
	var last time.Duration
	for n := int64(1); n <= 100_000; n++ {
		last = l.count("ptrace")
		if n < freeRefusals && last != 0 {
			t.Fatalf("refusal %d waits %v", n, last)
		}
	}
	if last != maxDelay {
		t.Fatalf("after 100,000 refusals an answer waits %v, want %v", last, maxDelay)
	}
	for n := range 1000 {
		l.count(fmt.Sprint("syscall_", n))
	}
	if len(l.Denied()) != maxNames {
		t.Fatalf("%d names are remembered, want %d", len(l.Denied()), maxNames)
	}
}

func TestCloseEndsServe(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC) // never readable; stands in for a listener's descriptor
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewListener(fd)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- l.Serve() }()
	time.Sleep(10 * time.Millisecond)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-served:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Serve goes on after Close")
	}
	if err := l.Close(); err != nil {
		t.Fatalf("second Close: %v", err)
	}
}

// TestCloseFreesTheCaller: when the listener goes away, a program that waits
// for it gets ENOSYS and goes on.
func TestCloseFreesTheCaller(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	closeIt := func(l *Listener) error {
		time.Sleep(50 * time.Millisecond)
		return l.Close()
	}
	o := runWith(t, heard, t.TempDir(), closeIt, self, wordTry, "unshare:0", "ptrace:0")
	if want := "unshare:0 = ENOSYS\nptrace:0 = ENOSYS\n"; o.stdout != want || o.status.ExitStatus() != 0 {
		t.Fatalf("%#x %q %s", o.status, o.stdout, o.stderr)
	}
}

func TestConstantsAreTheKernels(t *testing.T) {
	for _, c := range []struct{ ours, theirs int }{
		{ePERM, int(unix.EPERM)},
		{eINVAL, int(unix.EINVAL)},
		{eNOSYS, int(unix.ENOSYS)},
		{eNOPROTOOPT, int(unix.ENOPROTOOPT)},
		{ePROTONOSUPPORT, int(unix.EPROTONOSUPPORT)},
		{eAFNOSUPPORT, int(unix.EAFNOSUPPORT)},
		{afUNIX, unix.AF_UNIX},
		{afINET, unix.AF_INET},
		{afINET6, unix.AF_INET6},
		{sockSTREAM, unix.SOCK_STREAM},
		{sockDGRAM, unix.SOCK_DGRAM},
		{sockSEQPACKET, unix.SOCK_SEQPACKET},
		{protoICMP, unix.IPPROTO_ICMP},
		{protoTCP, unix.IPPROTO_TCP},
		{protoUDP, unix.IPPROTO_UDP},
		{protoICMPV6, unix.IPPROTO_ICMPV6},
		{solIP, unix.SOL_IP},
		{solSOCKET, unix.SOL_SOCKET},
		{solIPV6, unix.SOL_IPV6},
		{soAttachFilter, unix.SO_ATTACH_FILTER},
		{soAttachBPF, unix.SO_ATTACH_BPF},
		{soAttachReuseportCBPF, unix.SO_ATTACH_REUSEPORT_CBPF},
		{soAttachReuseportEBPF, unix.SO_ATTACH_REUSEPORT_EBPF},
		{prioProcess, unix.PRIO_PROCESS},
		{cloneNamespaces, unix.CLONE_NEWTIME | unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET},
		{tiocSTI, unix.TIOCSTI},
		{tiocSETD, unix.TIOCSETD},
		{tiocCONS, unix.TIOCCONS},
		{tiocLINUX, 0x541c},
		{fSETLEASE, unix.F_SETLEASE},
		{fSETDELEG, unix.F_SETDELEG},
		{modeTypeMask, unix.S_IFMT},
		{modeFIFO, unix.S_IFIFO},
		{modeRegular, unix.S_IFREG},
		{modeSock, unix.S_IFSOCK},
		{filterFlagNewListener, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER},
		{retErrno, unix.SECCOMP_RET_ERRNO},
		{retUserNotif, unix.SECCOMP_RET_USER_NOTIF},
		{retAllow, unix.SECCOMP_RET_ALLOW},
		{retKillProcess, unix.SECCOMP_RET_KILL_PROCESS},
		{opLoad, unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		{opAnd, unix.BPF_ALU | unix.BPF_AND | unix.BPF_K},
		{opJump, unix.BPF_JMP | unix.BPF_JA},
		{opJEQ, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K},
		{opJGE, unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K},
		{opRet, unix.BPF_RET | unix.BPF_K},
		{machines[0].auditInt(), unix.AUDIT_ARCH_X86_64},
		{machines[1].auditInt(), unix.AUDIT_ARCH_AARCH64},
	} {
		if c.ours != c.theirs {
			t.Errorf("%#x, the kernel has %#x", c.ours, c.theirs)
		}
	}
	for _, option := range []uint32{unix.PR_SET_MM, unix.PR_SCHED_CORE, unix.PR_SET_IO_FLUSHER} {
		if slices.Contains(prctlOptions, option) {
			t.Errorf("prctl option %d is allowed", option)
		}
	}
}

func (m machine) auditInt() int { return int(m.audit) }
