//go:build linux

package qemu

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/driver"
	"pinfold/sandbox"
)

// A process that comes later starts from what another has booted, and its machines are as
// unlike as any two.
func TestStoredBase(t *testing.T) {
	o := options(t)
	o.CacheDir = filepath.Join(t.TempDir(), "machines")
	boots := 0
	o.argv = func(l launch) []string {
		if !l.resumes {
			boots++
		}
		return command(l)
	}
	numbers := map[string]bool{}
	for i := range 3 {
		d := open(t, o)
		begun := time.Now()
		m := made(t, d)
		t.Logf("%d: made in %s", i, time.Since(begun))
		if boots != 1 {
			t.Fatalf("%d: %d boots", i, boots)
		}
		numbers[says(t, m, "head -c 16 /dev/urandom | od -An -tx1; cat /proc/sys/kernel/random/uuid")] = true
		d.bases.all.Wait()
	}
	if len(numbers) != 3 {
		t.Errorf("machines that say the same: %v", numbers)
	}

	// What no machine goes on from is removed, and made again.
	all, err := filepath.Glob(filepath.Join(o.CacheDir, "*"))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	d := open(t, o)
	planned := planOf(t, sandbox.Limits{}.WithDefaults())
	key, err := d.keyOf(t.Context(), planned.Template, shapeOf(planned))
	if err != nil {
		t.Fatal(err)
	}
	here, err := d.fingerprint(launch{shape: key.shape, disk: key.disk})
	if err != nil {
		t.Fatal(err)
	}
	useless := &base{saved: saves(t, make([]byte, here.Memory<<20))}
	if err := os.Remove(all[0]); err != nil {
		t.Fatal(err)
	}
	d.store(useless, launch{shape: key.shape, disk: key.disk})
	if useless.stored != all[0] {
		t.Fatalf("control: stored as %q", useless.stored)
	}
	if got := says(t, made(t, d), "echo again"); got != "again\n" || boots != 2 {
		t.Errorf("it says %q after %d boots", got, boots)
	}
}

