//go:build linux

package drivertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"
	"pinfold/sandbox"
)

var isolationTests = []test{
	{"what a process is", (*harness).testSelf},
	{"threads are like the process", (*harness).testThreads},
	{"environment", (*harness).testEnvironment},
	{"no network", (*harness).testNetwork},
	{"no host files", (*harness).testHostFiles},
	{"writable places", (*harness).testWritable},
	{"what the engine keeps", (*harness).testKept},
	{"two sandboxes", (*harness).testTwo},
	{"a computer of its own", (*harness).testComputer},
	{"nothing else of the host's computer", (*harness).testNothingElse},
}

// self is what the probe says about itself.
type self struct {
	Env        []string
	FDs        []int
	UID, GID   int
	Groups     []int
	Status     map[string]string
	Dir        string
	Hostname   string
	Interfaces []string
	PIDs       []string
	Leader     bool
}

const noCapabilities = "0000000000000000"

func (h *harness) testSelf() {
	b := h.probed(sandbox.Limits{})
	var s self
	b.ask(&s, "self")
	want := self{
		Env: env, FDs: []int{0, 1, 2}, UID: sandbox.UID, GID: sandbox.GID,
		Dir: b.plan.User.Home, Hostname: "sandbox", Interfaces: []string{"lo"}, Leader: true,
	}
	got := s
	got.Status, got.Groups, got.PIDs = nil, nil, nil
	if !h.enforced(sandbox.FeatureUserNS) { // it has ids of the host's, and no others
		want.UID, want.GID = got.UID, got.GID
		if got.UID == 0 || h.enforced(sandbox.FeatureUIDBlock) && got.UID == os.Geteuid() {
			h.Errorf("its user is %d, ours %d", got.UID, os.Geteuid())
		}
	}
	if !h.enforced(sandbox.FeatureUTSNS) {
		want.Hostname = got.Hostname
	}
	if !h.enforced(sandbox.FeatureNetNS) {
		want.Interfaces = got.Interfaces
	}
	if diff := cmp.Diff(want, got); diff != "" {
		h.Errorf("a process in the sandbox (-want +got):\n%s", diff)
	}
	if groups := slices.DeleteFunc(s.Groups, func(g int) bool { return g == want.GID || g == 65534 }); len(groups) > 0 {
		h.Errorf("it is in groups %v", s.Groups)
	}
	if len(s.PIDs) > 2 && h.enforced(sandbox.FeaturePIDNS) {
		h.Errorf("it sees the processes %v", s.PIDs)
	}
	h.checkStatus(s.Status)
}

// checkStatus judges the file status of a process or a thread (proc(5)).
func (h *harness) checkStatus(status map[string]string) {
	h.Helper()
	want := map[string]string{}
	if h.enforced(sandbox.FeatureCapabilities) {
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			want[set] = noCapabilities
		}
	}
	if h.enforced(sandbox.FeatureNoNewPrivs) {
		want["NoNewPrivs"] = "1"
	}
	if h.enforced(sandbox.FeatureSeccomp) {
		want["Seccomp"] = "2"
	}
	for k, v := range want {
		if status[k] != v {
			h.Errorf("%s of %s is %q, not %q", k, status["Name"], status[k], v)
		}
	}
}

func (h *harness) testThreads() {
	b := h.probed(sandbox.Limits{})
	var all []map[string]string
	b.ask(&all, "threads")
	if len(all) < 3 {
		h.Fatalf("only %d threads", len(all))
	}
	for _, status := range all {
		h.checkStatus(status)
	}
}

// Nothing of this process's environment gets in, neither to the program nor to
// the agent.
func (h *harness) testEnvironment() {
	const canary = "pinfold-environment-canary"
	h.Setenv("PINFOLD_CANARY", canary)
	b := h.probed(sandbox.Limits{})
	var s self
	b.ask(&s, "self")
	if diff := cmp.Diff(env, s.Env); diff != "" {
		h.Errorf("environment (-want +got):\n%s", diff)
	}
	r := b.run("/bin/sh", "-c", "cat /proc/1/environ /proc/1/cmdline /proc/self/environ /proc/*/environ 2>/dev/null; true")
	if strings.Contains(r.out, canary) {
		h.Error("the canary can be read inside")
	}
}

// canaryListener accepts connections and counts them.
func (h *harness) canaryListener(network, address string) (string, *atomic.Int64) {
	h.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		h.Fatal(err)
	}
	var hits atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			hits.Add(1)
			_ = conn.Close()
		}
	}()
	h.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String(), &hits
}

func (h *harness) testNetwork() {
	if !h.enforced(sandbox.FeatureNetworkNone) {
		h.Skip("the report says that the network is not shut")
	}
	tcp, tcpHits := h.canaryListener("tcp4", "127.0.0.1:0")
	abstract, abstractHits := h.canaryListener("unix", fmt.Sprintf("@pinfold-canary-%d", os.Getpid()))
	b := h.probed(sandbox.Limits{})
	var found map[string]string
	b.ask(&found, "dial", "tcp", tcp, "unix", abstract, "tcp", "192.0.2.1:80", "tcp", "[2001:db8::1]:80", "udp", "192.0.2.1:53")
	for address, errno := range found {
		if errno == "ok" {
			h.Errorf("the sandbox reached %s", address)
		}
	}
	time.Sleep(10 * time.Millisecond)
	if n := tcpHits.Load() + abstractHits.Load(); n != 0 {
		h.Errorf("the canaries were hit %d times", n)
	}
	for network, address := range map[string]string{"tcp": tcp, "unix": abstract} { // the control
		conn, err := net.Dial(network, address)
		if err != nil {
			h.Fatalf("the canary %s cannot be reached from outside either: %v", address, err)
		}
		_ = conn.Close()
	}
}

