//go:build linux

package drivertest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"pinfold/internal/driver"
	"pinfold/internal/filetree"
	"pinfold/internal/guest"
	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// snapshotTests are for drivers of whose machines snapshots can be made.
var snapshotTests = []test{
	{"files come back as they were", (*harness).testSnapshotFiles},
	{"files of one moment", (*harness).testSnapshotMoment},
	{"a tree deeper than any path", (*harness).testSnapshotDeep},
	{"a full disk", (*harness).testSnapshotFull},
	{"the machine has ended", (*harness).testSnapshotEnded},
}

// snapshotter is the machine's. A driver that declares no snapshots has none, and the test
// ends there.
func (h *harness) snapshotter(m driver.Machine) driver.Snapshotter {
	h.Helper()
	holds, s := h.driver.Abilities().Snapshots, m.Abilities().Snapshotter
	switch {
	case len(holds) == 0 && s != nil:
		h.Fatal("the driver does not declare that snapshots of its machines can be made")
	case len(holds) == 0:
		h.Skip("the driver declares that no snapshots of its machines can be made")
	case s == nil:
		Missing(h, "there is no freezer here")
	}
	return s
}

// declared ends a test of a driver that declares no snapshots of files, before it makes a machine.
func (h *harness) declared() {
	h.Helper()
	switch holds := h.driver.Abilities().Snapshots; {
	case len(holds) == 0:
		h.Skip("the driver declares that no snapshots of its machines can be made")
	case !slices.Contains(holds, sandbox.SnapshotFiles):
		h.Skip("the driver declares that snapshots of its machines hold no files by themselves")
	}
}

// snapshot pauses the machine, takes a snapshot, and lets it go on.
func (b *box) snapshot() []byte {
	b.h.Helper()
	s, p := b.h.snapshotter(b.Machine), b.h.pauser(b.Machine)
	if err := p.Pause(b.h.ctx); err != nil {
		b.h.Fatal(err)
	}
	var out bytes.Buffer
	w := filetree.NewWriter(&out)
	err := s.Snapshot(b.h.ctx, w)
	if err == nil {
		_, err = w.End()
	}
	if err != nil {
		b.h.Fatalf("Snapshot: %v", err)
	}
	b.h.is(p, true)
	if err := p.Resume(b.h.ctx); err != nil {
		b.h.Fatal(err)
	}
	return out.Bytes()
}

// restored makes a machine with the files of a snapshot.
func (h *harness) restored(l sandbox.Limits, snapshot []byte) *box {
	h.Helper()
	b := h.box(l)
	var places []wire.RestorePlace
	for _, p := range b.plan.Writable() {
		places = append(places, wire.RestorePlace(p))
	}
	if _, err := b.Restore(h.ctx, places, bytes.NewReader(snapshot)); err != nil {
		h.Fatalf("Restore: %v", err)
	}
	return b
}

// tree reads a snapshot: what there is, described, by path. Files that are one are told by
// the first name that they have in order.
func tree(tb testing.TB, snapshot []byte) map[string]string {
	tb.Helper()
	all, names, said := map[string]string{}, map[uint64][]string{}, map[uint64]string{}
	r := filetree.NewReader(bytes.NewReader(snapshot))
	at := []string{}
	for {
		e, err := r.Next()
		if err != nil {
			tb.Fatal(err)
		}
		name := strings.Join(append(slices.Clone(at), e.Name), "/")
		switch e.Kind {
		case filetree.End:
			for number, same := range names {
				slices.Sort(same)
				for _, n := range same {
					all[n] = said[number] + " is " + same[0]
				}
			}
			return all
		case filetree.Place, filetree.Dir:
			at = append(at, e.Name)
		case filetree.Up:
			all[strings.Join(at, "/")+"/"] = fmt.Sprintf("%o", e.Mode)
			if len(at) > 1 { // a place's own time is when something was made in it
				all[strings.Join(at, "/")+"/"] += fmt.Sprintf(" at %d", e.MtimeNS)
			}
			at = at[:len(at)-1]
		case filetree.Symlink:
			all[name] = "-> " + e.Target
		case filetree.Link:
			names[e.Number] = append(names[e.Number], name)
		case filetree.File:
			if e.Number > 0 {
				names[e.Number] = append(names[e.Number], name)
			}
			all[name] = fmt.Sprintf("%o at %d: %d bytes, %s", e.Mode, e.MtimeNS, e.Size, content(tb, r))
			said[e.Number] = all[name]
		}
	}
}

