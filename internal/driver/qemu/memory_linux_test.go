//go:build linux

package qemu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/guest"
	"pinfold/sandbox"
)

// talk is a process in a machine that answers what it is told.
type talk struct {
	t       *testing.T
	machine *machine
	guest   *guest.Guest
	process *guest.Process
	in      *io.PipeWriter
	out     *bufio.Reader
}

// begin has a machine run a program that answers.
func begin(t *testing.T, m *machine, program string) *talk {
	t.Helper()
	conn, err := m.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k := &talk{t: t, machine: m}
	if k.guest, err = guest.New(t.Context(), conn, hello(m.plan)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.guest.Close() })
	streams := k.streams()
	k.process, err = k.guest.Start(t.Context(), guest.Command{Args: []string{"python3", "-uc", program}, Env: []string{"PATH=/usr/bin:/bin", "HOME=/home/user"}, Dir: sandbox.Home}, streams)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *talk) streams() guest.Streams {
	inR, in := io.Pipe()
	outR, out := io.Pipe()
	k.in, k.out = in, bufio.NewReader(outR)
	k.t.Cleanup(func() { _, _, _ = in.Close(), outR.Close(), out.Close() })
	return guest.Streams{Stdin: inR, Stdout: out, Stderr: out}
}

// ask tells the program a line and returns its answer.
func (k *talk) ask(line string) string {
	k.t.Helper()
	if _, err := fmt.Fprintln(k.in, line); err != nil {
		k.t.Fatal(err)
	}
	said, err := k.out.ReadString('\n')
	if err != nil {
		k.t.Fatalf("%q, %v", said, err)
	}
	return strings.TrimSpace(said)
}

// taken is a snapshot with what the host knows.
type taken struct {
	moment  guest.Moment
	content []byte
}

// take takes a snapshot of a machine in which a program talks, which goes on.
func (k *talk) take() (s taken) {
	k.t.Helper()
	ctx := k.t.Context()
	held, err := k.guest.Hold(ctx, sandbox.Home)
	if err != nil {
		k.t.Fatal(err)
	}
	defer held.Release()
	if err := k.machine.Pause(ctx); err != nil {
		k.t.Fatal(err)
	}
	if s.moment, err = k.guest.Moment(ctx, held); err != nil {
		k.t.Fatal(err)
	}
	var content bytes.Buffer
	begun := time.Now()
	if err := k.machine.SnapshotMemory(ctx, &content); err != nil {
		k.t.Fatal(err)
	}
	k.t.Logf("%d MB in %s", content.Len()>>20, time.Since(begun))
	if err := k.machine.Resume(ctx); err != nil {
		k.t.Fatal(err)
	}
	s.content = content.Bytes()
	return s
}