func (h *harness) testHostFiles() {
	canary, err := os.CreateTemp("/var/tmp", "pinfold-canary-")
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = os.Remove(canary.Name()) })
	_ = canary.Close()
	_ = os.Chmod(canary.Name(), 0o644) //nolint:gosec // it must be readable for a control
	paths := []string{
		canary.Name(), "/root", "/etc/shadow", "/sys/class", "/sys/kernel",
		"/proc/sysrq-trigger", "/proc/1/root", "/proc/1/environ", "/dev/kmsg", "/dev/mem", "/dev/fuse", "/dev/kvm", "/run/pinfold",
	}
	if h.o.Host {
		paths = append(paths, "/etc/ssh", "/var/log", "/opt", "/srv", "/boot", "/proc/kcore")
	}
	b := h.probed(sandbox.Limits{})
	var found map[string]string
	b.ask(&found, append([]string{"open"}, paths...)...)
	for path, errno := range found {
		if errno == "ok" {
			h.Errorf("%s can be opened inside", path)
		}
	}
	if f, err := os.Open(canary.Name()); err != nil { // the control
		h.Errorf("the canary cannot be opened outside either: %v", err)
	} else {
		_ = f.Close()
	}
	if !h.enforced(sandbox.FeatureMountNS) { // nothing is hidden, and nothing can be listed
		found = nil
		b.ask(&found, "open", "/", "/home", "/var", "/var/tmp", "/run", "/etc", "/dev", "/sys")
		for path, errno := range found {
			if errno == "ok" {
				h.Errorf("%s can be opened inside", path)
			}
		}
		return
	}
	if !h.o.Host {
		return
	}
	var dirs map[string][]string
	b.ask(&dirs, "list", "/home", "/var", "/run", "/etc/ssl")
	for dir, want := range map[string][]string{"/home": {"user"}, "/var": {"tmp"}, "/run": nil} {
		if diff := cmp.Diff(want, dirs[dir]); diff != "" {
			h.Errorf("%s inside (-want +got):\n%s", dir, diff)
		}
	}
}

func (h *harness) testWritable() {
	b := h.probed(sandbox.Limits{})
	want := map[string]bool{
		"/home/user": true, "/tmp": true, "/var/tmp": true, "/dev/shm": true,
		"/": false, "/etc": false, "/usr": false, "/usr/bin": false, "/var": false, "/home": false, "/dev": false, "/run": false, "/proc": false,
	}
	if !h.enforced(sandbox.FeatureMountNS) {
		for dir := range want {
			want[dir] = false
		}
		want[b.plan.User.Home], want[b.plan.User.Tmp] = true, true
	}
	args := []string{"create"}
	for dir := range want {
		args = append(args, dir)
	}
	var found map[string]string
	b.ask(&found, args...)
	for dir, writable := range want {
		if (found[dir] == "ok") != writable {
			h.Errorf("making a file in %s: %s", dir, found[dir])
		}
	}
}

// What one sandbox makes, another does not see, but itself does.
func (h *harness) testTwo() {
	a, b := h.probed(sandbox.Limits{}), h.probed(sandbox.Limits{})
	marker := a.plan.User.Tmp + "/marker"
	const socket, key = "@pinfold-neighbour", "4711"
	var said string
	a.hold(&said, "listen", socket)
	var shm string
	a.hold(&shm, "shmput", key)
	if err := a.WriteFile(h.ctx, marker, 0o666, 1, strings.NewReader("x")); err != nil {
		h.Fatal(err)
	}
	for name, c := range map[string]struct {
		box  *box
		want bool
	}{"itself": {a, true}, "its neighbour": {b, false}} {
		var dialled, opened map[string]string
		var got string
		var s self
		c.box.ask(&dialled, "dial", "unix", socket)
		c.box.ask(&opened, "open", marker)
		c.box.ask(&got, "shmget", key)
		c.box.ask(&s, "self")
		seen := map[string]bool{"socket": dialled[socket] == "ok", "file": opened[marker] == "ok", "shared memory": got == "ok"}
		want := map[string]bool{"socket": c.want && said == "listening", "file": c.want, "shared memory": c.want && shm == "ok"}
		if diff := cmp.Diff(want, seen); diff != "" {
			h.Errorf("what a sandbox makes, %s sees (-want +got):\n%s", name, diff)
		}
		if alone := len(s.PIDs) <= 2; alone == c.want && h.enforced(sandbox.FeaturePIDNS) {
			h.Errorf("%s sees the processes %v", name, s.PIDs)
		}
	}
}

// lastLine decodes what a probe said before it ended.
func lastLine(x *holding, found any) error {
	<-x.Done()
	select {
	case line := <-x.lines:
		return json.Unmarshal([]byte(line), found)
	default:
		return errors.New("the probe said nothing")
	}
}
