package hostfiles

import (
	"bytes"
	"io"
)

// sparseBlock is the unit in which zeros become holes: what file systems allocate.
const sparseBlock = 4 << 10

var zeroBlock [sparseBlock]byte

// sparseFile writes a new file and leaves holes where whole blocks of zeros come: a
// file that takes no room inside a sandbox takes none here.
type sparseFile struct {
	file interface {
		io.WriterAt
		Truncate(size int64) error
	}
	size int64 // of what came
}

// Write implements io.Writer.
func (s *sparseFile) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		piece := p[done:min(len(p), done+sparseBlock-int(s.size%sparseBlock))]
		if !bytes.Equal(piece, zeroBlock[:len(piece)]) {
			piece = p[done:s.filled(p, done)]
			if n, err := s.file.WriteAt(piece, s.size); err != nil {
				s.size += int64(n)
				return done + n, err
			}
		}
		done += len(piece)
		s.size += int64(len(piece))
	}
	return len(p), nil
}

// filled is where the next whole block of zeros begins in p, so that what lies
// before it is written at once.
func (s *sparseFile) filled(p []byte, from int) int {
	at := from + sparseBlock - int(s.size%sparseBlock)
	for at+sparseBlock <= len(p) && !bytes.Equal(p[at:at+sparseBlock], zeroBlock[:]) {
		at += sparseBlock
	}
	if at+sparseBlock > len(p) {
		return len(p)
	}
	return at
}

// end gives the file its length, which a hole at its end does not.
func (s *sparseFile) end() error { return s.file.Truncate(s.size) }
