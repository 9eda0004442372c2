package compilecache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	alice = "alice"
	bob   = "bob"
)

func open(t *testing.T, o Options) *Cache {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "compiled")
	}
	if o.Bytes == 0 {
		o.Bytes = 1 << 30
	}
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func key(n int) (k Key) {
	copy(k[:], fmt.Sprintf("key %d", n))
	return k
}

// put puts one file of that many bytes down.
func put(t *testing.T, c *Cache, tenant string, k Key, size int) {
	t.Helper()
	w := c.Put(tenant, k)
	_, _ = w.File("program").Write(bytes.Repeat([]byte{byte(size)}, size))
	if err := w.Keep(Said{Stderr: "a warning"}); err != nil {
		t.Fatal(err)
	}
}

// get returns whether there is an entry, and gives up the flight.
func get(t *testing.T, c *Cache, tenant string, k Key) bool {
	t.Helper()
	e, done := c.Get(t.Context(), tenant, k)
	defer done()
	if e == nil {
		return false
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	return true
}

// files lists the cache's directory.
func files(t *testing.T, c *Cache) []string {
	t.Helper()
	entries, err := os.ReadDir(c.o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWhatGoesInComesOut(t *testing.T) {
	c := open(t, Options{})
	contents := map[string]string{"program": strings.Repeat("\x7fELF", 100_000), "empty": "", "d/e/Main.class": "\xca\xfe"}
	w := c.Put(alice, key(1))
	for _, name := range []string{"program", "empty", "d/e/Main.class"} {
		if _, err := io.Copy(w.File(name), strings.NewReader(contents[name])); err != nil {
			t.Fatal(err)
		}
	}
	said := Said{Stdout: "out", Stderr: "main.c:1: warning: é"}
	if err := w.Keep(said); err != nil {
		t.Fatal(err)
	}
	w.Discard() // after Keep it is nothing
	for range 2 {
		e, done := c.Get(t.Context(), alice, key(1))
		done()
		if e == nil || e.Said != said || len(e.Files) != 3 {
			t.Fatalf("%+v", e)
		}
		for _, f := range e.Files {
			b, err := io.ReadAll(e.Content(f))
			if err != nil || string(b) != contents[f.Path] {
				t.Errorf("%s: %d bytes, %v", f.Path, len(b), err)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		c = open(t, Options{Dir: c.o.Dir}) // and after a restart
	}
	if get(t, c, bob, key(1)) || get(t, c, alice, key(2)) {
		t.Error("another tenant or another key gets the entry")
	}
	if s := c.Stats(); s.Hits != 0 || s.Misses != 2 || s.Entries != 1 || s.Bytes < 400_000 {
		t.Errorf("%+v", s)
	}
}

func TestOnlyTheServersUserCanRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "compiled")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	c := open(t, Options{Dir: dir})
	put(t, c, alice, key(1), 10)
	for _, name := range append(files(t, c), ".") {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
		if name != "." && info.Mode().Perm()&0o111 != 0 {
			t.Errorf("%s can be executed: %v", name, info.Mode())
		}
		if strings.Contains(name, alice) {
			t.Errorf("%s names the tenant", name)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Dir: link, Bytes: 1 << 20}); err == nil {
		t.Error("a link is taken for the directory")
	}
}

// Whatever is changed in an entry's file, it is refused, dropped and compiled anew.
func TestDamagedEntriesAreDropped(t *testing.T) {
	flip := func(at func(size int64) int64) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b[at(int64(len(b)))] ^= 1
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, damage := range map[string]func(t *testing.T, path string){
		"content":   flip(func(int64) int64 { return 0 }),
		"index":     flip(func(size int64) int64 { return size - int64(footerSize) - 2 }),
		"format":    flip(func(size int64) int64 { return size - int64(footerSize) }),
		"length":    flip(func(size int64) int64 { return size - 32 - 8 }),
		"hash":      flip(func(size int64) int64 { return size - 1 }),
		"truncated": func(t *testing.T, path string) { must(t, os.Truncate(path, 5000)) },
		"empty":     func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) },
		"huge":      func(t *testing.T, path string) { must(t, os.Truncate(path, 1<<40)) },
		"a pipe": func(t *testing.T, path string) {
			must(t, os.Remove(path))
			must(t, syscall.Mkfifo(path, 0o600))
		},
		"a link to a good copy": func(t *testing.T, path string) {
			must(t, os.Rename(path, path+".copy"))
			must(t, os.Symlink(filepath.Base(path)+".copy", path))
		},
		"a link out of the directory": func(t *testing.T, path string) {
			must(t, os.Remove(path))
			must(t, os.Symlink("/etc/passwd", path))
		},
		"a directory": func(t *testing.T, path string) {
			must(t, os.Remove(path))
			must(t, os.Mkdir(path, 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := open(t, Options{})
			put(t, c, alice, key(1), 10_000)
			if !get(t, c, alice, key(1)) {
				t.Fatal("the entry is not there to begin with")
			}
			damage(t, filepath.Join(c.o.Dir, fileName(alice, key(1))))
			if get(t, c, alice, key(1)) {
				t.Fatal("a damaged entry is used")
			}
			if s := c.Stats(); s.Entries != 0 || s.Bytes != 0 || s.Damaged != 1 {
				t.Errorf("%+v", s)
			}
			put(t, c, alice, key(1), 20_000)
			if !get(t, c, alice, key(1)) {
				t.Error("the next one is not kept")
			}
		})
	}
}

// An entry under another's name: another tenant's, or of another program.
func TestExchangedEntriesAreDropped(t *testing.T) {
	c := open(t, Options{})
	path := func(tenant string, n int) string { return filepath.Join(c.o.Dir, fileName(tenant, key(n))) }
	for n := 1; n <= 3; n++ {
		put(t, c, alice, key(n), n)
	}
	must(t, os.Rename(path(alice, 1), path(alice, 2)))
	if get(t, c, alice, key(2)) || get(t, c, alice, key(1)) {
		t.Error("an entry is used under another's name")
	}
	if !get(t, c, alice, key(3)) {
		t.Error("one that was left alone is gone")
	}
}

// What changes between the check and the reading does not get through either.
func TestContentIsCheckedOnItsWay(t *testing.T) {
	c := open(t, Options{})
	put(t, c, alice, key(1), 10_000)
	e, done := c.Get(t.Context(), alice, key(1))
	defer done()
	defer e.Close()
	f, err := os.OpenFile(filepath.Join(c.o.Dir, fileName(alice, key(1))), os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("evil"), 100)
	must(t, errors.Join(err, f.Close()))
	if _, err := io.ReadAll(e.Content(e.Files[0])); !errors.Is(err, errDamaged) {
		t.Errorf("%v", err)
	}
}

func TestEviction(t *testing.T) {
	const size = 100_000 // 25 blocks
	c := open(t, Options{Bytes: 6 * onDisk(size+500), TenantBytes: 4 * onDisk(size+500)})
	for n := 1; n <= 4; n++ {
		put(t, c, alice, key(n), size)
	}
	if !get(t, c, alice, key(1)) {
		t.Fatal("the first is not there")
	}
	put(t, c, alice, key(5), size) // over her share: what was used longest ago goes
	for n, want := range map[int]bool{1: true, 2: false, 3: true, 4: true, 5: true} {
		if _, there := c.items[fileName(alice, key(n))]; there != want {
			t.Errorf("entry %d: %v", n, there)
		}
	}
	put(t, c, bob, key(1), size)
	put(t, c, bob, key(2), size)
	if c.tenants[ownerOf(fileName(alice, Key{}))] > 4*onDisk(size+500) || c.Stats().Evictions != 1 {
		t.Errorf("%+v %v", c.Stats(), c.tenants)
	}
	put(t, c, bob, key(3), size) // over all of it: alice's oldest goes, which is 3
	if get(t, c, alice, key(3)) || !get(t, c, alice, key(1)) || c.Stats().Evictions != 2 {
		t.Errorf("%+v", c.Stats())
	}
	if got := len(files(t, c)); int64(got) != c.Stats().Entries || c.Stats().Bytes > c.o.Bytes {
		t.Errorf("%d files, %+v", got, c.Stats())
	}
	// After a restart with less room the order is still known.
	now := time.Now()
	for i, n := range []int{4, 5, 1} {
		at := now.Add(time.Duration(i-10) * time.Minute)
		must(t, os.Chtimes(filepath.Join(c.o.Dir, fileName(alice, key(n))), at, at))
	}
	c = open(t, Options{Dir: c.o.Dir, Bytes: 6 * onDisk(size+500), TenantBytes: onDisk(size + 500)})
	if !get(t, c, alice, key(1)) || get(t, c, alice, key(5)) || get(t, c, alice, key(4)) || len(files(t, c)) != 2 {
		t.Errorf("%v", files(t, c))
	}
}

func TestWhatIsTooMuchIsNotKept(t *testing.T) {
	c := open(t, Options{Bytes: 400 << 20, TenantBytes: 20 << 20})
	for name, write := range map[string]func(w *Writer) Said{
		"more than an entry may have": func(w *Writer) Said {
			one := make([]byte, 1<<20)
			out := w.File("program")
			for range MaxEntryBytes>>20 + 1 {
				_, _ = out.Write(one)
			}
			return Said{}
		},
		"more than a tenant may have": func(w *Writer) Said {
			_, _ = w.File("program").Write(make([]byte, 21<<20))
			return Said{}
		},
		"too many files": func(w *Writer) Said {
			for n := range MaxFiles + 1 {
				w.File(fmt.Sprint(n))
			}
			return Said{}
		},
		"a name that leads out": func(w *Writer) Said {
			w.File("../../etc/passwd")
			return Said{}
		},
		"too many words": func(*Writer) Said { return Said{Stdout: strings.Repeat("x", MaxSaid+1)} },
	} {
		t.Run(name, func(t *testing.T) {
			w := c.Put(alice, key(1))
			if err := w.Keep(write(w)); !errors.Is(err, ErrNotKept) {
				t.Errorf("%v", err)
			}
			if get(t, c, alice, key(1)) || len(files(t, c)) != 0 {
				t.Errorf("it is kept: %v", files(t, c))
			}
		})
	}
	put(t, c, alice, key(1), 1000)
	w := c.Put(alice, key(2))
	w.File("program")
	w.Discard()
	if get(t, c, alice, key(2)) || len(files(t, c)) != 1 {
		t.Errorf("what was discarded is there: %v", files(t, c))
	}
}

// A process that ends at any moment leaves nothing that is used.
func TestCrash(t *testing.T) {
	c := open(t, Options{})
	put(t, c, alice, key(1), 50_000)
	w := c.Put(alice, key(2))
	_, _ = w.File("program").Write(make([]byte, 200_000))
	if n := len(files(t, c)); n != 2 {
		t.Fatalf("%d files", n)
	}
	// A rename whose content did not reach the disk, and what is not ours.
	must(t, os.WriteFile(filepath.Join(c.o.Dir, fileName(alice, key(3))), make([]byte, 4096), 0o600))
	must(t, os.WriteFile(filepath.Join(c.o.Dir, "notes.txt"), nil, 0o600))
	after := open(t, Options{Dir: c.o.Dir})
	if !get(t, after, alice, key(1)) || get(t, after, alice, key(2)) || get(t, after, alice, key(3)) {
		t.Error("the wrong entries are there")
	}
	if got := fmt.Sprint(files(t, after)); got != fmt.Sprintf("[%s notes.txt]", fileName(alice, key(1))) {
		t.Error(got)
	}
}

// Many who want the same at once compile once.
func TestOneCompilesForAll(t *testing.T) {
	c := open(t, Options{})
	var compiled, got atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			e, done := c.Get(t.Context(), alice, key(1))
			if e == nil {
				compiled.Add(1)
				time.Sleep(50 * time.Millisecond)
				put(t, c, alice, key(1), 1000)
			} else {
				got.Add(1)
				_ = e.Close()
			}
			done()
		})
	}
	wg.Wait()
	if compiled.Load() != 1 || got.Load() != 15 {
		t.Errorf("%d compiled, %d got it", compiled.Load(), got.Load())
	}
}

