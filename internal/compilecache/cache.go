// Package compilecache keeps what compile steps made, so that the same program
// need not be compiled twice for the same tenant.
//
// What it keeps came out of a sandbox: hostile bytes under hostile names. So
// nothing of it is ever executed, linked or named on the host. An entry is one
// file whose name is a hash, in a directory that only the server's user can
// enter; inside it stand the products one after the other, what the compiler
// said, and a hash of it all together with the entry's key. An entry that does
// not fit its hash is dropped and counts as never having been there.
//
// The caller decides the key: it must cover everything that decides what comes
// out, the tenant before all. The package keeps the bounds: on entries, on all
// of them together, and on each tenant's share; what was used longest ago goes
// first.
package compilecache

import (
	"cmp"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"pinfold/sandbox"
)

// Bounds on one entry, and on how many there are.
const (
	MaxFiles      = 1024
	MaxEntryBytes = 64 << 20
	MaxSaid       = 1 << 20 // of what the compiler said, each stream
	maxEntries    = 1 << 14
)

// block is what a file takes of a disk at least.
const block = 4 << 10

// Key stands for everything that decides what a compile step makes.
type Key [sha256.Size]byte

// Options say where entries are and how much they may take.
type Options struct {
	Dir         string // made where it is missing
	Bytes       int64  // of all entries together
	TenantBytes int64  // of one tenant's; 0: a quarter of Bytes
	Log         *slog.Logger
}

// Stats are the cache's counts.
type Stats struct {
	Hits, Misses, Evictions int64
	Damaged                 int64 // entries that did not fit their hash
	Entries, Bytes          int64 // now
}

// Cache is a directory of entries. It is safe for concurrent use, by one
// process at a time.
type Cache struct {
	o    Options
	log  *slog.Logger
	root *os.Root

	mu      sync.Mutex
	items   map[string]*list.Element // by the entry's file name
	order   list.List                // of *item, the last used first
	tenants map[string]int64         // bytes, by the hash in file names
	making  map[string]chan struct{} // closed when the compile step is over
	stats   Stats
}

// item is one entry as it stands in the directory.
type item struct {
	name string
	size int64 // as the disk counts
}

// Open opens the cache in a directory, and makes it. What a server that was
// killed left half written goes away.
func Open(o Options) (*Cache, error) {
	o.TenantBytes = cmp.Or(o.TenantBytes, o.Bytes/4)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	root, err := openDir(o.Dir)
	if err != nil {
		return nil, err
	}
	c := &Cache{
		o: o, log: o.Log, root: root,
		items: map[string]*list.Element{}, tenants: map[string]int64{}, making: map[string]chan struct{}{},
	}
	if err := c.scan(); err != nil {
		return nil, errors.Join(unusable(o.Dir, err), root.Close())
	}
	c.evict()
	c.stats.Evictions = 0 // what does not fit any more since the last time is no news
	return c, nil
}

// openDir opens the directory, which must be one and not lead elsewhere, and
// closes it to everybody else.
func openDir(dir string) (*os.Root, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, unusable(dir, err)
	}
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		err = errors.New("not a directory")
	}
	if err == nil && info.Mode().Perm() != 0o700 {
		err = os.Chmod(dir, 0o700)
	}
	if err != nil {
		return nil, unusable(dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, unusable(dir, err)
	}
	return root, nil
}

func unusable(dir string, err error) error {
	return &sandbox.Error{
		Code: sandbox.CodeConfigInvalid, Field: "compile_cache",
		Message: "the compile cache's directory cannot be used: " + sandbox.SafeText(err.Error(), 200),
		Hint:    "nothing in " + dir + " is needed: move it away; or turn the cache off with compile_cache.bytes: 0", Err: err,
	}
}

// Remove removes a cache that is no longer wanted.
func Remove(dir string) error { return os.RemoveAll(dir) }

// Close releases the directory. Entries stay.
func (c *Cache) Close() error { return c.root.Close() }

const unfinished = "new-" // begins the names of files that are being written

// scan learns what is in the directory.
func (c *Cache) scan() error {
	dir, err := c.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // only read
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return err
	}
	used := map[string]time.Time{}
	var found []*item
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(e.Name(), unfinished), isName(e.Name()) && !info.Mode().IsRegular():
			if err := c.root.RemoveAll(e.Name()); err != nil {
				return err
			}
		case isName(e.Name()):
			found = append(found, &item{e.Name(), onDisk(info.Size())})
			used[e.Name()] = info.ModTime()
		}
	}
	slices.SortFunc(found, func(a, b *item) int { return used[b.name].Compare(used[a.name]) })
	for _, i := range found {
		c.items[i.name] = c.order.PushBack(i)
		c.count(i, 1)
	}
	return nil
}

