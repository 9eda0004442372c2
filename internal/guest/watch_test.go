package guest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pinfold/internal/wire"
	"pinfold/sandbox"
)

// observer is a watch under way and what it saw.
type observer struct {
	t      *testing.T
	cancel context.CancelFunc
	ended  chan error

	mu   sync.Mutex
	seen []string // "created a/b", "created a/b/" for a directory
	more chan struct{}
}

func (l *live) observe(t *testing.T, dir string, recursive bool) *observer {
	t.Helper()
	ctx, cancel := context.WithCancel(deadline(t))
	o := &observer{t: t, cancel: cancel, ended: make(chan error, 1), more: make(chan struct{}, 1)}
	go func() {
		err := l.Watch(ctx, dir, recursive, o.see)
		for code(err) == sandbox.CodeResourceUnavailable { // one that was just given up still counts
			time.Sleep(time.Millisecond)
			err = l.Watch(ctx, dir, recursive, o.see)
		}
		o.ended <- err
	}()
	t.Cleanup(cancel)
	o.await(wire.WatchReady + " ")
	return o
}

func (o *observer) see(e wire.WatchEvent) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	line := e.Kind + " " + e.Path
	if e.Dir {
		line += "/"
	}
	o.seen = append(o.seen, line)
	select {
	case o.more <- struct{}{}:
	default:
	}
	return nil
}

func (o *observer) list() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.seen)
}

func (o *observer) await(want string) {
	o.t.Helper()
	late := time.After(time.Minute)
	for !slices.Contains(o.list(), want) {
		select {
		case <-o.more:
		case err := <-o.ended:
			o.t.Fatalf("the watch ended: %v", err)
		case <-late:
			o.t.Fatalf("%q was not seen: %q", want, o.list())
		}
	}
}

// stop ends the watch from our side.
func (o *observer) stop() {
	o.t.Helper()
	o.cancel()
	if err := <-o.ended; !errors.Is(err, context.Canceled) {
		o.t.Errorf("Watch: %v", err)
	}
}

func TestWatch(t *testing.T) {
	eachMode(t, func(t *testing.T, l *live) {
		l.sh(t, "mkdir -p dir/sub", "")
		flat, deep := l.observe(t, "dir", false), l.observe(t, "dir", true)
		l.sh(t, "cd dir; echo 1 >f; mv f g; rm g; mkdir new; echo 2 >new/inner; mkdir -p one/two/three; echo 3 >sub/deep; echo 4 >last", "")
		for _, want := range []string{
			"created f", "modified f", "moved_from f", "moved_to g", "removed g", "created new/", "created one/", "created last", "modified last",
		} {
			flat.await(want)
			deep.await(want)
		}
		for _, want := range []string{"created sub/deep", "created new/inner", "created one/two/", "created one/two/three/"} {
			deep.await(want)
			if slices.Contains(flat.list(), want) {
				t.Errorf("the flat watch saw %q", want)
			}
		}
		// A directory that is moved keeps being watched under its new name.
		l.sh(t, "mv dir/one dir/uno; echo 5 >dir/uno/two/x; mv dir/uno .; echo 6 >uno/two/y; touch dir/end", "")
		deep.await("created uno/two/x")
		deep.await("created end")
		if slices.ContainsFunc(deep.list(), func(s string) bool { return filepath.Base(s) == "y" }) {
			t.Errorf("seen outside: %q", deep.list())
		}
		// One that comes from outside is told with what it holds.
		l.sh(t, "mkdir -p out/inside; echo 7 >out/inside/z; mv out dir/back; echo 8 >dir/back/inside/new; mkdir dir/fast; mv dir/fast dir/faster; echo 9 >dir/faster/file", "")
		for _, want := range []string{"moved_to back/", "created back/inside/", "created back/inside/z", "created back/inside/new", "created faster/file"} {
			deep.await(want)
		}
		flat.stop()
		deep.stop()
	})
}

