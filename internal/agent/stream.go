//go:build linux

package agent

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"pinfold/internal/wire"
)

// pipes are the standard streams of a process that is being started.
type pipes struct {
	theirs [wire.Streams]int       // what becomes descriptor 0, 1 and 2
	ours   [wire.Streams]*pollFile // our ends; 0 is nil without stdin
	// terminal says that they are one terminal: ours are the same, without 2,
	// and so are theirs.
	terminal bool
}

// newPipes makes them. Every descriptor is closed by any exec.
func (a *agent) newPipes(req *wire.StartRequest) (*pipes, error) {
	if req.Terminal != nil {
		return a.newTerminal(req)
	}
	p, err := newPipes(req.Stdin)
	if err == nil && a.hello.SwitchUser {
		if err = p.giveAway(req); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, err
}

// giveAway makes the pipes the user's, who could otherwise not open them by their
// names: /dev/stdout, /dev/stderr, /proc/self/fd.
func (p *pipes) giveAway(req *wire.StartRequest) error {
	for s, fd := range p.theirs {
		if p.ours[s] == nil { // /dev/null
			continue
		}
		if err := sysFchown(fd, req.UID, req.GID); err != nil {
			return err
		}
	}
	return nil
}

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
		p.theirs[stream], err = sysOpen("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	}
	var ends [2]int // read, write
	if err := sysPipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	ours, theirs := ends[0], ends[1]
	if stream == int(wire.Stdin) {
		ours, theirs = theirs, ours
	}
	p.theirs[stream] = theirs
	if p.ours[stream], err = newPollFile(ours, "stdio"); err != nil {
		_ = sysClose(ours)
	}
	return err
}

// closeTheirs closes the process's ends on our side.
func (p *pipes) closeTheirs() {
	for s, fd := range p.theirs {
		if fd >= 0 && (s == 0 || !p.terminal) {
			_ = sysClose(fd)
		}
		p.theirs[s] = -1
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

// chunk is how much of a stream or a file is read at once.
const chunk = 60 << 10

// streams are the running pumps of one process.
type streams struct {
	c     *channel
	pipes *pipes
	turn  sync.Mutex // held from a read of stdout until what it gave is sent
	pumps int        // running
	held  chan bool  // one answer of each pump
}

func startStreams(c *channel, p *pipes) *streams {
	s := &streams{c: c, pipes: p, pumps: 1, held: make(chan bool, wire.Streams)}
	if c.in != nil {
		s.pumps++
		go s.pumpIn()
	}
	go s.pumpOut(wire.Stdout)
	if p.terminal {
		c.a.frame(wire.AppendEOF(nil, c.id, wire.Stderr))
	} else {
		s.pumps++
		go s.pumpOut(wire.Stderr)
	}
	return s
}

// drain is called when the process has ended. It waits until the output has
// ended too, or cuts it after the grace, and says whether it had to.
func (s *streams) drain() (held bool) {
	if s.c.in != nil {
		if s.pipes.terminal { // which is still read
			_ = s.pipes.ours[wire.Stdin].SetWriteDeadline(time.Unix(1, 0))
		} else {
			_ = s.pipes.ours[wire.Stdin].Close()
		}
		s.c.in.Close()
	}
	until := time.Now().Add(wire.OutputGrace)
	for _, f := range s.pipes.ours[wire.Stdout:] {
		if f != nil {
			_ = f.SetReadDeadline(until) // closed by its pump: nothing to cut
		}
	}
	for range s.pumps {
		held = <-s.held || held
	}
	return held
}

// endOfInput is what stands for the end of the input on a terminal.
const endOfInput = 0x04

// pumpIn writes what the host sends to the process's stdin. A process that
// has closed its stdin loses nothing but that: the host is told to stop.
func (s *streams) pumpIn() {
	f := s.pipes.ours[wire.Stdin]
	defer func() {
		if s.pipes.terminal {
			_, _ = f.Write([]byte{endOfInput}) // nobody reads it any more: no loss
		} else {
			_ = f.Close() // which is how the process sees the end
		}
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
	f, credit, pieces := s.pipes.ours[stream], s.c.out[stream], &s.c.a.pieces
	turn := &s.turn
	if stream == wire.Stderr {
		turn = nil // it waits for no turn before something has come
	}
	left := -1 // once the stream is cut: how much to take of what is in the pipe
	for left != 0 {
		n := credit.Take(chunk)
		if n == 0 { // the host takes no more
			break
		}
		most := n
		if left > 0 {
			most = min(n, left)
		}
		frame, k, err := f.readFrame(pieces, most, left > 0, turn)
		if left > 0 {
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
		if turn == nil {
			s.turn.Lock()
			s.stdoutFirst()
		}
		s.c.sendPiece(stream, frame, k)
		s.turn.Unlock()
	}
	s.ended(stream, left == 0 && s.stillHeld(f))
}

// stdoutFirst sends what waits in stdout, as far as the host takes it. Of two pipes
// in which there is something nobody knows which was written to first; most programs
// print before they complain. Stderr's pump calls it with what it has read in its
// hands and the turn: so whatever was written to stdout before that goes out before.
func (s *streams) stdoutFirst() {
	f, credit, pieces := s.pipes.ours[wire.Stdout], s.c.out[wire.Stdout], &s.c.a.pieces
	for left := f.pending(); left > 0; {
		n := credit.TakeUnless(func() bool { return true }, min(left, chunk))
		if n == 0 {
			return
		}
		frame, k, err := f.readFrame(pieces, n, true, nil)
		credit.Return(n - k)
		if err != nil {
			return
		}
		s.c.sendPiece(wire.Stdout, frame, k)
		left -= k
	}
}

// sendPiece sends a data frame of k bytes and gives it back.
func (c *channel) sendPiece(stream uint8, frame *[]byte, k int) {
	b := (*frame)[:wire.DataHeader+k]
	wire.PutDataHeader(b, c.id, stream)
	c.a.frame(b)
	c.a.pieces.Put(frame)
}

// stillHeld says whether somebody still has the other end of an empty pipe,
// or has written more than was taken.
func (s *streams) stillHeld(f *pollFile) bool {
	return !errors.Is(f.readByte(), io.EOF)
}

// ended closes our end, so that a process that still writes learns of it, and
// tells the host. A terminal stays until the process has ended: to close it
// would hang up on a process that has only closed its own end.
func (s *streams) ended(stream uint8, held bool) {
	if !s.pipes.terminal {
		_ = s.pipes.ours[stream].Close()
	}
	s.c.a.frame(wire.AppendEOF(nil, s.c.id, stream))
	s.held <- held
}
