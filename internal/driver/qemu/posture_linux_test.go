//go:build linux

package qemu

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/internal/image/imagetest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// made makes a machine that is gone when the test ends.
func made(t *testing.T, d *Driver) *machine {
	t.Helper()
	r, err := d.Probe(t.Context(), imagetest.Host(t))
	if err != nil || r.Blocked != nil {
		t.Fatalf("%v, %+v", err, r.Blocked)
	}
	plan, err := driver.MakePlan(sandbox.Spec{Code: "x"}.WithDefaults().Machine(), imagetest.Host(t), r, fmt.Sprintf("t%d", time.Now().UnixNano()%1e12))
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Create(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m.(*machine)
}

// says runs a shell's command in a machine, whose first it is.
func says(t *testing.T, m *machine, script string) string {
	t.Helper()
	conn, err := m.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g, err := guest.New(t.Context(), conn, wire.Hello{UID: sandbox.UID, GID: sandbox.GID, SwitchUser: m.plan.SwitchUser, Home: sandbox.Home})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var out bytes.Buffer
	p, err := g.Start(t.Context(), guest.Command{Args: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}, guest.Streams{Stdout: &out, Stderr: &out})
	if err == nil {
		_, err = p.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Who breaks QEMU stands in a process that has nothing: a user of its own, no rights, no
// network, two filters, its own namespaces, sockets that lead to us, and files that nobody
// can write to.
func TestJail(t *testing.T) {
	m := made(t, open(t, options(t)))
	proc := fmt.Sprintf("/proc/%d/", m.process.child.PID)
	text, err := os.ReadFile(proc + "status")
	if err != nil {
		t.Fatal(err)
	}
	const none = "0000000000000000"
	uid := strings.Join(slices.Repeat([]string{fmt.Sprint(m.process.block.Base + sandbox.UID)}, 4), "\t")
	want := map[string]string{
		"Uid": uid, "Gid": uid, "Groups": "", "CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "2",
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if wanted, ok := want[key]; ok && strings.TrimSpace(value) != wanted {
			t.Errorf("%s is %q, not %q", key, strings.TrimSpace(value), wanted)
		}
		delete(want, key)
	}
	if len(want) > 0 {
		t.Errorf("the kernel does not say %v", want)
	}
	for _, ns := range []string{"mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		ours, _ := os.Readlink("/proc/self/ns/" + ns)
		if theirs, err := os.Readlink(proc + "ns/" + ns); err != nil || theirs == ours {
			t.Errorf("its %s namespace is the host's: %v", ns, err)
		}
	}
	devices, err := os.ReadFile(proc + "net/dev")
	if err != nil || strings.Count(string(devices), ":") != 1 {
		t.Errorf("its network: %v\n%s", err, devices)
	}
	root, err := os.ReadDir(proc + "root")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range root {
		if !slices.Contains([]string{"usr", "lib", "lib64", "etc", "proc"}, e.Name()) {
			t.Errorf("it sees /%s", e.Name())
		}
	}
	if etc, err := os.ReadDir(proc + "root/etc"); err != nil || len(etc) != 1 {
		t.Errorf("its /etc has %v, %v", etc, err)
	}
	if err := os.WriteFile(proc+"root/x", nil, 0o600); err == nil {
		t.Error("its root can be written to")
	}
	checkFiles(t, proc)
	if env, err := os.ReadFile(proc + "environ"); err != nil || bytes.Contains(env, []byte("HOME")) {
		t.Errorf("its environment is %q, %v", env, err)
	}
}

// checkFiles looks at what a QEMU has open.
func checkFiles(t *testing.T, proc string) {
	t.Helper()
	files, err := filepath.Glob(proc + "fd/*")
	if err != nil || len(files) < 8 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		to, err := os.Readlink(f)
		if err != nil {
			continue // closed meanwhile
		}
		name, _, _ := strings.Cut(to, ":")
		ok := slices.Contains([]string{"socket", "anon_inode", "pipe"}, name) || slices.Contains([]string{"/memfd", "/memfd"}, name)
		if !ok {
			t.Errorf("it has %s open", to)
		}
		if name != "/memfd" {
			continue
		}
		if w, err := os.OpenFile(f, os.O_WRONLY, 0); err == nil { // as it could itself
			if _, err := w.Write([]byte("x")); err == nil {
				t.Errorf("it can write to %s, which other machines have, too", to)
			}
			_ = w.Close()
		}
	}
}

// Machines that go on from one snapshot share no random number and no id, and their clock is
// right; without what makes them strangers they would share an id, and the clock would stand where
// the snapshot was taken.
func TestSnapshotsAreStrangers(t *testing.T) {
	const script = `head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n'; echo; cat /proc/sys/kernel/random/uuid; cat /proc/sys/kernel/random/boot_id; mktemp -u XXXXXXXXXXXX; date +%s`
	for _, stale := range []bool{false, true} {
		o := options(t)
		o.stale = stale
		d := open(t, o)
		made(t, d) // what is asked for again gets a snapshot with the sandbox in it
		first := made(t, d)
		const apart = 4 * time.Second
		time.Sleep(apart) // the snapshot is that old
		second := made(t, d)
		if first.process.greeting == nil || second.process.greeting == nil {
			t.Error("they do not go on from one snapshot with a sandbox in it")
		}
		a, b := strings.Fields(says(t, first, script)), strings.Fields(says(t, second, script))
		if len(a) != 5 || len(b) != 5 {
			t.Fatalf("%q %q", a, b)
		}
		for i := range a[:4] {
			if a[i] == b[i] && !stale {
				t.Errorf("both have %s", a[i])
			}
		}
		if a[2] != b[2] && stale {
			t.Error("without what makes them strangers they have two boot ids: nothing was shown")
		}
		var clock int64
		if _, err := fmt.Sscan(b[4], &clock); err != nil {
			t.Fatal(err)
		}
		if late := time.Since(time.Unix(clock, 0)); (late > apart-time.Second) != stale {
			t.Errorf("its clock is late by %s, with a stale snapshot: %v", late, stale)
		}
	}
}