// content describes a file's content: its hash, and where its holes are.
func content(tb testing.TB, r *filetree.Reader) string {
	tb.Helper()
	sum, holes, at := sha256.New(), "", int64(0)
	for {
		gap, piece, err := r.Content()
		if err != nil {
			tb.Fatal(err)
		}
		if gap == 0 && piece == nil {
			return fmt.Sprintf("%x%s", sum.Sum(nil)[:6], holes)
		}
		if gap > 0 {
			holes += fmt.Sprintf(" hole %d+%d", at, gap)
		}
		_, _ = sum.Write(piece)
		at += gap + int64(len(piece))
	}
}

// differs fails where two trees are not the same.
func differs(tb testing.TB, got, want map[string]string) {
	tb.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			tb.Errorf("%q: %q, want %q", name, got[name], want[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			tb.Errorf("%q is there: %q", name, got[name])
		}
	}
}

// makeFiles is a program that makes one of everything.
const makeFiles = `set -e
cd "$HOME"
printf 'plain\n' >plain; chmod 751 plain; touch -d '2001-02-03 04:05:06' plain
mkdir -p dir/below /tmp/t /var/tmp/v; echo x >dir/below/x; chmod 500 dir/below; touch -d '2002-02-02 00:00:00' dir/below
echo secret >/tmp/t/closed; chmod 0 /tmp/t/closed
mkdir -p dark/below; echo x >dark/below/x; ln -s x dark/below/link; chmod 700 dark/below; chmod 0 dark
truncate -s 3M /tmp/holes; printf begin >>/tmp/holes; printf middle | dd of=/tmp/holes bs=1 seek=1M conv=notrunc 2>/dev/null; truncate -s 9000000000 /tmp/holes
ln -s /etc/passwd out; ln -s ../../../../../../etc/shadow up; ln -s "$(printf 'odd\ntarget')" odd
echo one >a; ln a b; ln a dir/c
mkdir moved; echo two >moved/two; ln moved/two two
printf odd >"$(printf 'new\nline')"; printf odd >"$(printf '\377\376')"; printf odd >-- '-n'; mkdir '*'; : >'..x'
: >"$(printf '%0255d' 0)"
echo v >/var/tmp/v/v; mkfifo pipe
`

func (h *harness) testSnapshotFiles() {
	h.declared()
	if !h.o.Kernel {
		h.testSnapshotNoKernel()
		return
	}
	b := h.box(sandbox.Limits{})
	h.snapshotter(b.Machine)
	if r := b.run("/bin/sh", "-c", makeFiles); r.Code != 0 {
		h.Fatalf("%+v", r)
	}
	first := b.snapshot()
	want := tree(h, first)
	for name, says := range map[string]string{
		"home/plain": "751 at 981173106000000000: 6 bytes", "home/dir/below/": "500 at 1012608000000000000", "home/out": "-> /etc/passwd",
		"home/up": "-> ../../../../../../etc/shadow", "home/a": " is home/a", "home/dir/c": " is home/a", "home/two": " is home/moved/two",
		"home/new\nline": "3 bytes", "home/\xff\xfe": "3 bytes", "/tmp/holes": "9000000000 bytes", "/tmp/": "1777", "home/..x": ": 0 bytes", "/var/tmp/v/v": "2 bytes",
	} {
		if !strings.Contains(want[name], says) {
			h.Errorf("%q is %q, want %q in it", name, want[name], says)
		}
	}
	if !strings.Contains(want["/tmp/holes"], "hole 0+1048576") {
		h.Errorf("a file with holes has none: %s", want["/tmp/holes"])
	}
	if _, ok := want["home/pipe"]; ok {
		h.Error("a pipe is in the snapshot")
	}
	again := h.restored(sandbox.Limits{}, first)
	differs(h, tree(h, again.snapshot()), want)
	if r := again.run("/bin/sh", "-c", `cat "$HOME/plain" && chmod 700 "$HOME/dir/below" && rm -rf "$HOME/dir" "$HOME/moved" && echo more >>"$HOME/a" && cat "$HOME/b"`); r.out != "plain\none\nmore\n" {
		h.Errorf("its user cannot do with it what he could: %+v", r)
	}
	if r := again.run("/bin/sh", "-c", "chmod 600 /tmp/t/closed && cat /tmp/t/closed"); r.out != "secret\n" {
		h.Errorf("a closed file: %+v", r)
	}
	differs(h, tree(h, b.snapshot()), want) // the first one is a world of its own
}