// saves is a machine that was saved with that memory.
func saves(t *testing.T, memory []byte) *saved {
	t.Helper()
	s := &saved{}
	var err error
	if s.state, err = stateFile([]byte("state")); err != nil {
		t.Fatal(err)
	}
	if s.memory, err = memoryFile(shape{memory: int64(len(memory) >> 20)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	if _, err := s.memory.WriteAt(memory, 0); err != nil {
		t.Fatal(err)
	}
	return s
}

// stores writes a base of 4 MiB to a directory of its own.
func stores(t *testing.T) (name string, here fingerprint, memory []byte) {
	t.Helper()
	here = fingerprint{QEMU: "q", Kernel: "k", Processor: "p", Disk: "d", Memory: 4, CPUs: 1}
	memory = make([]byte, 4<<20)
	copy(memory[3*page:], bytes.Repeat([]byte{7}, 2*page))
	memory[len(memory)-1] = 9
	d := New(Options{CacheDir: filepath.Join(t.TempDir(), "machines")})
	if err := os.Mkdir(d.o.CacheDir, 0o700); err != nil {
		t.Fatal(err)
	}
	name = d.storedAs(here)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := writeBase(f, here, driver.Report{Driver: Name, Level: sandbox.LevelVM, SwitchUser: true}, saves(t, memory)); err != nil {
		t.Fatal(err)
	}
	return name, here, memory
}

// A base is read as it was written, or not at all.
func TestReadBase(t *testing.T) {
	name, here, memory := stores(t)
	l := launch{shape: shape{memory: 4, cpus: 1}}
	read := func() error {
		b, err := readBase(t.Context(), name, here, l)
		if err == nil {
			b.saved.close()
		}
		return err
	}
	b, err := readBase(t.Context(), name, here, l)
	if err != nil {
		t.Fatal(err)
	}
	defer b.saved.close()
	got, state := make([]byte, len(memory)), make([]byte, 16)
	if _, err := b.saved.memory.ReadAt(got, 0); err != nil || !bytes.Equal(got, memory) {
		t.Errorf("another memory: %v", err)
	}
	if n, _ := b.saved.state.ReadAt(state, 0); string(state[:n]) != "state" || !b.report.SwitchUser {
		t.Errorf("state %q, report %+v", state[:n], b.report)
	}
	if _, err := b.saved.memory.WriteAt([]byte{1}, 0); err == nil {
		t.Error("its memory can be written to")
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	put := func(content []byte) {
		t.Helper()
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for at := 0; at < len(whole); at += 61 {
		flipped := bytes.Clone(whole)
		flipped[at] ^= 0x10
		put(flipped)
		if read() == nil {
			t.Fatalf("byte %d of %d was changed, and nobody notices", at, len(whole))
		}
	}
	for _, n := range []int{0, 3, 100, len(whole) / 2, len(whole) - 1} {
		put(whole[:n])
		if read() == nil {
			t.Errorf("cut after %d bytes, and nobody notices", n)
		}
	}
	put(append(bytes.Clone(whole), 0))
	if read() == nil {
		t.Error("more at the end, and nobody notices")
	}
	put(whole)
	if err := read(); err != nil {
		t.Fatalf("control: %v", err)
	}
	other := here
	other.Kernel += "2"
	if _, err := readBase(t.Context(), name, other, l); err == nil {
		t.Error("one of another kernel is taken")
	}
}

// Nothing is taken that others could have written.
func TestBaseOfOthers(t *testing.T) {
	l := launch{shape: shape{memory: 4, cpus: 1}}
	for what, change := range map[string]func(t *testing.T, name string){
		"a file that others can write": func(t *testing.T, name string) { t.Helper(); check(t, os.Chmod(name, 0o622)) },
		"a directory that others can":  func(t *testing.T, name string) { t.Helper(); check(t, os.Chmod(filepath.Dir(name), 0o722)) },
		"a link": func(t *testing.T, name string) {
			t.Helper()
			check(t, os.Rename(name, name+"2"))
			check(t, os.Symlink(name+"2", name))
		},
		"a pipe": func(t *testing.T, name string) {
			t.Helper()
			check(t, os.Remove(name))
			check(t, unix.Mkfifo(name, 0o600))
		},
	} {
		t.Run(what, func(t *testing.T) {
			name, here, _ := stores(t)
			b, err := readBase(t.Context(), name, here, l)
			if err != nil {
				t.Fatalf("control: %v", err)
			}
			b.saved.close()
			change(t, name)
			if _, err := readBase(t.Context(), name, here, l); err == nil {
				t.Error("it is taken")
			}
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What is kept is bounded, and what was used last stays.
func TestCollectStored(t *testing.T) {
	d := New(Options{CacheDir: t.TempDir()})
	age := func(name string, size int64, ago time.Duration) {
		t.Helper()
		name = filepath.Join(d.o.CacheDir, name)
		check(t, os.WriteFile(name, nil, 0o600))
		check(t, os.Truncate(name, size))
		check(t, os.Chtimes(name, time.Time{}, time.Now().Add(-ago)))
	}
	left := func() (names []string) {
		entries, err := os.ReadDir(d.o.CacheDir)
		check(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	for n := range maxStored + 2 {
		age(fmt.Sprint(n, storedSuffix), 10, time.Duration(n)*time.Minute)
	}
	age(draftPrefix+"now", 1, 0)
	age(draftPrefix+"old", 1, 2*abandoned)
	age("notes", 1, 1000*time.Hour)
	d.collectStored()
	if got := fmt.Sprint(left()); got != "[.draft-now 0.base 1.base 2.base 3.base 4.base 5.base notes]" {
		t.Errorf("left: %s", got)
	}
	age("2.base", maxStoredAll-15, 2*time.Minute)
	d.collectStored()
	if got := fmt.Sprint(left()); got != "[.draft-now 0.base 1.base notes]" {
		t.Errorf("left: %s", got)
	}
}
