//go:build linux

package agent

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
)

// pipes are the standard streams of a process that is being started.
type pipes struct {
	theirs [wire.Streams]int       // what becomes descriptor 0, 1 and 2
	ours   [wire.Streams]*pollFile // our ends; 0 is nil without stdin
}

// newPipes makes them. Every descriptor is closed by any exec.
func newPipes(stdin bool) (*pipes, error) {
	p := &pipes{theirs: [wire.Streams]int{-1, -1, -1}}
	for s := range p.theirs {
		if err := p.open(s, stdin); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

func (p *pipes) open(stream int, stdin bool) (err error) {
	if stream == int(wire.Stdin) && !stdin {
		p.theirs[stream], err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	}
	var ends [2]int // read, write
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	ours, theirs := ends[0], ends[1]
	if stream == int(wire.Stdin) {
		ours, theirs = theirs, ours
	}
	p.theirs[stream] = theirs
	if p.ours[stream], err = newPollFile(ours, "stdio"); err != nil {
		_ = unix.Close(ours)
	}
	return err
}

// closeTheirs closes the process's ends on our side.
func (p *pipes) closeTheirs() {
	for s, fd := range p.theirs {
		if fd >= 0 {
			_ = unix.Close(fd)
			p.theirs[s] = -1
		}
	}
}

// close closes everything that is still open.
func (p *pipes) close() {
	p.closeTheirs()
	for _, f := range p.ours {
		if f != nil {
			_ = f.Close()
		}
	}
}

// grace is how long the output of a process is read after its end, when
// another process still holds it.
const grace = 250 * time.Millisecond

// chunk is how much of a stream is read or written at once.
const chunk = 32 << 10

// streams are the running pumps of one process.
type streams struct {
	c     *channel
	pipes *pipes
	pumps int       // running
	held  chan bool // one answer of each pump
}

func startStreams(c *channel, p *pipes) *streams {
	s := &streams{c: c, pipes: p, pumps: 2, held: make(chan bool, wire.Streams)}
	if c.in != nil {
		s.pumps++
		go s.pumpIn()
	}
	go s.pumpOut(wire.Stdout)
	go s.pumpOut(wire.Stderr)
	return s
}

// drain is called when the process has ended. It waits until the output has
// ended too, or cuts it after the grace, and says whether it had to.
func (s *streams) drain() (held bool) {
	if s.c.in != nil {
		s.c.in.Close()
		_ = s.pipes.ours[wire.Stdin].Close()
	}
	until := time.Now().Add(grace)
	for _, f := range s.pipes.ours[wire.Stdout:] {
		_ = f.SetReadDeadline(until) // closed by its pump: nothing to cut
	}
	for range s.pumps {
		held = <-s.held || held
	}
	return held
}

// pumpIn writes what the host sends to the process's stdin. A process that
// has closed its stdin loses nothing but that: the host is told to stop.
func (s *streams) pumpIn() {
	f := s.pipes.ours[wire.Stdin]
	defer func() {
		_ = f.Close() // which is how the process sees the end
		s.held <- false
	}()
	for p := s.c.in.Next(); p != nil; p = s.c.in.Next() {
		if _, err := f.Write(p); err != nil {
			s.c.in.Close()
			s.c.a.frame(wire.AppendEOF(nil, s.c.id, wire.Stdin))
			return
		}
		s.c.received()
	}
}

// pumpOut sends what the process writes. It reads only what it may send, so a
// slow host stops the process and not the agent's memory.
func (s *streams) pumpOut(stream uint8) {
	f, credit, buf := s.pipes.ours[stream], s.c.out[stream], make([]byte, chunk)
	left := -1 // once the stream is cut: how much to take of what is in the pipe
	for left != 0 {
		n := credit.Take(len(buf))
		if n == 0 { // the host takes no more
			break
		}
		var k int
		var err error
		if left < 0 {
			k, err = f.Read(buf[:n])
		} else {
			k, err = f.ReadNow(buf[:min(n, left)])
			left -= k
		}
		credit.Return(n - k)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if left = f.pending(); left == 0 {
				left = 1 // to see an end that has come meanwhile
			}
			continue
		}
		if err != nil {
			s.ended(stream, !errors.Is(err, io.EOF))
			return
		}
		s.c.a.frame(wire.AppendData(make([]byte, 0, wire.HeaderSize+1+k), s.c.id, stream, buf[:k]))
	}
	s.ended(stream, left == 0 && s.stillHeld(f))
}

// stillHeld says whether somebody still has the other end of an empty pipe,
// or has written more than was taken.
func (s *streams) stillHeld(f *pollFile) bool {
	_, err := f.ReadNow(make([]byte, 1))
	return !errors.Is(err, io.EOF)
}

// ended closes our end, so that a process that still writes learns of it, and
// tells the host.
func (s *streams) ended(stream uint8, held bool) {
	_ = s.pipes.ours[stream].Close()
	s.c.a.frame(wire.AppendEOF(nil, s.c.id, stream))
	s.held <- held
}