func TestWatchRefusalsAndEnds(t *testing.T) {
	eachMode(t, func(t *testing.T, l *live) {
		trap(t, l)
		for dir, want := range map[string]string{
			"missing": sandbox.CodeFileNotFound, "plain": sandbox.CodePathInvalid, "dirlink": sandbox.CodeNotRegularFile, "": sandbox.CodePathInvalid,
		} {
			if err := l.Watch(deadline(t), dir, true, nil); code(err) != want {
				t.Errorf("%q: %v, want %s", dir, err, want)
			}
		}
		o := l.observe(t, "dir", true)
		l.sh(t, "rmdir dir", "")
		if err := <-o.ended; code(err) != sandbox.CodeFileNotFound {
			t.Errorf("the directory is gone: %v", err)
		}
		enough := errors.New("enough")
		if err := l.Watch(deadline(t), ".", false, func(wire.WatchEvent) error { return enough }); !errors.Is(err, enough) {
			t.Errorf("a caller that has enough: %v", err)
		}
	})
}

// At most wire.MaxWatches at a time, all on one inotify instance, and each is
// given back.
func TestWatchBound(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	for range 3 {
		var all []*observer
		for range wire.MaxWatches {
			all = append(all, l.observe(t, ".", true))
		}
		if err := l.Watch(deadline(t), ".", false, nil); code(err) != sandbox.CodeResourceUnavailable {
			t.Errorf("one more: %v", err)
		}
		l.sh(t, "echo x >seen", "")
		for _, o := range all {
			o.await("created seen")
			o.stop()
		}
		l.sh(t, "rm seen", "")
		late := time.Now().Add(time.Minute)
		for l.instances(t) != 1 && time.Now().Before(late) {
			time.Sleep(time.Millisecond)
		}
		if n := l.instances(t); n != 1 {
			t.Errorf("%d inotify instances", n)
		}
	}
}

// instances counts the agent's inotify instances.
func (l *live) instances(t *testing.T) int {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", l.pid)
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range list {
		if to, _ := os.Readlink(filepath.Join(dir, e.Name())); to == "anon_inode:inotify" {
			n++
		}
	}
	return n
}

// A caller that is too slow loses changes, is told so, and costs nothing. What happens
// after it was told is seen, or it is told again.
func TestWatchOverflow(t *testing.T) {
	t.Setenv("TMPDIR", "/dev/shm") // long names are slow on some disks
	l := startAgent(t, mode{pid1: true})
	slow := make(chan struct{})
	var once sync.Once
	var seen, overflows int
	ended := make(chan error, 1)
	ready := make(chan struct{})
	lost := make(chan struct{}, 1) // changes were, since this was last read
	go func() {
		ended <- l.Watch(deadline(t), ".", false, func(e wire.WatchEvent) error {
			once.Do(func() { close(ready); <-slow })
			seen++
			switch {
			case e.Kind == wire.WatchOverflow:
				overflows++
				select {
				case lost <- struct{}{}:
				default:
				}
			case e.Path == "after":
				return context.Canceled
			}
			return nil
		})
	}()
	<-ready
	name := strings.Repeat("n", 200)
	if got := l.sh(t, "seq -f "+name+"%g 6000 | xargs touch", ""); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	close(slow)
	for watching := true; watching; {
		select {
		case <-lost:
			if got := l.sh(t, "echo x >>after", ""); got.Code != 0 {
				t.Fatalf("%+v", got)
			}
		case err := <-ended:
			if watching = false; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
	}
	if overflows == 0 || seen > 6_000 {
		t.Errorf("%d changes seen, %d overflows", seen, overflows)
	}
	if peak := status(t, l.pid, "VmHWM"); peak > 16<<10 {
		t.Errorf("the agent used %d KiB", peak)
	}
}

// A name that cannot be printed is not told, but that something was is.
func TestWatchUnprintable(t *testing.T) {
	l := startAgent(t, mode{pid1: true})
	o := l.observe(t, ".", false)
	l.sh(t, `touch "$(printf 'bad\033name')"`, "")
	o.await(wire.WatchOverflow + " ")
	l.sh(t, "touch good", "")
	o.await("created good")
	o.stop()
}
