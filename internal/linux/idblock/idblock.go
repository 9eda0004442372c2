//go:build linux

// Package idblock hands out blocks of user and group ids, one block to one
// sandbox at a time, across all processes of this host.
//
// A block is held by a lock on a file (flock), which the kernel gives back when
// its holder dies, however it dies. The file also names what the holder made
// with the ids: a block whose last holder died without saying that it had
// cleaned up is handed out again only after the caller's check has found that
// nothing is left of it.
//
// It is for processes with the right to map any id (root). It reads no
// /etc/subuid; an ordinary user's ids are package userns' business.
package idblock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/linux/highfd"
)

// The ids from First to First+Count*Size-1 are Pinfold's. They lie above the
// range of systemd's containers (524288 to 1879048191) and below 2^31-2^16, which
// some tools take for negative. Source: systemd's UIDS-GIDS documentation.
const (
	First = 1_879_048_192
	Size  = 65_536
	Count = 4094
)

// ErrNone means that every block is in use.
var ErrNone = errors.New("every block of user ids is in use")

// Pool hands out blocks. It is safe for concurrent use; several processes may
// use the same directory.
type Pool struct {
	dir  string
	next atomic.Uint32
	gone func(base int) bool
}

// New returns a pool that keeps its locks in dir, which it makes when needed
// (mode 0700). gone is asked about a block whose last holder died while
// holding it: it says whether no process has one of the ids any more.
func New(dir string, gone func(base int) bool) (*Pool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &Pool{dir: dir, gone: gone}
	p.next.Store(uint32(time.Now().UnixNano()) % Count) //nolint:gosec // any start will do
	return p, nil
}

// Block is a held block of ids: Base to Base+Size-1.
type Block struct {
	Base int
	name string
	lock int // the locked file, -1 after Release
}

// Lease takes a free block and records its owner, a name of at most 255 bytes.
func (p *Pool) Lease(owner string) (*Block, error) {
	for range Count {
		n := int(p.next.Add(1) % Count)
		b, err := p.try(n, owner)
		if err != nil {
			return nil, err
		}
		if b != nil {
			return b, nil
		}
	}
	return nil, ErrNone
}

// try takes block n, or returns nil when somebody has it.
func (p *Pool) try(n int, owner string) (*Block, error) {
	name := filepath.Join(p.dir, strconv.Itoa(First+n*Size))
	fd, err := open(name, unix.O_CREAT)
	if errors.Is(err, os.ErrNotExist) { // the directory was removed by a process that was the last one
		if err = os.MkdirAll(p.dir, 0o700); err == nil {
			fd, err = open(name, unix.O_CREAT)
		}
	}
	if err != nil {
		return nil, err
	}
	if !p.take(fd, name, First+n*Size) {
		return nil, unix.Close(fd)
	}
	if _, err := unix.Pwrite(fd, []byte(owner), 0); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("record the owner of %s: %w", name, err)
	}
	return &Block{Base: First + n*Size, name: name, lock: highfd.Move(fd)}, nil
}

// open opens a block's file.
func open(name string, flags int) (int, error) {
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|flags, 0o600)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// take locks the file and makes sure that its last owner is gone.
func (p *Pool) take(fd int, name string, base int) bool {
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	// The file may have been removed by its last holder between our open and
	// our lock; a lock on a name that is gone protects nothing.
	var mine, there unix.Stat_t
	if unix.Fstat(fd, &mine) != nil || unix.Lstat(name, &there) != nil || mine.Ino != there.Ino || mine.Dev != there.Dev {
		return false
	}
	// A file with a content is that of a holder who died.
	return mine.Size == 0 || p.gone(base) && unix.Ftruncate(fd, 0) == nil
}

// Release gives the block back. The caller has made sure that no process and
// no file of the sandbox is left.
func (b *Block) Release() error {
	if b.lock < 0 {
		return nil
	}
	lock := b.lock
	b.lock = -1
	return errors.Join(os.Remove(b.name), unix.Close(lock))
}

// Held returns the bases of the blocks in use by living processes, for tests
// and reports.
func (p *Pool) Held() ([]int, error) {
	entries, err := os.ReadDir(p.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var held []int
	for _, e := range entries {
		if base, convErr := strconv.Atoi(e.Name()); convErr == nil {
			held = append(held, base)
		}
	}
	return held, err
}

// Sweep removes the files of blocks whose owners are dead and gone.
func (p *Pool) Sweep() (removed []string, err error) {
	held, err := p.Held()
	for _, base := range held {
		name := filepath.Join(p.dir, strconv.Itoa(base))
		fd, openErr := open(name, 0)
		if openErr != nil {
			continue
		}
		if p.take(fd, name, base) {
			removed = append(removed, name)
			err = errors.Join(err, os.Remove(name))
		}
		err = errors.Join(err, unix.Close(fd))
	}
	return removed, err
}
