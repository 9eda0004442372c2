//go:build linux

// Package idblock hands out blocks of user and group ids, one block to one
// sandbox at a time, across all processes of this host.
//
// All blocks are bytes of one file. A block is held by a lock on its byte, which
// the kernel gives back when its holder dies, however it dies. The byte says
// whether the ids are in use: a block whose last holder died without saying that
// it had cleaned up is handed out again only after the caller's check has found
// that nothing is left of it.
//
// Whatever leases ids of this range must do so in this file and in this format: two
// that do not see each other's leases could give two sandboxes one id. No release
// has had another one; a later one must respect this one's locks.
//
// It is for processes with the right to map any id (root). It reads no
// /etc/subuid; an ordinary user's ids are package userns' business.
package idblock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/highfd"
)

// The ids from First to First+Count*Size-1 are Pinfold's. They lie above the
// range of systemd's containers (524288 to 1879048191) and below 2^31-2^16, which
// some tools take for negative. Source: systemd's UIDS-GIDS documentation. There are
// as many sandboxes on a host as blocks, at most; half of the usual 65,536 ids is more
// than any system's own users and people need (package userns maps "nobody" as well).
const (
	First = 1_879_048_192
	Size  = 32_768
	Count = 8188
)

// maxAttempts bounds how often New starts again because another process removed
// the file in between.
const maxAttempts = 100

// presence is the byte after the blocks: every pool that uses the file shares a
// lock on it, so that the last one can tell that it is.
const presence = Count

// leaving is the byte after that: who holds its lock may look whether it is the last one.
// Two that looked at the same time would each see the other, and leave the file behind.
const leaving = Count + 1

// ErrNone means that every block is in use.
var ErrNone = errors.New("every block of user ids is in use")

// Pool hands out blocks. It is safe for concurrent use; several processes may
// use the same file.
type Pool struct {
	file string
	fd   int
	gone func(base int) bool

	mu   sync.Mutex
	next int
	held [Count]bool // by this pool, whose locks do not keep out itself
}

// New returns a pool that keeps its locks in a file, which it makes when needed,
// with its directory (mode 0700). gone is asked about a block whose last holder died while
// holding it: it says whether no process has one of the ids any more.
func New(file string, gone func(base int) bool) (*Pool, error) {
	p := &Pool{file: file, gone: gone, next: int(time.Now().UnixNano()/1000) % Count} // any start will do
	for range maxAttempts {
		err := os.MkdirAll(filepath.Dir(file), 0o700)
		if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOENT) {
			continue // the directory was removed meanwhile by a process that was the last one
		}
		if err != nil {
			return nil, err
		}
		fd, err := unix.Open(file, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if errors.Is(err, unix.ENOENT) {
			continue // likewise
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: file, Err: err}
		}
		if err := lock(fd, unix.F_OFD_SETLKW, unix.F_RDLCK, presence); err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("lock %s: %w", file, err)
		}
		// The last user may have removed it between our open and our lock; a lock
		// on a name that is gone protects nothing.
		var mine, there unix.Stat_t
		if unix.Fstat(fd, &mine) == nil && unix.Lstat(file, &there) == nil && mine.Ino == there.Ino && mine.Dev == there.Dev {
			p.fd = highfd.Move(fd)
			return p, nil
		}
		_ = unix.Close(fd)
	}
	return nil, fmt.Errorf("%s is removed again and again", file)
}

// Close gives the file back, and removes it when nobody uses it and no block
// was left in use, and its directory when it was the last in there. A block that is
// released later stays marked as in use, until Sweep or Lease of another pool finds that
// its users are gone.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	if p.leave() && lock(p.fd, unix.F_OFD_SETLK, unix.F_WRLCK, presence) == nil && p.clean() {
		if err = os.Remove(p.file); err == nil {
			_ = os.Remove(filepath.Dir(p.file)) // if it is empty
		}
	}
	err = errors.Join(err, unix.Close(p.fd))
	p.fd = -1 // the number may soon be another file's
	return err
}