// goOn makes a machine that goes on from a snapshot, and returns the first of its programs.
func (s taken) goOn(t *testing.T, d *Driver, plan driver.Plan) *talk {
	t.Helper()
	begun := time.Now()
	m, err := d.RestoreMemory(t.Context(), plan.Named(fmt.Sprintf("f%d", time.Now().UnixNano()%1e12)), bytes.NewReader(s.content))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("goes on after %s", time.Since(begun))
	t.Cleanup(func() {
		if err := m.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	conn, err := m.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	one := m.(*machine)
	k := &talk{t: t, machine: one}
	var all []*guest.Process
	k.guest, all = guest.Continued(conn, hello(plan), s.moment, func(guest.ProcessMoment) guest.Streams { return k.streams() })
	t.Cleanup(func() { _ = k.guest.Close() })
	k.process = all[0]
	return k
}

// answers is a program that counts what it is asked, and says what a machine is known by.
const answers = `
import os, secrets, sys, time, uuid
said = 0
for line in sys.stdin:
    said += 1
    if line == "who\n":
        boot = open("/proc/sys/kernel/random/boot_id").read().strip()
        print(" ".join("%s=%s" % kv for kv in {"urandom": os.urandom(16).hex(), "secret": secrets.token_hex(16), "uuid": uuid.uuid4(), "boot": boot,
            "key": os.popen("head -c 16 /dev/random | od -An -tx1 | tr -d ' \n'").read(), "wall": time.time()}.items()))
    else:
        open("kept", "a").write(line)
        print(said, line.strip(), open("kept").read().split())
`

// alike lists what two machines say that is the same.
func (k *talk) alike(other *talk) (shared []string) {
	k.t.Helper()
	tell := func(k *talk) map[string]string {
		said := map[string]string{}
		for _, field := range strings.Fields(k.ask("who")) {
			key, value, _ := strings.Cut(field, "=")
			said[key] = value
		}
		return said
	}
	one, two := tell(k), tell(other)
	if len(one) != 6 {
		k.t.Fatalf("it says %v", one)
	}
	for _, key := range slices.Sorted(maps.Keys(one)) {
		if one[key] == two[key] {
			shared = append(shared, key)
		}
	}
	var wall float64
	if _, err := fmt.Sscan(two["wall"], &wall); err != nil {
		k.t.Fatal(err)
	}
	if time.Since(time.Unix(0, int64(wall*1e9))) > 4*time.Second {
		shared = append(shared, "clock")
	}
	return shared
}

// Two machines go on from one moment, each its own way, as the first does, with what ran in
// it, its memory, its files and its streams; a machine that went on can be taken, too. They
// share no random number, no id, no key and no clock. Without what makes them strangers they
// do. A snapshot of anything else than what is here is refused, and so is one that was
// written by somebody else.
func TestMemorySnapshot(t *testing.T) {
	d := open(t, options(t))
	first := begin(t, made(t, d), answers)
	first.ask("a")
	s, at := first.take(), time.Now()
	plan := first.machine.plan
	if got := first.ask("first"); got != "2 first ['a', 'first']" {
		t.Errorf("the first says %q", got)
	}
	t.Run("each goes its own way", func(t *testing.T) {
		one, two := s.goOn(t, d, plan), s.goOn(t, d, plan)
		if got := one.ask("one"); got != "2 one ['a', 'one']" {
			t.Errorf("the second says %q", got)
		}
		if got := two.ask("two"); got != "2 two ['a', 'two']" {
			t.Errorf("the third says %q", got)
		}
		time.Sleep(time.Until(at.Add(5 * time.Second))) // for the clock
		if shared := one.alike(two); len(shared) > 0 {
			t.Errorf("two machines share %v", shared)
		}
		again := two.take().goOn(t, d, plan)
		if got := again.ask("again"); got != "4 again ['a', 'two', 'again']" {
			t.Errorf("one of the third says %q", got)
		}
		if got := two.ask("more"); got != "4 more ['a', 'two', 'more']" {
			t.Errorf("the third says %q", got)
		}
		_ = again.in.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if e, err := again.process.Wait(ctx); err != nil || e.Code != 0 {
			t.Errorf("the end of its input: %+v, %v", e, err)
		}
	})
	t.Run("control: they are alike", func(t *testing.T) {
		d.o.stale = true
		defer func() { d.o.stale = false }()
		if shared := s.goOn(t, d, plan).alike(s.goOn(t, d, plan)); !slices.Contains(shared, "boot") || !slices.Contains(shared, "clock") {
			t.Fatalf("they share %v alone", shared)
		}
		for range 5 { // kernels begin anew by themselves, some seconds after they have, when they are asked
			first.ask("who")
			now := first.take()
			shared := now.goOn(t, d, plan).alike(now.goOn(t, d, plan))
			if slices.Contains(shared, "urandom") && slices.Contains(shared, "secret") && slices.Contains(shared, "uuid") {
				return
			}
		}
		t.Error("no two machines drew the same from their kernels")
	})
	t.Run("of another", func(t *testing.T) {
		larger := plan
		larger.Limits.MemoryBytes *= 4
		_, err := d.RestoreMemory(t.Context(), larger.Named("larger"), bytes.NewReader(s.content))
		if e := sandbox.AsError(err); e == nil || e.Code != sandbox.CodeConflict || !strings.Contains(e.Message, "size") {
			t.Errorf("of another size: %v", err)
		}
		for what, content := range map[string][]byte{"cut": s.content[:len(s.content)-1], "longer": append(bytes.Clone(s.content), 0)} {
			if _, err := d.RestoreMemory(t.Context(), plan.Named("other"), bytes.NewReader(content)); sandbox.AsError(err).Code != sandbox.CodeStateCorrupt {
				t.Errorf("%s: %v", what, err)
			}
		}
		broken := bytes.Clone(s.content)
		n := 4 + int(binary.BigEndian.Uint32(broken))
		copy(broken[n+4:], "this is no state of a machine's devices")
		if m, err := d.RestoreMemory(t.Context(), plan.Named("broken"), bytes.NewReader(broken)); err == nil {
			_ = m.Destroy(t.Context())
			t.Error("a machine goes on from what is no state")
		}
	})
	t.Run("what is printed goes on", func(t *testing.T) { outputGoesOn(t, d) })
	t.Run("what it is known by", func(t *testing.T) {
		of := func(l launch) fingerprint {
			t.Helper()
			f, err := d.fingerprint(l)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		l := first.machine.process.launch
		f, other := of(l), l
		other.kvm = true
		if g := of(other); f == g || f.Kernel != g.Kernel || f.Disk != g.Disk || f.Kernel == "" || f.Disk == "" || f.QEMU == "" {
			t.Errorf("%+v, by KVM %+v", f, g)
		}
		another := &Driver{host: &host{program: d.host.program, image: d.host.initramfs, initramfs: d.host.image}}
		if g, err := another.fingerprint(l); err != nil || g.Kernel == f.Kernel {
			t.Errorf("another kernel and initial file system are the same: %v", err)
		}
	})
	t.Run("the machine has ended", func(t *testing.T) {
		if err := first.machine.SnapshotMemory(t.Context(), io.Discard); err == nil || errors.Is(err, driver.ErrEnded) {
			t.Errorf("of a machine that runs: %v", err)
		}
		if err := first.machine.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := first.machine.SnapshotMemory(t.Context(), io.Discard); !errors.Is(err, driver.ErrEnded) {
			t.Errorf("of a machine that has ended: %v", err)
		}
	})
}

// counts is a program that prints numbers without end.
const counts = `
import sys
n = 0
while True:
    sys.stdout.write("".join("%d\n" % i for i in range(n, n + 1000)))
    n += 1000
`

// A program that prints all the time loses nothing by a snapshot, whether it is read or waits
// for its reader: the first one goes on where it was, and so does what goes on in a copy.
func outputGoesOn(t *testing.T, d *Driver) {
	t.Helper()
	first := begin(t, made(t, d), counts)
	follow := func(k *talk, from string) string { // more than a window
		for range 60_000 {
			said, err := k.out.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if from != "" && said != from {
				t.Fatalf("it says %q, want %q", said, from)
			}
			var n int
			if _, err := fmt.Sscan(said, &n); err == nil {
				from = fmt.Sprintln(n + 1)
			}
		}
		return from
	}
	at := follow(first, "0\n")
	time.Sleep(time.Second) // nobody reads, and it has to wait
	full := first.take()
	at = follow(first, at)
	one := full.goOn(t, d, first.machine.plan)
	if _, err := one.out.ReadString('\n'); err != nil { // half of it the first one has
		t.Fatal(err)
	}
	follow(one, "")
	busy := one.take() // while it prints
	follow(busy.goOn(t, d, first.machine.plan), "")
	follow(first, at)
}
