package store

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"pinfold/sandbox"
)

// roomWanted is how much must fit for the store to count as ready: a run's
// records and a small result, in bytes. The database's log can have room of its
// own on a full disk, for a while; what comes after that is refused.
const roomWanted = 256 << 10

// roomFile is written and removed to see whether there is room: asking the file
// system how much is free knows nothing of quotas. It has its name for a moment
// only, and one name, so that what a crash leaves is used again.
const roomFile = ".room"

// Ready says why nothing new could be kept now, or nil. What it says names no
// directory: whoever asks need not be known.
func (s *Store) Ready(context.Context) error {
	select {
	case <-s.closing:
		return closed()
	default:
	}
	s.room.Lock()
	defer s.room.Unlock()
	err := tryRoom(filepath.Join(s.dir, roomFile))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || diskFull(s.dir):
		return &sandbox.Error{
			Code: sandbox.CodeInsufficient, Message: "the disk of the state directory is full", Err: err,
			Hint: "make room there; nothing else is needed",
		}
	}
	return &sandbox.Error{
		Code: sandbox.CodeResourceUnavailable, Message: "the state directory cannot be written", Err: err,
		Hint: "it must be on a writable file system and belong to the user who runs pinfold",
	}
}

func tryRoom(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer drop(f)
	if err := os.Remove(name); err != nil {
		return err
	}
	_, err = io.CopyN(f, zeros{}, roomWanted)
	return err
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
