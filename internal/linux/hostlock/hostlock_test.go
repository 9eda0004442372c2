//go:build linux

package hostlock

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Many programs that begin and end at the same time make and remove the directory of
// their locks under each other's hands, and each gets its lock.
func TestLocksOfManyAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 400 {
				l, err := Take(dir)
				if err != nil {
					t.Error(err)
					return
				}
				if !locked(l.file.Name()) {
					t.Error("the lock is not seen")
				}
				l.Release(false)
			}
		})
	}
	all.Wait()
	if _, err := os.Lstat(dir); err == nil {
		t.Error("the directory stays")
	}
}

// What a process that has died has left is told from what a living one has, and from what
// another directory accounts for.
func TestDead(t *testing.T) {
	dir := t.TempDir()
	take := func(dir string) *Lock {
		l, err := Take(dir)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	ours, lives, dead, other := take(dir), take(dir), take(dir), take(t.TempDir())
	defer ours.Release(false)
	defer lives.Release(false)
	defer other.Release(false)
	if ours.AnyDead() {
		t.Error("all live")
	}
	dead.Release(true)
	for l, want := range map[*Lock]bool{ours: true, lives: true, dead: false, other: true} {
		if got := ours.OwnerLives(l.Group("id")); got != want {
			t.Errorf("the owner of %s lives: %v", l.Group("id"), got)
		}
	}
	if !ours.AnyDead() {
		t.Error("nobody is seen to be dead")
	}
	if gone := ours.RemoveDead(); len(gone) != 1 || gone[0] != dead.file.Name() || ours.AnyDead() {
		t.Errorf("%q", gone)
	}
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // it is to be refused
		t.Fatal(err)
	}
	if _, err := Take(dir); err == nil {
		t.Error("a directory is taken that others may write to")
	}
}