func (h *harness) testSnapshotNoKernel() {
	b := h.box(sandbox.Limits{})
	for name, text := range map[string]string{"a": "alpha", "d/e/f": "deep", "/tmp/t": ""} {
		if err := b.WriteFile(h.ctx, name, 0o640, int64(len(text)), strings.NewReader(text)); err != nil {
			h.Fatal(err)
		}
	}
	first := b.snapshot()
	again := h.restored(sandbox.Limits{}, first)
	var got bytes.Buffer
	if _, err := again.ReadFile(h.ctx, "d/e/f", 10, &got); err != nil || got.String() != "deep" {
		h.Errorf("%q, %v", got.String(), err)
	}
	names := func(s []byte) []string { return slices.Sorted(maps.Keys(tree(h, s))) }
	if !slices.Equal(names(again.snapshot()), names(first)) {
		h.Errorf("%q, want %q", names(again.snapshot()), names(first))
	}
}

// generations is how many files a program rewrites over and over, in their order.
const generations = 200

// torn says whether the files are of no one moment: then some have been written for the nth
// time, and those after them for the time before.
func torn(all map[string]string) (is bool, moments int) {
	var seen []string
	for i := range generations {
		seen = append(seen, all[path.Join("home", fmt.Sprintf("g%03d", i))])
	}
	seen = slices.Compact(seen)
	return len(seen) > 2, len(seen)
}

// A program that writes all the time is seen at one moment. Without the pause it is not.
func (h *harness) testSnapshotMoment() {
	h.declared()
	if !h.o.Kernel {
		h.Skip("this driver's machines hold no real processes")
	}
	b := h.box(sandbox.Limits{})
	s := h.snapshotter(b.Machine)
	// Each file is replaced as a whole.
	const program = `import os
n = 0
while True:
    n += 1
    for i in range(200):
        with open("new", "w") as f: f.write(str(n))
        os.rename("new", "g%03d" % i)
`
	if _, err := b.Start(h.ctx, guest.Command{Args: []string{"python3", "-c", program}, Env: env, Dir: b.plan.User.Home}, guest.Streams{Stdout: io.Discard, Stderr: io.Discard}); err != nil {
		h.Fatal(err)
	}
	h.eventually("it has written all", func() bool {
		_, err := b.Stat(h.ctx, fmt.Sprintf("g%03d", generations-1))
		return err == nil
	})
	h.eventually("without a pause, files are of several moments", func() bool {
		var out bytes.Buffer
		w := filetree.NewWriter(&out)
		if err := s.Snapshot(h.ctx, w); err != nil {
			return true // or it sees that by itself
		}
		if _, err := w.End(); err != nil {
			h.Fatal(err)
		}
		is, _ := torn(versions(h, out.Bytes()))
		return is
	})
	for range 20 {
		if is, moments := torn(versions(h, b.snapshot())); is || moments == 0 {
			h.Fatalf("the files are of %d moments", moments)
		}
	}
}

// versions reads what small files say.
func versions(tb testing.TB, snapshot []byte) map[string]string {
	tb.Helper()
	all := map[string]string{}
	r := filetree.NewReader(bytes.NewReader(snapshot))
	for {
		e, err := r.Next()
		if err != nil {
			tb.Fatal(err)
		}
		if e.Kind == filetree.End {
			return all
		}
		if e.Kind != filetree.File {
			continue
		}
		_, piece, err := r.Content()
		if err != nil {
			tb.Fatal(err)
		}
		all["home/"+e.Name] = string(piece)
		if _, _, err := r.Content(); err != nil {
			tb.Fatal(err)
		}
	}
}