// leave waits until nobody else looks whether it is the last one, which takes no time unless
// that process was stopped in the middle of it: then the file stays.
func (p *Pool) leave() bool {
	for range 1000 {
		if lock(p.fd, unix.F_OFD_SETLK, unix.F_WRLCK, leaving) == nil { // until the descriptor is closed
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// clean says whether no block is in use.
func (p *Pool) clean() bool {
	all := make([]byte, Count)
	n, err := unix.Pread(p.fd, all, 0)
	if err != nil {
		return false
	}
	for _, used := range all[:n] {
		if used != 0 {
			return false
		}
	}
	return true
}

// BaseOf returns the first id of the block that an id is in.
func BaseOf(id int) int { return id - (id-First)%Size }

// Block is a held block of ids: Base to Base+Size-1.
type Block struct {
	Base int
	pool *Pool // nil after Release
}

// Lease takes a free block.
func (p *Pool) Lease() (*Block, error) {
	for range Count {
		n := p.reserve()
		if n < 0 {
			break
		}
		ok, err := p.take(n)
		if err == nil && ok {
			err = p.mark(n, 1)
		}
		if err == nil && ok {
			return &Block{Base: First + n*Size, pool: p}, nil
		}
		p.giveUp(n)
		if err != nil {
			return nil, err
		}
	}
	return nil, ErrNone
}

// reserve returns the next block that this pool does not hold, -1 for none.
func (p *Pool) reserve() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range Count {
		p.next = (p.next + 1) % Count
		if !p.held[p.next] {
			p.held[p.next] = true
			return p.next
		}
	}
	return -1
}

// take locks a reserved block and makes sure that its last user is gone.
func (p *Pool) take(n int) (ok bool, err error) {
	if ok, err = p.claim(n); !ok {
		return false, err
	}
	used, err := p.used(n)
	return err == nil && (!used || p.gone(First+n*Size)), err
}

// claim locks a reserved block, unless somebody else has.
func (p *Pool) claim(n int) (ok bool, err error) {
	err = lock(p.fd, unix.F_OFD_SETLK, unix.F_WRLCK, n)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock %s: %w", p.file, err)
	}
	return true, nil
}

// used reads a block's byte. What lies behind the end was never used.
func (p *Pool) used(n int) (bool, error) {
	var b [1]byte
	if _, err := unix.Pread(p.fd, b[:], int64(n)); err != nil {
		return false, fmt.Errorf("read %s: %w", p.file, err)
	}
	return b[0] != 0, nil
}

// mark writes a block's byte.
func (p *Pool) mark(n int, used byte) error {
	if _, err := unix.Pwrite(p.fd, []byte{used}, int64(n)); err != nil {
		return fmt.Errorf("write %s: %w", p.file, err)
	}
	return nil
}

// giveUp unlocks a block, whatever its byte says.
func (p *Pool) giveUp(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unlock(n)
}

// unlock is giveUp for who holds p.mu.
func (p *Pool) unlock(n int) {
	_ = lock(p.fd, unix.F_OFD_SETLK, unix.F_UNLCK, n) // it cannot fail for want of the lock
	p.held[n] = false
}

// Release gives the block back. The caller has made sure that no process and
// no file of the sandbox is left. On error it is still held.
func (b *Block) Release() error {
	p := b.pool
	if p == nil {
		return nil
	}
	n := (b.Base - First) / Size
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd >= 0 {
		if err := p.mark(n, 0); err != nil {
			return err
		}
		p.unlock(n)
	}
	b.pool = nil
	return nil
}

// Sweep frees the blocks whose users are dead and gone, and names them. Processes
// that are just ending after their owner's death are waited for, that long in all.
func (p *Pool) Sweep(timeout time.Duration) (freed []string, err error) {
	deadline := time.Now().Add(timeout)
	all := make([]byte, Count)
	length, err := unix.Pread(p.fd, all, 0)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", p.file, err)
	}
	for n, used := range all[:length] {
		if used == 0 || !p.reserveThis(n) {
			continue
		}
		ok, takeErr := p.claim(n)
		if ok && p.awaitGone(n, deadline) {
			takeErr = p.mark(n, 0)
			freed = append(freed, fmt.Sprintf("ids %d to %d", First+n*Size, First+(n+1)*Size-1))
		}
		p.giveUp(n)
		err = errors.Join(err, takeErr)
	}
	return freed, err
}

// awaitGone waits for the end of a block's processes.
func (p *Pool) awaitGone(n int, deadline time.Time) bool {
	for !p.gone(First + n*Size) {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	return true
}

// reserveThis reserves a block unless this pool holds it.
func (p *Pool) reserveThis(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := !p.held[n]
	p.held[n] = true
	return free
}

// lock locks one byte, or unlocks it, for the open file (not the process: F_OFD_SETLK).
func lock(fd, command int, kind int16, at int) error {
	for {
		err := unix.FcntlFlock(uintptr(fd), command, &unix.Flock_t{Type: kind, Start: int64(at), Len: 1})
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