// Where the one fails the others do not queue up behind one another, and one
// who cannot wait any longer goes.
func TestNobodyWaitsTwice(t *testing.T) {
	c := open(t, Options{})
	_, first := c.Get(t.Context(), alice, key(1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if e, done := c.Get(ctx, alice, key(1)); e != nil {
		t.Error("there is an entry")
	} else {
		done() // is not the first one's
	}
	over := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			e, done := c.Get(t.Context(), alice, key(1))
			defer done()
			if e != nil {
				t.Error("there is an entry")
			}
			<-over // each compiles, while the others do
		})
	}
	for c.Stats().Misses < 2 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond)
	if got := c.Stats().Misses; got != 2 {
		t.Errorf("%d compile beside the first", got-1)
	}
	first()
	first()
	for deadline := time.Now().Add(time.Minute); c.Stats().Misses < 6; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", c.Stats())
		}
	}
	close(over)
	wg.Wait()
	if len(c.making) != 0 {
		t.Errorf("%d flights are left", len(c.making))
	}
}

// Readers, writers and eviction at once: whoever gets an entry gets it whole.
func TestEverybodyAtOnce(t *testing.T) {
	c := open(t, Options{Bytes: 10 * onDisk(70_000), TenantBytes: 6 * onDisk(70_000)})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for n := range 60 {
				k, tenant := key((n+g)%9), []string{alice, bob}[g%2]
				e, done := c.Get(t.Context(), tenant, k)
				if e == nil {
					put(t, c, tenant, k, 60_000+(n+g)%9)
					done()
					continue
				}
				b, err := io.ReadAll(e.Content(e.Files[0]))
				if err != nil || len(b) != 60_000+(n+g)%9 {
					t.Errorf("%d bytes, %v", len(b), err)
				}
				_ = e.Close()
			}
		})
	}
	wg.Wait()
	s := c.Stats()
	if int64(len(files(t, c))) != s.Entries || s.Bytes > c.o.Bytes || s.Damaged != 0 || s.Hits == 0 || s.Evictions == 0 {
		t.Errorf("%d files, %+v", len(files(t, c)), s)
	}
	sum := int64(0)
	for _, b := range c.tenants {
		sum += b
	}
	if sum != s.Bytes {
		t.Errorf("%v, %+v", c.tenants, s)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func BenchmarkHit(b *testing.B) {
	for _, size := range []int{16 << 10, 2 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			c, err := Open(Options{Dir: filepath.Join(b.TempDir(), "compiled"), Bytes: 1 << 30})
			if err != nil {
				b.Fatal(err)
			}
			w := c.Put(alice, key(1))
			_, _ = w.File("program").Write(make([]byte, size))
			if err := w.Keep(Said{}); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				e, _ := c.Get(b.Context(), alice, key(1))
				if _, err := io.Copy(io.Discard, e.Content(e.Files[0])); err != nil {
					b.Fatal(err)
				}
				_ = e.Close()
			}
		})
	}
}
