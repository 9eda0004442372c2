package api

import (
	"errors"
	"fmt"
	"io"
	"os"

	"pinfold/sandbox"
)

// heldBody is how much of a body is kept in memory while it comes. What is
// longer waits in a file without a name until it is whole, so that a body which
// is refused in the end has cost no memory, and one that is taken costs its own
// size once.
const heldBody = 1 << 20

// bodyReader reads one JSON body, never into more memory than has come, and
// accounts for it. The caller gives the share back.
type bodyReader struct {
	in    io.Reader
	share *bodyShare
	limit int64
	dir   string // for the file

	held []byte   // what has come since the last write to the file
	file *os.File // nil: there is none
	size int64    // of what is in the file
}

// read returns the whole body. announced is what the client says its length is.
func (b *bodyReader) read(announced int64) ([]byte, error) {
	defer b.close()
	size := min(freeBody, b.limit+1)
	if announced > 0 {
		size = min(size, announced+1)
	}
	b.held = make([]byte, 0, size)
	for {
		if !b.share.growTo(b.size + int64(cap(b.held))) {
			return nil, &sandbox.Error{Code: sandbox.CodeBusy, Message: "too many large requests at once", Hint: "try again in a moment"}
		}
		switch ended, err := b.fill(); {
		case err != nil:
			return nil, err
		case ended:
			return b.whole()
		}
		if err := b.makeRoom(); err != nil {
			return nil, err
		}
	}
}

// fill reads until the buffer is full, or says that the body has ended.
func (b *bodyReader) fill() (ended bool, err error) {
	for len(b.held) < cap(b.held) {
		n, err := b.in.Read(b.held[len(b.held):cap(b.held)])
		b.held = b.held[:len(b.held)+n]
		switch {
		case b.size+int64(len(b.held)) > b.limit:
			return false, bodyTooLarge(b.limit)
		case errors.Is(err, io.EOF):
			return true, nil
		case err != nil:
			return false, readError(err)
		}
	}
	return false, nil
}

// makeRoom doubles a small buffer, and empties a large one into the file.
func (b *bodyReader) makeRoom() error {
	if cap(b.held) < heldBody {
		b.held = append(make([]byte, 0, min(2*int64(cap(b.held)), heldBody, b.limit+1)), b.held...)
		return nil
	}
	if b.file == nil {
		file, err := os.CreateTemp(b.dir, "pinfold-body-*")
		if err != nil {
			return noPlace(err)
		}
		b.file = file
		_ = os.Remove(file.Name()) // the worst is an empty name that stays
	}
	if _, err := b.file.Write(b.held); err != nil {
		return noPlace(err)
	}
	b.size += int64(len(b.held))
	b.held = b.held[:0]
	return nil
}

// whole puts the body together.
func (b *bodyReader) whole() ([]byte, error) {
	if b.file == nil {
		return b.held, nil
	}
	body := make([]byte, b.size+int64(len(b.held)))
	if _, err := io.ReadFull(io.NewSectionReader(b.file, 0, b.size), body[:b.size]); err != nil {
		return nil, noPlace(err)
	}
	copy(body[b.size:], b.held)
	return body, nil
}

func (b *bodyReader) close() {
	if b.file != nil {
		_ = b.file.Close()
	}
}

func noPlace(err error) error {
	return &sandbox.Error{
		Code: sandbox.CodeInsufficient, Message: "no place to keep the request meanwhile", Err: fmt.Errorf("keeping a body: %w", err),
		Hint: "make room on the disk of the server's state directory",
	}
}
