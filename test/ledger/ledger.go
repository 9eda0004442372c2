//go:build linux

// Package ledger counts what a test leaves behind on the host: descriptors,
// goroutines, threads, processes, mounts, cgroups, network namespaces, loop
// devices, locks and leases, temporary files, and whether the kernel is tainted.
//
//	func TestSomething(t *testing.T) {
//		ledger.Check(t) // first, so that it looks last
//		…
//	}
//
// It looks at the whole host, on which other sandboxes may come and go. So only
// what is new and stays for the whole of the allowance (see Allowance) counts as left
// behind. It reads and never cleans up: what it finds is for a person to see.
package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// Snapshot is what there is at one moment: for each kind of thing, each thing
// by a name that tells it from others of its kind, and how many there are.
type Snapshot map[string]map[string]int

// Take looks at the host. dirs are directories whose content counts, next to
// the driver's own state directories.
func Take(dirs ...string) Snapshot {
	s := Snapshot{}
	for kind, look := range kinds(dirs) {
		s[kind] = look()
	}
	return s
}

// Check takes a snapshot now and fails the test if, when it ends, there is more
// than before. Cleanups run in reverse, so it must come before what it watches.
func Check(tb testing.TB, dirs ...string) {
	tb.Helper()
	before := Take(dirs...)
	tb.Cleanup(func() {
		settled(tb, "on the host", before, func() Snapshot { return Take(dirs...) })
	})
}

// CheckSelf is Check for tests that make no real sandbox: it looks only at this
// process, so that other tests may run beside it.
func CheckSelf(tb testing.TB) {
	tb.Helper()
	before := takeSelf()
	tb.Cleanup(func() {
		settled(tb, "in this process", before, takeSelf)
	})
}

// settled fails the test if something is left for good, and says so if it took long.
func settled(tb testing.TB, where string, before Snapshot, take func() Snapshot) {
	tb.Helper()
	begin, p := time.Now(), Usual()
	left, last := p.wait(before, take)
	took := time.Since(begin)
	if len(left) > 0 {
		tb.Errorf("left behind %s, %v later (%v):\n%s\nthis process's sockets:\n%s", where, took, p, strings.Join(left, "\n"), strings.Join(sockets(), "\n"))
	} else if took > worthSaying {
		tb.Logf("%v until nothing was left %s (%v); last:\n%s", took, where, p, strings.Join(last, "\n"))
	}
}

func takeSelf() Snapshot {
	s := Snapshot{}
	for _, kind := range []string{kindDescriptor, kindGoroutines} {
		s[kind] = kinds(nil)[kind]()
	}
	return s
}

// Wait waits until there is nothing more than before, and returns what stayed
// all the time otherwise, one line each.
func Wait(before Snapshot, dirs ...string) []string {
	left, _ := Usual().wait(before, func() Snapshot { return Take(dirs...) })
	return left
}

// Wait waits for as long as that until there is nothing more than before, and returns
// what stayed all the time otherwise.
func (p *Allowance) Wait(before Snapshot, dirs ...string) []string {
	left, _ := p.wait(before, func() Snapshot { return Take(dirs...) })
	return left
}

// wait also returns what was there when something was there last.
func (p *Allowance) wait(before Snapshot, take func() Snapshot) (left, last []string) {
	begin := time.Now()
	left = More(before, take())
	for pause := 5 * time.Millisecond; len(left) > 0; pause = min(2*pause, 250*time.Millisecond) {
		last = left
		p.Look(before)
		if time.Since(begin) >= p.Bound() {
			return left, last
		}
		time.Sleep(pause)
		now := More(before, take())
		left = slices.DeleteFunc(slices.Clone(left), func(line string) bool { return !slices.Contains(now, line) })
		if len(left) == 0 { // other things may be new
			left = now
		}
	}
	return nil, last
}

// threadSlack is how many threads the Go runtime may have added: it makes one
// whenever all others sit in system calls, and never ends it.
const threadSlack = 64

// More lists what the second snapshot has more of.
func More(before, after Snapshot) []string {
	var lines []string
	for _, kind := range slices.Sorted(maps.Keys(after)) {
		allowed := 0
		if kind == kindThreads {
			allowed = threadSlack
		}
		for _, name := range slices.Sorted(maps.Keys(after[kind])) {
			if more := after[kind][name] - before[kind][name]; more > allowed {
				lines = append(lines, fmt.Sprintf("  %s: %s (%d more)", kind, name, more))
			}
		}
	}
	return lines
}
