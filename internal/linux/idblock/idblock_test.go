//go:build linux

package idblock

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newPool(t *testing.T, file string, gone func(int) bool) *Pool {
	t.Helper()
	p, err := New(file, gone)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func lease(t *testing.T, p *Pool) *Block {
	t.Helper()
	b, err := p.Lease()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func nobody(int) bool   { return true }
func somebody(int) bool { return false }

// Every block is handed out once, whoever asks.
func TestEachBlockOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "blocks")
	pools := []*Pool{newPool(t, file, nobody), newPool(t, file, nobody)} // as of two processes
	var mu sync.Mutex
	var all []*Block
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for {
				b, err := pools[i%2].Lease()
				if errors.Is(err, ErrNone) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				all = append(all, b)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	bases := map[int]bool{}
	for _, b := range all {
		if bases[b.Base] || b.Base < First || b.Base > First+(Count-1)*Size || (b.Base-First)%Size != 0 {
			t.Errorf("block %d was handed out twice, or is none", b.Base)
		}
		bases[b.Base] = true
	}
	// Two at a time may find the last ones in the other's hands.
	if len(all) < Count-4 {
		t.Errorf("%d blocks were handed out, of %d", len(all), Count)
	}
	for _, b := range all {
		if err := b.Release(); err != nil {
			t.Fatal(err)
		}
	}
	again := lease(t, pools[0])
	if err := errors.Join(again.Release(), again.Release()); err != nil {
		t.Error(err)
	}
	if err := pools[0].Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the first to close it removed the file: %v", err)
	}
	if err := pools[1].Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the last to close it left the file: %v", err)
	}
}

// A block whose holder died is handed out only when nothing is left of it.
func TestDeadHolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "blocks")
	dying := newPool(t, file, nobody)
	b := lease(t, dying)
	other := newPool(t, file, somebody)
	if freed, err := other.Sweep(0); err != nil || len(freed) != 0 {
		t.Fatalf("a block in use was freed: %v, %v", freed, err)
	}
	if err := dying.Close(); err != nil { // without Release: what the kernel does for the dead
		t.Fatal(err)
	}
	if freed, err := other.Sweep(0); err != nil || len(freed) != 0 {
		t.Errorf("a block was freed although somebody has its ids: %v, %v", freed, err)
	}
	other.next = (b.Base-First)/Size - 1
	if next := lease(t, other); next.Base == b.Base {
		t.Error("a block was handed out although somebody has its ids")
	} else if err := next.Release(); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("the file that remembers the block is gone: %v", err)
	}
	last := newPool(t, file, nobody)
	freed, err := last.Sweep(0)
	if err != nil || len(freed) != 1 || !strings.Contains(freed[0], "ids ") {
		t.Errorf("freed: %v, %v", freed, err)
	}
	if again, err := last.Sweep(0); err != nil || len(again) != 0 {
		t.Errorf("freed again: %v, %v", again, err)
	}
	if err := last.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Pools come and go, and whoever is the last removes the file: nobody is left
// with one that others do not see.
func TestComeAndGo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	file := filepath.Join(dir, "blocks")
	var mu sync.Mutex
	var held []int
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				p, err := New(file, somebody)
				if err != nil {
					t.Error(err)
					return
				}
				p.next = 0 // all want the same ones
				b, err := p.Lease()
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if slices.Contains(held, b.Base) {
					t.Errorf("block %d is held twice", b.Base)
				}
				held = append(held, b.Base)
				mu.Unlock()
				mu.Lock()
				held = slices.DeleteFunc(held, func(base int) bool { return base == b.Base })
				mu.Unlock()
				if err := errors.Join(b.Release(), p.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
}

// Pools that are closed at the same moment leave no file behind, none of them being the
// only one that there still is.
func TestClosedAtTheSameMoment(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	for range 200 {
		pools := make([]*Pool, 8)
		for i := range pools {
			pools[i] = newPool(t, filepath.Join(dir, "blocks"), nobody)
		}
		var wg sync.WaitGroup
		for _, p := range pools {
			wg.Go(func() {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("the directory is left: %v", err)
		}
	}
}

// Who looks for ever whether it is the last one, since it was stopped, holds up nobody.
func TestCloseBesideOneThatIsStopped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "blocks")
	stopped, p := newPool(t, file, nobody), newPool(t, file, nobody)
	if !stopped.leave() {
		t.Fatal("nobody else looks")
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := stopped.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
}

// Who is just ending is waited for, but not for ever.
func TestSweepWaits(t *testing.T) {
	file := filepath.Join(t.TempDir(), "blocks")
	dying := newPool(t, file, nobody)
	lease(t, dying)
	if err := dying.Close(); err != nil {
		t.Fatal(err)
	}
	asked := 0
	p := newPool(t, file, func(int) bool { asked++; return asked > 3 })
	if freed, err := p.Sweep(0); err != nil || len(freed) != 0 || asked != 1 {
		t.Errorf("without a timeout %v was freed, %v, after %d questions", freed, err, asked)
	}
	if freed, err := p.Sweep(time.Minute); err != nil || len(freed) != 1 || asked != 4 {
		t.Errorf("with a timeout %v was freed, %v, after %d questions", freed, err, asked)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A block that outlives its pool is released without a word to the descriptor that
// the pool had: its number may be another file's by then.
func TestReleaseAfterClose(t *testing.T) {
	file := filepath.Join(t.TempDir(), "blocks")
	p := newPool(t, file, nobody)
	b := lease(t, p)
	fd := p.fd
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	f, err := os.Create(other)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if int(f.Fd()) != fd {
		if err := unix.Dup3(int(f.Fd()), fd, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
	}
	if err := b.Release(); err != nil {
		t.Error(err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("another file was written to: %v, %v", info, err)
	}
	next := newPool(t, file, nobody)
	if freed, err := next.Sweep(0); err != nil || len(freed) != 1 {
		t.Errorf("%v, %v", freed, err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}