// What a guest makes as deep as it can costs neither descriptors nor stack, at no end.
func (h *harness) testSnapshotDeep() {
	h.declared()
	if !h.o.Kernel {
		h.Skip("this driver's machines hold no real processes")
	}
	b := h.box(sandbox.Limits{})
	h.snapshotter(b.Machine)
	const levels = 2_100 // no path is as long (4,096 bytes); Landlock walks up all of them for each call
	if r := b.run("python3", "-c", fmt.Sprintf("import os\nos.chdir(os.environ['HOME'])\nfor i in range(%d):\n    os.mkdir('d'); os.chdir('d')\nopen('last','w').write('bottom')", levels)); r.Code != 0 {
		h.Fatalf("%+v", r)
	}
	first := b.snapshot()
	again := h.restored(sandbox.Limits{}, first)
	if r := again.run("python3", "-c", fmt.Sprintf("import os\nos.chdir(os.environ['HOME'])\nfor i in range(%d): os.chdir('d')\nprint(open('last').read())", levels)); !strings.HasSuffix(r.out, "bottom\n") { // after what an interpreter elsewhere complains of
		h.Errorf("%+v", r)
	}
	if second := again.snapshot(); len(second) != len(first) {
		h.Errorf("%d bytes, and %d of what was restored", len(first), len(second))
	}
}

// What fills the disk, in inodes as in bytes, fits into a machine of the same limits, and
// into no smaller one.
func (h *harness) testSnapshotFull() {
	h.declared()
	if !h.o.Kernel || !h.o.Isolated {
		h.Skip("this driver's machines have no disk with limits")
	}
	l := sandbox.Limits{DiskBytes: 8 << 20, Inodes: 2000}
	b := h.box(l)
	h.snapshotter(b.Machine)
	b.run("/bin/sh", "-c", `dd if=/dev/zero of=/tmp/fill bs=64k count=80 2>/dev/null; cd "$HOME"; i=0; while : >f$i && ln f$i l$i; do i=$((i+1)); done 2>/dev/null; true`)
	first := b.snapshot()
	again := h.restored(l, first)
	if got, want := len(tree(h, again.snapshot())), len(tree(h, first)); got != want || want < 1000 {
		h.Errorf("%d entries, want %d", got, want)
	}
	small := h.box(sandbox.Limits{DiskBytes: 4 << 20, Inodes: 2000})
	var places []wire.RestorePlace
	for _, p := range small.plan.Writable() {
		places = append(places, wire.RestorePlace(p))
	}
	if _, err := small.Restore(h.ctx, places, bytes.NewReader(first)); err == nil || sandbox.AsError(err).Code != sandbox.CodeTooLarge {
		h.Errorf("into half of the disk: %v", err)
	}
}

func (h *harness) testSnapshotEnded() {
	h.declared()
	m := h.create()
	s := h.snapshotter(m)
	h.destroy(m)
	if err := s.Snapshot(h.ctx, filetree.NewWriter(io.Discard)); !errors.Is(err, driver.ErrEnded) {
		h.Errorf("of a machine that has ended: %v", err)
	}
	b := h.box(sandbox.Limits{})
	if err := h.pauser(b.Machine).Pause(h.ctx); err != nil {
		h.Fatal(err)
	}
	begun, over := make(chan struct{}), make(chan error, 1)
	go func() {
		over <- b.Abilities().Snapshotter.Snapshot(h.ctx, filetree.NewWriter(&stuck{begun, b.Dead()}))
	}()
	select {
	case <-begun:
	case err := <-over: // nothing was to be written until it was complete
		over <- err
	case <-time.After(time.Minute):
		h.Fatal("it neither writes nor ends")
	}
	h.destroy(b.Machine)
	if err := <-over; err != nil && !errors.Is(err, driver.ErrEnded) {
		h.Errorf("of a machine that ends meanwhile: %v", err)
	}
}

// stuck takes nothing until the machine is dead.
type stuck struct {
	begun chan struct{}
	dead  <-chan struct{}
}

// Write waits.
func (s *stuck) Write(p []byte) (int, error) {
	select {
	case <-s.begun:
	default:
		close(s.begun)
	}
	<-s.dead
	return len(p), nil
}