// fileName is an entry's: whose it is, then its key. Tenants' names do not
// stand in it, so they need no escaping.
func fileName(tenant string, k Key) string {
	owner := sha256.Sum256([]byte(tenant))
	return hex.EncodeToString(owner[:ownerBytes]) + "-" + hex.EncodeToString(k[:])
}

const ownerBytes = 8

func ownerOf(name string) string { return name[:2*ownerBytes] }

func isName(s string) bool {
	return len(s) == 2*ownerBytes+1+2*len(Key{}) && s[2*ownerBytes] == '-' && strings.Trim(s, "0123456789abcdef-") == ""
}

// onDisk is what a file of that size takes, its directory entry included.
func onDisk(size int64) int64 { return (size/block + 1) * block }

// count adds an item to the sums, or takes it off.
func (c *Cache) count(i *item, sign int64) {
	c.stats.Entries += sign
	c.stats.Bytes += sign * i.size
	owner := ownerOf(i.name)
	c.tenants[owner] += sign * i.size
	if c.tenants[owner] == 0 {
		delete(c.tenants, owner)
	}
}

// evict makes room until all bounds are kept. The caller holds the lock, or is
// alone.
func (c *Cache) evict() {
	for e := c.order.Back(); e != nil && (c.full() || c.crowded()); {
		previous := e.Prev()
		i, _ := e.Value.(*item) // nothing else is in the list
		if c.full() || c.tenants[ownerOf(i.name)] > c.o.TenantBytes {
			c.remove(e)
			c.stats.Evictions++
		}
		e = previous
	}
}

func (c *Cache) full() bool { return c.stats.Bytes > c.o.Bytes || c.stats.Entries > maxEntries }

// crowded says whether a tenant has more than his share.
func (c *Cache) crowded() bool {
	for _, bytes := range c.tenants {
		if bytes > c.o.TenantBytes {
			return true
		}
	}
	return false
}

// remove takes an entry out. The caller holds the lock.
func (c *Cache) remove(e *list.Element) {
	i, _ := c.order.Remove(e).(*item) // nothing else is in the list
	delete(c.items, i.name)
	c.count(i, -1)
	if err := c.root.Remove(i.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("an entry of the compile cache cannot be removed", "error", err)
	}
}

// Get returns what is kept under a tenant's key, or nil. Where somebody compiles
// the same right now it waits for that once, until ctx ends, so that many who
// come at once compile once.
//
// After nil the caller compiles, and calls done when it has put the outcome
// down or will not. An entry is the caller's to close; done is then nothing.
func (c *Cache) Get(ctx context.Context, tenant string, k Key) (entry *Entry, done func()) {
	name := fileName(tenant, k)
	if entry = c.lookUp(name, k); entry != nil {
		return entry, func() {}
	}
	over, mine := c.join(name)
	if mine {
		c.miss()
		return nil, sync.OnceFunc(func() { c.release(name, over) })
	}
	select {
	case <-over:
		entry = c.lookUp(name, k)
	case <-ctx.Done():
	}
	if entry == nil { // it came to nothing: whoever waited does not wait again
		c.miss()
	}
	return entry, func() {}
}

// join takes part in a compile step, or begins one.
func (c *Cache) join(name string) (over chan struct{}, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if over, ok := c.making[name]; ok {
		return over, false
	}
	over = make(chan struct{})
	c.making[name] = over
	return over, true
}

func (c *Cache) release(name string, over chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.making, name)
	close(over)
}

func (c *Cache) miss() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Misses++
}

// lookUp finds an entry and checks all of it.
func (c *Cache) lookUp(name string, k Key) *Entry {
	c.mu.Lock()
	e, ok := c.items[name]
	if ok {
		c.order.MoveToFront(e)
	}
	c.mu.Unlock()
	if !ok {
		return nil
	}
	entry, err := readEntry(c.root, name, k)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.stats.Hits++
		now := time.Now()
		_ = c.root.Chtimes(name, now, now) // the order after a restart; it may just have gone
		return entry
	}
	if c.items[name] == e { // else it went meanwhile, or there is a new one
		c.remove(e)
		if !errors.Is(err, fs.ErrNotExist) {
			c.stats.Damaged++
			c.log.Warn("a damaged entry of the compile cache was dropped", "entry", name, "error", err)
		}
	}
	return nil
}

// keep makes a written file an entry.
func (c *Cache) keep(temporary, name string, size int64) error {
	i := &item{name, onDisk(size)}
	if i.size > min(c.o.Bytes, c.o.TenantBytes) {
		return fmt.Errorf("%w: %d bytes are more than a tenant's share", ErrNotKept, size)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.root.Rename(temporary, name); err != nil {
		return err
	}
	if old, ok := c.items[name]; ok { // the file is the new one's already
		was, _ := c.order.Remove(old).(*item) // nothing else is in the list
		c.count(was, -1)
	}
	c.items[name] = c.order.PushFront(i)
	c.count(i, 1)
	c.evict()
	return nil
}

// Stats returns the counts.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}
